"""The table of the unit ledger: how it is made, and whether one that is there will do."""

from __future__ import annotations

from typing import Any, Final

from .ledger import FIND, INSERT, KEEP, TABLE, Ledger

_TYPES: Final = {
    "postgresql": ("bytea", "timestamptz NOT NULL DEFAULT now()"),
    "sqlite": ("blob", "text NOT NULL DEFAULT CURRENT_TIMESTAMP"),
}

DIALECTS: Final = tuple(_TYPES)


def table_ddl(dialect: str = "postgresql") -> str:
    """The statement that makes the table, where there is none.

    A record is of use as long as its job may be submitted again: rows whose ``made_at`` is further
    back than the queue's ``horizon`` and ``retention`` together may be deleted.

    Raises:
        ValueError: neither ``postgresql`` nor ``sqlite``.
    """
    if dialect not in _TYPES:
        msg = f"the unit ledger knows no {dialect}; use one of {', '.join(DIALECTS)}"
        raise ValueError(msg)
    blob, made_at = _TYPES[dialect]
    return f"""CREATE TABLE IF NOT EXISTS {TABLE} (
    job text NOT NULL,
    unit text NOT NULL,
    fence bigint NOT NULL,
    fingerprint text NOT NULL,
    result {blob},
    made_at {made_at},
    PRIMARY KEY (job, unit)
)"""


def fault_of(ledger: Ledger) -> str | None:
    """What is wrong with the table, or with this user's rights to it; None: it will do.

    It is tried out, in a transaction that is the caller's to roll back.
    """
    key: dict[str, Any] = {"job": "deadq check", "unit": "deadq check"}
    try:
        ledger.begin()
        for fence in (2**62, 1):  # the second meets the first
            ledger.run(INSERT, {**key, "fence": fence, "fingerprint": "0" * 16})
            ledger.run(KEEP, {**key, "result": b"\x00\xff"})
        found = ledger.run(FIND, key).row
        ledger.run(f"SELECT fence, made_at FROM {TABLE}", {})  # noqa: S608  a constant
    except Exception as error:  # noqa: BLE001  of any library, of any kind
        return " ".join(str(error).split())
    if found is None or bytes(found[1]) != b"\x00\xff":
        return "it does not give back what is written to it"
    return None
