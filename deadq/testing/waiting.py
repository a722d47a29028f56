"""A faked queue's producer: whoever waits for a result runs the queue meanwhile."""

from __future__ import annotations

import asyncio
from typing import Final

from .. import clock
from ..job import Sight
from ..producer import Producer
from ..queue import Queue
from ..store.listen import Beside
from .bench import Bench, following
from .driver import drive, drive_aside
from .moving_clock import Clock

_PATIENCE_S: Final = 1.0
"""How long (real s) a wait goes on while nothing runs and the test's clock stands still."""
_LOOK_EVERY_S: Final = 0.02
"""With a real clock, jobs that fall due are looked for this often (s)."""


class FakeProducer(Producer):
    """Waits by running what there is to run, and then for a change."""

    def __init__(self, queue: Queue, bench: Bench) -> None:
        super().__init__(queue.config, queue.backend)
        self._queue = queue
        self.bench = bench
        self._drives: set[asyncio.Task[int]] = set()

    def wait(self, job: str, until: float, beside: Beside | None = None) -> Sight:
        del beside  # each fake server is one queue's own, where no job is tied
        bench = self.bench
        with following(bench):
            while True:
                changed = bench.changed()
                sight = self.look(job)
                if sight.state.final or until <= clock.monotonic():
                    return sight
                if not drive_aside(self._queue):
                    try:
                        changed.result(_patience(until))
                    except TimeoutError:
                        _check_for_life(bench, job, sight)

    async def await_end(self, job: str, until: float) -> Sight:
        bench = self.bench
        with following(bench):
            while True:
                changed = bench.changed()
                sight = self.look(job)
                if sight.state.final or until <= clock.monotonic():
                    return sight
                if not await self._drive():
                    try:
                        async with asyncio.timeout(_patience(until)):
                            await asyncio.wrap_future(changed)
                    except TimeoutError:
                        _check_for_life(bench, job, sight)

    async def _drive(self) -> int:
        """Run what is ready. A caller that stops waiting leaves what runs to itself."""
        task = asyncio.ensure_future(drive(self._queue))
        self._drives.add(task)
        task.add_done_callback(self._drives.discard)
        return await asyncio.shield(task)


def _patience(until: float) -> float:
    """Real seconds until the next look, if nothing changes before."""
    if isinstance(clock.current(), Clock):
        return _PATIENCE_S
    return max(0.0, min(_LOOK_EVERY_S, until - clock.monotonic()))


def _check_for_life(bench: Bench, job: str, sight: Sight) -> None:
    """Nothing has changed for some time: return if that may still come.

    Raises:
        TimeoutError: nothing runs, and only the test can move the clock.
    """
    if isinstance(clock.current(), Clock) and not bench.busy:
        msg = (
            f"job {job} is {sight.state}, and nothing more happens at this instant of the "
            "test's clock: let time pass with clock.advance(seconds)"
        )
        raise TimeoutError(msg)
