"""What an ordinary queue does: first in, first out, and skip what has expired.

A plain list on the same server. Nothing is refused, nothing is interrupted: a job that passes
the check when it is taken runs to its end, as under Dramatiq's age limit or Celery's ``expires``.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Sequence
from typing import Any, Final

from redis import asyncio as aredis

from ..harness.environment import share_of
from . import Policy, Ran, Served, Setting

_LIST: Final = "jobs"
_READY: Final = "slots"


def serve(setting: Setting, part: int) -> Served:
    """A worker process: as many consumers as it has slots, until SIGTERM."""
    used = share_of(time.process_time)
    return Served(asyncio.run(_serve(setting, part)), used())


async def _serve(setting: Setting, part: int) -> list[Ran]:
    draw, spell = setting.service.draws(setting.seed * 1000 + part), setting.spell
    runs: list[Ran] = []
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)

    async def consume(client: aredis.Redis) -> None:
        while True:
            found: Any = await client.brpop([_LIST], 0)
            job, deadline = found[1].decode().split()
            begin = time.monotonic()
            if begin >= float(deadline):
                continue
            drawn = draw() * (spell.factor_at(begin) if spell else 1.0)
            await asyncio.sleep(drawn)
            end = time.monotonic()
            runs.append(Ran(job, begin, end, drawn, whole=True, timely=end < float(deadline)))

    slots = setting.slots // setting.workers
    async with aredis.Redis.from_url(setting.url, max_connections=slots + 1) as client:
        consumers = [asyncio.create_task(consume(client)) for _ in range(slots)]
        await client.incrby(_READY, slots)
        stopped = asyncio.create_task(stopping.wait())
        await asyncio.wait([stopped, *consumers], return_when=asyncio.FIRST_COMPLETED)
        for consumer in consumers:
            if consumer.done():
                consumer.result()  # none ends by itself: raise what ended it
            consumer.cancel()
        await asyncio.wait(consumers)
    return runs


class _Door:
    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._client = aredis.Redis.from_url(setting.url)

    async def slots(self) -> int:
        return int(await self._client.get(_READY) or 0)

    async def submit(self, index: int) -> str:
        # monotonic seconds are the same for all processes of a machine, and cannot step
        deadline = time.monotonic() + self._setting.within_s
        await self._client.lpush(_LIST, f"{index} {deadline!r}")
        return str(index)

    async def done_in_time(self, jobs: Sequence[str], runs: Sequence[Ran]) -> set[str]:
        """By the workers' records: there is no store that knows."""
        return {run.job for run in runs if run.timely}.intersection(jobs)

    async def counters(self) -> dict[str, int]:
        return {"left": int(await self._client.llen(_LIST))}

    async def aclose(self) -> None:
        await self._client.aclose()


FIFO_EXPIRY: Final = Policy("fifo_expiry", serve, _Door)
