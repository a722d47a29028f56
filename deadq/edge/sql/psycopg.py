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
from collections import deque
from collections.abc import AsyncIterator, Generator
from typing import Any, Final, TypeVar

import psycopg
from psycopg import generators, waiting
from psycopg._connection_base import BaseConnection
from psycopg.pq import ExecStatus, TransactionStatus
from psycopg.sql import Composable
from psycopg_pool import AsyncConnectionPool, ConnectionPool, PoolTimeout

from ... import clock
from ...deadline import Deadline
from ...errors import DeadlineExceeded
from .lease import Lease, ato_the_end, to_the_end
from .limits import CLEAN_S, HICCUP_S, in_ms, limit_ms, passed, patience

Row = TypeVar("Row", covariant=True)  # noqa: PLC0105  named as in psycopg
T = TypeVar("T")
Gen = Generator[Any, Any, T]

_IDLE: Final = TransactionStatus.IDLE
_ACTIVE: Final = TransactionStatus.ACTIVE
_INTRANS: Final = TransactionStatus.INTRANS
_INERROR: Final = TransactionStatus.INERROR

_LOOK_S: Final = 0.1
"""How often psycopg looks up from a wait; see there (s)."""
_CLOSE_LOOK_S: Final = 0.02
"""The same for what has a deadline: the server does not end everything by itself (s)."""

_NOTHING_SENT: Final = "the statement was not sent: the deadline has passed"


class StatementDeadlineExceeded(DeadlineExceeded, psycopg.errors.QueryCanceled):
    """A statement ran until the deadline, or there was no time for it. To code that knows psycopg
    alone it is the error of a statement that was cancelled."""

    def __init__(self, message: str = "the deadline passed in a statement") -> None:
        DeadlineExceeded.__init__(self, message)


class PoolDeadlineExceeded(DeadlineExceeded, PoolTimeout):
    """Until the deadline a pool had no connection to give."""

    def __init__(self, message: str = "the deadline passed before a connection was free") -> None:
        DeadlineExceeded.__init__(self, message)


class _Overdue(Exception):
    """The time of a wait is over."""


class _Keeping(BaseConnection[Row]):
    """What keeps the statements of a connection to the deadline, as psycopg's own generators: the
    same for both kinds of connection."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._bound: Deadline | None = None
        """The deadline that limits the present statement, where no smaller limit does."""
        self._set_ms: dict[int, int] = {}
        """Each limit that was set in this transaction, and the user's own in its place."""
        self._ways_s: deque[float] = deque(maxlen=8)
        self._until = 0.0
        """When the present wait is over (monotonic s)."""

    # What psycopg calls before each statement of a cursor, and for each fetch of a named one.

    def _start_query(self) -> Gen[None]:
        deadline, status = Deadline.current(), self.pgconn.transaction_status
        self._bound = None
        if status == _IDLE:
            self._set_ms.clear()
        if deadline is None or status == _INERROR:
            if self._set_ms and status == _INTRANS and self._pipeline is None:
                yield from self._lift()
            yield from super()._start_query()
            return
        self._check_connection_ok()
        if deadline.expired:
            raise StatementDeadlineExceeded(_NOTHING_SENT)
        self._bound = deadline
        if self._pipeline is not None or (status == _IDLE and self._autocommit):
            self._until = deadline.monotonic
            yield from super()._start_query()
        else:
            yield from self._limit(deadline, begin=status == _IDLE)

    def _exec_command(self, command: Any, result_format: Any = psycopg.pq.Format.TEXT) -> Gen[Any]:
        text = command.as_bytes(self) if isinstance(command, Composable) else command
        if isinstance(text, bytes) and text.startswith((b"FETCH ", b"MOVE ")):
            yield from self._start_query()
        elif text == b"COMMIT" and (deadline := Deadline.current()) and not deadline.expired:
            self._until = deadline.monotonic  # the server stops its own clock before it commits
        return (yield from super()._exec_command(command, result_format))

    def _limit(self, deadline: Deadline, *, begin: bool) -> Gen[None]:
        # SHOW and SET, of all statements, take no snapshot: the user's next may still be
        # SET TRANSACTION ISOLATION LEVEL, or LOCK TABLE
        while True:
            since = clock.monotonic()
            limit = limit_ms(deadline, self._way_s)
            words = b"SHOW statement_timeout; SET LOCAL statement_timeout = %d" % limit
            if begin:
                words = self._get_tx_start_command() + b"; " + words
                begin = False
            *_, shown, _ = yield from self._sent(words)
            found = in_ms(shown.get_value(0, 0).decode())
            own = self._set_ms.get(found, found)
            if 0 < own < limit:
                yield from self._sent(b"SET LOCAL statement_timeout = %d" % own)
                self._bound = None
            else:
                self._set_ms[limit] = own
            taken = clock.monotonic() - since
            self._ways_s.append(taken)
            if deadline.expired:
                raise StatementDeadlineExceeded(_NOTHING_SENT)
            if taken <= 2 * self._way_s + HICCUP_S:
                return
            # this process, or the server, had no processor meanwhile: the limit is out of date

    @property
    def _way_s(self) -> float:
        """How long it takes to the server and back, where nothing is in the way (s)."""
        return min(self._ways_s, default=0.0)

    def _lift(self) -> Gen[None]:
        """In a transaction that goes on after its deadline's scope: the user's own limit again."""
        (shown,) = yield from self._sent(b"SHOW statement_timeout")
        own = self._set_ms.get(in_ms(shown.get_value(0, 0).decode()))
        if own is not None:
            yield from self._sent(b"SET LOCAL statement_timeout = %d" % own)
        self._set_ms.clear()

    def _sent(self, words: bytes) -> Gen[list[Any]]:
        self.pgconn.send_query(words)
        results: list[Any] = yield from generators.execute(self.pgconn)
        for result in results:
            if result.status not in (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK):
                raise psycopg.errors.error_from_result(result, encoding=self.info.encoding)
        return results

    # Waiting.

    def _watched(self, gen: Gen[T]) -> Gen[T]:
        """The same generator, left when the time of the wait is over."""
        ready = None
        while True:
            try:
                wanted = gen.send(ready)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            ready = yield wanted
            if clock.monotonic() >= self._until:
                raise _Overdue

    def _begin_wait(self, interval: float) -> float:
        """How often to look up from a wait that begins now."""
        deadline = Deadline.current()
        self._until = patience(deadline)
        if deadline is None or deadline.expired:
            return interval
        if self._pipeline is not None:
            self._until = deadline.monotonic
        return min(interval, _CLOSE_LOOK_S)

    def _judged(self, error: psycopg.errors.QueryCanceled) -> psycopg.errors.QueryCanceled:
        """The same error, or the deadline's where that has brought it about."""
        if isinstance(error, DeadlineExceeded) or not passed(self._bound, self._way_s):
            return error
        return StatementDeadlineExceeded()

    @property
    def _astray(self) -> bool:
        """Whether the server is still at something that nobody waits for."""
        return not self.closed and self.pgconn.transaction_status == _ACTIVE

    def _remains(self, gen: Gen[T]) -> Gen[list[T]]:
        """What a statement that was left has yet to say: its result, if it succeeds after all."""
        result = []
        with contextlib.suppress(psycopg.Error):
            result.append((yield from self._watched(gen)))
        if self._astray:  # the generator itself was interrupted
            result.clear()
            with contextlib.suppress(psycopg.Error):
                yield from self._watched(generators.fetch_many(self.pgconn))
        return result

    def _give_up(self) -> None:
        """Close it, if it is not clean by now."""
        if self._astray:
            self.pgconn.finish()


