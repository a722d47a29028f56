"""What keeps the statements of psycopg's connections, of either kind, to the deadline."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Generator
from typing import Any, Final, TypeVar

import psycopg
from psycopg import generators
from psycopg._connection_base import BaseConnection
from psycopg.pq import ExecStatus, TransactionStatus
from psycopg.sql import Composable

from ... import clock
from ...deadline import Deadline
from ...errors import DeadlineExceeded
from .limits import HICCUP_S, in_ms, limit_ms, passed, patience

Row = TypeVar("Row", covariant=True)  # noqa: PLC0105  named as in psycopg
T = TypeVar("T")
Gen = Generator[Any, Any, T]

_IDLE: Final = TransactionStatus.IDLE
_ACTIVE: Final = TransactionStatus.ACTIVE
_INTRANS: Final = TransactionStatus.INTRANS
_INERROR: Final = TransactionStatus.INERROR

LOOK_S: Final = 0.1
"""How often psycopg looks up from a wait; see there (s)."""
_CLOSE_LOOK_S: Final = 0.02
"""The same for what has a deadline: the server does not end everything by itself (s)."""

_NOTHING_SENT: Final = "the statement was not sent: the deadline has passed"


class StatementDeadlineExceeded(DeadlineExceeded, psycopg.errors.QueryCanceled):
    """A statement ran until the deadline, or there was no time for it. To code that knows psycopg
    alone it is the error of a statement that was cancelled."""

    def __init__(self, message: str = "the deadline passed in a statement") -> None:
        DeadlineExceeded.__init__(self, message)


class Overdue(Exception):
    """The time of a wait is over."""


class Keeping(BaseConnection[Row]):
    """What keeps the statements of a connection to the deadline, as psycopg's own generators: the
    same for both kinds of connection."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._bound: Deadline | None = None
        """The deadline that limits the present statement, where no smaller limit does."""
        self._set_ms: dict[int, int] = {}
        """Each limit that was set in this transaction, and the user's own in its place."""
        self._ways_s: deque[float] = deque(maxlen=8)
        """What the last few limits took to be set (s)."""
        self._early_s = 0.0
        """So long before the deadline the present limit ends, if it took no time to be set."""
        self.until = 0.0
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
        if self._pipeline is not None or (status == _IDLE and self._autocommit):
            self._bound = deadline
            self.until = deadline.monotonic
            yield from super()._start_query()
        else:
            yield from self._limit(deadline, begin=status == _IDLE)

    def _exec_command(self, command: Any, result_format: Any = psycopg.pq.Format.TEXT) -> Gen[Any]:
        text = command.as_bytes(self) if isinstance(command, Composable) else command
        if isinstance(text, bytes) and text.startswith((b"FETCH ", b"MOVE ")):
            yield from self._start_query()
        elif text == b"COMMIT" and (deadline := Deadline.current()) and not deadline.expired:
            self.until = deadline.monotonic  # the server stops its own clock before it commits
        return (yield from super()._exec_command(command, result_format))

    def _limit(self, deadline: Deadline, *, begin: bool) -> Gen[None]:
        # SHOW and SET, of all statements, take no snapshot: the user's next may still be
        # SET TRANSACTION ISOLATION LEVEL, or LOCK TABLE
        while True:
            since, self._early_s = clock.monotonic(), self._way_s
            limit = limit_ms(deadline, self._early_s)
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
                self._bound = deadline
                self._set_ms[limit] = own
            taken = clock.monotonic() - since
            self._ways_s.append(taken)
            if deadline.expired:
                raise StatementDeadlineExceeded(_NOTHING_SENT)
            if taken <= 2 * self._early_s + HICCUP_S:
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
        # kept in mind: a savepoint that is rolled back to brings a limit back

    def _sent(self, words: bytes) -> Gen[list[Any]]:
        self.pgconn.send_query(words)
        results: list[Any] = yield from generators.execute(self.pgconn)
        for result in results:
            if result.status not in (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK):
                raise psycopg.errors.error_from_result(result, encoding=self.info.encoding)
        return results

    # Waiting.

    def watched(self, gen: Gen[T]) -> Gen[T]:
        """The same generator, left when the time of the wait is over."""
        ready = None
        while True:
            try:
                wanted = gen.send(ready)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            ready = yield wanted
            if clock.monotonic() >= self.until:
                raise Overdue

    def begin_wait(self, interval: float) -> float:
        """How often to look up from a wait that begins now."""
        deadline = Deadline.current()
        self.until = patience(deadline, self._way_s)
        if deadline is None or deadline.expired:
            return interval
        if self._pipeline is not None:
            self.until = deadline.monotonic
        return min(interval, _CLOSE_LOOK_S)

    def judged(self, error: psycopg.errors.QueryCanceled) -> psycopg.errors.QueryCanceled:
        """The same error, or the deadline's where that has brought it about."""
        if isinstance(error, DeadlineExceeded) or not passed(self._bound, self._early_s):
            return error
        return StatementDeadlineExceeded()

    @property
    def astray(self) -> bool:
        """Whether the server is still at something that nobody waits for."""
        return not self.closed and self.pgconn.transaction_status == _ACTIVE

    def remains(self, gen: Gen[T]) -> Gen[list[T]]:
        """What a statement that was left has yet to say: its result, if it succeeds after all."""
        result = []
        with contextlib.suppress(psycopg.Error):
            result.append((yield from self.watched(gen)))
        if self.astray:  # the generator itself was interrupted
            result.clear()
            with contextlib.suppress(psycopg.Error):
                yield from self.watched(generators.fetch_many(self.pgconn))
        return result

    def give_up(self) -> None:
        """Close it, if it is not clean by now."""
        if self.astray:
            self.pgconn.finish()
