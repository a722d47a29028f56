"""What a job costs its worker, and how soon an idle worker starts one."""

from __future__ import annotations

import mmap
import os
import signal
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import redis

from deadq import Task, Worker

from ..harness.children import Child
from ..harness.rounds import each, paired, percentile
from . import PAYLOAD, ROUNDS, Bench, fill, queue_of, task_of

SLOTS: Final = 64
_PAUSE_S: Final = 0.01
"""Between two wake-ups: long enough for the worker to be idle again."""
_PATIENCE_S: Final = 120.0


class Work(NamedTuple):
    """What a worker process has done. Monotonic seconds."""

    first: float
    """Its first handler started."""
    last: float
    """The last one that was asked for started."""
    starts: list[float]


def serve(url: str, jobs: int, slots: int = SLOTS) -> Work:
    """The real worker, a supervisor with one child, until it has started so many jobs or gets
    SIGTERM. With one slot the handler is a plain function under the process runner."""
    queue = queue_of(url)
    shared = mmap.mmap(-1, 8 * (jobs + 1))  # with the child
    starts: memoryview[float] = memoryview(shared).cast("d")

    def start() -> None:
        count = int(starts[0]) + 1
        starts[0], starts[count] = count, time.monotonic()
        if count == jobs:
            os.kill(os.getppid(), signal.SIGTERM)

    def nothing(_payload: str) -> None:
        start()

    async def anothing(_payload: str) -> None:
        start()

    if slots == 1:
        queue.task(within=3600.0)(nothing)
    else:
        queue.task(within=3600.0, name="nothing")(anothing)
    Worker(queue, concurrency=slots).run()
    found = list(starts[1 : 1 + int(starts[0])])
    return Work(found[0], found[-1], found)


def raw_pairs(url: str, pairs: int) -> float:
    """A raw process: LPUSH and BRPOP one at a time; the seconds that a pair took."""
    with redis.Redis.from_url(url) as client:

        def pair() -> None:
            client.lpush("raw", PAYLOAD)
            client.brpop(["raw"])

        each(pair, pairs // 10)
        return each(pair, pairs)


def raw_waits(url: str, wakes: int) -> list[float]:
    """A raw process that waits in BRPOP: the instants at which it got something."""
    woken = []
    with redis.Redis.from_url(url) as client:
        for _ in range(wakes):
            client.brpop(["raw"])
            woken.append(time.monotonic())
    return woken


def measure(bench: Bench) -> None:
    """All figures of this kind."""
    throughput(bench)
    throughput(bench, "worker_process", slots=1)
    start_latency(bench)


def throughput(bench: Bench, name: str = "worker_async", slots: int = SLOTS) -> None:
    """Jobs a second of one child against LPUSH + BRPOP pairs a second."""
    url, jobs = bench.server.url, bench.times(20_000)
    queue = queue_of(url)
    task = task_of(queue)

    def ours() -> float:
        fill(task, jobs)
        with Child(serve, url, jobs, slots) as child:
            work = child.result(_PATIENCE_S)
        done = queue.stats().counters.get("finished:done", 0)
        if done < jobs:
            msg = f"only {done} of {jobs} jobs were finished"
            raise RuntimeError(msg)
        return (work.last - work.first) / jobs

    def raw() -> float:
        with Child(raw_pairs, url, jobs) as child:
            return child.result(_PATIENCE_S)

    pair = paired(ours, raw, ROUNDS, bench.flush)
    queue.close()
    bench.figures[f"{name}_vs_raw"] = pair.speed
    bench.series[name] = pair.microseconds()


def start_latency(bench: Bench) -> None:
    """From submit to the handler's start in an idle worker, against a BRPOP wake-up (p50)."""
    url, wakes = bench.server.url, bench.times(200)
    queue = queue_of(url)
    task = task_of(queue)

    def ours() -> float:
        with Child(serve, url, wakes) as child:
            _await_worker(task, child)
            return _p50(_paced(lambda: task.enqueue(PAYLOAD), wakes), child)

    def raw() -> float:
        with bench.server.client() as client, Child(_raw_starts, url, wakes) as child:
            while not client.info("clients")["blocked_clients"]:
                time.sleep(_PAUSE_S)
            return _p50(_paced(lambda: client.lpush("raw", PAYLOAD), wakes), child)

    pair = paired(ours, raw, ROUNDS, bench.flush)
    queue.close()
    bench.figures["start_latency_vs_raw"] = pair.duration
    bench.series["start_latency"] = pair.microseconds()


def _raw_starts(url: str, wakes: int) -> Work:
    woken = raw_waits(url, wakes)
    return Work(woken[0], woken[-1], woken)


def _await_worker(task: Task[[str], None], child: Child[Work]) -> None:
    until = time.monotonic() + _PATIENCE_S
    queue: Any = task.queue
    while queue.stats().slots < SLOTS:
        child.check()
        if time.monotonic() > until:
            msg = "the worker does not come up"
            raise TimeoutError(msg)
        time.sleep(_PAUSE_S)


def _paced(operation: Callable[[], object], times: int) -> list[float]:
    """Do it so many times with a pause before each; the instants at which each began."""
    begun = []
    for _ in range(times):
        time.sleep(_PAUSE_S)
        begun.append(time.monotonic())
        operation()
    return begun


def _p50(begun: list[float], child: Child[Work]) -> float:
    starts = child.result(_PATIENCE_S).starts
    return percentile([s - b for b, s in zip(begun, starts, strict=True)], 0.5)
