"""The places of a crew that a child is missing in, and from when on each may be filled."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

from ... import clock
from ...resilience.backoff import Backoff

_PAUSES: Final = Backoff("full", base=0.2, cap=30.0)
"""Before a child is started where none could be, or where one ended before it could work."""

Number = int | None
"""Which of the plan's children it is the place of; None: that of a child for suspects."""


class Places:
    """What is vacant. At first there is one place; how many follow, its child tells."""

    def __init__(self) -> None:
        self._vacant: dict[Number, float] = {0: 0.0}
        self._failures = 0

    @property
    def next_at(self) -> float:
        """When one may be filled (monotonic s)."""
        return min(self._vacant.values(), default=math.inf)

    def due(self, now: float) -> list[Number]:
        """Those that may be filled."""
        return [number for number, at in self._vacant.items() if at <= now]

    def add(self, numbers: Iterable[Number]) -> None:
        """These are vacant, if they were not so already."""
        self._vacant = {**dict.fromkeys(numbers, 0.0), **self._vacant}

    def filled(self, number: Number) -> None:
        """There is a child."""
        del self._vacant[number]

    def works(self) -> None:
        """A child has come to work: whatever it was that failed is over."""
        self._failures = 0

    def vacated(self, number: Number) -> None:
        """Its child came to nothing: the next one begins after a pause."""
        self._failures += 1
        self._vacant[number] = clock.monotonic() + _PAUSES.delay(self._failures)

    def put_off(self) -> float:
        """No process is to be had: all places wait. Returns how long (s)."""
        self._failures += 1
        pause = _PAUSES.delay(self._failures)
        until = clock.monotonic() + pause
        self._vacant = {number: max(at, until) for number, at in self._vacant.items()}
        return pause
