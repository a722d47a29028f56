"""Units: steps that change state. They complete, or never start; their result is on record.

A unit first writes *begun*, in one call that checks lease, cancel and the time left; then it runs;
then its end is recorded. No deadline, cancel or stop interrupts it in between: what came
meanwhile is delivered after the record. A later attempt of the job gets the recorded result
instead of running the unit again. *Begun* without an end is open until its limit, and in doubt
afterwards: it may or may not have taken effect.

The decisions stand in :mod:`.unit_steps`; here they are driven on an event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import math
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Final, Protocol

from ... import clock
from ...errors import StoreUnavailable, UnitError, UnitInDoubt, shown
from ...resilience.steps import as_unit
from ...store.aio import AsyncStore
from ...store.wire import AccessRefused
from ..insist import ainsist, until
from ..jobs.forks import end_fork
from ..jobs.unit_steps import (
    Ask,
    Invoke,
    Ran,
    Step,
    Steps,
    UnitCall,
    UnitHost,
    UnitSteps,
    interrupted,
)
from ..ties.unit_gate import OpenGate, UnitGate

__all__ = ["UnitCall", "UnitError", "UnitInDoubt", "Units", "interrupted"]


class LoopHost(UnitHost, Protocol):
    """The run that a unit belongs to, on a loop."""

    open_units: int
    unit_recorded: asyncio.Event

    def deliver(self) -> None:
        """Interrupt now, if a mark was set while units were open."""
        ...


_REPEAT_S: Final = 0.05
_PATIENCE: Final = 5
"""A unit is interrupted so often (s), and so many times, once its limit is over."""


class Units:
    """The units of one run, on the worker's loop.

    ``hung`` is called when one does not leave at its limit: somebody has to get rid of the
    process. ``patience`` tells until when it is worth waiting for a server that is
    away (monotonic s); the record of an end has its own besides.
    """

    def __init__(
        self,
        host: LoopHost,
        store: AsyncStore,
        child: Callable[[], str],
        retention_ms: int,
        gate: UnitGate | None = None,
        hung: Callable[[], None] | None = None,
        patience: Callable[[], float] = lambda: math.inf,
    ) -> None:
        self._host = host
        self._store = store
        self._pid = os.getpid()
        self._hung = hung or _nobody
        self._patience = patience
        self._steps = UnitSteps(host, store.wire.clock, child, retention_ms, gate or OpenGate())

    async def run(self, call: UnitCall) -> Any:
        """Run a unit to its end, however often the caller is cancelled meanwhile."""
        steps = self._steps.of(call)
        host = self._host
        host.open_units += 1
        inner = asyncio.ensure_future(self._carried(steps))
        try:
            ran = await _to_the_end(inner)
            if not ran.good:
                raise ran.value
            return ran.value
        finally:
            host.open_units -= 1
            if not host.open_units and host.mark is not None:
                host.deliver()
                await asyncio.sleep(0)  # the interruption that waited arrives here

    async def _carried(self, steps: Steps) -> Ran:
        """The unit's end as a value: a task that raised SystemExit would end the whole loop."""
        try:
            return await self._drive(steps)
        except BaseException as error:  # noqa: BLE001  raised again where the unit was called
            return Ran(good=False, value=error, late=False)

    async def _drive(self, steps: Steps) -> Ran:
        with contextlib.closing(steps):
            step = next(steps)
            while True:
                answer = await self._take(step)
                try:
                    step = steps.send(answer)
                except StopIteration as end:
                    ran: Ran = end.value
                    return ran

    async def _take(self, step: Step) -> Any:
        if isinstance(step, Ask):
            return await self._ask(step)
        if isinstance(step, Invoke):
            return await self._invoke(step)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(step.seconds):
                await self._host.unit_recorded.wait()
        return None

    async def _invoke(self, step: Invoke) -> Ran:
        """Until the limit; then it is interrupted until it leaves, or is left behind for good."""
        running = asyncio.ensure_future(_carry_out(step.call))
        await asyncio.wait({running}, timeout=max(0.0, step.until - clock.monotonic()))
        late = not running.done()
        for _ in range(_PATIENCE):
            if running.done():
                break
            running.cancel()
            await asyncio.wait({running}, timeout=_REPEAT_S)
        if not running.done():
            self._hung()
            return Ran(good=False, value=TimeoutError("it does not leave"), late=True)
        ran = running.result()
        if os.getpid() != self._pid:
            end_fork(ran.value, good=ran.good)
        return ran if isinstance(ran.value, _NeverBegan) else ran._replace(late=late)

    async def _ask(self, step: Ask) -> Any:
        def send() -> Coroutine[Any, Any, Any]:
            return self._store.run(step.call)

        least = step.until
        try:
            if least is None:
                return await send()
            worth = until(lambda: max(least, self._patience()))
            return await ainsist(send, asyncio.sleep, worth)
        except AccessRefused:
            raise  # none begins then; for a record it was waited, like for a server that is away
        except StoreUnavailable:
            return None


def _nobody() -> None:
    """Without a supervisor nobody can be told."""


class _NeverBegan(UnitError):
    """At its limit a unit's thread had not got to its function yet: there is no doubt about it."""


async def _carry_out(call: UnitCall) -> Ran:
    """The function itself; a plain one runs in a thread, so that the loop goes on."""
    try:
        with as_unit():
            if inspect.iscoroutinefunction(call.fn):
                value = await call.fn(*call.args, **call.kwargs)
            else:
                good, value = await _in_thread(call)
                if not good:
                    raise value
                if inspect.isawaitable(value):
                    value = await value
    except BaseException as error:  # noqa: BLE001  the unit's own, whatever it is
        return Ran(good=False, value=error, late=False)
    return Ran(good=True, value=value, late=False)


async def _in_thread(call: UnitCall) -> tuple[bool, Any]:
    """However often it is cancelled: a thread goes on, and so the unit is not over.

    In one of its own, which begins at once: that the unit begins is on record, and its limit runs.
    """

    def run() -> tuple[bool, Any]:
        try:
            return True, call.fn(*call.args, **call.kwargs)
        except BaseException as error:  # noqa: BLE001  a future would carry some of them as others
            return False, error

    ended: Future[tuple[bool, Any]] = Future()
    context = contextvars.copy_context()

    def begin() -> None:
        if ended.set_running_or_notify_cancel():
            ended.set_result(context.run(run))

    threading.Thread(target=begin, name="deadq-unit", daemon=True).start()
    running = asyncio.wrap_future(ended)
    while not running.done():
        try:
            await asyncio.shield(running)
        except asyncio.CancelledError:
            if ended.cancel():
                msg = f"unit {shown(call.name)} found no processor within its limit; it did not run"
                raise _NeverBegan(msg) from None
    return running.result()


async def _to_the_end(inner: asyncio.Future[Ran]) -> Ran:
    """The outcome of ``inner``. Cancellations of the caller are held back until it is there."""
    cancelled = False
    while not inner.done():
        try:
            await asyncio.shield(inner)
        except asyncio.CancelledError:
            if inner.done() and inner.cancelled():
                raise
            cancelled = True
    if cancelled:
        raise asyncio.CancelledError
    return inner.result()
