"""After how long a call counts as slow, and whether so many do that the whole fleet is slow.

The delay is a quantile of the last 30 s, as in Finagle's ``BackupRequestFilter``. A quantile says
which share of the calls outlasts it: 5 % in the case of the p95. When it is far more, it is not a
few servers that are slow but all of them, and second calls would only add to their load. Until that
is over, the delay stays what it was: measured anew it would soon make slow calls look normal.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Final

from .. import clock
from .latency import Latencies
from .locks import counting_lock

LEAST_DELAY_S: Final = 0.001
"""A second call before that would answer the jitter of the loop."""

NEW_NORMAL_S: Final = 300.0
"""What has been slow for so long is how things are: the delay is then measured anew."""

_PATIENCE_S: Final = 30.0
"""No loop is so late to tell that a call has outlasted its delay."""

_ABOVE: Final = 5
"""So many samples have to lie above a quantile before it is believed: 100 for the p95."""

_WEIGHT, _MOST_WEIGHT = 0.3, 1 / 64
"""Of one call in the moving share, in terms of what the share should be. When all calls are slow,
ten in a row turn hedging off; chance does that less than once in a million calls."""

_OFF, _ON = 4.0, 2.0
"""Off while the odds of a slow call are so many times what they should be (p95: 17 % of the calls
instead of 5 %), on again below the second (10 %)."""


class Sight:
    """What is seen of one call: None until it is known whether it outlasted the delay."""

    __slots__ = ("known", "slow", "until")

    def __init__(self, until: float) -> None:
        self.known = False
        self.slow: bool | None = None
        self.until = until
        """After that nobody will tell: its loop has ended before it, or stayed in another process
        at a fork."""


class Tail:
    """The slow end of one function's calls. Threads may share it.

    Args:
        quantile: share of the calls that is not to be hedged.
        delay: seconds instead of the quantile; None: as measured.
        usual: share of the calls that outlasts the delay in good times.
    """

    def __init__(self, quantile: float, delay: float | None, usual: float) -> None:
        self._quantile = quantile
        self._fixed = delay
        self._latencies = Latencies(
            least=1 if delay is not None else math.ceil(round(_ABOVE / (1 - quantile), 6))
        )
        self._lock = counting_lock()
        self._under_way: deque[Sight] = deque()
        self._share = usual
        self._weight = min(_MOST_WEIGHT, _WEIGHT * usual)
        self._off, self._on = _times(usual, _OFF), _times(usual, _ON)
        self._slow = False
        self._kept: float | None = None
        self._since = 0.0

    @property
    def slow(self) -> bool:
        """Whether the whole fleet is."""
        return self._slow

    def delay(self) -> float | None:
        """Seconds after which a call that begins now is slow; None: too few samples."""
        if self._fixed is not None:
            return self._fixed
        with self._lock:
            if self._kept is not None:
                if clock.monotonic() - self._since < NEW_NORMAL_S:
                    return self._kept
                self._slow, self._kept, self._share = False, None, 1 - self._quantile
        found = self._latencies.quantile(self._quantile)
        return None if found is None else max(found, LEAST_DELAY_S)

    def typical(self) -> float:
        """Seconds that a call takes, p50; 0 while that is not known."""
        return self._latencies.quantile(0.5) or 0.0

    def record(self, seconds: float) -> None:
        """A call took so long, or would have taken longer (censored above the delay)."""
        self._latencies.record(seconds)

    def begin(self, delay: float) -> Sight:
        """A call begins that has this ``delay``; see :meth:`seen`."""
        now = clock.monotonic()
        sight = Sight(now + 2 * delay + _PATIENCE_S)
        with self._lock:
            under_way = self._under_way
            while under_way and not under_way[0].known and under_way[0].until < now:
                under_way.popleft().known = True
            self._under_way.append(sight)
        return sight

    def seen(self, sight: Sight, delay: float, *, slow: bool | None) -> None:
        """Whether it has outlasted its ``delay``, as soon as that is known; None: it never will be.

        The first word counts. Calls count in the order in which they began: of many that begin
        together the slow ones would otherwise all come last, and look like a spell.
        """
        with self._lock:
            if sight.known:
                return
            sight.known, sight.slow = True, slow
            while self._under_way and self._under_way[0].known:
                found = self._under_way.popleft().slow
                if found is not None:
                    self._weigh(found, delay)

    def _weigh(self, slow: bool, delay: float) -> None:
        self._share += (slow - self._share) * self._weight
        if self._slow:
            if self._share < self._on:
                self._slow, self._kept = False, None
        elif self._share > self._off:
            self._slow, self._since = True, clock.monotonic()
            self._kept = delay


def _times(share: float, factor: float) -> float:
    """The share whose odds are ``factor`` times those of ``share``."""
    odds = factor * share / (1 - share)
    return odds / (1 + odds)
