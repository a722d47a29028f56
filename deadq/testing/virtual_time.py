"""Asynchronous code that waits, run without waiting."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from ..clock import installed

T = TypeVar("T")

_WALL_MS: Final = 1_700_000_000_000.0
"""The time of day at second 0: any will do, as long as it is always the same."""


def run_in_virtual_time(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on an event loop of its own, whose time jumps to the next timer whenever
    all wait; deadq goes by the same time, which begins at 0. The same code takes the same turns.

    For code that waits for timers and for itself. Sockets, threads and processes live in real
    time and are not waited for.

    Raises:
        RuntimeError: everybody waits, and no timer will ever wake anybody.
    """
    time = _Time()
    with installed(time), asyncio.Runner(loop_factory=lambda: _Loop(time)) as runner:
        return runner.run(main)


class _Time(selectors.DefaultSelector):
    """The clock, which is also what the loop waits by."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready: list[tuple[selectors.SelectorKey, int]] = super().select(0)
        if not ready:
            if timeout is None:
                raise RuntimeError(
                    "everybody waits for ever in virtual time: no timer is set, and what comes "
                    "from sockets, threads or processes is not waited for"
                )
            self.now += timeout
        return ready

    def monotonic(self) -> float:
        return self.now

    def wall_ms(self) -> float:
        return _WALL_MS + self.now * 1000.0


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self, time: _Time) -> None:
        self._virtual = time
        super().__init__(time)

    def time(self) -> float:
        """Seconds since the start of the run."""
        return self._virtual.now
