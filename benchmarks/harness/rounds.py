"""Paired rounds and order statistics."""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pair:
    """What two ways of doing a thing took in each round (seconds for one operation)."""

    ours_s: tuple[float, ...]
    raw_s: tuple[float, ...]

    @property
    def speed(self) -> float:
        """Median over the rounds of our speed as a multiple of the raw one."""
        pairs = zip(self.ours_s, self.raw_s, strict=True)
        return statistics.median(raw / ours for ours, raw in pairs)

    @property
    def duration(self) -> float:
        """Median over the rounds of our duration as a multiple of the raw one."""
        pairs = zip(self.ours_s, self.raw_s, strict=True)
        return statistics.median(ours / raw for ours, raw in pairs)

    def microseconds(self) -> dict[str, float]:
        """Medians of both, for the series."""
        return {
            "ours_us": round(statistics.median(self.ours_s) * 1e6, 2),
            "raw_us": round(statistics.median(self.raw_s) * 1e6, 2),
        }


def paired(
    ours: Callable[[], float],
    raw: Callable[[], float],
    rounds: int,
    reset: Callable[[], object],
    turns: int = 1,
) -> Pair:
    """Measure both in each round, in turns: what drifts hits both alike.

    Each returns the seconds that one operation took. A round has ``turns`` turns, of which the
    median counts, so that a hiccup of the machine spoils one turn and not the round. ``reset``
    runs before each turn.
    """
    taken: dict[Callable[[], float], list[float]] = {ours: [], raw: []}
    for number in range(rounds):
        found: dict[Callable[[], float], list[float]] = {ours: [], raw: []}
        for turn in range(turns):
            for measure in (ours, raw) if (number + turn) % 2 == 0 else (raw, ours):
                reset()
                gc.collect()
                found[measure].append(measure())
        for measure, values in found.items():
            taken[measure].append(statistics.median(values))
    return Pair(tuple(taken[ours]), tuple(taken[raw]))


def each(operation: Callable[[], object], times: int) -> float:
    """Seconds that one of ``times`` operations in a row takes."""
    begin = time.perf_counter()
    for _ in range(times):
        operation()
    return (time.perf_counter() - begin) / times


def percentile(values: Sequence[float], q: float) -> float:
    """The value below which a share ``q`` lies (nearest rank); NaN of none."""
    if not values:
        return math.nan
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, max(0, math.ceil(q * len(ranked)) - 1))]
