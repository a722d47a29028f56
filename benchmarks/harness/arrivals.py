"""Open-loop arrivals: a schedule made in advance, kept whatever the answers do.

A client that waits for its answers before it goes on (a closed loop) slows down with the system
it measures, and hides overload. Here an arrival is due at an instant fixed by the seed, and is
sent then, however many answers are still outstanding.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


def constant(rate: float, seconds: float, seed: int) -> Iterator[float]:
    """Offsets (s) of evenly spaced arrivals, ``rate`` a second; the seed sets their phase."""
    gap = 1.0 / rate
    at = random.Random(seed).random() * gap
    while at < seconds:
        yield at
        at += gap


def poisson(rate: float, seconds: float, seed: int) -> Iterator[float]:
    """Offsets (s) of a Poisson process of ``rate`` a second."""
    gaps = random.Random(seed)
    at = gaps.expovariate(rate)
    while at < seconds:
        yield at
        at += gaps.expovariate(rate)


@dataclass(slots=True)
class Arrival(Generic[T]):
    """One arrival and its answer. Instants in monotonic seconds."""

    index: int
    due: float
    sent: float = float("nan")
    answered: float = float("nan")
    answer: T | None = None
    error: Exception | None = None

    @property
    def lag(self) -> float:
        """How much later than due it was sent (s): the driver's own fault."""
        return self.sent - self.due

    @property
    def latency(self) -> float:
        """From sending to the answer (s)."""
        return self.answered - self.sent


async def drive(
    offsets: Iterable[float],
    submit: Callable[[int], Awaitable[T]],
    *,
    start: float,
    patience: float = 5.0,
) -> list[Arrival[T]]:
    """Submit at ``start`` (monotonic s) plus each offset; answers are collected on the side.

    ``submit`` gets the arrival's number. What it raises becomes the arrival's ``error``. After
    the last arrival, answers still outstanding are waited for at most ``patience`` seconds.
    """
    arrivals: list[Arrival[T]] = []
    pending: set[asyncio.Task[None]] = set()
    with _no_collection():
        for index, offset in enumerate(offsets):
            arrival: Arrival[T] = Arrival(index, start + offset)
            left = arrival.due - time.monotonic()
            # also when it is late: those that were sent before must get their turn
            await asyncio.sleep(max(0.0, left))
            arrivals.append(arrival)
            task = asyncio.create_task(_submit(arrival, submit))
            pending.add(task)
            task.add_done_callback(pending.discard)
    if pending:
        await asyncio.wait(pending, timeout=patience)
    for task in list(pending):
        task.cancel()
    return arrivals


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Going through all that was recorded takes tens of ms, and would count as the queue's."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


async def _submit(arrival: Arrival[T], submit: Callable[[int], Awaitable[T]]) -> None:
    arrival.sent = time.monotonic()
    try:
        arrival.answer = await submit(arrival.index)
    except Exception as error:  # noqa: BLE001  a refusal is an answer too
        # without its frames, which thousands of refusals would keep alive
        arrival.error = error.with_traceback(None)
    arrival.answered = time.monotonic()
