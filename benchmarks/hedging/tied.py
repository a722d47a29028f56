"""Tied jobs on two real queues: each has one worker, and what waits in one may start in the other.

Two workers with a slot each, a queue for each. Of the jobs 95 % take 5 ms and 5 % take 150 ms, so
that now and then one queue stands still while the other is empty; they arrive at 0.55 of what
both workers can do. A job goes to one of the queues, by the toss of a coin; tied, it goes to the
other one too.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from deadq import Queue, Task, Worker, atie

from ..harness.arrivals import drive, poisson
from ..harness.children import Child
from ..harness.rounds import percentile
from ..harness.server import PrivateServer

QUEUES: Final = ("left", "right")
SHORT_S, LONG_S, LONG_SHARE = 0.005, 0.15, 0.05
MEAN_S: Final = SHORT_S * (1 - LONG_SHARE) + LONG_S * LONG_SHARE
LOAD: Final = 0.55
RATE: Final = LOAD * len(QUEUES) / MEAN_S
"""Jobs a second, of both queues together."""

WITHIN_S: Final = 10.0
_CAPACITY: Final = 10_000
_PATIENCE_S: Final = 30.0


def queue_of(
    url: str, name: str, runs: list[float] | None = None
) -> tuple[Queue, Task[[float], None]]:
    """A queue and its task, on either side; each run is added to ``runs``."""
    queue = Queue(name, capacity=_CAPACITY, admission="cap", order="fifo", url=url)

    @queue.task(within=WITHIN_S)
    async def take(seconds: float) -> None:
        if runs is not None:
            runs.append(seconds)
        await asyncio.sleep(seconds)

    return queue, take


def serve(url: str, name: str) -> int:
    """A worker process with one slot, until SIGTERM; returns how often its handler ran."""
    runs: list[float] = []

    async def main() -> None:
        queue, _ = queue_of(url, name, runs)
        worker = Worker(queue, concurrency=1, grace=WITHIN_S)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
        await worker.arun()

    asyncio.run(main())
    return len(runs)


class Half(NamedTuple):
    """What came of the jobs that were tied, or of those that were not."""

    taken_s: list[float]
    left: int
    """Jobs that the queues hold in the end."""
    duplicates: int
    """Runs beyond one for each job."""


def tied(binary: Path, seconds: float, seed: int) -> tuple[dict[str, float], Any]:
    """The same arrivals twice, side by side: to one queue each, and to both."""
    with contextlib.ExitStack() as stack:
        halves = [
            stack.enter_context(Child(_half, binary, seconds, seed, both)) for both in (False, True)
        ]
        plain, pairs = (half.result(seconds + _PATIENCE_S) for half in halves)
    p99, p99_tied = percentile(plain.taken_s, 0.99), percentile(pairs.taken_s, 0.99)
    figures = {
        "tied_p99_cut": 1.0 - p99_tied / p99,
        "tied_duplicates": (plain.duplicates + pairs.duplicates) / len(pairs.taken_s),
        "tied_left": float(plain.left + pairs.left),
    }
    series = {
        name: {f"{q:g}": round(percentile(half.taken_s, q) * 1000, 2) for q in (0.5, 0.9, 0.99)}
        for name, half in (("untied_ms", plain), ("tied_ms", pairs))
    }
    return figures, {**series, "jobs": len(pairs.taken_s), "rate": round(RATE, 1)}


def _half(binary: Path, seconds: float, seed: int, both: bool) -> Half:
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(PrivateServer(binary))
        children = [stack.enter_context(Child(serve, server.url, name)) for name in QUEUES]
        taken, left = asyncio.run(_jobs(server.url, seconds, seed, both=both))
        for child in children:
            child.stop()
        runs = sum(child.result(_PATIENCE_S) for child in children)
    wanted = len(taken) + len(QUEUES)  # those that said a worker is there
    return Half(taken, left, runs - wanted)


async def _jobs(url: str, seconds: float, seed: int, *, both: bool) -> tuple[list[float], int]:
    """How long each took (s), and how many jobs are left in the end."""
    made = [queue_of(url, name) for name in QUEUES]
    for _, task in made:
        await task.acall(0.0)  # its worker is there
    lengths = _lengths(seed)
    plan = [(next(lengths), side) for side in _sides(seed, int(2 * seconds * RATE))]

    async def submit(index: int) -> None:
        length, side = plan[index]
        (_, first), (_, second) = made[side], made[1 - side]
        if both:
            pair = await atie(await first.abind(length), await second.abind(length))
            await pair.aresult()
        else:
            await first.acall(length)

    start = asyncio.get_running_loop().time() + 0.1
    arrivals = await drive(poisson(RATE, seconds, seed), submit, start=start, patience=_PATIENCE_S)
    for arrival in arrivals:
        if arrival.error is not None:
            raise arrival.error
    left = 0
    for queue, _ in made:
        left += (await queue.astats()).unfinished
        await queue.aclose()
    return [arrival.answered - arrival.due for arrival in arrivals], left


def _lengths(seed: int) -> Iterator[float]:
    chance = random.Random(seed)
    while True:
        yield LONG_S if chance.random() < LONG_SHARE else SHORT_S


def _sides(seed: int, number: int) -> list[int]:
    chance = random.Random(f"sides {seed}")
    return [chance.randrange(2) for _ in range(number)]