class DeadlineConnection(_Keeping[Row], psycopg.Connection[Row]):
    """A connection whose statements keep to the ambient deadline.

    An exception that a signal handler raises in a statement, as :class:`deadq.Interrupt`, cancels
    what runs on the server, too.

    Raises:
        StatementDeadlineExceeded: of a statement: it took too long, or there was no time for it.
    """

    def wait(self, gen: Gen[T], interval: float = _LOOK_S, timeout: float | None = None) -> T:
        """See psycopg."""
        more: dict[str, Any] = {} if timeout is None else {"timeout": timeout}
        interval = self._begin_wait(interval)
        try:
            return super().wait(self._watched(gen), interval, **more)
        except psycopg.errors.QueryCanceled as error:
            raise self._judged(error) from error.__cause__
        except _Overdue:
            result: list[T] = []
            to_the_end(lambda: result.extend(self.settle(gen)))
            if result:
                return result[0]
            raise StatementDeadlineExceeded from None
        except BaseException as error:
            if self._astray and not isinstance(error, psycopg.Error):
                to_the_end(lambda: self.settle(gen))
            raise

    def settle(self, gen: Gen[T] | None = None) -> list[T]:
        """Cancel what runs, and wait until the connection can be used again, or is closed; returns
        the result, if it succeeds after all."""
        result: list[T] = []
        self._until = clock.monotonic() + CLEAN_S
        if self._astray:
            with contextlib.suppress(psycopg.Error, _Overdue, OSError):
                self.cancel_safe(timeout=CLEAN_S)
                remains: Gen[Any] = self._remains(gen or generators.fetch_many(self.pgconn))
                result = waiting.wait(remains, self.pgconn.socket, _LOOK_S)
            self._give_up()
        return [] if gen is None else result


class AsyncDeadlineConnection(_Keeping[Row], psycopg.AsyncConnection[Row]):
    """The same for an event loop: a task that is cancelled in a statement cancels it on the server,
    and goes on when the connection is clean."""

    async def wait(self, gen: Gen[T], interval: float = _LOOK_S, timeout: float | None = None) -> T:
        """See psycopg."""
        more: dict[str, Any] = {} if timeout is None else {"timeout": timeout}
        interval = self._begin_wait(interval)
        try:
            return await waiting.wait_async(
                self._watched(gen), self.pgconn.socket, interval, **more
            )
        except psycopg.errors.QueryCanceled as error:
            raise self._judged(error) from error.__cause__
        except _Overdue:
            for result in await ato_the_end(self.settle(gen)):
                return result
            raise StatementDeadlineExceeded from None
        except BaseException as error:
            if self._astray and not isinstance(error, psycopg.Error):
                await ato_the_end(self.settle(gen))
            raise

    async def settle(self, gen: Gen[T] | None = None) -> list[T]:
        """See :meth:`DeadlineConnection.settle`."""
        result: list[T] = []
        self._until = clock.monotonic() + CLEAN_S
        if self._astray:
            with contextlib.suppress(psycopg.Error, _Overdue, OSError):
                await self.cancel_safe(timeout=CLEAN_S)
                remains: Gen[Any] = self._remains(gen or generators.fetch_many(self.pgconn))
                result = await waiting.wait_async(remains, self.pgconn.socket, _LOOK_S)
            self._give_up()
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
        if conn.info.transaction_status in (_INTRANS, _INERROR):
            with contextlib.suppress(psycopg.Error):
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
    if conn.info.transaction_status in (_INTRANS, _INERROR):
        with contextlib.suppress(psycopg.Error):
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
