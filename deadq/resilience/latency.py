"""How long calls have taken lately: a histogram of a few windows, oldest out first."""

from __future__ import annotations

import math
from collections import Counter
from typing import Final

from .. import clock
from .locks import counting_lock

_GROWTH: Final = math.log(1.05)
"""Width of a bucket: what is read off is right to 5 %."""

_PARTS: Final = 3
_LEAST_S: Final = 1e-6


class Latencies:
    """Quantiles over the last ``window`` seconds, in three parts of which the oldest is dropped
    whole, as Finagle's ``BackupRequestFilter`` does. Threads may share it.

    Args:
        window: seconds.
        least: samples without which there is no quantile.
    """

    __slots__ = ("_cached", "_fresh", "_least", "_lock", "_part", "_part_s", "_parts", "_samples")

    def __init__(self, window: float = 30.0, least: int = 1) -> None:
        self._part_s = window / _PARTS
        self._least = least
        self._lock = counting_lock()
        self._parts: list[Counter[int]] = [Counter()]
        self._part = -1
        self._samples = 0
        self._cached: dict[float, float] = {}
        self._fresh = 0
        """Samples after which the quantiles are worth counting anew."""

    def record(self, seconds: float) -> None:
        """Count one call."""
        bucket = math.ceil(math.log(max(seconds, _LEAST_S)) / _GROWTH)
        part = int(clock.monotonic() / self._part_s)
        with self._lock:
            if part != self._part:
                self._turn(part)
            self._parts[-1][bucket] += 1
            self._samples += 1
            if self._samples >= self._fresh:
                self._cached.clear()

    def quantile(self, q: float) -> float | None:
        """Seconds within which the share ``q`` of the calls ended; None: too few samples."""
        part = int(clock.monotonic() / self._part_s)
        with self._lock:
            if part != self._part:
                self._turn(part)
            if self._samples < self._least or not self._samples:
                return None
            found = self._cached.get(q)
            if found is None:
                found = self._cached[q] = self._counted(q)
                self._fresh = self._samples + 1 + self._samples // 50
            return found

    def _counted(self, q: float) -> float:
        total: Counter[int] = Counter()
        for counts in self._parts:
            total.update(counts)
        rank, seen, bucket = q * self._samples, 0, 0
        for bucket in sorted(total):
            seen += total[bucket]
            if seen >= rank:
                break
        return math.exp(bucket * _GROWTH)

    def _turn(self, part: int) -> None:
        gone = _PARTS if self._part < 0 else min(_PARTS, part - self._part)
        self._part = part
        self._parts = [*self._parts, *(Counter() for _ in range(gone))][-_PARTS:]
        self._samples = sum(counts.total() for counts in self._parts)
        self._cached.clear()
        self._fresh = 0
