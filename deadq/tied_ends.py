"""Waiting for two tied jobs. Only one of them runs, as a rule; after a fault both may, and then the
first success counts, whichever of them hangs."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

from . import clock
from .handle import JobHandle
from .job import Sight, State
from .store.background import background

R = TypeVar("R")

End = tuple[JobHandle[R], Sight]
"""One of the two, and how it stands."""

Fate = Future[JobHandle[R] | None]
"""The second one; None where it was not sent, or refused."""


def ends(first: JobHandle[R] | None, fate: Fate[R], until: float) -> list[End[R]]:
    """How those stand that there are, when one has succeeded or all have ended, or at ``until``
    (monotonic s)."""
    seen: list[End[R]] = []
    if first is not None:
        second = _Beside(fate)
        try:
            seen.append((first, first._producer.wait(first.id, until, second)))
        finally:
            second.close()
        if seen[0][1].state is State.DONE:
            return seen
    try:
        other = fate.result(max(0.0, until - clock.monotonic()))
    except TimeoutError:
        return seen
    if other is not None:
        seen.append((other, other._producer.wait(other.id, until)))
    return seen


async def aends(first: JobHandle[R] | None, fate: Fate[R], until: float) -> list[End[R]]:
    """The asyncio twin of :func:`ends`."""
    waits = [background(_end(first, until)), background(_end_of_second(fate, until))]
    running = set(waits)
    try:
        while running and not any(map(_succeeded, waits)):
            _, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in running:
            wait.cancel()
        if running:
            await asyncio.wait(running)
    if any(map(_succeeded, waits)):  # then it does not matter what went wrong with the other one
        waits = [wait for wait in waits if not (wait.cancelled() or wait.exception())]
    return [end for wait in waits if (end := wait.result()) is not None]


async def _end(handle: JobHandle[R] | None, until: float) -> End[R] | None:
    if handle is None:
        return None
    return handle, await handle._producer.await_end(handle.id, until)


async def _end_of_second(fate: Fate[R], until: float) -> End[R] | None:
    if not fate.done():
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, until - clock.monotonic())):
                await asyncio.shield(asyncio.wrap_future(fate))
    return await _end(fate.result() if fate.done() else None, until)


def _succeeded(wait: asyncio.Task[End[R] | None]) -> bool:
    if not wait.done() or wait.cancelled() or wait.exception() is not None:
        return False
    end = wait.result()
    return end is not None and end[1].state is State.DONE


class _Beside(Generic[R]):
    """The second one, for whoever waits for the first: it may be sent later, and end sooner."""

    def __init__(self, fate: Fate[R]) -> None:
        self.news = threading.Event()
        self._fate = fate
        self._stop_watching: Callable[[], None] | None = None
        self._over = False
        fate.add_done_callback(lambda _: self.news.set())

    def came(self) -> bool:
        """Whether it has succeeded."""
        second = self._fate.result() if self._fate.done() else None
        if second is None or self._over:
            return False
        if self._stop_watching is None:
            listener = second._producer.listener()
            listener.watch(second.id, self.news)
            self._stop_watching = functools.partial(listener.unwatch, second.id, self.news)
        state = second._producer.look(second.id).state
        self._over = state.final
        return state is State.DONE

    def close(self) -> None:
        if self._stop_watching is not None:
            self._stop_watching()
