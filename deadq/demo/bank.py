"""The bank: what the task depends on, in a process of its own. ``python -m deadq.demo.bank FD``.

A plain one, that does what it is told as often as it is told so. It knows no idempotency keys, but
it keeps the highest fence that has been named for each payment, and refuses lower ones. That is
enough for a caller to pay once: it names its fence and asks whether the payment was made
(:meth:`Teller.authorize`), and makes it only if it was not (:meth:`Teller.capture`). Whoever asked
before, and comes back too late, has a lower fence.

Everything that is asked of it stands in its ledger, with the answer; a payment that were made twice
would stand there twice.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import socket
import sqlite3
import sys
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final, Self

USUAL_S: Final = 0.14
"""How long an authorization takes, unless something is wrong with the bank (s)."""
PATIENCE_S: Final = 30.0
"""How long a caller waits for an answer (s)."""

_TABLES: Final = {
    "paid": "key TEXT, payment TEXT, number TEXT, fence INTEGER",
    "asked": "at REAL, teller TEXT, payment TEXT, fence INTEGER, what TEXT, answer TEXT",
}


class StaleError(Exception):
    """Somebody has named a higher fence for this payment."""


class Bank:
    """Payments, and what is known of each."""

    def __init__(self, ledger: sqlite3.Connection) -> None:
        self._ledger = ledger
        self._highest: dict[str, int] = {}
        self._number: dict[str, str] = {}
        self._takes_s = USUAL_S

    async def answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Do what is asked."""
        match asked["what"]:
            case "pace":
                self._takes_s = asked["seconds"]
                return {}
            case "authorize":
                answer = self._authorize(asked["payment"], asked["fence"])
                self._note(asked, answer)
                await asyncio.sleep(self._takes_s)
                return answer
            case _:
                answer = self._capture(asked)
                self._note(asked, answer)
                return answer

    def _authorize(self, payment: str, fence: int) -> dict[str, Any]:
        """From now on lower fences are refused: what is known of the payment will stay so."""
        if fence < self._highest.get(payment, 0):
            return {"stale": True}
        self._highest[payment] = fence
        return {"number": self._number.get(payment, "")}

    def _capture(self, asked: dict[str, Any]) -> dict[str, Any]:
        payment, fence = asked["payment"], asked["fence"]
        if fence < self._highest.get(payment, 0):
            return {"stale": True}
        number = self._number[payment] = secrets.token_hex(8)
        self._ledger.execute(
            "INSERT INTO paid VALUES (?, ?, ?, ?)", (asked["key"], payment, number, fence)
        )
        return {"number": number}

    def _note(self, asked: dict[str, Any], answer: dict[str, Any]) -> None:
        word = "stale" if "stale" in answer else answer["number"]
        self._ledger.execute(
            "INSERT INTO asked VALUES (?, ?, ?, ?, ?, ?)",
            (time.time(), asked["teller"], asked["payment"], asked["fence"], asked["what"], word),
        )


class Teller:
    """A connection to the bank, for blocking code. Every call waits for its answer.

    Raises:
        OSError: the bank is not there, or does not answer.
    """

    def __init__(self, address: str, name: str = "") -> None:
        host, _, port = address.rpartition(":")
        self._name = name
        self._socket = socket.create_connection((host, int(port)), PATIENCE_S)
        self._lines = self._socket.makefile("rwb")

    def authorize(self, payment: str, fence: int) -> str:
        """The number of the payment if it has been made; else an empty text, and it may be.

        Raises:
            StaleError: a higher fence has been named.
        """
        return self._ask(what="authorize", payment=payment, fence=fence)

    def capture(self, key: str, payment: str, fence: int) -> str:
        """Make the payment; returns its number.

        Raises:
            StaleError: a higher fence has been named; it was not made.
        """
        return self._ask(what="capture", key=key, payment=payment, fence=fence)

    def pace(self, seconds: float) -> None:
        """From now on an authorization takes so long."""
        self._ask(what="pace", seconds=seconds)

    def close(self) -> None:
        self._lines.close()
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, **asked: Any) -> str:
        self._lines.write(json.dumps({"teller": self._name, **asked}).encode() + b"\n")
        self._lines.flush()
        line = self._lines.readline()
        if not line:
            msg = "the bank has hung up"
            raise ConnectionError(msg)
        answer = json.loads(line)
        if "stale" in answer:
            raise StaleError
        return str(answer.get("number", ""))


def open_ledger(file: Path) -> sqlite3.Connection:
    """The ledger, made if need be; every statement is a transaction of its own."""
    ledger = sqlite3.connect(file, timeout=5.0, isolation_level=None)
    ledger.execute("PRAGMA journal_mode = WAL")  # who reads does not keep the bank waiting
    ledger.execute("PRAGMA synchronous = OFF")
    for table, columns in _TABLES.items():
        ledger.execute(f"CREATE TABLE IF NOT EXISTS {table} ({columns})")
    return ledger


async def serve(listener: socket.socket, ledger: sqlite3.Connection) -> None:
    """Answer on a socket that somebody else has opened, until cancelled."""
    bank = Bank(ledger)

    async def attend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer), suppress(ConnectionError):  # a teller that was killed
            while line := await reader.readline():
                answer = await bank.answer(json.loads(line))
                writer.write(json.dumps(answer).encode() + b"\n")

    server = await asyncio.start_server(attend, sock=listener)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    with closing(open_ledger(Path(sys.argv[2]))) as opened:
        asyncio.run(serve(socket.socket(fileno=int(sys.argv[1])), opened))
