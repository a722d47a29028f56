"""Interrupting a handler on the main thread, by signals: on time, on a word, and nowhere else.

One Python signal handler serves SIGALRM (a limit is over), SIGIO (the supervisor has said
something) and SIGTERM. It raises :class:`Interrupt` only while the main thread is in a function
of the user's that may be interrupted: :attr:`Interrupts.place` says so, and is changed by plain
assignments, between which no signal handler runs.
"""

from __future__ import annotations

import enum
import math
import os
import signal
import time
from _signal import getsignal  # type: ignore[import-not-found]  # the public one looks it up in an enum
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

from ... import clock
from ...errors import Interrupt
from ...events import Event, log
from ..jobs.forks import ForkHooks
from ..jobs.run import BEGINNING_CPU_S, SyncRun
from ..lease.renewer import SAFE
from ..ties.board import Page
from ..ties.channel import Channel
from .alarm import REPEAT_S, Alarm
from .hearing import Hearing

_UNIT_PATIENCE_S: Final = 0.25
"""So long beyond its limit a unit may take to leave."""

_ALONE_S: Final = 5.0
"""So long a handler may take to leave once there is no supervisor that would kill the child."""

_OURS: Final = {signal.SIGALRM, signal.SIGIO, signal.SIGTERM}


class Place(enum.Enum):
    """Where the main thread is."""

    RUNTIME = 0
    """In deadq's own code: nothing is raised."""
    HANDLER = 1
    """In the handler: interrupted when its run has a mark."""
    UNIT = 2
    """In a unit's function: interrupted at the unit's limit alone."""


_RUNTIME, _HANDLER, _UNIT = Place.RUNTIME, Place.HANDLER, Place.UNIT


