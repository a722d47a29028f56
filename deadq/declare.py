"""``@queue.task(...)``: making a task of a function, with errors that name fault and remedy."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any, ParamSpec, Protocol, TypeVar, overload

from .config import MAX_RETRIES, OnCrash, TaskConfig, one_of, whole
from .deadline import seconds
from .errors import shown
from .job import CRITICALITY_RANK
from .options import budget
from .resilience.backoff import Backoff
from .store import keys
from .task import Submitter, Task

P = ParamSpec("P")
R = TypeVar("R")


class Declared(Submitter, Protocol):
    """What declaring needs of a queue: its name, and the tasks it has so far."""

    tasks: dict[str, Task[..., Any]]

    @property
    def name(self) -> str: ...


class Declare:
    """``@queue.task(...)``: makes a task of the function that follows."""

    def __init__(self, queue: Declared, config: TaskConfig) -> None:
        if config.within is not None:
            budget(config.within, "within", queue.horizon)
        self._queue = queue
        self._config = config

    @overload
    def __call__(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> Task[P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, R], /) -> Task[P, R]: ...

    def __call__(self, fn: Callable[..., Any], /) -> Any:
        if not callable(fn):
            msg = f"a task must be a function, not {type(fn).__name__}"
            raise TypeError(msg)
        if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
            msg = f"{fn.__qualname__} is a generator; a handler returns its result"
            raise TypeError(msg)
        name = keys.check_name(self._config.name or getattr(fn, "__name__", ""), "task name")
        if any(ord(c) < ord(" ") for c in name):
            msg = f"task name {shown(name)} holds control characters; name it with task(name=...)"
            raise ValueError(msg)
        if name in self._queue.tasks:
            msg = (
                f"queue {shown(self._queue.name)} has a task {shown(name)} already; "
                "name one with task(name=...)"
            )
            raise ValueError(msg)
        task: Task[..., Any] = Task(self._queue, fn, replace(self._config, name=name))
        self._queue.tasks[name] = task
        return task


def task_config(
    name: str | None,
    within: float | None,
    retries: int,
    timeout: float | None,
    retry_on: type[Exception] | Sequence[type[Exception]] | None,
    criticality: str,
    backoff: Callable[[int], float] | None,
    on_crash: OnCrash,
    hedge: bool,
) -> TaskConfig:
    """The settings of :meth:`Queue.task`, checked.

    Raises:
        ValueError, TypeError: one of them is odd; the message names the fault and the remedy.
    """
    settings = TaskConfig(
        "" if name is None else keys.check_name(name, "task name"),
        None if within is None else seconds(within, "within"),
        whole(retries, "retries", 0, MAX_RETRIES),
        None if timeout is None else seconds(timeout, "timeout"),
        None if retry_on is None else exceptions(retry_on),
        one_of(criticality, "criticality", tuple(CRITICALITY_RANK)),
        backoff or Backoff().delay,
        one_of(on_crash, "on_crash", ("rerun", "fail")),
        hedge,
    )
    if not callable(settings.backoff):
        msg = f"backoff must be a function of the retry's number, not {shown(backoff)}"
        raise TypeError(msg)
    if not isinstance(hedge, bool):
        msg = f"hedge must be True or False, not {shown(hedge)}"
        raise TypeError(msg)
    if hedge and on_crash == "fail":
        msg = (
            "hedge=True and on_crash='fail' exclude each other: the one starts a job a second "
            "time, the other promises that it is started once; leave one of them out"
        )
        raise ValueError(msg)
    return settings


def exceptions(
    retry_on: type[Exception] | Sequence[type[Exception]],
) -> tuple[type[Exception], ...]:
    """The exception classes that ask for a retry, checked."""
    try:
        kinds = (retry_on,) if isinstance(retry_on, type) else tuple(retry_on)
    except TypeError:
        msg = f"retry_on takes exception classes, not {shown(retry_on)}"
        raise TypeError(msg) from None
    for kind in kinds:
        if not (isinstance(kind, type) and issubclass(kind, Exception)):
            msg = f"retry_on takes exception classes, not {shown(kind)}"
            raise TypeError(msg)
    return kinds
