"""Requests that fan out to a hundred servers, each of which stalls now and then.

The code that hedges is deadq's own, on an event loop whose time jumps; only the servers are made
up. A reply takes 3 ms in the median, lognormally, more than 10 ms in 2 % of the cases; one in a
thousand stalls for 1 s besides. Requests arrive as a Poisson process; each makes a call to every
server, and is over with the last of them. A second call goes to the next server.
"""

from __future__ import annotations

import asyncio
import math
import os
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Final

from deadq.resilience import ahedge
from deadq.testing import run_in_virtual_time

from ..harness.arrivals import poisson
from ..harness.children import Child
from ..harness.report import say
from ..harness.rounds import percentile

SERVERS: Final = 100
MEDIAN_S: Final = 0.003
SLOW_S, SLOW_SHARE = 0.010, 0.02
"""So many replies take longer than that."""
STALL_S, STALL_SHARE = 1.0, 0.001
SIGMA: Final = math.log(SLOW_S / MEDIAN_S) / NormalDist().inv_cdf(1 - SLOW_SHARE)
RATE: Final = 50.0
"""Requests a second."""
WARM_S: Final = 2.0
"""Not counted: nothing is measured yet, and no second call earned."""
PATIENCE_S: Final = 3_600.0

HEDGES: Final[dict[str, dict[str, Any] | None]] = {
    "unhedged": None,
    "fixed": {"delay": SLOW_S},
    "p95": {},
}
"""Ways to call, and the settings of ``ahedge`` for each."""

Call = Callable[[Iterator[int]], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Task:
    """Some requests of one way to call."""

    way: str
    requests: int
    seed: str


@dataclass(frozen=True, slots=True)
class Seen:
    """How long each request took (s), and how many calls were made for them."""

    way: str
    taken_s: list[float]
    firsts: int
    seconds: int

    def p(self, q: float) -> float:
        """A percentile of the requests (s)."""
        return percentile(self.taken_s, q)

    @property
    def extra(self) -> float:
        """Second calls for each first one."""
        return self.seconds / self.firsts


class Fleet:
    """The servers, and how often they are called."""

    def __init__(self, way: str, seed: str) -> None:
        self._chance = random.Random(f"{seed} {way}")
        settings = HEDGES[way]
        self.call: Call = self._call if settings is None else ahedge(**settings)(self._call)
        self.factor = 1.0
        """How many times as slow as usual all of them are."""
        self.firsts = self.seconds = 0

    async def request(self) -> float:
        """One request. Seconds that it took."""
        loop = asyncio.get_running_loop()
        begin = loop.time()
        calls = (self.call(iter((server, -1))) for server in range(SERVERS))
        await asyncio.gather(*calls)
        return loop.time() - begin

    async def _call(self, turn: Iterator[int]) -> None:
        if next(turn) < 0:
            self.seconds += 1
        else:
            self.firsts += 1
        await asyncio.sleep(self._reply_s())

    def _reply_s(self) -> float:
        chance = self._chance
        usual = chance.lognormvariate(math.log(MEDIAN_S), SIGMA) * self.factor
        return usual + (STALL_S if chance.random() < STALL_SHARE else 0.0)

    async def work(self, seconds: float, seed: str) -> list[float]:
        """Requests for so long. Seconds that each took."""
        loop = asyncio.get_running_loop()
        begin = loop.time()
        async with asyncio.TaskGroup() as group:
            running = []
            for offset in poisson(RATE, seconds, random.Random(seed).getrandbits(32)):
                await asyncio.sleep(begin + offset - loop.time())
                running.append(group.create_task(self.request()))
        return [task.result() for task in running]


def simulate(task: Task) -> Seen:
    """Run the requests."""

    async def main() -> Seen:
        fleet = Fleet(task.way, task.seed)
        await fleet.work(WARM_S, f"{task.seed} warm")
        fleet.firsts = fleet.seconds = 0
        taken = await fleet.work(task.requests / RATE, task.seed)
        return Seen(task.way, taken, fleet.firsts, fleet.seconds)

    return run_in_virtual_time(main())


def simulate_all(requests: int, seed: int) -> dict[str, Seen]:
    """So many requests in each way, on all processors."""
    processors = os.cpu_count() or 1
    shards = max(processors, math.ceil(requests / 2_500))
    hands: list[list[Task]] = [[] for _ in range(processors)]
    for shard in range(shards):
        for way in HEDGES:
            task = Task(way, math.ceil(requests / shards), f"{seed} {shard}")
            hands[shard % processors].append(task)
    with ExitStack() as stack:
        children = [stack.enter_context(Child(_simulate_each, hand)) for hand in hands]
        parts = [seen for child in children for seen in child.result(within=PATIENCE_S)]
    return {way: _together([seen for seen in parts if seen.way == way]) for way in HEDGES}


def _simulate_each(tasks: list[Task]) -> list[Seen]:
    found = []
    for task in tasks:
        seen = simulate(task)
        say(
            f"{seen.way}: {len(seen.taken_s):,} requests, p99.9 {seen.p(0.999) * 1000:.0f} ms, "
            f"{seen.extra:.2%} more calls"
        )
        found.append(seen)
    return found


def _together(parts: list[Seen]) -> Seen:
    return Seen(
        parts[0].way,
        [taken for part in parts for taken in part.taken_s],
        sum(part.firsts for part in parts),
        sum(part.seconds for part in parts),
    )
