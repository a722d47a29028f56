"""``deadq check --sql``: the table of the unit ledger, in the database of the units' effects."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final, cast

from ..checks import Finding, Level
from ..edge.sql import TABLE, create_table, table_ddl
from ..edge.sql.ledger import Ledger
from ..edge.sql.ledgers import ledger_of
from ..edge.sql.table import fault_of
from .check import print_findings
from .faults import Fault
from .printing import print_json
from .tables import print_block

_POSTGRESQL: Final = ("postgresql", "postgres", "postgresql+psycopg")
_PATIENCE_S: Final = 10
"""So long a database may take to answer."""


def check_sql(url: str, *, create: bool, as_json: bool) -> int:
    """Print the statement that makes the table, and whether that is there and will do; the exit
    code is 1 if not.

    Raises:
        Fault: the URL is odd, or there is no database.
    """
    opened: AbstractContextManager[Any]
    scheme, _, rest = url.partition("://")
    if scheme in _POSTGRESQL:
        dialect, opened = "postgresql", _postgresql(f"postgresql://{rest}")
    elif scheme == "sqlite" and len(rest) > 1 and rest.startswith("/"):
        dialect, opened = "sqlite", _sqlite(rest[1:], create)
    else:
        raise Fault("--sql takes postgresql://USER@HOST/DATABASE or sqlite:///FILE")
    with opened as conn:
        ledger = cast("Ledger", ledger_of(conn))
        fault = fault_of(ledger)
        conn.rollback()
        made = create and fault is not None
        if made:
            fault = _create(conn) or fault_of(ledger)
            conn.rollback()
    _tell(dialect, fault, made=made and fault is None, as_json=as_json)
    return 0 if fault is None else 1


def _create(conn: Any) -> str | None:
    """Make the table; returns why that cannot be done."""
    try:
        create_table(conn)
        conn.commit()
    except Exception as error:  # noqa: BLE001  of either library
        conn.rollback()
        return " ".join(str(error).split())
    return None


def _tell(dialect: str, fault: str | None, *, made: bool, as_json: bool) -> None:
    ddl = table_ddl(dialect)
    if as_json:
        told = {"dialect": dialect, "table": TABLE, "fault": fault, "made": made, "ddl": ddl}
        print_json(told)
        return
    print_block("the table of units", f"{ddl};")
    findings = [Finding(Level.OK, "made", TABLE)] if made else []
    if fault is None:
        findings.append(Finding(Level.OK, "table", f"{TABLE} is there, and will do"))
    else:
        remedy = "run it with --create, or the statement above"
        findings.append(Finding(Level.FAULT, "table", fault, remedy))
    print_findings(dialect, findings)


@contextlib.contextmanager
def _sqlite(file: str, create: bool) -> Iterator[sqlite3.Connection]:
    if not create and not Path(file).exists():
        raise Fault(f"--sql: no such file: {file}; with --create it is made", code=1)
    try:
        conn = sqlite3.connect(file, timeout=_PATIENCE_S)
    except (sqlite3.Error, ValueError) as error:
        raise Fault(f"--sql: {error}", code=1) from error
    with contextlib.closing(conn):
        yield conn


@contextlib.contextmanager
def _postgresql(url: str) -> Iterator[Any]:
    try:
        import psycopg
    except ImportError as error:
        raise Fault("--sql needs psycopg: pip install 'deadq[sql]'", code=1) from error
    try:
        conn = psycopg.connect(url, connect_timeout=_PATIENCE_S)
    except psycopg.ProgrammingError as error:
        raise Fault(f"--sql: {error}") from error
    except psycopg.Error as error:
        raise Fault(f"--sql: {error}", code=1) from error
    with contextlib.closing(conn):
        yield conn
