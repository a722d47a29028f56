"""How long to wait before the next try, spread so that the losers of a race do not meet again.

The formulas are Marc Brooker's ("Exponential Backoff And Jitter", 2015). With ``n`` failures so
far, ``e(n) = min(cap, base * multiplier ** n)``, and ``U`` uniform between its two ends::

    none           0
    exponential    e(n)
    equal          e(n)/2 + U(0, e(n)/2)
    full           U(0, e(n))
    decorrelated   min(cap, U(base, 3 * previous)), the zeroth delay being base
"""

import math
import os
import random
from dataclasses import dataclass, field
from typing import Literal, Protocol, get_args

BackoffKind = Literal["none", "exponential", "equal", "full", "decorrelated"]

_KINDS: tuple[str, ...] = get_args(BackoffKind)
_YEAR_S = 366 * 86_400.0
_SHORTEST_S = 1e-9
_SETTLED = 100
"""Steps after which a decorrelated chain no longer knows where it began."""


class RandomSource(Protocol):
    """Where jitter comes from: a ``random.Random``, or anything with its one method."""

    def random(self) -> float:
        """A number from 0 up to, but not including, 1."""
        ...


class _ProcessRandom(random.Random):
    """A source of this process alone.

    Not the ``random`` module's own: a program that seeds that one in each of its workers would
    make them all retry in step.
    """

    def __reduce__(self) -> str:
        # A pickled or copied Backoff takes the source of the process it arrives in: a copied
        # state would give two processes the same jitter.
        return "_JITTER"


_JITTER = _ProcessRandom()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_JITTER.seed)


@dataclass(frozen=True, slots=True)
class Backoff:
    """A rule for the delays between tries; immutable, and safe to share between threads.

    ``base`` and ``cap`` are seconds. No delay is ever longer than ``cap``, whatever the attempt
    number. ``multiplier`` is the growth per failure; ``decorrelated`` has its own and ignores it.
    ``rng`` is the source of jitter: by default one that differs in every process, forked ones
    included; tests hand in ``random.Random(seed)``.

    Raises ``ValueError`` or ``TypeError`` for settings that make no sense.
    """

    kind: BackoffKind = "full"
    base: float = 0.1
    cap: float = 5.0
    multiplier: float = 2.0
    rng: RandomSource = field(default=_JITTER, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.kind not in _KINDS:
            msg = f"unknown backoff kind {self.kind!r}: use one of {', '.join(_KINDS)}"
            raise ValueError(msg)
        for name in ("base", "cap"):
            _check_seconds(f"backoff {name}", getattr(self, name))
        if 0 < self.base < _SHORTEST_S:
            raise ValueError(
                f"backoff base {self.base!r} s is shorter than a nanosecond: give seconds, "
                "or kind='none' for no delay"
            )
        if not _is_number(self.multiplier):
            raise TypeError(f"backoff multiplier must be a number, not {self.multiplier!r}")
        if not 1 <= self.multiplier < math.inf:
            raise ValueError(
                f"backoff multiplier {self.multiplier!r} is not 1 or more and finite: "
                "use 1 for a constant delay, 2 to double it with each failure"
            )
        if not callable(getattr(self.rng, "random", None)):
            raise TypeError(
                f"backoff rng {self.rng!r} has no random() method: pass a random.Random, "
                "or leave it out"
            )

    def delay(self, n: int, previous: float | None = None) -> float:
        """Seconds to wait after ``n`` failures: from 0 to ``cap``, for any ``n`` from 0 on.

        ``previous`` is the delay before this one; only ``decorrelated`` looks at it, and without
        it draws the whole chain of ``n`` delays anew.
        """
        if not isinstance(n, int) or isinstance(n, bool):
            raise TypeError(f"the number of failures must be an int, not {n!r}")
        if n < 0:
            raise ValueError(f"the number of failures is {n}: count from 0 up")
        if previous is not None:
            _check_seconds("previous delay", previous, longest=math.inf)
        match self.kind:
            case "none":
                return 0.0
            case "exponential":
                return self._ceiling(n)
            case "equal":
                half = self._ceiling(n) / 2
                return half + half * self.rng.random()
            case "full":
                return self._ceiling(n) * self.rng.random()
            case "decorrelated":
                return self._decorrelated(n, previous)

    def _ceiling(self, n: int) -> float:
        base, cap = float(self.base), float(self.cap)
        if base >= cap:
            return cap
        if n == 0 or base == 0 or self.multiplier == 1:
            return base
        # The cap is applied to the exponent: the power itself overflows from attempt 1024 on.
        if n >= math.log(cap / base) / math.log(self.multiplier):
            return cap
        return min(cap, base * float(self.multiplier) ** n)

    def _decorrelated(self, n: int, previous: float | None) -> float:
        base, cap = float(self.base), float(self.cap)
        if previous is None:
            delay, steps = min(base, cap), min(n, _SETTLED)
        else:
            delay, steps = float(min(previous, cap)), 1
        for _ in range(steps):
            spread = max(0.0, 3 * delay - base)
            delay = min(cap, base + spread * self.rng.random())
        return delay


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _check_seconds(what: str, value: float, longest: float = _YEAR_S) -> None:
    if not _is_number(value):
        raise TypeError(f"{what} must be a number of seconds, not {value!r}")
    # Comparing, not converting: an int may be too large for a float; NaN fails both comparisons.
    if not (0 <= value < math.inf):
        raise ValueError(f"{what} {value!r} is not a finite number of seconds from 0 up")
    if value > longest:
        raise ValueError(
            f"{what} {value!r} s is longer than a year: give seconds, not milliseconds"
        )
