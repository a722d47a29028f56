"""A clock that stands still until a test moves it."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from ..clock import installed
from ..deadline import seconds as checked_seconds

_HAIR_S: Final = 1e-9
"""Each move adds so much to the monotonic clock (s), which is less than any time that counts: for
a sum of seconds may come out a rounding above the instant that is reached by as many."""


class Clock:
    """Time as a test wants it: it begins now and goes on by :meth:`advance` alone.

    It counts whole milliseconds, as the server does, so that a deadline passes for everybody at
    the same call.
    """

    def __init__(self) -> None:
        self._wall_ms = int(time.time() * 1000)
        self._monotonic_ms = int(time.monotonic() * 1000)
        self._moved_ms = 0
        self._moves = 0
        self._lock = threading.Lock()
        self._watchers: list[Callable[[], None]] = []

    def monotonic(self) -> float:
        """Seconds that only ever grow."""
        return (self._monotonic_ms + self._moved_ms) / 1000 + self._moves * _HAIR_S

    def wall_ms(self) -> float:
        """The time of day, milliseconds since 1970."""
        return float(self._wall_ms + self._moved_ms)

    def advance(self, seconds: float) -> None:
        """Let ``seconds`` pass, rounded up to the millisecond.

        What runs in :func:`deadq.testing.run_until_idle` is interrupted if its time is over;
        what falls due is run by the next call of it.

        Raises:
            ValueError: negative, NaN or infinite.
        """
        # rounded first, so that 0.1 + 0.2 is no 301 ms
        step_ms = math.ceil(round(checked_seconds(seconds, "seconds", positive=False) * 1000, 6))
        with self._lock:
            self._moved_ms += step_ms
            self._moves += 1
            watchers = list(self._watchers)
        for watcher in watchers:
            watcher()

    @contextmanager
    def watched(self, watcher: Callable[[], None]) -> Iterator[None]:
        """Call ``watcher`` after every move, in the thread that moves, until the block ends."""
        with self._lock:
            self._watchers.append(watcher)
        try:
            yield
        finally:
            with self._lock:
                self._watchers.remove(watcher)

    def __repr__(self) -> str:
        return f"<Clock {self._moved_ms / 1000:.3f} s after its start>"


@contextmanager
def clock() -> Iterator[Clock]:
    """A clock that all of deadq in this process goes by until the block ends."""
    made = Clock()
    with installed(made):
        yield made
