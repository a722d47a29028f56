"""The states of a circuit breaker and its settings, counted on times that are handed in.

The picture of them stands in :mod:`.breaker`, which adds the lock, the clock and the forms.
"""

from __future__ import annotations

import logging
import random
from collections import deque
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from ..deadline import seconds
from ..errors import shown
from .ramp import Ramp
from .sustained import SustainedFailure

_SHORTEST_S: Final = 0.001
_LONGEST_S: Final = 86_400.0
_MOST_CALLS: Final = 100_000


class BreakerState(StrEnum):
    """What a breaker does with calls."""

    CLOSED = "closed"
    """All are let through."""
    OPEN = "open"
    """All are refused."""
    HALF_OPEN = "half_open"
    """One is under way as a probe, the others are refused."""
    RAMP = "ramp"
    """They are let through at a rate that grows."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Those of :class:`.Breaker`, checked; times in s.

    Raises:
        TypeError: a share or a count is no number.
        ValueError: a number is out of range, or a time is none.
    """

    failure_ratio: float
    sustained: float
    minimum_calls: int
    open_for: float
    ramp: float
    ramp_start: float

    def __post_init__(self) -> None:
        for name in ("sustained", "open_for", "ramp"):
            number = seconds(getattr(self, name), f"breaker {name}")
            if not _SHORTEST_S <= number <= _LONGEST_S:
                raise ValueError(
                    f"breaker {name} {number:g} s is not between a millisecond and a day: "
                    "give seconds"
                )
        for name in ("failure_ratio", "ramp_start"):
            share = getattr(self, name)
            if isinstance(share, bool) or not isinstance(share, int | float):
                raise TypeError(f"breaker {name} must be a number, not {shown(share)}")
            if not 0 < share <= 1:
                raise ValueError(
                    f"breaker {name} {shown(share)} is no share: give more than 0, and 1 at most"
                )
        calls = self.minimum_calls
        if isinstance(calls, bool) or not isinstance(calls, int):
            raise TypeError(f"breaker minimum_calls must be an int, not {shown(calls)}")
        if not 1 <= calls <= _MOST_CALLS:
            raise ValueError(
                f"breaker minimum_calls {shown(calls)} is not a number from 1 to {_MOST_CALLS:,}"
            )


class Circuit:
    """One breaker's state; not safe to share between threads by itself.

    Each move begins a new ``phase``, by whose number a call's outcome is told from those of
    earlier times. ``news`` collects what is to be logged: level and line.
    """

    __slots__ = (
        "_ramp",
        "_rate",
        "_settings",
        "_until",
        "_watch",
        "name",
        "news",
        "phase",
        "state",
    )

    def __init__(self, now: float, name: str, settings: Settings) -> None:
        self.name = name
        self.phase = 0
        self.state = BreakerState.CLOSED
        self.news: deque[tuple[int, str]] = deque()
        self._settings = settings
        self._rate = 0.0
        self._until = 0.0
        self._watch = self._new_watch(now)
        self._ramp = self._new_ramp(now)  # another one stands in its place before it is asked

    def wait(self, now: float) -> float | None:
        """None for a call that may begin, else seconds after which to ask again: spread over the
        ramp, so that those who were refused do not return as a wave."""
        if self.state is BreakerState.CLOSED:
            return None
        spread = 1.0 - random.random()
        if self.state is BreakerState.RAMP:
            if not self._ramp.over(now):
                return None if self._ramp.admits(now) else spread * self._ramp.remaining(now)
            if not self._ramp.failed(self._settings.failure_ratio):
                self._close(now)
                return None
            self._open(now, "too many of the few calls in its ramp failed")
        if now < self._until:
            ahead = self._until - now if self.state is BreakerState.OPEN else 0.0
            return ahead + spread * self._settings.ramp
        # a probe that has no outcome yet is given up: its phase is over
        self._move(BreakerState.HALF_OPEN)
        self._until = now + max(self._settings.open_for, self._settings.sustained)
        return None

    def end(self, now: float, began: float, phase: int, *, failed: bool | None) -> None:
        """Take in an outcome; None: it is neither."""
        if phase != self.phase:
            return
        match self.state:
            case BreakerState.CLOSED if failed is not None:
                if self._watch.saw(now, began, failed=failed):
                    self._rate = self._watch.rate(now)
                    self._open(now, f"calls have been failing for {self._watch.lasted(now):.0f} s")
            case BreakerState.HALF_OPEN if failed is None:
                self._move(BreakerState.OPEN)
                self._until = now  # the next call is a probe in its place
            case BreakerState.HALF_OPEN if failed:
                self._open(now, "its probe failed")
            case BreakerState.HALF_OPEN:
                self._begin_ramp(now)
            case BreakerState.RAMP if failed is not None:
                self._ramp.saw(failed=failed)
                if self._ramp.failing(self._settings.failure_ratio):
                    self._open(now, "calls fail again")

    def _open(self, now: float, why: str) -> None:
        self._move(BreakerState.OPEN)
        self._until = now + self._settings.open_for
        line = f"{self.name} is open: {why}; it refuses all for {self._settings.open_for:g} s"
        self.news.append((logging.WARNING, line))

    def _begin_ramp(self, now: float) -> None:
        self._move(BreakerState.RAMP)
        self._ramp = self._new_ramp(now)
        line = (
            f"{self.name} lets calls through again, up to {self._rate:.3g} a second "
            f"in {self._settings.ramp:g} s"
        )
        self.news.append((logging.INFO, line))

    def _close(self, now: float) -> None:
        self._move(BreakerState.CLOSED)
        self._watch = self._new_watch(now)
        self.news.append((logging.INFO, f"{self.name} is closed: it lets all calls through"))

    def _move(self, state: BreakerState) -> None:
        self.state = state
        self.phase += 1

    def _new_watch(self, now: float) -> SustainedFailure:
        given = self._settings
        return SustainedFailure(now, given.failure_ratio, given.sustained, given.minimum_calls)

    def _new_ramp(self, now: float) -> Ramp:
        given = self._settings
        return Ramp(now, self._rate, given.ramp_start, given.ramp, given.minimum_calls)
