"""A total outage of one dependency, as twenty processes that call it see it."""

from __future__ import annotations

import asyncio
import bisect
import contextlib
import multiprocessing
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Final, NamedTuple

from deadq import FleetBudget, RetryDenied
from deadq.resilience import Backoff, BudgetRule, RetryBudget, aretry
from deadq.resilience import Budget as LocalBudget

from ..harness.children import Child
from ..harness.http import Client, serve
from ..harness.server import PrivateServer

PROCESSES: Final = 20
RATE: Final = 5.0
"""First attempts a second, of each process."""

RULE: Final = BudgetRule(ratio=0.1, floor=1.0, window=10.0)
WINDOW_S: Final = 10.0
CALM_S: Final = 5.0
TRIES: Final = 4
STEP_S: Final = 0.25
_START_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class Scene:
    """What is tried: with a budget or without, and whether the server of the budget dies."""

    budget: bool
    seconds: float
    """Of outage; it begins ``CALM_S`` after the load."""
    alone: float = 0.0
    """Seconds for which it goes on after the server of the budget was killed; 0: it lives."""


class Calls(NamedTuple):
    """Instants (monotonic s) at which a call came to one process, and of all its attempts."""

    first: list[float]
    all: list[float]


class Seen(NamedTuple):
    """What came of it: of each process, and when the outage and the server's death were."""

    calls: list[Calls]
    outage: float
    death: float


def run(scene: Scene, binary: Path, seed: int) -> Seen:
    """The scene, from start to end."""
    context = multiprocessing.get_context("spawn")
    ready, begins = context.Barrier(PROCESSES + 2), context.Value("d", 0.0)
    ports, port_here = context.Pipe(duplex=False)
    length = CALM_S + scene.seconds + scene.alone
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(_Stoppable(binary))
        stack.enter_context(Child(_dependency, port_here, ready, begins, length))
        port = ports.recv()
        children = [
            stack.enter_context(
                Child(
                    _caller,
                    port,
                    ready,
                    begins,
                    length,
                    seed * 1000 + number,
                    scene.budget and server.url,
                )
            )
            for number in range(PROCESSES)
        ]
        begins.value = 0.0
        ready.wait(_START_S)
        start = begins.value = time.monotonic() + 0.5
        death = start + CALM_S + scene.seconds
        if scene.alone:
            time.sleep(max(0.0, death - time.monotonic()))
            server.stop()
        calls = [child.result(length + 60.0) for child in children]
    return Seen(calls, start + CALM_S, death)


class _Stoppable(PrivateServer):
    """A private server that may die before its time."""

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


def _await_start(ready: Barrier, begins: object) -> float:
    """All are there; then the instant at which the load begins."""
    ready.wait(_START_S)
    while not begins.value:  # type: ignore[attr-defined]
        time.sleep(0.005)
    return float(begins.value)  # type: ignore[attr-defined]


def _dependency(port: object, ready: Barrier, begins: object, seconds: float) -> None:
    async def main() -> None:
        outage = float("inf")

        def status() -> int:
            return 503 if time.monotonic() >= outage else 200

        server, number = await serve(status)
        async with server:
            port.send(number)  # type: ignore[attr-defined]
            start = await asyncio.to_thread(_await_start, ready, begins)
            outage = start + CALM_S
            await asyncio.sleep(start + seconds + 30.0 - time.monotonic())

    asyncio.run(main())


def _caller(
    port: int, ready: Barrier, begins: object, seconds: float, seed: int, url: str | bool
) -> Calls:
    """One process: first attempts at even intervals, each tried again as its budget allows."""
    seen = Calls([], [])
    shared = FleetBudget("storm", RULE, url=url) if isinstance(url, str) else None
    budget: RetryBudget = shared or LocalBudget(BudgetRule(ratio=1000.0, floor=1000.0))

    async def main() -> None:
        client = Client(port)
        rng = random.Random(seed)

        @aretry(tries=TRIES, within=5.0, budget=budget, backoff=Backoff("full", 0.05, 0.5, rng=rng))
        async def call() -> None:
            seen.all.append(time.monotonic())
            await client.get()

        async def one() -> None:
            with contextlib.suppress(RetryDenied):
                await call()

        start = await asyncio.to_thread(_await_start, ready, begins)
        start += rng.random() / RATE
        tasks = set()
        for number in range(int(seconds * RATE)):
            due = start + number / RATE
            await asyncio.sleep(due - time.monotonic())
            seen.first.append(due)  # it came then, however late this process looked
            task = asyncio.create_task(one())
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        await asyncio.gather(*tasks)
        client.close()

    asyncio.run(main())
    if shared is not None:
        shared.close()
    return seen


def together(calls: Sequence[Calls]) -> Calls:
    """The fleet's calls, in order."""
    return Calls(
        sorted(at for one in calls for at in one.first),
        sorted(at for one in calls for at in one.all),
    )


def ratios(calls: Calls, begin: float, end: float) -> Iterator[tuple[float, float]]:
    """Outbound by inbound in each window of ten seconds that lies in the time given."""
    at = begin
    while at + WINDOW_S <= end:
        first = _within(calls.first, at)
        if first:
            yield at, _within(calls.all, at) / first
        at += STEP_S


def _within(instants: list[float], at: float) -> int:
    return bisect.bisect_left(instants, at + WINDOW_S) - bisect.bisect_left(instants, at)
