"""The queue and its task: what the web tier and every worker import.

The task books an order: it takes its time, and leaves one row in a ledger that the demo reads
afterwards, to see that what was accepted once was done once.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final, TypedDict

from .. import Queue, current_job

SERVICE_S: Final = 0.2
"""How long one order takes (s)."""

LEDGER_VARIABLE: Final = "DEADQ_DEMO_LEDGER"
"""The environment variable that names the ledger's file."""


class Receipt(TypedDict):
    """What a customer gets, once."""

    order: str
    cents: int
    number: str


queue = Queue("demo", capacity=72)
_ledger: list[sqlite3.Connection] = []


@queue.lifespan
def ledger() -> Iterator[None]:
    """Opened before a worker's first job, closed after its last."""
    with closing(open_ledger(Path(os.environ[LEDGER_VARIABLE]))) as opened:
        _ledger.append(opened)
        yield
        _ledger.remove(opened)


@queue.task(within=2.0)
async def book(order: str, cents: int) -> Receipt:
    """Book an order; cancelled at its deadline."""
    await asyncio.sleep(SERVICE_S)
    receipt = Receipt(order=order, cents=cents, number=secrets.token_hex(8))
    job = current_job()
    job.check()
    _ledger[0].execute("INSERT INTO booked VALUES (?, ?)", (job.key, receipt["number"]))
    return receipt


def open_ledger(file: Path) -> sqlite3.Connection:
    """The ledger, made if need be; every statement is a transaction of its own."""
    connection = sqlite3.connect(file, timeout=5.0, isolation_level=None)
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute("CREATE TABLE IF NOT EXISTS booked (key TEXT, number TEXT)")
    return connection
