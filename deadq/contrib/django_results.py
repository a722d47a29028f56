"""What Django is told of its tasks' jobs, and how a worker runs them."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from asgiref.sync import sync_to_async
from django.conf import settings
from django.db import close_old_connections
from django.utils import timezone

from .. import codec
from ..arguments import unpack_arguments
from ..job import State
from ..queue import Queue
from ..reports import JobReport
from ..runtime.jobs.current import current_job
from ..store import scripts

try:
    from django.tasks import base, signals
    from django.utils.json import normalize_json
except ModuleNotFoundError:  # before Django 6
    from django_tasks import base, signals
    from django_tasks.utils import normalize_json

__all__ = ["handler", "plain", "submitted", "told"]

_Status = base.TaskResultStatus
_STATUS: Final = {
    State.LATER: _Status.READY,
    State.READY: _Status.READY,
    State.SUSPECT: _Status.READY,
    State.STRANGE: _Status.READY,
    State.RUNNING: _Status.RUNNING,
    State.DONE: _Status.SUCCESSFUL,
}
"""All others are failures."""

_ENDS: Final = {
    State.CANCELLED: "Cancelled",
    State.CRASHED: "JobFailed",
    State.MALFORMED: "JobFailed",
}
"""The error of a job that ended without one of its own; else its time was over."""


def plain(value: Any) -> Any:
    """What JSON makes of it, as Django has it; a choice of an enumeration is its text then.

    Raises:
        TypeError: it cannot be JSON.
    """
    return json.loads(json.dumps(normalize_json(value)))


def submitted(task: Any, ident: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """The result of a task that has just been accepted."""
    return _result(task, ident, _Status.READY, args, kwargs, enqueued_at=timezone.now())


def told(task: Any, ident: str, queue: Queue, report: JobReport) -> Any:
    """The result of a task, from the record of its job; None if that has gone meanwhile."""
    if _STATUS.get(report.state) == _Status.READY and report.remaining_s <= 0:
        report = report._replace(state=State.EXPIRED)  # nobody has swept it yet
    value: Any = None
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    if report.state is State.DONE:
        sight = queue.producer.look(report.id)
        if sight.state is not State.DONE:
            return None
        outcome: Any = codec.decode(sight.blob)
        value, args, kwargs = outcome["value"], outcome["args"], outcome["kwargs"]
    else:
        try:
            args, kwargs = unpack_arguments(queue.backend.sync().run(scripts.payload(report.id)))
        except codec.DecodeError:
            # dropped, where the job has ended without failing: perhaps only just now
            again = None if report.state.final else queue.show(report.id)
            if again is not None and again.state.final:
                return told(task, ident, queue, again)
    # a fence is the server's microseconds when it was given
    started = None if not report.fence else _instant(report.fence / 1e6)
    born, ended = report.submitted_ms, report.ended_ms
    status = _STATUS.get(report.state, _Status.FAILED)
    result = _result(
        task,
        ident,
        status,
        args,
        kwargs,
        enqueued_at=None if born is None else _instant(born / 1e3),
        started_at=started,
        last_attempted_at=started,
        finished_at=None if ended is None else _instant(ended / 1e3),
        worker_ids=["?"] * (report.attempts - 1) + [report.worker or "?"] * (report.attempts > 0),
    )
    if status == _Status.FAILED:
        result.errors.append(_error(report))
    return _set(result, _return_value=value)


def _error(report: JobReport) -> Any:
    """What it has failed with, or why it ended without."""
    name = report.error_type
    if report.state in _ENDS or name is None:
        path = f"deadq.{_ENDS.get(report.state, 'DeadlineExceeded')}"
    else:
        path = name if "." in name else f"builtins.{name}"
    text = report.error_traceback or f"{path}: {report.error_message or report.state}\n"
    return base.TaskError(exception_class_path=path, traceback=text)


def _instant(seconds: float) -> datetime:
    at = datetime.fromtimestamp(seconds, tz=UTC)
    return at if settings.USE_TZ else timezone.make_naive(at)


def _result(
    task: Any, ident: str, status: Any, args: list[Any], kwargs: dict[str, Any], **more: Any
) -> Any:
    given = {
        "enqueued_at": None,
        "started_at": None,
        "last_attempted_at": None,
        "finished_at": None,
        "worker_ids": [],
        **more,
    }
    return base.TaskResult(
        task=task,
        id=ident,
        status=status,
        args=args,
        kwargs=kwargs,
        backend=task.backend,
        errors=[],
        **given,
    )


def _set(result: Any, **values: Any) -> Any:
    for name, value in values.items():
        object.__setattr__(result, name, value)  # as Django's own backends do
    return result


class Run:
    """One run of a task in a worker: its signals, and what the job's record gets."""

    def __init__(
        self, task: Any, queue_name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        job, now = current_job(), timezone.now()
        self.sender = type(task.get_backend())
        self.result = _result(
            task,
            f"{queue_name}:{job.id}",
            _Status.RUNNING,
            list(args),
            kwargs,
            started_at=now,
            last_attempted_at=now,
            worker_ids=["?"] * job.attempt,
        )
        context = (base.TaskContext(task_result=self.result),) if task.takes_context else ()
        self.args = (*context, *args)

    def returned(self, value: Any) -> dict[str, Any]:
        """Note its result; what goes onto the record, for whoever asks for the result."""
        value = plain(value)
        _set(
            self.result,
            status=_Status.SUCCESSFUL,
            finished_at=timezone.now(),
            _return_value=value,
        )
        return {"value": value, "args": self.result.args, "kwargs": self.result.kwargs}

    def raised(self, error: Exception) -> None:
        """Note what it has raised."""
        path = f"{type(error).__module__}.{type(error).__qualname__}"
        _, _, trace = codec.read_exception(codec.describe_exception(error))
        self.result.errors.append(base.TaskError(exception_class_path=path, traceback=trace))
        _set(self.result, status=_Status.FAILED, finished_at=timezone.now())


def handler(task: Any, queue_name: str) -> Callable[..., Any]:
    """What a worker runs for a task. Database connections are looked after as around a request.

    The signal ``task_finished`` comes after each attempt that ends by itself.
    """

    def run(*args: Any, **kwargs: Any) -> Any:
        now = Run(task, queue_name, args, kwargs)
        close_old_connections()
        try:
            signals.task_started.send(now.sender, task_result=now.result)
            try:
                outcome = now.returned(task.func(*now.args, **kwargs))
            except Exception as error:
                now.raised(error)
                signals.task_finished.send(now.sender, task_result=now.result)
                raise
            signals.task_finished.send(now.sender, task_result=now.result)
            return outcome
        finally:
            close_old_connections()

    async def arun(*args: Any, **kwargs: Any) -> Any:
        now = Run(task, queue_name, args, kwargs)
        close = sync_to_async(close_old_connections)
        await close()
        try:
            await signals.task_started.asend(now.sender, task_result=now.result)
            try:
                outcome = now.returned(await task.func(*now.args, **kwargs))
            except Exception as error:
                now.raised(error)
                await signals.task_finished.asend(now.sender, task_result=now.result)
                raise
            await signals.task_finished.asend(now.sender, task_result=now.result)
            return outcome
        finally:
            await close()

    return arun if inspect.iscoroutinefunction(task.func) else run
