"""Whether a dependency has been failing for so long that it is no spike."""

from __future__ import annotations

from collections import deque
from typing import Final

_SLOTS: Final = 6
"""In each of so many parts of the time, a good share of the calls must have failed."""


class SustainedFailure:
    """Watches outcomes; not safe to share between threads by itself.

    Time is looked at in slots, a sixth of ``lasts`` seconds each. A slot in which less than
    ``ratio`` of the calls failed ends the run of failures, and so does silence for half of
    ``lasts``, as nobody knows how calls would have ended. A run is sustained once it is that long
    and made of ``least`` calls, and calls fail still. What a spike lacks in length it cannot make
    up in density, as it could in a share of all the calls of a minute.
    """

    __slots__ = (
        "_calls",
        "_failures",
        "_healthy",
        "_last",
        "_lasts",
        "_least",
        "_ratio",
        "_run_calls",
        "_since",
        "_slot",
        "_whole",
    )

    def __init__(self, now: float, ratio: float, lasts: float, least: int) -> None:
        self._ratio, self._lasts, self._least = ratio, lasts, least
        self._slot = self._slot_at(now)
        self._calls = self._failures = 0
        self._since: float | None = None
        self._run_calls = 0
        self._last = now
        self._whole = False  # the first slot began earlier, and tells no rate
        self._healthy: deque[int] = deque(maxlen=_SLOTS)

    def saw(self, now: float, began: float, *, failed: bool) -> bool:
        """Whether failure is sustained, with this outcome of a call that ``began`` then."""
        self._go_on_to(now)
        # a call that was under way all the time breaks a silence: timeouts may be long
        if began - self._last > self._lasts / 2:
            self._forget()
        self._last = now
        self._calls += 1
        self._failures += failed
        if failed and self._since is None:
            self._since = now
        if self._since is None:
            return False
        self._run_calls += 1
        return (
            failed
            and self.lasted(now) >= self._lasts
            and self._run_calls >= self._least
            and self._failures >= self._ratio * self._calls
        )

    def rate(self, now: float) -> float:
        """Calls a second before the failures began; without any, those since then."""
        if healthy := sum(self._healthy):
            return healthy / (len(self._healthy) * self._lasts / _SLOTS)
        return max(1, self._run_calls) / max(self.lasted(now), self._lasts / _SLOTS)

    def lasted(self, now: float) -> float:
        """Seconds since the run of failures began; 0 without one."""
        return 0.0 if self._since is None else now - self._since

    def _slot_at(self, now: float) -> int:
        return int(now // (self._lasts / _SLOTS))

    def _go_on_to(self, now: float) -> None:
        slot = self._slot_at(now)
        if slot == self._slot:
            return
        if self._calls and self._failures < self._ratio * self._calls:
            self._forget()
        if self._since is None:
            if self._whole:
                self._healthy.append(self._calls)
            self._healthy.extend([0] * min(_SLOTS, slot - self._slot - 1))
        self._slot, self._whole = slot, True
        self._calls = self._failures = 0

    def _forget(self) -> None:
        self._since = None
        self._run_calls = 0
