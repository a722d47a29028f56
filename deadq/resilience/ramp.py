"""How calls return to a dependency that answers again: paced, by a rate that grows.

With ``R`` the whole rate, ``a`` the share of it to begin with and ``L`` the length of the ramp,
the rate ``t`` seconds after its beginning is ::

    R * (a + (1 - a) * t / L)       up to L
    R * 2 ** (4 * (t - L) / L)      from there on, until it is more than what callers ask for

Calls are spaced by that rate, not drawn from a bucket: a bucket that fills while nobody calls
would let a dammed-up wave through in one piece.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Final

_WINDOW_S: Final = 0.1
_EXCESS: Final = 0.1
"""In any window of so many seconds there are at most so many parts more calls than by the rate,
or one call, whichever is more."""

_DOUBLINGS: Final = 4
"""Past its length the rate doubles so often in one length more."""
_MOST_DOUBLINGS: Final = 200
_STRETCHES: Final = 10
"""What callers ask for is measured over this part of the ramp's length."""
_NOISE: Final = 1e-9


class Ramp:
    """One ramp, from its beginning on; not safe to share between threads by itself.

    ``rate`` is in calls a second, ``start`` a share of it, ``length`` in seconds. Of the last
    ``most`` outcomes it keeps how many failed.
    """

    __slots__ = (
        "_asked",
        "_began",
        "_due",
        "_failures",
        "_length",
        "_outcomes",
        "_rate",
        "_start",
        "_stretch",
    )

    def __init__(self, now: float, rate: float, start: float, length: float, most: int) -> None:
        self._began = now
        self._rate = rate
        self._start = start
        self._length = length
        self._due = 0.0
        self._stretch = now
        self._asked = 0
        self._outcomes: deque[bool] = deque(maxlen=most)
        self._failures = 0

    def rate(self, now: float) -> float:
        """Calls a second that may begin at this instant."""
        t, length = max(0.0, now - self._began), self._length
        if t < length:
            return self._rate * (self._start + (1 - self._start) * t / length)
        return self._rate * 2 ** min(_MOST_DOUBLINGS, _DOUBLINGS * (t - length) / length)

    def calls(self, now: float) -> float:
        """Calls that may have begun since the ramp did: the integral of the rate."""
        t, length = max(0.0, now - self._began), self._length
        grown = min(t, length)
        sum_ = self._rate * (self._start * grown + (1 - self._start) * grown**2 / (2 * length))
        if t > length:
            doublings = min(_MOST_DOUBLINGS, _DOUBLINGS * (t - length) / length)
            sum_ += self._rate * length / (_DOUBLINGS * math.log(2)) * (2**doublings - 1)
        return sum_

    def admits(self, now: float) -> bool:
        """Whether one more call may begin now; a call that may is counted as begun."""
        self._asked += 1
        calls = self.calls(now)
        # What arrives between two ticks of its turn would lose them: where the rate is high, a
        # call may come a little early without more than the excess in any window.
        early = _EXCESS * _WINDOW_S * self.rate(now - _WINDOW_S) - 1
        if self._due > calls + min(1.0, max(0.0, early)) + _NOISE:
            return False
        self._due = max(self._due, calls) + 1
        return True

    def over(self, now: float) -> bool:
        """Whether the rate has outgrown what callers ask for; looked at once a stretch."""
        took = now - self._stretch
        if took < self._length / _STRETCHES:
            return False
        asked, self._asked, self._stretch = self._asked, 0, now
        return now - self._began >= self._length and asked / took <= self.rate(now)

    def remaining(self, now: float) -> float:
        """Seconds until the whole rate is reached, and at least until a next call's turn."""
        return max(self._began + self._length - now, 1 / self.rate(now))

    def saw(self, *, failed: bool) -> None:
        """Keep an outcome, and forget the oldest."""
        if len(self._outcomes) == self._outcomes.maxlen:
            self._failures -= self._outcomes[0]
        self._outcomes.append(failed)
        self._failures += failed

    def failing(self, ratio: float) -> bool:
        """Whether this share of the outcomes would be failures even if all that are yet to be
        kept were none."""
        return self._failures >= ratio * (self._outcomes.maxlen or 0)

    def failed(self, ratio: float) -> bool:
        """Whether this share of the outcomes are failures, however few there are."""
        return 0 < len(self._outcomes) * ratio <= self._failures
