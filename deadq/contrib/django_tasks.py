"""``django.tasks`` on deadq: the backend, and the queues that a worker serves.

::

    TASKS = {
        "default": {
            "BACKEND": "deadq.contrib.django_tasks.DeadqBackend",
            "QUEUES": ["default", "mail"],
            "OPTIONS": {"capacity": 64, "within": 30.0},
        }
    }

``OPTIONS`` are the settings of :class:`deadq.Queue`, for each of the ``QUEUES``, and three more:
``within``, the time budget (s) of a task that says nothing itself; ``prefix``, in front of the
queues' names on the server; ``modules``, what a worker imports beside every app's ``tasks`` and the
URLconf, to know all tasks.

A worker: ``DJANGO_SETTINGS_MODULE=... deadq work deadq.contrib.django_tasks:queue``, which is the
queue ``default``, or the first; another one is ``deadq.contrib.django_tasks:queues.mail``.

Each task is known in every queue of its backend, so one coroutine function among them takes the
workers of all to the async runner; give it a backend of its own where that matters. With Django 5.2
the package ``django-tasks`` has the interface.
"""

from __future__ import annotations

import importlib
import inspect
import re
import threading
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final

import django
from asgiref.sync import sync_to_async
from django.conf import settings
from django.utils import timezone
from django.utils.module_loading import autodiscover_modules

from ..handle import JobHandle
from ..queue import Queue
from ..task import BoundCall
from .django_results import handler, plain, submitted, told

try:
    from django.tasks import base, signals, task_backends
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.exceptions import InvalidTask, InvalidTaskBackend, TaskResultDoesNotExist
except ModuleNotFoundError:  # before Django 6
    from django_tasks import base, signals, task_backends
    from django_tasks.backends.base import BaseTaskBackend
    from django_tasks.exceptions import InvalidTaskBackendError as InvalidTaskBackend
    from django_tasks.exceptions import InvalidTaskError as InvalidTask
    from django_tasks.exceptions import TaskResultDoesNotExist

__all__ = ["DeadqBackend", "DeadqTask", "queues"]

_IDENT: Final = re.compile("[0-9a-f]{32}")
_OWN_OPTIONS: Final = ("within", "prefix", "modules")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadqTask(base.Task):  # type: ignore[misc]
    """A Django task that may say of itself what a deadq task may: ``@task(within=2.0)``.

    ``key``, ``deadline`` and the others for one call: ``charge.using(key="a1").enqueue(...)``.
    """

    within: float | None = None
    retries: int = 0
    timeout: float | None = None
    criticality: str = "critical"
    key: str | None = None
    deadline: Any = None

    def __post_init__(self) -> None:
        base.Task.__post_init__(self)
        backend = self.get_backend()
        if isinstance(backend, DeadqBackend):  # what using(backend=...) names may be another
            backend.declare(self)

    def using(self, **changes: Any) -> Any:
        """The task with other settings; None leaves one as it is."""
        return replace(self, **{name: to for name, to in changes.items() if to is not None})

    def bound(self) -> BoundCall[..., Any]:
        """The task as one of deadq with its options: for ``on_commit``, or ``call``."""
        call: BoundCall[..., Any] = self.get_backend().bound(self)
        return call


class Fleet:
    """The queues of one backend: one set for the process, whereas Django makes a backend for each
    thread."""

    def __init__(self, options: dict[str, Any], tasks: dict[str, DeadqTask]) -> None:
        self.options = options
        self._tasks = tasks
        self._queues: dict[str, Queue] = {}

    def queue(self, name: str) -> Queue:
        """The queue of this name, which knows all tasks."""
        found = self._queues.get(name)
        if found is None:
            with _lock:
                found = self._queues.get(name) or self._queues.setdefault(name, self._made(name))
        return found

    def declare(self, path: str, task: DeadqTask) -> None:
        """Make a new task known in all queues."""
        for name, queue in self._queues.items():
            self._declare(queue, name, path, task)

    def _made(self, name: str) -> Queue:
        given = {k: v for k, v in self.options.items() if k not in _OWN_OPTIONS}
        queue = Queue(f"{self.options.get('prefix', '')}{name}", **given)
        for path, task in self._tasks.items():
            self._declare(queue, name, path, task)
        return queue

    def _declare(self, queue: Queue, name: str, path: str, task: DeadqTask) -> None:
        queue.task(
            name=path,
            within=self.options.get("within") if task.within is None else task.within,
            retries=task.retries,
            timeout=task.timeout,
            criticality=task.criticality,
        )(handler(task, name))


_lock = threading.RLock()
_fleets: dict[str, Fleet] = {}
_tasks: dict[str, dict[str, DeadqTask]] = {}
"""By the backend's alias: they outlive a change of the settings, for no decorator is run twice."""


