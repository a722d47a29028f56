"""What a submit costs its caller: one at a time, by the hundred, concurrently, and refused."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from redis import asyncio as aredis

from deadq import QueueFull

from ..harness.rounds import each, paired, percentile
from . import PAYLOAD, ROUNDS, Bench, fill, queue_of, task_of

_BATCH: Final = 100
_TURNS: Final = 5


def measure(bench: Bench) -> None:
    """All figures of this kind."""
    one_at_a_time(bench)
    by_the_hundred(bench)
    concurrently(bench)
    refused(bench)


def one_at_a_time(bench: Bench) -> None:
    """``enqueue`` against LPUSH."""
    queue, times = queue_of(bench.server.url), bench.times(2000)
    task = task_of(queue)
    with bench.server.client() as raw:
        pair = paired(
            lambda: each(lambda: task.enqueue(PAYLOAD), times),
            lambda: each(lambda: raw.lpush("raw", PAYLOAD), times),
            ROUNDS,
            bench.flush,
            _TURNS,
        )
    queue.close()
    bench.figures["enqueue_vs_raw"] = pair.speed
    bench.series["enqueue"] = pair.microseconds()


def by_the_hundred(bench: Bench) -> None:
    """``enqueue_many`` by 100 against a pipeline of 100 LPUSH."""
    queue, times = queue_of(bench.server.url), bench.times(40)
    task = task_of(queue)
    calls = [(PAYLOAD,)] * _BATCH
    with bench.server.client() as raw:

        def push() -> None:
            pipe = raw.pipeline(transaction=False)
            for _ in range(_BATCH):
                pipe.lpush("raw", PAYLOAD)
            pipe.execute()

        pair = paired(
            lambda: each(lambda: task.enqueue_many(calls), times) / _BATCH,
            lambda: each(push, times) / _BATCH,
            ROUNDS,
            bench.flush,
            _TURNS,
        )
    queue.close()
    bench.figures["enqueue_many_vs_raw"] = pair.speed
    bench.series["enqueue_many"] = pair.microseconds()


def concurrently(bench: Bench) -> None:
    """100 concurrent ``aenqueue`` against an awaited LPUSH at a time."""
    queue, times = queue_of(bench.server.url), bench.times(2000)
    task = task_of(queue)
    raw = aredis.Redis.from_url(bench.server.url)

    async def ours() -> float:
        begin = time.perf_counter()
        for _ in range(times // _BATCH):
            await asyncio.gather(*(task.aenqueue(PAYLOAD) for _ in range(_BATCH)))
        return (time.perf_counter() - begin) / (times // _BATCH * _BATCH)

    async def plain() -> float:
        begin = time.perf_counter()
        for _ in range(times):
            await raw.lpush("raw", PAYLOAD)
        return (time.perf_counter() - begin) / times

    async def close() -> None:
        await queue.aclose()
        await raw.aclose()

    with asyncio.Runner() as runner:  # one loop for all rounds: connections stay open
        pair = paired(lambda: runner.run(ours()), lambda: runner.run(plain()), ROUNDS, bench.flush)
        runner.run(close())
    bench.figures["aenqueue_vs_raw"] = pair.speed
    bench.series["aenqueue"] = pair.microseconds()


def refused(bench: Bench) -> None:
    """A submit that is refused for want of room, against one that is accepted (p50 of each)."""
    full = queue_of(bench.server.url, capacity=1000, name="full")
    roomy = queue_of(bench.server.url, name="roomy")
    to_full, to_roomy, times = task_of(full), task_of(roomy), bench.times(1000)

    def reset() -> None:
        bench.flush()
        fill(to_full, 1000)
        fill(to_roomy, 1000)

    def refuse() -> None:
        try:
            to_full.enqueue(PAYLOAD)
        except QueueFull:
            return
        msg = "a full queue took a job"
        raise RuntimeError(msg)

    pair = paired(
        lambda: _p50(refuse, times),
        lambda: _p50(lambda: to_roomy.enqueue(PAYLOAD), times),
        ROUNDS,
        reset,
        _TURNS,
    )
    full.close()
    roomy.close()
    bench.figures["refuse_vs_accept"] = pair.duration
    bench.series["refuse"] = pair.microseconds()


def _p50(operation: Callable[[], object], times: int) -> float:
    taken = []
    for _ in range(times):
        begin = time.perf_counter()
        operation()
        taken.append(time.perf_counter() - begin)
    return percentile(taken, 0.5)
