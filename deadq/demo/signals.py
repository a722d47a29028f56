"""Signals that end the demo: none of them leaves anything behind."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

T = TypeVar("T")

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_AGAIN_S: Final = 1.0


class Interruption:
    """What a signal does: it raises a KeyboardInterrupt, or cancels what :meth:`run` runs, which
    then raises one. Raised in the midst of any task of a loop it would leave that task's failure
    to be complained of."""

    def __init__(self) -> None:
        self._cancel: Callable[[], object] | None = None

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """As asyncio.run does."""

        async def cancellable() -> T:
            loop, task = asyncio.get_running_loop(), asyncio.current_task()
            assert task is not None  # noqa: S101  for the type checker
            self._cancel = lambda: loop.call_soon_threadsafe(task.cancel)
            try:
                return await coroutine
            finally:
                self._cancel = None

        try:
            return asyncio.run(cancellable())
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None

    def __call__(self, *_: object) -> None:
        if self._cancel is not None:
            self._cancel()
            return
        # and once more if need be: Python swallows what is raised within a __del__
        signal.setitimer(signal.ITIMER_REAL, _AGAIN_S)
        raise KeyboardInterrupt


@contextmanager
def signals_interrupt() -> Iterator[Interruption]:
    """SIGTERM and a closed terminal end the demo as Ctrl-C does, clean-up included."""
    interrupt = Interruption()
    before = {number: signal.signal(number, interrupt) for number in (*_SIGNALS, signal.SIGALRM)}
    try:
        yield interrupt
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def signals_held_back() -> Iterator[None]:
    """No interruption between a thing's beginning and the note of it; afterwards it comes."""
    came: list[int] = []
    before = {
        number: signal.signal(number, lambda number, _: came.append(number)) for number in _SIGNALS
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if came:
        signal.raise_signal(came[0])


def ignore_signals() -> None:
    """From now on, to the end of :func:`signals_interrupt`."""
    for number in (*_SIGNALS, signal.SIGALRM):
        signal.signal(number, signal.SIG_IGN)
