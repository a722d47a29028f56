"""SQL that keeps to deadlines, and units whose record stands in the transaction of their effect.

Connections: :mod:`deadq.edge.sql.psycopg` (PostgreSQL, blocking and asynchronous),
:mod:`deadq.edge.sql.sqlalchemy` (over it) and :mod:`deadq.edge.sql.sqlite`. The unit ledger,
:func:`unit` and :func:`aunit`, takes a connection of any of these, plain or not; its table is made
by :func:`create_table`, or by ``deadq check --sql URL --create``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, cast, overload

from ...errors import shown
from .ledger import TABLE, AsyncLedger, Entry, Ledger, adrive, drive
from .ledgers import ledger_of
from .table import table_ddl

__all__ = ["TABLE", "acreate_table", "aunit", "create_table", "table_ddl", "unit"]

R = TypeVar("R")


def create_table(conn: Any) -> None:
    """Make the table of the ledger, where there is none; commit it as always.

    Args:
        conn: as of :func:`unit`.
    """
    ledger = ledger_of(conn)
    if inspect.iscoroutinefunction(ledger.run):
        msg = "use acreate_table with an asynchronous connection"
        raise TypeError(msg)
    ledger.run(table_ddl(ledger.dialect), {})


async def acreate_table(conn: Any) -> None:
    """The same with an asynchronous connection."""
    ledger = ledger_of(conn)
    if not inspect.iscoroutinefunction(ledger.run):
        msg = "use create_table with a blocking connection"
        raise TypeError(msg)
    await ledger.run(table_ddl(ledger.dialect), {})


def unit(name: str, fn: Callable[..., R], /, *args: Any, conn: Any, **kwargs: Any) -> R:
    """Run ``fn(*args, **kwargs)`` once for a job: effect and record in one transaction, yours.

    Commit as always; it is then that both become true. A later attempt of the job gets the
    recorded result instead of running it again, and one at the same time waits for your commit.
    Outside of a job it is a plain call.

    Args:
        name: of the step, unique within the job.
        fn: the function. All that it does by ``conn`` is undone if it raises; it commits nothing.
        *args: for ``fn``, as are further keywords.
        conn: a connection of psycopg or sqlite3, or a connection or session of SQLAlchemy, in the
            database in which ``fn`` takes effect.
        **kwargs: for ``fn``.

    Raises:
        DeadlineExceeded: too little time is left; it did not start.
        Cancelled: the job was cancelled; it did not start.
        LeaseLost: the job is no longer this worker's; it did not start.
        UnitError: it is on record with other arguments; or there is no transaction.
        EncodeError: of :mod:`deadq.codec`: its result cannot be kept; nothing of it stays.
        TypeError: a connection that is none of these, or is asynchronous (see :func:`aunit`).
    """
    ledger = ledger_of(conn)
    if inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(ledger.begin):
        msg = f"unit {shown(name)} has to be awaited: use aunit, with an asynchronous connection"
        raise TypeError(msg)
    entry = Entry.of(name, fn, args, kwargs)
    if entry is None:
        return fn(*args, **kwargs)
    return cast("R", drive(entry.steps(), cast("Ledger", ledger), entry.call))


@overload
async def aunit(
    name: str, fn: Callable[..., Coroutine[Any, Any, R]], /, *args: Any, conn: Any, **kwargs: Any
) -> R: ...
@overload
async def aunit(name: str, fn: Callable[..., R], /, *args: Any, conn: Any, **kwargs: Any) -> R: ...
async def aunit(name: str, fn: Callable[..., Any], /, *args: Any, conn: Any, **kwargs: Any) -> Any:
    """The same with an asynchronous connection; see :func:`unit`. ``fn`` may be of either kind."""
    ledger = ledger_of(conn)
    if not inspect.iscoroutinefunction(ledger.begin):
        msg = f"unit {shown(name)}: use unit with a blocking connection"
        raise TypeError(msg)
    entry = Entry.of(name, fn, args, kwargs)
    if entry is None:
        value = fn(*args, **kwargs)
        return await value if inspect.isawaitable(value) else value
    return await adrive(entry.steps(), cast("AsyncLedger", ledger), entry.call)
