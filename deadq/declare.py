"""``@queue.task(...)``: making a task of a function, with errors that name fault and remedy."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any, ParamSpec, Protocol, TypeVar, overload

from .config import TaskConfig
from .errors import shown
from .options import budget
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
