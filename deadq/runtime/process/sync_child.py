"""One child of the process runner: plain handlers, one at a time, on the main thread.

The process has no thread of its own making. One round trip reports the last job and claims the
next; with nothing to do the child is parked on the server and waits for its supervisor's word.

Each job runs in a fresh copy of the context in which the child began, so no context variable gets
from one job to the next. What belongs to the process or the thread by nature is shared by all
jobs of a child: thread-locals, the working directory, the environment, the locale, the random
state, the signal mask, signal handlers (those of SIGALRM, SIGIO and SIGTERM are deadq's, and are
put back).
"""

from __future__ import annotations

import contextvars
import decimal
import functools
import threading
from collections.abc import Callable
from typing import Any, Final

from ... import clock, codec
from ...arguments import unpack_arguments
from ...deadline import Deadline
from ...errors import StoreUnavailable
from ...events import Event, log
from ...job import Claim, Outcome, Settlement
from ...queue import Queue
from ...task import Task
from ..jobs.ambient import surround
from ..jobs.current import CurrentJob, set_current
from ..jobs.forks import end_fork
from ..jobs.run import SyncRun, ended
from ..jobs.said import say_given_up, say_started
from ..jobs.unit_steps import UnitCall
from ..memory import resident_bytes
from ..settings import ChildSettings, Ties
from .exchange import Exchange
from .hearing import Hearing
from .interrupts import Interrupts
from .sync_units import SyncUnits

_MEMORY_EVERY_S: Final = 0.1


def serve(
    queue: Queue,
    *,
    post: str,
    ties: Ties,
    settings: ChildSettings,
    started: Callable[[], None],
) -> int:
    """Work until told to stop or to leave; returns the exit code.

    To be called on the main thread of a process that has no other. SIGALRM, SIGIO and SIGTERM
    are its own from here on. ``started`` is called once the child is registered.

    Raises:
        UnsafeServer, AccessRefused: the server is one that waiting does not mend.
    """
    child = SyncChild(queue, post, ties, settings)
    child.start()
    try:
        with queue.opened_blocking():
            child.work(started)
    finally:
        child.close()
    return 0


class SyncChild:
    """One registered child, from its first claim to its retirement."""

    def __init__(self, queue: Queue, post: str, ties: Ties, settings: ChildSettings) -> None:
        page, channel = ties.page, ties.channel
        self._queue = queue
        self._gate = ties.gate
        self._channel = channel
        self._settings = settings
        self._hearing = Hearing(channel, settings.grace)
        self._exchange = Exchange(queue, post, page, channel, self._hearing, settings.grace)
        self._interrupts = Interrupts(
            self._hearing, channel, page, queue.config.lease, renewal=self._exchange.renewal
        )
        self._base = contextvars.copy_context()
        self._decimals = decimal.getcontext()
        self._threads: set[threading.Thread] = set()
        self._jobs = 0
        self._weighed_at = 0.0

    def start(self) -> None:
        """Take the signals over, and hear what the supervisor says."""
        self._interrupts.start()

    def close(self) -> None:
        """Give the signals back."""
        self._exchange.close()
        self._interrupts.close()

    def work(self, started: Callable[[], None]) -> None:
        """Register, run jobs until told to go, report all, and retire."""
        exchange = self._exchange
        if not exchange.connect() or not exchange.register():
            return
        self._base = contextvars.copy_context()  # with what lifespans have set
        self._decimals = decimal.getcontext()
        self._threads.update(threading.enumerate())
        started()
        try:
            self._loop()
        except StoreUnavailable as error:
            # the page still names this child, so that somebody hands back what it holds
            log.warning("%s: this child goes, its last job comes back. %s", Event.LOST, error)
        except BaseException:
            exchange.release()
            raise
        else:
            exchange.release()

    def _loop(self) -> None:
        hearing, exchange = self._hearing, self._exchange
        report: Settlement | None = None
        while report is not None or not hearing.going:
            if report is None and not exchange.fit:
                exchange.register()
                continue
            claim, since = exchange.next(report)
            report = None
            if claim is not None:
                report = self._accept(claim, since)
            elif not hearing.going and exchange.fit:
                exchange.park()

    def _accept(self, claim: Claim, since: float) -> Settlement | None:
        task = self._queue.tasks[claim.task]
        deadline = Deadline.from_server(claim.deadline_ms, self._queue.clock)
        run = SyncRun(claim, deadline, since, task.config)
        self._interrupts.begin(run)
        self._exchange.hold(run)
        say_started(claim)
        report = self._outcome(run, task)
        self._interrupts.end()
        if run.trace is not None:
            run.trace.end(report)
        self._exchange.hold(run, ended=True)
        if report is None:
            say_given_up(claim, run.mark)
        if self._worn_out() and not self._hearing.going:
            self._hearing.leaving = True
            self._channel.send("leaving")
        return report

    def _outcome(self, run: SyncRun, task: Task[..., Any]) -> Settlement | None:
        """Every step to the outcome: still in time, arguments, run, result."""
        if self._hearing.going or run.mark == "lost":
            return run.settlement(Outcome.RELEASE)  # nothing has happened yet
        if run.mark == "outrun":
            return None
        if run.deadline.expired:
            return run.settlement(Outcome.UNRUN)
        try:
            args, kwargs = unpack_arguments(run.claim.payload)
        except codec.DecodeError as error:
            return run.settlement(Outcome.FAILED, blob=codec.describe_exception(error))
        instead = self._exchange.untie(run) if run.claim.twin else None
        if instead is not None:
            return run.settlement(instead)
        context = self._base.copy()
        context.run(decimal.setcontext, self._decimals.copy())  # the one in it can be changed
        context.run(surround, run, self._queue.tracer)
        unit = functools.partial(self._unit, run)
        context.run(set_current, CurrentJob.of(run, self._queue.name, unit))
        good, value = self._interrupts.run(run, context.run, (task.fn, *args), kwargs)
        if not self._interrupts.here:
            end_fork(value, good=good)
        self._jobs += 1
        self._interrupts.mend()
        self._look_for_threads(run)
        return ended(run, task.config, good=good, value=value)

    def _unit(self, run: SyncRun, call: UnitCall) -> Any:
        if run.unit is None:
            run.unit = SyncUnits(
                run,
                self._exchange.store,
                self._hearing.child,
                self._queue.config.retention_ms,
                self._gate,
                hearing=self._hearing,
                interrupts=self._interrupts,
                patience=self._exchange.patience,
            ).run
        return run.unit(call)

    def _worn_out(self) -> bool:
        """Whether a fresh process is to take this one's place."""
        settings, now = self._settings, clock.monotonic()
        if settings.max_jobs is not None and self._jobs >= settings.max_jobs:
            return True
        if settings.max_memory is None or now < self._weighed_at + _MEMORY_EVERY_S:
            return False
        self._weighed_at = now
        return resident_bytes() > settings.max_memory

    def _look_for_threads(self, run: SyncRun) -> None:
        """Name those that the job has left behind, once each."""
        if threading.active_count() == 1:
            return
        now = set(threading.enumerate())
        new = now - self._threads
        self._threads = now
        if new:
            names = ", ".join(sorted(thread.name for thread in new))
            log.warning("%s: job %s, threads %s", Event.LEFT_BEHIND, run.claim.id, names)
