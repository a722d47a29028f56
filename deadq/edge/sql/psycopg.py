"""Deadlines for psycopg 3: every statement is limited to what is left, by the server itself.

    pool = ConnectionPool(url, connection_class=DeadlineConnection)

    with connection(pool) as conn:                    # async with aconnection(pool) as conn:
        conn.execute("UPDATE ...")

The ambient deadline governs. Inside a transaction the limit is ``SET LOCAL statement_timeout``,
set anew before each statement, for the time left shrinks; it is gone when the transaction is, so
that nobody else who uses the connection ever meets it. A smaller limit of the user's own stays in
force. Where there is no transaction to set it in (autocommit), or the server does not answer, a
cancel request ends the statement. Without a deadline nothing is different.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any, Final

import psycopg
from psycopg import generators, waiting
from psycopg.pq import TransactionStatus
from psycopg_pool import AsyncConnectionPool, ConnectionPool, PoolTimeout

from ... import clock
from ...deadline import Deadline
from ...errors import DeadlineExceeded
from .keeping import LOOK_S, Gen, Keeping, Overdue, Row, StatementDeadlineExceeded, T
from .lease import Lease, ato_the_end, to_the_end
from .limits import CLEAN_S, passed

__all__ = [
    "AsyncDeadlineConnection",
    "DeadlineConnection",
    "PoolDeadlineExceeded",
    "StatementDeadlineExceeded",
    "aconnection",
    "connection",
]

_OPEN: Final = (TransactionStatus.INTRANS, TransactionStatus.INERROR)


class PoolDeadlineExceeded(DeadlineExceeded, PoolTimeout):
    """Until the deadline a pool had no connection to give."""

    def __init__(self, message: str = "the deadline passed before a connection was free") -> None:
        DeadlineExceeded.__init__(self, message)


class DeadlineConnection(Keeping[Row], psycopg.Connection[Row]):
    """A connection whose statements keep to the ambient deadline.

    An exception that a signal handler raises in a statement, as :class:`deadq.Interrupt`, cancels
    what runs on the server, too.

    Raises:
        StatementDeadlineExceeded: of a statement: it took too long, or there was no time for it.
    """

    def wait(self, gen: Gen[T], interval: float = LOOK_S, timeout: float | None = None) -> T:
        """See psycopg."""
        more: dict[str, Any] = {} if timeout is None else {"timeout": timeout}
        interval = self.begin_wait(interval)
        try:
            return super().wait(self.watched(gen), interval, **more)
        except psycopg.errors.QueryCanceled as error:
            raise self.judged(error) from error.__cause__
        except Overdue:
            result: list[T] = []
            to_the_end(lambda: result.extend(self.settle(gen)))
            if result:
                return result[0]
            raise StatementDeadlineExceeded from None
        except BaseException as error:
            if self.astray and not isinstance(error, psycopg.Error):
                to_the_end(lambda: self.settle(gen))
            raise

    def settle(self, gen: Gen[T] | None = None) -> list[T]:
        """Cancel what runs, and wait until the connection can be used again, or is closed; returns
        the result, if it succeeds after all."""
        result: list[T] = []
        self.until = clock.monotonic() + CLEAN_S
        if self.astray:
            with contextlib.suppress(psycopg.Error, Overdue, OSError):
                self.cancel_safe(timeout=CLEAN_S)
                remains: Gen[Any] = self.remains(gen or generators.fetch_many(self.pgconn))
                result = waiting.wait(remains, self.pgconn.socket, LOOK_S)
            self.give_up()
        return [] if gen is None else result


class AsyncDeadlineConnection(Keeping[Row], psycopg.AsyncConnection[Row]):
    """The same for an event loop: a task that is cancelled in a statement cancels it on the server,
    and goes on when the connection is clean."""

    async def wait(self, gen: Gen[T], interval: float = LOOK_S, timeout: float | None = None) -> T:
        """See psycopg."""
        more: dict[str, Any] = {} if timeout is None else {"timeout": timeout}
        interval = self.begin_wait(interval)
        try:
            return await waiting.wait_async(self.watched(gen), self.pgconn.socket, interval, **more)
        except psycopg.errors.QueryCanceled as error:
            raise self.judged(error) from error.__cause__
        except Overdue:
            for result in await ato_the_end(self.settle(gen)):
                return result
            raise StatementDeadlineExceeded from None
        except BaseException as error:
            if self.astray and not isinstance(error, psycopg.Error):
                await ato_the_end(self.settle(gen))
            raise

    async def settle(self, gen: Gen[T] | None = None) -> list[T]:
        """See :meth:`DeadlineConnection.settle`."""
        result: list[T] = []
        self.until = clock.monotonic() + CLEAN_S
        if self.astray:
            with contextlib.suppress(psycopg.Error, Overdue, OSError):
                await self.cancel_safe(timeout=CLEAN_S)
                remains: Gen[Any] = self.remains(gen or generators.fetch_many(self.pgconn))
                result = await waiting.wait_async(remains, self.pgconn.socket, LOOK_S)
            self.give_up()
        return [] if gen is None else result


# Pools.


def connection(pool: ConnectionPool[DeadlineConnection[Row]]) -> Lease[DeadlineConnection[Row]]:
    """A connection of a pool for a block, which is a transaction: ``pool.connection()`` that waits
    no longer than the deadline, and gives back exactly once, whatever interrupts it.

    Raises:
        PoolDeadlineExceeded: none was free in time.
        TypeError: the pool's connections know no deadline.
    """

    def take() -> DeadlineConnection[Row]:
        try:
            return pool.getconn(wait)
        except PoolTimeout as error:
            raise _pool_error(error, deadline) from None

    def give(conn: DeadlineConnection[Row]) -> None:
        conn.settle()
        if conn.info.transaction_status in _OPEN:
            with contextlib.suppress(psycopg.Error), Deadline.after(CLEAN_S).scope():
                conn.rollback()
        pool.putconn(conn)

    _check(pool, DeadlineConnection)
    deadline = Deadline.current()
    wait = _pool_wait(pool, deadline)
    return Lease(take, give, lambda conn: conn.commit())


@contextlib.asynccontextmanager
async def aconnection(
    pool: AsyncConnectionPool[AsyncDeadlineConnection[Row]],
) -> AsyncIterator[AsyncDeadlineConnection[Row]]:
    """The same for an event loop: see :func:`connection`."""
    _check(pool, AsyncDeadlineConnection)
    deadline = Deadline.current()
    try:
        conn = await pool.getconn(_pool_wait(pool, deadline))
    except PoolTimeout as error:
        raise _pool_error(error, deadline) from None
    try:
        yield conn
        await conn.commit()
    finally:
        await ato_the_end(_given_back(pool, conn))


async def _given_back(pool: Any, conn: AsyncDeadlineConnection[Any]) -> None:
    await conn.settle()
    if conn.info.transaction_status in _OPEN:
        with contextlib.suppress(psycopg.Error), Deadline.after(CLEAN_S).scope():
            await conn.rollback()
    await pool.putconn(conn)


def _check(pool: Any, kind: type) -> None:
    if not issubclass(pool.connection_class, kind):
        name = kind.__name__
        msg = f"the pool's connections know no deadline; make it with connection_class={name}"
        raise TypeError(msg)


def _pool_wait(pool: Any, deadline: Deadline | None) -> float:
    if deadline is None:
        return float(pool.timeout)
    if deadline.expired:
        raise PoolDeadlineExceeded
    return min(float(pool.timeout), deadline.remaining())


def _pool_error(error: PoolTimeout, deadline: Deadline | None) -> PoolTimeout:
    return PoolDeadlineExceeded() if passed(deadline) else error
