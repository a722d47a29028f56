"""The worker: what a program runs, and what its signals do."""

from __future__ import annotations

import asyncio

from ..queue import Queue
from .loop.child import Child
from .settings import ASYNC_SLOTS, ChildSettings, RunnerName, WorkerConfig, plan_for


class Worker:
    """Runs a queue's jobs.

    :meth:`run` is what a program runs: a supervisor and its children, which survive whatever
    handlers do. :meth:`arun` runs handlers on an event loop of the caller's own, in one process.

    Args:
        queue: whose tasks to run.
        concurrency: slots: how many jobs run at a time; default: 64 on event loops, the CPUs
            really available for plain handlers.
        grace: seconds that handlers get at a stop before they are interrupted.
        runner: ``async``, ``process``, or ``auto``: ``process`` where no handler is a coroutine
            function. The process runner runs each plain handler on the main thread of a process of
            its own, where it can be interrupted.
        children: processes that share the slots, under the async runner.
        max_jobs: jobs after which a child is replaced by a fresh one.
        max_memory: resident bytes above which a child is replaced by a fresh one; looked at every
            second on an event loop, and between two jobs under the process runner. A child that
            is replaced claims nothing more, and what it runs may run to its end.

    Raises:
        ValueError, TypeError: a setting is odd, or the queue has no tasks that the runner can run.
    """

    def __init__(
        self,
        queue: Queue,
        *,
        concurrency: int | None = None,
        grace: float = 30.0,
        runner: RunnerName = "auto",
        children: int | None = None,
        max_jobs: int | None = None,
        max_memory: int | None = None,
    ) -> None:
        self.queue = queue
        self.config = WorkerConfig(concurrency, grace, runner, children, max_jobs, max_memory)
        plan_for(queue, self.config)
        self._child: Child | None = None
        self._stops = 0
        self.started = asyncio.Event()
        """Set when :meth:`arun` is registered and about to claim."""

    def run(self) -> None:
        """Run until SIGTERM, SIGINT or SIGHUP, then stop gracefully; a second one hastens it.

        Forks, so it is to be called on the main thread of a program that has started no others.

        Raises:
            DeadqError: a child could not begin; the message says why.
        """
        # not at the top: who only submits needs none of it, and it needs a system that can fork
        from .supervisor.supervisor import Supervisor

        Supervisor([(lambda: self.queue, self.config)]).run()

    async def arun(self) -> None:
        """Run until :meth:`stop`, on the running loop. Cancelling it stops gracefully too.

        Plain handlers run in threads, and stop at ``current_job().check()`` only.

        Raises:
            ValueError: the worker was made for the process runner, for several children, or for
                children that are replaced.
        """
        config = self.config
        if config.runner == "process" or config.children not in {None, 1}:
            msg = "arun() runs everything on one loop of this process; use run() for processes"
            raise ValueError(msg)
        if (config.max_jobs, config.max_memory) != (None, None):
            msg = (
                "max_jobs and max_memory replace a child by a fresh one, and arun() has none: leave"
                " them out, or use run()"
            )
            raise ValueError(msg)
        settings = ChildSettings(config.concurrency or ASYNC_SLOTS, config.grace)
        async with self.queue.opened():
            self._child = Child(self.queue, settings, started=self.started)
            self._pass_on()
            await self._child.run()

    def stop(self) -> None:
        """Stop :meth:`arun` gracefully: claim nothing more, let handlers run to min(deadline,
        grace), give back the rest. A second call hastens: handlers are interrupted now. To be
        called from the loop's own thread."""
        self._stops += 1
        self._pass_on()

    def _pass_on(self) -> None:
        if self._child is not None and self._stops:
            self._child.stop()
            if self._stops > 1:
                self._child.hasten()
