"""deadq itself, as it comes; and deadq with nothing but its cap."""

from __future__ import annotations

import asyncio
import functools
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from deadq import JobHandle, Queue, State, Worker, current_job

from ..harness.environment import share_of
from . import Policy, Ran, Served, Setting


@dataclass(frozen=True, slots=True)
class Rules:
    """What a queue of deadq goes by."""

    order: Literal["deadline", "fifo"]
    admission: Literal["feasible", "cap"]

    def queue(self, setting: Setting) -> Queue:
        """The queue, on either side."""
        return Queue(
            "overload",
            capacity=setting.capacity,
            url=setting.url,
            order=self.order,
            admission=self.admission,
        )


def serve(rules: Rules, setting: Setting, part: int) -> Served:
    """A worker process: the real worker, with a handler that sleeps, until SIGTERM."""
    queue = rules.queue(setting)
    draw, spell = setting.service.draws(setting.seed * 1000 + part), setting.spell
    runs: list[Ran] = []

    async def work(_index: int) -> None:
        job = current_job()
        begin = time.monotonic()
        drawn = draw() * (spell.factor_at(begin) if spell else 1.0)
        whole = False
        try:
            await asyncio.sleep(drawn)
            whole = True
        finally:
            timely = whole and not job.deadline.expired
            runs.append(Ran(job.id, begin, time.monotonic(), drawn, whole, timely))

    queue.task(within=setting.within_s)(work)
    worker = Worker(queue, concurrency=setting.slots // setting.workers, grace=setting.within_s)
    used = share_of(time.process_time)
    asyncio.run(_until_told(worker))
    return Served(runs, used())


async def _until_told(worker: Worker) -> None:
    """On a loop of this very process: what its handlers write down is read here afterwards."""
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
    await worker.arun()


class _Door:
    def __init__(self, rules: Rules, setting: Setting) -> None:
        self._queue = rules.queue(setting)
        self._handles: dict[str, JobHandle[None]] = {}

        async def work(_index: int) -> None:
            """Only its name and signature matter here."""

        self._task = self._queue.task(within=setting.within_s)(work)

    async def slots(self) -> int:
        return (await self._queue.astats()).slots

    async def submit(self, index: int) -> str:
        handle = await self._task.aenqueue(index)
        self._handles[handle.id] = handle
        return handle.id

    async def done_in_time(self, jobs: Sequence[str], runs: Sequence[Ran]) -> set[str]:
        """By the store: the state is ``done`` only if it was settled before the deadline."""
        states = await asyncio.gather(*(self._handles[job].astate() for job in jobs))
        return {job for job, state in zip(jobs, states, strict=True) if state is State.DONE}

    async def counters(self) -> dict[str, int]:
        return (await self._queue.astats()).counters

    async def aclose(self) -> None:
        await self._queue.aclose()


def _policy(name: str, rules: Rules) -> Policy:
    return Policy(name, functools.partial(serve, rules), functools.partial(_Door, rules))


DEADQ: Final = _policy("deadq", Rules("deadline", "feasible"))
CAP_ONLY: Final = _policy("cap_only", Rules("fifo", "cap"))