class Interrupts:
    """The signals of one process, which must be on its main thread.

    ``renewal`` gives a function that renews the child's own lease, once there is no supervisor to
    do it, and returns the pause to the next time (s).
    """

    def __init__(
        self,
        hearing: Hearing,
        channel: Channel,
        page: Page,
        lease: float,
        *,
        renewal: Callable[[], Callable[[], float]],
    ) -> None:
        self._hearing = hearing
        self._channel = channel
        self._page = page
        self._safe = SAFE * lease
        self._renewal = renewal
        self._renew: Callable[[], float] | None = None
        self._renew_at = 0.0
        self._pid = os.getpid()
        self._busy = False
        self._again = False
        self._leave_by = math.inf
        self._alarm = Alarm()
        self._handler = self._signalled
        self._forks = ForkHooks(_OURS, self._handler)
        self._before: dict[int, Any] = {}
        self.place: Place = _RUNTIME

    # Beginning and end.

    def start(self) -> None:
        """Take the signals over."""
        for number in _OURS:
            self._before[number] = signal.signal(number, self._handler)
        self._hearing.prick_up()
        self._forks.start()

    def close(self) -> None:
        """Give them back."""
        self._forks.stop()
        self._alarm.set(math.inf)
        self._hearing.close()
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @property
    def here(self) -> bool:
        """Whether this process is still the one that took the signals over."""
        return os.getpid() == self._pid

    @property
    def safe_until(self) -> float:
        """When a handler has to stop unless the lease is renewed (monotonic s)."""
        return self._page.good + self._safe

    # Running the user's functions.

    def begin(self, run: SyncRun) -> None:
        """From here on this is the run that is marked when its time is over."""
        self._hearing.run = run
        self._watch()

    def run(
        self, run: SyncRun, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[bool, Any]:
        """Run its handler to the end; says whether it returned, and what it returned or raised.

        The mark that it has now is its last.
        """
        run.began, run.began_cpu = clock.monotonic(), time.thread_time()
        if run.mark is not None:
            self._alarm.set(run.began)
        ended: tuple[bool, Any] = self._call(_HANDLER, fn, args, kwargs)
        self._hearing.run = None
        return ended

    def end(self) -> None:
        """There is no run any more, whether its handler was run or not."""
        self._hearing.run = None

    def run_unit(
        self, run: SyncRun, until: float, fn: Callable[..., Any], *args: Any
    ) -> tuple[bool, Any, bool]:
        """Run a unit's function to its end, interrupted at ``until``; says further whether it
        was."""
        outer = run.unit_until, run.unit_late
        run.unit_until, run.unit_late = min(until, outer[0]), False
        run.unit_raise_at = run.unit_until
        self._alarm.by(run.unit_until)
        good, value = self._call(_UNIT, fn, args, {})
        late = run.unit_late
        run.unit_until, run.unit_late = outer
        run.unit_raise_at = run.unit_until
        return good, value, late

    def pause(self) -> Place:
        """From here on nothing is raised; returns what :meth:`resume` wants to have back."""
        before = self.place
        self.place = _RUNTIME
        return before

    def resume(self, run: SyncRun, before: Place) -> None:
        """Back in the user's function: what came meanwhile is delivered."""
        self._watch()
        self.place = before
        if before is _HANDLER and run.mark is not None:
            self._raise(run)

    def mend(self) -> None:
        """Between two handlers: see to it that the last one took no signal and no timer away."""
        for number in signal.pthread_sigmask(signal.SIG_UNBLOCK, _OURS) & _OURS:
            name = signal.Signals(number).name
            log.warning("%s: %s blocked, which is deadq's", Event.LEFT_BEHIND, name)
        for number in _OURS:
            if getsignal(number) is not self._handler:
                signal.signal(number, self._handler)
                name = signal.Signals(number).name
                log.warning("%s: a handler of %s, which is deadq's", Event.LEFT_BEHIND, name)
        self._alarm.mend()

    def _call(
        self,
        place: Place,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        # A signal that comes while this very frame runs raises nothing: so none gets out of it,
        # whatever the moment. Between it and `fn` there is one more frame, that of _body, because
        # a function written in C has none of its own.
        try:
            self.place = place
            value = _body(fn, args, kwargs)
            self.place = _RUNTIME
        except BaseException as error:  # noqa: BLE001  SystemExit too must not end the worker
            self.place = _RUNTIME
            return False, error
        return True, value

    # The signal handler.

    def _signalled(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._pid:
            return
        if number == signal.SIGTERM:
            self._hearing.stop()
        elif number == signal.SIGALRM:
            self._alarm.gone_off()
        self._again = True
        if self._busy:
            return  # whoever is at it looks once more
        self._busy = True
        try:
            while self._again:
                self._again = False
                self._hearing.listen()
                self._watch()
        finally:
            self._busy = False
        run, place = self._hearing.run, self.place
        if run is None or frame is None or frame.f_code is _GUARD:
            return
        if place is _HANDLER and run.mark == "cancelled" and run.begins():
            self._alarm.set(clock.monotonic() + BEGINNING_CPU_S)
        elif place is _HANDLER and run.mark is not None:
            self._raise(run)
        elif place is _UNIT and (now := clock.monotonic()) >= run.unit_raise_at:
            run.unit_late = True
            run.unit_raise_at = now + REPEAT_S
            if now >= run.unit_until + _UNIT_PATIENCE_S:
                self._tell_stubborn(run)
            raise Interrupt("the limit of this unit is over")

    def _watch(self) -> None:
        """Mark a run whose time is over, and set the timer."""
        hearing, run = self._hearing, self._hearing.run
        if run is None:
            self._alarm.by(math.inf)
            return
        now = clock.monotonic()
        if run.mark is None:
            if now >= self.safe_until:  # before all else: somebody else may be at this job
                run.interrupt("lost")
            elif now >= run.until:
                run.interrupt(run.why)
            elif now >= hearing.stop_at:
                run.interrupt("stop")
        at = math.inf
        if self.place is _UNIT:
            at = run.unit_until if now < run.unit_until else now + REPEAT_S
            if hearing.alone:
                at = min(at, self._renewed(now))
        if run.mark is None:
            at = min(at, run.until, hearing.stop_at, self.safe_until)
        elif self.place is not _UNIT:
            at = now + REPEAT_S
        self._alarm.by(at)

    def _renewed(self, now: float) -> float:
        """The supervisor is gone, and a unit is to be ended: renew; returns when to do it again.

        Not from a thread: starting one is not safe in a signal handler. The unit waits meanwhile.
        """
        if now >= self._renew_at:
            if self._renew is None:
                self._renew = self._renewal()
            self._renew_at = now + self._renew()
        return self._renew_at

    def _raise(self, run: SyncRun) -> None:
        now = clock.monotonic()
        if now < run.raise_at:  # some other signal
            self._alarm.by(run.raise_at)
            return
        run.raise_at = now + REPEAT_S
        run.raises += 1
        if run.raises >= 2:
            self._tell_stubborn(run)
        if self._hearing.alone:
            self._leave_by = min(self._leave_by, now + _ALONE_S)  # after its unit, if it was in one
            if now > self._leave_by:
                os._exit(1)  # nobody else is there to end it
        raise Interrupt(f"interrupted: {run.mark}")

    def _tell_stubborn(self, run: SyncRun) -> None:
        if not run.stubborn:
            run.stubborn = True
            self._channel.send("stubborn", run.claim.id, run.claim.fence, run.mark or "unit")


def _body(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return fn(*args, **kwargs)


_GUARD: Final = Interrupts._call.__code__
