"""Tasks that a job leaves behind: nothing of one job goes on in the next.

Every task that is begun within a job, however deep, is noted by a task factory on the worker's
loop; those that still run when the job has ended are cancelled, and named in the log. What is
begun in a context without a job (a pool opened in a lifespan, deadq's own connections) is not a
job's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from ...events import Event, log

_noted: ContextVar[set[asyncio.Task[Any]] | None] = ContextVar("deadq_tasks", default=None)

Factory = Callable[..., Any]


class Leftovers:
    """Watches one loop. A factory that stands there already goes on making the tasks."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._before: Factory | None = loop.get_task_factory()
        loop.set_task_factory(self._make)

    def begin(self) -> set[asyncio.Task[Any]]:
        """In a job's context: note its tasks from now on."""
        noted: set[asyncio.Task[Any]] = set()
        _noted.set(noted)
        return noted

    def end(self, noted: set[asyncio.Task[Any]], job: str) -> None:
        """The job has ended: cancel what is left."""
        for task in [task for task in noted if not task.done()]:
            log.warning("%s: job %s, task %s", Event.LEFT_BEHIND, job, task.get_name())
            task.cancel()

    def close(self) -> None:
        """Watch no more."""
        self._loop.set_task_factory(self._before)

    def _make(self, loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> Any:
        make = self._before or _plain
        task = make(loop, work, **options)
        context = options.get("context")
        noted = _noted.get() if context is None else context.get(_noted)
        if noted is not None and isinstance(task, asyncio.Task):
            noted.add(task)
            task.add_done_callback(noted.discard)
        return task


def _plain(loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Task[Any]:
    return asyncio.Task(work, loop=loop, **options)
