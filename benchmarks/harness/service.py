"""How long a handler takes: seeded draws, and a slow spell that the driver may switch on."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.sharedctypes import RawArray
from typing import Any


@dataclass(frozen=True, slots=True)
class Service:
    """A distribution of service times: ``constant``, ``exponential`` or ``rare``.

    ``rare``: a share of ``rare_share`` takes ``rare_s``, all others ``typical_s``.
    """

    kind: str
    typical_s: float
    rare_s: float = 0.0
    rare_share: float = 0.0

    def draws(self, seed: int) -> Callable[[], float]:
        """A seeded source of service times (s)."""
        source = random.Random(seed)
        if self.kind == "constant":
            return lambda: self.typical_s
        if self.kind == "exponential":
            return lambda: source.expovariate(1.0 / self.typical_s)
        if self.kind == "rare":
            return lambda: self.rare_s if source.random() < self.rare_share else self.typical_s
        msg = f"no service of the kind {self.kind!r}"
        raise ValueError(msg)


class Spell:
    """A span of time in which all service takes ``factor`` times as long; shared by processes.

    It is made before the workers start, and set (monotonic seconds) when they are up.
    """

    def __init__(self, factor: float) -> None:
        self.factor = factor
        self._span: Any = RawArray("d", [math.inf, math.inf])

    def set(self, begin: float, end: float) -> None:
        """Slow from ``begin`` to ``end``."""
        self._span[:] = [begin, end]

    def factor_at(self, now: float) -> float:
        """By how much service that starts at ``now`` is longer."""
        begin, end = self._span
        return self.factor if begin <= now < end else 1.0
