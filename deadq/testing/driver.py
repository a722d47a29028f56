"""Runs a faked queue's jobs here and now: a worker without threads, one call long."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from typing import Any, Final

from .. import clock
from ..config import whole
from ..job import Outcome, Settlement
from ..queue import Queue
from ..runtime.jobs.run import MARK_OF, Run
from ..store import scripts
from ..store.sync import SyncStore
from ..store.wire import Wire
from .aside import on_a_loop, run_aside
from .bench import Bench, following
from .inline_runner import InlineRunner

_LEASE_MS: Final = 10 * 366 * 86_400_000
"""A test may move its clock as far as it likes: nobody takes the jobs away meanwhile."""
_MOST: Final = 10_000
"""Starts at one instant after which a job is taken to submit itself again and again."""
_SLOTS_SHOWN: Final = 100_000
"""What the fake fleet counts. What a test teaches it of service times is no ground to refuse
a handler's own submits, for which one busy slot would seem to leave no room."""
_LEAVE_S: Final = 1.0
"""How long handlers may take to leave when the run is broken off (real s)."""


def run_until_idle(queue: Queue, *, concurrency: int = 1) -> int:
    """Run every job that is ready, until nothing is left to do at this instant.

    Handlers run in this process, plain functions in this very thread; retries without a delay
    run too. What falls due later waits until the test's clock has been moved. One job runs at
    a time, in the order in which a worker would start them, unless ``concurrency`` says more.

    Returns:
        How many runs were started.

    Raises:
        RuntimeError: called on a running event loop (await :func:`arun_until_idle` there), or
            jobs go on submitting jobs without end.
        ValueError: not a queue of :func:`deadq.testing.queue` or :func:`deadq.testing.faked`.
    """
    if on_a_loop():
        msg = "an event loop is running here: use await testing.arun_until_idle(queue)"
        raise RuntimeError(msg)
    return drive_aside(queue, concurrency)


async def arun_until_idle(queue: Queue, *, concurrency: int = 1) -> int:
    """The asyncio twin of :func:`run_until_idle`: handlers run on the running loop."""
    return await drive(queue, concurrency)


async def drive(queue: Queue, concurrency: int = 1) -> int:
    """Run what is ready, as a worker of its own: several may do so side by side."""
    return await Driver(queue, whole(concurrency, "concurrency", 1, 100_000)).run()


def drive_aside(queue: Queue, concurrency: int = 1) -> int:
    """Run what is ready, from blocking code, which may be a handler's."""

    async def all_of_it() -> int:
        try:
            return await drive(queue, concurrency)
        finally:
            await queue.aclose()  # what handlers opened on this loop

    return run_aside(all_of_it)


class Driver:
    """One registered child of the fake fleet, for one call."""

    def __init__(self, queue: Queue, slots: int) -> None:
        self._queue = queue
        self._bench = _bench(queue)
        self._slots = slots
        # not the queue's own store: what is called here is no news, and may be called in mid-call
        wire = Wire(queue.name, queue.clock, queue.backend.now)
        self._store = SyncStore(queue.backend.sync_client(), wire)
        self._retention_ms = queue.config.retention_ms
        self._child = secrets.token_hex(8)
        self._number = 0
        self._starts = 0
        self._again = asyncio.Event()
        self._runner = InlineRunner(queue, self._child, self._settle)

    @property
    def busy(self) -> bool:
        """Whether a handler is running."""
        return bool(self._runner.runs)

    async def run(self) -> int:
        """Until nothing is left; returns the number of starts."""
        self._loop = asyncio.get_running_loop()
        self._call(
            scripts.register(
                self._child,
                lease_ms=_LEASE_MS,
                slots=_SLOTS_SHOWN,
                who="deadq.testing",
                retention_ms=self._retention_ms,
                rule=self._queue.config.budget,
                tasks=self._queue.tasks,
            )
        )
        with self._bench.working(self), following(self._bench):
            try:
                async with contextlib.AsyncExitStack() as lifespan:
                    await self._until_idle(lifespan)
            finally:
                await self._leave()
        return self._starts

    def told(self) -> None:
        """Somebody cancelled or submitted a job, or moved the clock: see what it means here."""
        if on_a_loop() and asyncio.get_running_loop() is self._loop:
            self._look()
        else:
            with contextlib.suppress(RuntimeError):  # the loop has just been closed
                self._loop.call_soon_threadsafe(self._look)

    async def _until_idle(self, lifespan: contextlib.AsyncExitStack) -> None:
        opened = False
        while True:
            self._again.clear()
            free = self._slots - len(self._runner.runs)
            claimed = self._claim(free) if free else None
            if claimed is not None and claimed.claims and not opened:
                await lifespan.enter_async_context(self._queue.opened())
                opened = True
            for claim in claimed.claims if claimed else ():
                self._starts += 1
                self._runner.take(claim, clock.monotonic())
                self._runner.start(claim)
            if self._starts > _MOST:
                msg = f"{_MOST} starts, and the clock stands still: does a job submit itself again?"
                raise RuntimeError(msg)
            if self.busy:
                await self._again.wait()
            elif claimed is not None and not claimed.more:
                return

    def _claim(self, want: int) -> scripts.Claimed:
        self._number += 1
        claimed: scripts.Claimed = self._call(
            scripts.claim(
                self._child,
                self._number,
                want,
                retention_ms=self._retention_ms,
                park=False,
                tasks=tuple(self._queue.tasks),
            )
        )
        return claimed

    def _settle(self, run: Run, settlement: Settlement | None) -> None:
        self._again.set()
        if settlement is None:
            return
        if settlement.outcome == Outcome.UNRUN:
            self._starts -= 1
        self._call(scripts.finish(self._child, (settlement,), retention_ms=self._retention_ms))
        self._bench.tell()

    def _look(self) -> None:
        """What a worker hears by its renewals and messages."""
        self._runner.time_moved()
        held = {job: run.claim.fence for job, run in self._runner.runs.items()}
        renewal = scripts.Renewal(self._child, self._number, held)
        call = scripts.renew([renewal], lease_ms=_LEASE_MS, retention_ms=self._retention_ms)
        (renewed,) = self._call(call).children
        for job, word in renewed.words.items():
            self._runner.interrupt(job, MARK_OF[word], held[job])
        self._again.set()

    async def _leave(self) -> None:
        """Nothing runs any more, unless this call was broken off: then its jobs go back."""
        tasks = [run.task for run in self._runner.runs.values() if run.task is not None]
        if tasks:
            self._runner.interrupt_all("stop")
            await asyncio.wait(tasks, timeout=_LEAVE_S)
        self._runner.close()
        self._call(scripts.release(self._child, retention_ms=self._retention_ms))
        self._store.close()

    def _call(self, call: scripts.Call[Any]) -> Any:
        return self._store.run(call)


def _bench(queue: Queue) -> Bench:
    bench = getattr(queue.producer, "bench", None)
    if not isinstance(bench, Bench):
        msg = (
            f"queue {queue.name} is on a real server; run_until_idle() runs queues made by "
            "testing.queue(), or moved to a fake server by testing.faked(queue)"
        )
        raise ValueError(msg)  # noqa: TRY004  it is a Queue, only a real one
    return bench
