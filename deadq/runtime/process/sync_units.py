"""Units on the main thread of a child of its own: the steps of :mod:`.unit_steps`, blocking.

The function runs on the handler's own thread: with its thread-locals, and with a connection that
only this thread may use.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
from collections.abc import Awaitable, Callable
from typing import Any

from ... import clock
from ...errors import StoreUnavailable, UnitError, shown
from ...resilience.steps import as_unit
from ...store.sync import SyncStore
from ...store.wire import AccessRefused
from ..insist import insist, until
from ..jobs.run import SyncRun
from ..jobs.unit_steps import Ask, Invoke, Ran, Step, Steps, UnitCall, UnitSteps
from ..ties.unit_gate import UnitGate
from .hearing import Hearing
from .interrupts import Interrupts


class SyncUnits:
    """The units of one run.

    ``patience`` tells until when it is worth waiting for a server that is away (monotonic s); the
    record of an end has its own besides.
    """

    def __init__(
        self,
        run: SyncRun,
        store: SyncStore,
        child: str,
        retention_ms: int,
        gate: UnitGate,
        *,
        hearing: Hearing,
        interrupts: Interrupts,
        patience: Callable[[], float],
    ) -> None:
        self._run = run
        self._store = store
        self._hearing = hearing
        self._interrupts = interrupts
        self._patience = patience
        self._steps = UnitSteps(run, store.wire.clock, lambda: child, retention_ms, gate)

    def run(self, call: UnitCall) -> Any:
        """Run a unit to its end. What was to interrupt the handler meanwhile comes after it.

        Raises:
            UnitError: called in another thread or process than the handler's.
        """
        interrupts = self._interrupts
        if not interrupts.here or threading.current_thread() is not threading.main_thread():
            msg = (
                f"unit {shown(call.name)} was called in another thread or process than its "
                "handler's; call it there, and start threads inside it"
            )
            raise UnitError(msg)
        before = interrupts.pause()
        try:
            ran = self._drive(self._steps.of(call))
        finally:
            interrupts.resume(self._run, before)
        if not ran.good:
            raise ran.value
        return ran.value

    def _drive(self, steps: Steps) -> Ran:
        with contextlib.closing(steps):
            step = next(steps)
            while True:
                answer = self._take(step)
                try:
                    step = steps.send(answer)
                except StopIteration as end:
                    ran: Ran = end.value
                    return ran

    def _take(self, step: Step) -> Any:
        if isinstance(step, Ask):
            return self._ask(step)
        if isinstance(step, Invoke):
            return Ran(*self._interrupts.run_unit(self._run, step.until, _called, step.call))
        return self._wait(step.seconds)

    def _ask(self, step: Ask) -> Any:
        def send() -> Any:
            return self._store.run(step.call)

        least = step.until
        try:
            if least is None:
                return send()
            worth = until(lambda: max(least, self._patience()))
            return insist(send, self._hearing.wait, worth)
        except AccessRefused:
            raise  # none begins then; for a record it was waited, like for a server that is away
        except StoreUnavailable:
            return None

    def _wait(self, seconds: float) -> None:
        run, until = self._run, clock.monotonic() + seconds
        while run.mark is None and not run.unit_recorded:
            left = until - clock.monotonic()
            if left <= 0:
                return
            self._hearing.wait(left)


def _called(call: UnitCall) -> Any:
    """The function itself; a coroutine runs here and now, on a loop of its own."""
    with as_unit():
        value = call.fn(*call.args, **call.kwargs)
        return asyncio.run(_awaited(value)) if inspect.isawaitable(value) else value


async def _awaited(value: Awaitable[Any]) -> Any:
    return await value
