"""A circuit breaker: stops calling what has been failing for minutes, and returns by a ramp.

::

            failure has lasted `sustained` s,
            over `minimum_calls` calls
    CLOSED ---------------------------------------> OPEN <--------------+
      ^                                             |  ^                |
      |                             `open_for` s on |  | the probe fails| calls fail again
      | the rate has outgrown                       v  |                |
      | what callers ask for                      HALF_OPEN             |
      |                                             |                   |
      |                                             | the probe succeeds|
      |                                             v                   |
      +------------------------------------------ RAMP -----------------+

It is a last resort. A breaker has two modes, and the second one, which few tests ever see, turns
a dependency that fails in part into one that fails for everybody: Marc Brooker, "Timeouts,
retries, and backoff with jitter" (Amazon Builders' Library: circuit breakers bring in modal
behaviour), and "Will circuit breakers solve my problems?"
(https://brooker.co.za/blog/2022/02/16/circuit-breakers.html). A budget for retries bounds the load
on a failing dependency without any mode, and deadlines bound what its callers wait; have both
first. Then a breaker that opens late spares the threads and connections which an outage of
minutes would hold, and its ramp keeps off the wave that has dammed up.
"""

from __future__ import annotations

import concurrent.futures
import functools
import logging
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Final, NamedTuple, ParamSpec, Self, TypeVar, cast

from .. import clock
from ..errors import BreakerOpen, Cancelled, DeadlineExceeded, DeadlineExpired, shown
from .circuit import BreakerState, Circuit, Settings
from .locks import counting_lock
from .policy import check_no_coroutine, check_runs_when_called, gives_coroutine
from .transient import failure_of, is_outage

P = ParamSpec("P")
T = TypeVar("T")

log = logging.getLogger("deadq.breaker")

_NEITHER: Final = (
    BreakerOpen,
    Cancelled,
    DeadlineExceeded,
    DeadlineExpired,
    concurrent.futures.CancelledError,
)
"""With all that is no ``Exception``, such as ``asyncio.CancelledError``: these tell nothing of the
dependency, as the call was given up or never made."""

_REFUSING: Final = {
    BreakerState.OPEN: "open",
    BreakerState.HALF_OPEN: "open, and a probe is under way",
    BreakerState.RAMP: "closing, and lets no more calls through at present",
}


class Permit(NamedTuple):
    """Leave for one call, given by :meth:`Breaker.allow` and handed back with its outcome."""

    phase: int
    began_s: float


_held: ContextVar[tuple[tuple[object, Permit], ...]] = ContextVar("deadq_permits", default=())
"""Whose ``with`` blocks this thread or task is in, and by which permits; the innermost last."""


