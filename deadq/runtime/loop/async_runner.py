"""Runs handlers on one event loop: coroutines as tasks, plain functions in threads."""

from __future__ import annotations

import asyncio
import contextvars
import decimal
import math
import os
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from ... import clock, codec
from ...arguments import unpack_arguments
from ...clock import ServerClock
from ...deadline import Deadline
from ...errors import UnitError, shown
from ...events import Event, log
from ...job import Claim, Outcome, Settlement
from ...task import Task
from ..jobs.ambient import surround
from ..jobs.current import CurrentJob, set_current
from ..jobs.forks import end_fork
from ..jobs.run import Run, limit_of, marked, raised, returned
from ..ties.board import Holding
from .leftovers import Leftovers
from .units import UnitCall, Units

REPEAT_S: Final = 0.05
"""An interrupt is repeated this often (s) until the handler leaves."""

_EARLY_S: Final = REPEAT_S / 10
"""So much before its instant a loop may call a timer, by the loop's own clock."""

PATIENCE: Final = 5
"""So many interrupts are enough for a handler that means to leave."""

_LEFT_BEHIND_S: Final = 0.01
"""How often a run that has left units behind is looked at (s): a fault of its handler, and rare."""


class AsyncRunner:
    """Starts claims, interrupts them, and reports how each ended to ``settle``.

    ``settle`` gets None for a run whose lease was lost: there is nothing to report, but its
    slot is free. ``untie`` says of a tied job how it ends unless it may start. ``left`` hears of
    each handler that has ended, with its job and fence, before its job is reported. ``stubborn``
    is called when a handler does not leave, however often it is interrupted: its job is reported,
    and somebody has to get rid of the process.
    """

    def __init__(
        self,
        tasks: Mapping[str, Task[..., Any]],
        server: ServerClock,
        settle: Callable[[Run, Settlement | None], None],
        units: Callable[[Run], Units],
        threads: int,
        *,
        untie: Callable[[Run], Coroutine[Any, Any, Outcome | None]] | None = None,
        left: Callable[[str, int], None] | None = None,
        stubborn: Callable[[], None] | None = None,
    ) -> None:
        self._tasks = tasks
        self._server = server
        self._settle = settle
        self._units = units
        self._untie = untie
        self._left = left
        self._stubborn = stubborn
        self._pid = os.getpid()
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="deadq-handler")
        self._base = contextvars.copy_context()
        self._decimals = decimal.getcontext()
        self._leftovers = Leftovers(asyncio.get_running_loop())
        self._begun: set[Run] = set()
        """Those whose handler has not left yet, reported or not."""
        self.runs: dict[str, Run] = {}

    def take(self, claim: Claim, since: float) -> Holding:
        """Take a claim in; says until when it may run. A plain handler, in a thread, leaves when
        it likes."""
        deadline = Deadline.from_server(claim.deadline_ms, self._server)
        self.runs[claim.id] = Run(claim, deadline, since)
        task = self._tasks[claim.task]
        if not task.is_async:
            return Holding(claim.fence, math.inf, "cut", since)
        return Holding(claim.fence, *limit_of(deadline, task.config), since)

    def start(self, claim: Claim) -> None:
        """Run a claim that was taken in; returns at once."""
        run = self.runs[claim.id]
        context = self._base.copy()
        loop = asyncio.get_running_loop()
        run.task = loop.create_task(self._execute(run), context=context)

    def interrupt(self, job: str, mark: str, fence: int | None = None) -> None:
        """Interrupt a run, if it is (still) here; repeated until the handler leaves."""
        run = self.runs.get(job)
        if run is not None and fence in (None, run.claim.fence):
            self._interrupt(run, mark)

    def interrupt_all(self, mark: str) -> None:
        """Interrupt everything that runs."""
        for run in list(self.runs.values()):
            self._interrupt(run, mark)

    @property
    def in_unit(self) -> bool:
        """Whether any unit is open; it may be one of a run that was lost, and whose job this very
        child has claimed anew."""
        return any(run.open_units for run in self._begun)

    def close(self) -> None:
        """Let go of the threads; those still running are not waited for."""
        self._leftovers.close()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def recorded(self, job: str, fence: int) -> None:
        """Another attempt's unit of this job is on record: whoever waits for it looks again."""
        run = self.runs.get(job)
        if run is not None and fence == run.claim.fence:
            run.unit_recorded.set()

    def _interrupt(self, run: Run, mark: str) -> None:
        run.interrupt(mark)
        if run.open_units:
            return  # delivered when the last of them is on record
        loop = asyncio.get_running_loop()
        if run.timer is not None:
            if run.interrupts and run.timer.when() - loop.time() > _EARLY_S:
                return  # a word in between: what is cleaning up has its time until the repeat
            run.timer.cancel()
        if run.task is not None and run.begun and not run.task.done() and not run.thread:
            run.task.cancel()
            run.interrupts += 1
            if run.interrupts == PATIENCE and self._stubborn is not None:
                log.warning("%s: job %s does not leave", Event.STUBBORN, run.claim.id)
                self._leave_slot(run, marked(run, self._tasks[run.claim.task].config))
                self._stubborn()
            run.timer = loop.call_later(REPEAT_S, self._interrupt, run, mark)

    async def _execute(self, run: Run) -> None:
        run.begun = True
        self._begun.add(run)
        noted = self._leftovers.begin()
        decimal.setcontext(self._decimals.copy())  # copies of a context share this one
        task = self._tasks[run.claim.task]
        settlement: Settlement | None = run.settlement(Outcome.RELEASE)
        try:
            if run.mark == "cancelled":
                # whoever cancelled was told that it had started: so it does, and is interrupted
                asyncio.get_running_loop().call_soon(self._interrupt, run, "cancelled")
            if run.mark in (None, "cancelled"):
                settlement = await self._outcome(run, task)
            else:
                settlement = marked(run, task.config)
        except asyncio.CancelledError:
            # interrupted between two steps of ours
            if run.mark:
                settlement = marked(run, task.config)
        finally:
            # whatever happened, the slot is free again and the job is accounted for
            if run.timer is not None:
                run.timer.cancel()
            run.interrupt("lost")  # a task that it left behind begins no unit any more
            self._leftovers.end(noted, run.claim.id)
            self._begun.discard(run)
            if self._left is not None:
                self._left(run.claim.id, run.claim.fence)
            self._leave_slot(run, settlement)

    def _leave_slot(self, run: Run, settlement: Settlement | None) -> None:
        """Once for each run: when its handler has ended, or when nobody waits for that any more."""
        if not run.reported:
            run.reported = True
            if self.runs.get(run.claim.id) is run:  # not a later run of the same job
                del self.runs[run.claim.id]
            if run.trace is not None:
                run.trace.end(settlement)
            self._settle(run, settlement)

    async def _outcome(self, run: Run, task: Task[..., Any]) -> Settlement | None:
        """Every step to the outcome: still in time, arguments, run, result."""
        if run.deadline.expired:
            return run.settlement(Outcome.UNRUN)
        try:
            args, kwargs = unpack_arguments(run.claim.payload)
        except codec.DecodeError as error:
            return run.settlement(Outcome.FAILED, blob=codec.describe_exception(error))
        self._arm(run, task)
        if run.claim.twin and self._untie is not None:
            instead = await self._untie(run)
            if instead is not None:
                return run.settlement(instead)
        run.deliver = lambda: self._interrupt(run, run.mark or "cut")
        surround(run, task.queue.tracer)
        set_current(CurrentJob.of(run, task.queue.name, self._unit_caller(run, task)))
        try:
            if task.is_async:
                value = await task.fn(*args, **kwargs)
            else:
                value = await self._in_thread(run, task, args, kwargs)
        except BaseException as error:  # noqa: BLE001  SystemExit too must not end the worker
            self._only_here(error, good=False)
            ending: Settlement | None = raised(run, task.config, error)
        else:
            self._only_here(value, good=True)
            ending = returned(run, value)
        await self._units_closed(run)
        return marked(run, task.config) if run.mark else ending

    def _only_here(self, value: object, *, good: bool) -> None:
        """A handler that forked leaves twice: in the new process it ends that."""
        if os.getpid() != self._pid:
            end_fork(value, good=good)

    async def _units_closed(self, run: Run) -> None:
        """A handler may have left behind a unit that is still open: its record comes first."""
        while run.open_units:
            try:
                await asyncio.sleep(_LEFT_BEHIND_S)
            except asyncio.CancelledError:
                continue

    def _unit_caller(self, run: Run, task: Task[..., Any]) -> Callable[[UnitCall], Any]:
        units, loop = self._units(run), asyncio.get_running_loop()

        async def on_loop(call: UnitCall) -> Any:
            if asyncio.get_running_loop() is not loop:
                raise _elsewhere(call)
            return await units.run(call)

        def in_thread(call: UnitCall) -> Any:
            if os.getpid() != self._pid:
                raise _elsewhere(call)
            return asyncio.run_coroutine_threadsafe(units.run(call), loop).result()

        return on_loop if task.is_async else in_thread

    def _arm(self, run: Run, task: Task[..., Any]) -> None:
        at, mark = limit_of(run.deadline, task.config)
        loop = asyncio.get_running_loop()
        delay = max(0.0, at - clock.monotonic())
        run.timer = loop.call_at(loop.time() + delay, self._interrupt, run, mark)

    async def _in_thread(
        self, run: Run, task: Task[..., Any], args: list[Any], kwargs: dict[str, Any]
    ) -> Any:
        """A plain function cannot be interrupted from outside; it stops at ``.check()``."""
        run.thread = True
        context = contextvars.copy_context()

        def call() -> tuple[bool, Any]:
            try:
                good, value = True, context.run(task.fn, *args, **kwargs)
            except BaseException as error:  # noqa: BLE001  a future cannot carry StopIteration
                good, value = False, error
            self._only_here(value, good=good)
            return good, value

        loop = asyncio.get_running_loop()
        good, value = await loop.run_in_executor(self._pool, call)
        if not good:
            raise value
        return value


def _elsewhere(call: UnitCall) -> UnitError:
    msg = (
        f"unit {shown(call.name)} was called on another event loop or in another process than its "
        "handler's; call it there, and begin others inside it"
    )
    return UnitError(msg)