class DeadqBackend(BaseTaskBackend):  # type: ignore[misc]
    """Enqueues Django tasks as deadq jobs. What deadq refuses (``QueueFull``, ...) is raised as it
    is, by ``enqueue`` and ``aenqueue``.

    A priority is refused: a deadq queue is served in the order of latest starts, and what a
    ``criticality`` gives is a share of the cap. A task with ``run_after`` has its time budget from
    then on.
    """

    task_class = DeadqTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = False

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        if not self.queues:
            msg = f"the task backend {alias!r} needs QUEUES: each has its own cap and workers"
            raise InvalidTaskBackend(msg)
        with _lock:
            fleet = _fleets.get(alias)
            if fleet is None or fleet.options != self.options:
                fleet = _fleets[alias] = Fleet(self.options, _tasks.setdefault(alias, {}))
        self._fleet = fleet
        try:
            for name in self.queues:
                fleet.queue(name)
        except (TypeError, ValueError) as error:
            msg = f"OPTIONS of the task backend {alias!r}: {error}"
            raise InvalidTaskBackend(msg) from error

    def queue(self, name: str) -> Queue:
        """The deadq queue behind one of the ``QUEUES``."""
        if name not in self.queues:
            msg = f"queue {name!r} is none of the QUEUES of the task backend {self.alias!r}"
            raise InvalidTask(msg)
        return self._fleet.queue(name)

    def declare(self, task: DeadqTask) -> None:
        """Make a task known in all queues, unless it is."""
        with _lock:
            known, path = _tasks[self.alias], task.module_path
            if path not in known:
                known[path] = task
                self._fleet.declare(path, task)

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        """Submit; a ``TaskResult``. Raises ``Rejected`` when it is refused."""
        call, args, kwargs = self._prepared(task, args, kwargs)
        handle = call.enqueue(*args, **kwargs)
        if handle.duplicate:
            return self.get_result(_ident(task, handle))
        result = submitted(task, _ident(task, handle), args, kwargs)
        signals.task_enqueued.send(type(self), task_result=result)
        return result

    async def aenqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        """The asyncio twin of :meth:`enqueue`. Concurrent calls share round trips."""
        call, args, kwargs = self._prepared(task, args, kwargs)
        handle = await call.aenqueue(*args, **kwargs)
        if handle.duplicate:
            return await self.aget_result(_ident(task, handle))
        result = submitted(task, _ident(task, handle), args, kwargs)
        await signals.task_enqueued.asend(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> Any:
        """The job's record as a ``TaskResult``: for the queue's ``retention``, if it has a result
        or an error of its own; else for a minute after its end."""
        name, _, ident = str(result_id).rpartition(":")
        if name not in self.queues or not _IDENT.fullmatch(ident):
            raise TaskResultDoesNotExist(result_id)
        queue = self._fleet.queue(name)
        report = queue.show(ident)
        task = None if report is None else _tasks[self.alias].get(report.task)
        result = None
        if report is not None and task is not None:
            result = told(task.using(queue_name=name), str(result_id), queue, report)
        if result is None:
            raise TaskResultDoesNotExist(result_id)
        return result

    async def aget_result(self, result_id: str) -> Any:
        """The asyncio twin of :meth:`get_result`."""
        return await sync_to_async(self.get_result, thread_sensitive=False)(result_id)

    def bound(self, task: Any) -> BoundCall[..., Any]:
        """The task as one of deadq, with the options of this call."""
        own = self.queue(task.queue_name).tasks[task.module_path]
        within = own.config.within if task.within is None else task.within
        deadline, start = task.deadline, task.run_after
        if start is not None and not timezone.is_aware(start):
            start = timezone.make_aware(start)
        if deadline is not None:
            within = None
        elif start is not None and within is not None:
            deadline, within = start + timedelta(seconds=within), None
        elif within == own.config.within:
            within = None  # the task's own, before which an ambient deadline comes
        return own.options(
            key=task.key,
            within=within,
            deadline=deadline,
            not_before=start,
            criticality=task.criticality,
            retries=None if task.retries == own.config.retries else task.retries,
        )

    def _prepared(
        self, task: Any, args: Any, kwargs: Any
    ) -> tuple[BoundCall[..., Any], list[Any], dict[str, Any]]:
        self.validate_task(task)
        inspect.signature(task.func).bind(*[None] * task.takes_context, *args, **kwargs)
        return self.bound(task), plain(list(args)), plain(dict(kwargs))


def _ident(task: Any, handle: JobHandle[Any]) -> str:
    """A result's id: the job's, and in which queue."""
    return f"{task.queue_name}:{handle.id}"


class Queues:
    """The queues of all backends here, by name, with every task that the project has."""

    def __getattr__(self, name: str) -> Queue:
        if name.startswith("__"):
            raise AttributeError(name)
        backends = _backends()
        for backend in backends:
            if name in backend.queues:
                return backend.queue(name)
        known = ", ".join(sorted(name for backend in backends for name in backend.queues))
        msg = f"no task backend of deadq has a queue {name!r}; there are: {known or 'none'}"
        raise AttributeError(msg)


queues: Final = Queues()


def _backends() -> list[DeadqBackend]:
    """Those in the settings, once all that may hold tasks has been imported."""
    django.setup()
    found = [task_backends[alias] for alias in task_backends]
    found = [backend for backend in found if isinstance(backend, DeadqBackend)]
    autodiscover_modules("tasks")
    named = [module for backend in found for module in backend.options.get("modules", ())]
    for module in filter(None, (getattr(settings, "ROOT_URLCONF", None), *named)):
        importlib.import_module(module)
    return found


def __getattr__(name: str) -> Queue:
    if name != "queue":
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    backends = _backends()
    if not backends:
        msg = "no task backend in the settings' TASKS is deadq's"
        raise RuntimeError(msg)
    names, default = backends[0].queues, base.DEFAULT_TASK_QUEUE_NAME
    return backends[0].queue(default if default in names else min(names))
