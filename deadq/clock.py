"""Time: a monotonic clock for durations, and the server's clock for instants.

The server's clock is the only one that decides. :class:`ServerClock` keeps an estimate of it
from round trips and counts on the monotonic clock in between, so a host's wall clock may be
wrong, or step, without any consequence.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

_WIDEN_PER_S = 0.0005
"""Crystal drift allowed for, in seconds a second: an old narrow estimate slowly widens."""
_SLEW = 0.5
"""How fast a correction of the estimate reaches what is submitted, in seconds a second."""


class Clock(Protocol):
    """What the ground needs of a clock. Tests hand in one that they move."""

    def monotonic(self) -> float:
        """Seconds that only ever grow, from an unknown start."""
        ...

    def wall_ms(self) -> float:
        """This host's idea of the time, milliseconds since 1970."""
        ...


class SystemClock:
    """The real one."""

    def monotonic(self) -> float:
        return time.monotonic()

    def wall_ms(self) -> float:
        return time.time() * 1000.0


_system: Clock = SystemClock()
_current: Clock = _system


def current() -> Clock:
    """The clock in use: the system's, unless a test installed its own."""
    return _current


def monotonic() -> float:
    """Seconds on the clock in use."""
    return _current.monotonic()


@contextmanager
def installed(clock: Clock) -> Iterator[Clock]:
    """Use ``clock`` in this process until the block ends (for tests)."""
    global _current  # noqa: PLW0603  one clock a process is the point
    before, _current = _current, clock
    try:
        yield clock
    finally:
        _current = before


class ServerClock:
    """An estimate of the server's clock, kept by round trips.

    Each reply that carries the server's time bounds the difference between the two clocks:
    the server read its clock after we sent and before we received. The estimate is moved only
    when a new bound contradicts it (the server stepped, or another one took over) or is
    narrower than what is known. Before the first reply the host's wall clock has to do.
    """

    __slots__ = ("_ahead_at", "_ahead_ms", "_at", "_offset_ms", "_width_ms", "round_trip_s")

    def __init__(self) -> None:
        self._offset_ms: float | None = None
        self._width_ms = 0.0
        self._at = 0.0
        self._ahead_ms = 0.0
        self._ahead_at = 0.0
        self.round_trip_s = 0.0
        """What a call to the server has taken of late, on the way and there (s)."""

    @property
    def known(self) -> bool:
        """Whether a server has answered yet."""
        return self._offset_ms is not None

    def learn(self, server_ms: float, sent: float, received: float) -> None:
        """Take in a reply: ``server_ms`` read between the monotonic seconds given."""
        trip = received - sent
        before = self.round_trip_s
        # the mean of the last few; a single one may be long, as where the call had to wait
        self.round_trip_s = before + (min(trip, 2 * before) - before) / 8 if before else trip
        low = server_ms - received * 1000.0
        high = server_ms + 1.0 - sent * 1000.0  # the server truncates to whole milliseconds
        width = self._width_ms + (received - self._at) * 1000.0 * _WIDEN_PER_S
        offset = self._offset_ms
        if offset is None or not low <= offset <= high or high - low < width:
            middle, span = (low + high) / 2, high - low
            ahead = 0.0
            # What both bounds allow is a better estimate; anything else is a clock that stepped.
            if offset is not None and abs(offset - middle) <= (width + span) / 2:
                ahead = max(0.0, self._lead(received) + offset - middle)
            self._ahead_ms, self._ahead_at = ahead, received
            self._offset_ms, self._width_ms, self._at = middle, span, received

    def now_ms(self) -> float:
        """The server's time, milliseconds since 1970, by the best estimate."""
        return self.at_ms(_current.monotonic())

    def at_ms(self, monotonic_s: float) -> float:
        """What the server's clock shows at a monotonic instant of this process."""
        offset = self._offset_ms
        if offset is None:
            offset = _current.wall_ms() - _current.monotonic() * 1000.0
        return monotonic_s * 1000.0 + offset

    def stamp_ms(self, monotonic_s: float) -> float:
        """As :meth:`at_ms`, for instants that order jobs: where a better bound moved the estimate
        back, these follow at half the speed of time, so that of two jobs submitted one after the
        other with the same time budget, the first keeps the earlier deadline."""
        at = self.at_ms(monotonic_s)
        return at + self._lead(_current.monotonic()) if self._ahead_ms else at

    def _lead(self, now: float) -> float:
        return max(0.0, self._ahead_ms - (now - self._ahead_at) * 1000.0 * _SLEW)

    def monotonic_at(self, server_ms: float) -> float:
        """The monotonic instant at which the server's clock shows ``server_ms``."""
        now = _current.monotonic()
        return now + (server_ms - self.at_ms(now)) / 1000.0


def jittered(seconds: float) -> float:
    """A hint spread evenly over ``[seconds / 2, seconds * 3 / 2]``."""
    return seconds * (0.5 + random.random())
