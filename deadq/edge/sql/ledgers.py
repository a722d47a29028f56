"""The unit ledger over each kind of connection: how a savepoint is made, and a statement run."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from typing import Any, Final, TypeVar

from ...deadline import lifted
from ...errors import UnitError
from .ledger import AsyncLedger, Ledger, Ran

T = TypeVar("T")

_SAVEPOINT: Final = "deadq_unit"
_PARAMETER: Final = re.compile(r":(\w+)")

_BEGIN_FIRST: Final = (
    "a unit's record needs a transaction, and this connection commits each statement by itself; "
    "begin one first ({})"
)


def ledger_of(conn: Any) -> Ledger | AsyncLedger:
    """The ledger in the database at the other end of a connection, or session.

    Raises:
        TypeError: it is of no library that is known.
    """
    kinds = {(kind.__module__.partition(".")[0], kind.__name__) for kind in type(conn).__mro__}
    libraries = {library for library, _ in kinds}
    if isinstance(conn, sqlite3.Connection):
        return _Sqlite(conn)
    if ("psycopg", "AsyncConnection") in kinds:
        return _AsyncPsycopg(conn)
    if ("psycopg", "Connection") in kinds:
        return _Psycopg(conn)
    if "sqlalchemy" in libraries:
        if hasattr(conn, "registry") and callable(conn):  # a scoped session
            conn = conn()
        return _AsyncAlchemy(conn) if hasattr(conn, "run_sync") else _Alchemy(conn)
    msg = (
        "conn must be a connection of psycopg or sqlite3, or a connection or session of "
        f"SQLAlchemy, not {type(conn).__qualname__}"
    )
    raise TypeError(msg)


def _end(conn: Any, *, good: bool) -> None:
    """The savepoint's end, by a blocking connection of either library."""
    if good:
        conn.execute(f"RELEASE {_SAVEPOINT}")
        return
    with lifted():
        conn.execute(f"ROLLBACK TO {_SAVEPOINT}")
        conn.execute(f"RELEASE {_SAVEPOINT}")


class _Sqlite:
    dialect = "sqlite"

    def __init__(self, conn: sqlite3.Connection) -> None:
        self._conn = conn

    def begin(self) -> None:
        if not self._conn.in_transaction:
            if self._conn.isolation_level is None or getattr(self._conn, "autocommit", 0) is True:
                raise UnitError(_BEGIN_FIRST.format('conn.execute("BEGIN IMMEDIATE")'))
            # at once for writing: who read first, and then wants to write, may be refused
            self._conn.execute("BEGIN IMMEDIATE")
        self._conn.execute(f"SAVEPOINT {_SAVEPOINT}")

    def run(self, words: str, given: dict[str, Any]) -> Ran:
        cursor = self._conn.cursor()
        cursor.row_factory = None
        cursor.execute(words, given)
        return Ran(cursor.rowcount, cursor.fetchone())

    def end(self, good: bool) -> None:
        _end(self._conn, good=good)


def _check_psycopg(conn: Any) -> None:
    from psycopg.pq import TransactionStatus

    if conn.autocommit and conn.info.transaction_status == TransactionStatus.IDLE:
        raise UnitError(_BEGIN_FIRST.format("with conn.transaction():"))


def _pyformat(words: str) -> Any:
    return _PARAMETER.sub(r"%(\1)s", words)


class _Psycopg:
    dialect = "postgresql"

    def __init__(self, conn: Any) -> None:
        self._conn = conn

    def begin(self) -> None:
        _check_psycopg(self._conn)
        self._conn.execute(f"SAVEPOINT {_SAVEPOINT}")

    def run(self, words: str, given: dict[str, Any]) -> Ran:
        from psycopg.rows import tuple_row

        cursor = self._conn.cursor(row_factory=tuple_row)
        cursor.execute(_pyformat(words), given)
        return Ran(cursor.rowcount, cursor.fetchone() if cursor.description else None)

    def end(self, good: bool) -> None:
        _end(self._conn, good=good)


class _AsyncPsycopg:
    dialect = "postgresql"

    def __init__(self, conn: Any) -> None:
        self._conn = conn

    async def begin(self) -> None:
        _check_psycopg(self._conn)
        await self._conn.execute(f"SAVEPOINT {_SAVEPOINT}")

    async def run(self, words: str, given: dict[str, Any]) -> Ran:
        from psycopg.rows import tuple_row

        cursor = self._conn.cursor(row_factory=tuple_row)
        await cursor.execute(_pyformat(words), given)
        return Ran(cursor.rowcount, await cursor.fetchone() if cursor.description else None)

    async def end(self, good: bool) -> None:
        if good:
            await self._conn.execute(f"RELEASE {_SAVEPOINT}")
            return
        with lifted():
            await self._conn.execute(f"ROLLBACK TO {_SAVEPOINT}")
            await self._conn.execute(f"RELEASE {_SAVEPOINT}")


class _Alchemy:
    """A Connection or a Session, of which SQLAlchemy itself keeps the savepoints."""

    def __init__(self, target: Any) -> None:
        self._target = target
        self._nested: Any = None

    @property
    def dialect(self) -> str:
        return str(self._target.get_bind().dialect.name)

    def begin(self) -> None:
        conn = self._connection()
        driver = conn.connection.driver_connection
        if conn.dialect.name == "sqlite":
            if not driver.in_transaction:
                if driver.isolation_level is None:
                    raise UnitError(_BEGIN_FIRST.format("without AUTOCOMMIT"))
                conn.exec_driver_sql("BEGIN IMMEDIATE")
        elif conn.dialect.driver.startswith("psycopg"):
            _check_psycopg(driver)
        self._nested = self._target.begin_nested()

    def run(self, words: str, given: dict[str, Any]) -> Ran:
        from sqlalchemy import text

        result = self._connection().execute(text(words), given)
        row = result.first() if result.returns_rows else None
        return Ran(result.rowcount, None if row is None else tuple(row))

    def end(self, good: bool) -> None:
        if good:
            self._nested.commit()
            return
        with lifted():
            self._nested.rollback()

    def _connection(self) -> Any:
        return self._target.connection() if hasattr(self._target, "flush") else self._target


class _AsyncAlchemy:
    """The same in an asynchronous one, which runs it where it may wait."""

    def __init__(self, target: Any) -> None:
        self._target = target
        self._inner: _Alchemy | None = None

    @property
    def dialect(self) -> str:
        target = getattr(self._target, "sync_session", None) or self._target.sync_connection
        return _Alchemy(target).dialect

    async def begin(self) -> None:
        await self._on(lambda inner: inner.begin())

    async def run(self, words: str, given: dict[str, Any]) -> Ran:
        return await self._on(lambda inner: inner.run(words, given))

    async def end(self, good: bool) -> None:
        await self._on(lambda inner: inner.end(good))

    async def _on(self, act: Callable[[_Alchemy], T]) -> T:
        def work(target: Any) -> T:
            if self._inner is None:
                self._inner = _Alchemy(target)
            return act(self._inner)

        done: T = await self._target.run_sync(work)
        return done
