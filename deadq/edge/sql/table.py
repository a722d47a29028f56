"""The table of the unit ledger: how it is made, and whether one that is there will do."""

from __future__ import annotations

from typing import Final

from .ledger import TABLE

COLUMNS: Final = ("job", "unit", "fence", "fingerprint", "result", "made_at")

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