class Breaker:
    """A circuit breaker for one dependency, shared by all threads and tasks of this process.

    It has three forms. Each refuses with :class:`deadq.BreakerOpen`, before anything is called::

        payments = Breaker("payments")

        @payments                          # a plain or a coroutine function
        async def pay(order): ...

        with payments:                     # in blocking and in asyncio code
            response = client.post(...)

        permit = payments.allow()          # by hand; end each by one of these three
        payments.succeeded(permit)         # or failed(permit), or abandoned(permit): neither

    A call *fails* by an exception of which ``failures`` says so (by default what ``is_transient``
    names, and every status from 500 on), and succeeds by any other, as the dependency has answered.
    A call that was cancelled, or for which no time was left, has done neither. Around a ``retry``
    it is the last error that counts, not the ``RetryDenied`` that came of it.

    It opens when calls have been failing for ``sustained`` s: the share ``failure_ratio`` of them
    in each sixth of that time in which there were any, of ``minimum_calls`` or more in all. A sixth
    that went better begins the count anew, as does silence for half of that time. The next call
    after ``open_for`` s is a probe; while it is under way, the others are still refused. A probe
    without an outcome is given up after ``open_for`` or ``sustained`` s, whichever is longer.

    When a probe has succeeded, calls are let through, evenly spaced, at a rate that grows within
    ``ramp`` s from the share ``ramp_start`` to the whole of what it was before the failures began.
    In no window of 100 ms are there more than 1.1 times the calls by that rate, or one call more
    where it is below 100 a second. If ``failure_ratio`` of the last ``minimum_calls`` fail, it
    opens at once. If callers ask for more at the end of the ramp, the rate goes on growing, doubled
    in a quarter of ``ramp``, until they do not; then it is closed.

    Raises ``ValueError`` or ``TypeError`` for settings that make no sense.
    """

    def __init__(
        self,
        name: str = "",
        *,
        failure_ratio: float = 0.5,
        sustained: float = 60.0,
        minimum_calls: int = 20,
        open_for: float = 10.0,
        ramp: float = 60.0,
        ramp_start: float = 0.1,
        failures: Callable[[Exception], bool] = is_outage,
    ) -> None:
        if not isinstance(name, str):
            raise TypeError(f"a breaker's name must be a str, not {shown(name)}")
        # a class is callable, too, and would make every exception a failure
        if not callable(failures) or isinstance(failures, type):
            raise TypeError(
                "breaker failures must be a function that says of an exception whether it is a "
                "failure, such as lambda error: isinstance(error, OSError), "
                f"not {shown(failures)}"
            )
        self.name = name
        self._failures = failures
        self._lock = counting_lock()
        settings = Settings(failure_ratio, sustained, minimum_calls, open_for, ramp, ramp_start)
        self._circuit = Circuit(clock.monotonic(), str(self), settings)

    @property
    def state(self) -> BreakerState:
        """What the last call, or its outcome, made of it: only they move it on."""
        return self._circuit.state

    # By hand.

    def allow(self) -> Permit:
        """Leave for one call, to be handed back with its outcome.

        Raises:
            BreakerOpen: the call is refused; its ``retry_after`` is spread over the ramp.
        """
        with self._lock:
            now = clock.monotonic()
            wait_s = self._circuit.wait(now)
            permit, state = Permit(self._circuit.phase, now), self._circuit.state
        self._tell()
        if wait_s is not None:
            raise BreakerOpen(f"{self} is {_REFUSING[state]}", retry_after=wait_s)
        return permit

    def succeeded(self, permit: Permit | None = None) -> None:
        """The dependency answered. Without its permit, a call counts as one of the latest."""
        self._end(permit, failed=False)

    def failed(self, permit: Permit | None = None) -> None:
        """The dependency failed, as far as a breaker is concerned."""
        self._end(permit, failed=True)

    def abandoned(self, permit: Permit | None = None) -> None:
        """The call was cancelled, or never made: nothing was learnt."""
        self._end(permit, failed=None)

    # As a block, and as a decorator.

    def __enter__(self) -> Self:
        _held.set((*_held.get(), (self, self.allow())))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        held, permit = _held.get(), None
        # One that is left in another context than it was entered in has none. Where generators hold
        # them, blocks entered later may still be under way.
        for n in range(len(held) - 1, -1, -1):
            if held[n][0] is self:
                permit = held[n][1]
                _held.set(held[:n] + held[n + 1 :])
                break
        try:
            failed = self._has_failed(error)
        except BaseException:
            self.abandoned(permit)
            raise
        self._end(permit, failed=failed)

    def _has_failed(self, error: BaseException | None) -> bool | None:
        """None: the outcome tells nothing of the dependency."""
        if error is None:
            return False
        if not isinstance(error, Exception) or isinstance(failure_of(error), _NEITHER):
            return None
        return bool(self._failures(error))

    def __call__(self, fn: Callable[P, T], /) -> Callable[P, T]:
        """``fn``, called only when this breaker allows it.

        Raises:
            TypeError: not a function, or a generator, whose body runs only after the call.
        """
        check_runs_when_called(fn, "a breaker guards", "with breaker:")
        if gives_coroutine(fn):

            @functools.wraps(fn)
            async def guarded(*args: P.args, **kwargs: P.kwargs) -> Any:
                with self:
                    return await cast("Callable[P, Awaitable[Any]]", fn)(*args, **kwargs)

            return cast("Callable[P, T]", guarded)

        @functools.wraps(fn)
        def guarded_plain(*args: P.args, **kwargs: P.kwargs) -> T:
            with self:
                value = fn(*args, **kwargs)
                check_no_coroutine(value, fn, "let the breaker guard an async def")
                return value

        return guarded_plain

    def __str__(self) -> str:
        return f"the breaker {self.name}" if self.name else "the breaker"

    def __repr__(self) -> str:
        return f"<Breaker {self.name!r} {self.state}>"

    def _end(self, permit: Permit | None, *, failed: bool | None) -> None:
        with self._lock:
            now, circuit = clock.monotonic(), self._circuit
            phase, began = permit or (circuit.phase, now)
            circuit.end(now, began, phase, failed=failed)
        self._tell()

    def _tell(self) -> None:
        """Log what happened, now that nobody waits for the lock."""
        news = self._circuit.news
        while news:
            try:
                level, line = news.popleft()
            except IndexError:
                return  # another thread was quicker
            log.log(level, "%s", line)
