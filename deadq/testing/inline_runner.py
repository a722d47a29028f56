"""The async runner for tests: no threads, and time as the test's clock tells it."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from typing import Any, cast

from .. import clock
from ..job import Settlement
from ..queue import Queue
from ..runtime.jobs.run import Run, limit_of
from ..runtime.loop.async_runner import AsyncRunner
from ..runtime.loop.units import UnitCall, Units
from ..runtime.loop.untying import untying
from ..store.aio import AsyncStore
from ..store.scripts import Call
from ..task import Task
from .aside import run_aside
from .moving_clock import Clock


class InlineRunner(AsyncRunner):
    """Runs plain functions where it is, and interrupts when the test's clock has been moved.

    A coroutine that really sleeps past the end of its time is interrupted there, as in a
    worker, and the test's clock is moved to that instant, for that much time has passed.
    """

    def __init__(
        self, queue: Queue, child: str, settle: Callable[[Run, Settlement | None], None]
    ) -> None:
        store = cast("AsyncStore", _StoreOfThisLoop(queue))
        retention_ms = queue.config.retention_ms
        super().__init__(
            queue.tasks,
            queue.clock,
            settle,
            lambda run: Units(run, store, lambda: child, retention_ms),
            threads=1,  # of which none is ever started
            untie=untying(store, queue.config),
        )
        self._limits: dict[str, tuple[float, str]] = {}

    def time_moved(self) -> None:
        """Interrupt what has run out of time."""
        now = clock.monotonic()
        for job, run in list(self.runs.items()):
            at, mark = self._limits.get(job, (now + 1, ""))
            if at <= now:
                self._interrupt(run, mark)

    async def _execute(self, run: Run) -> None:
        try:
            await super()._execute(run)
        finally:
            self._limits.pop(run.claim.id, None)

    def _arm(self, run: Run, task: Task[..., Any]) -> None:
        moving = clock.current()
        if not isinstance(moving, Clock):
            super()._arm(run, task)
            return
        at, mark = limit_of(run.deadline, task.config)
        self._limits[run.claim.id] = at, mark
        left = max(0.0, at - moving.monotonic())
        run.timer = asyncio.get_running_loop().call_later(left, self._pass, moving, at)

    def _pass(self, moving: Clock, at: float) -> None:
        moving.advance(max(0.0, at - moving.monotonic()))

    async def _in_thread(
        self, run: Run, task: Task[..., Any], args: list[Any], kwargs: dict[str, Any]
    ) -> Any:
        run.thread = True  # not to be cancelled from outside: it stops at .check()
        return contextvars.copy_context().run(task.fn, *args, **kwargs)

    def _unit_caller(self, run: Run, task: Task[..., Any]) -> Callable[[UnitCall], Any]:
        units = self._units(run)
        if task.is_async:
            return units.run
        return lambda call: run_aside(lambda: units.run(call))


class _StoreOfThisLoop:
    """The queue's store, whichever loop a unit runs on."""

    def __init__(self, queue: Queue) -> None:
        self._backend = queue.backend
        self.wire = queue.backend.sync().wire

    async def run(self, call: Call[Any]) -> Any:
        return await (await self._backend.aio()).run(call)
