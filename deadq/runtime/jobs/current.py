"""The job that is running here, as its handler sees it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from typing import Any, Literal, ParamSpec, Protocol, TypeVar, cast, overload

from ...deadline import Deadline
from ...errors import DeadqError
from ...job import Claim
from ...tracing import RunTrace
from .unit_steps import UnitCall, interrupted

P = ParamSpec("P")
R = TypeVar("R")

_current: ContextVar[CurrentJob | None] = ContextVar("deadq_job", default=None)


class Interrupting(Protocol):
    """Who knows whether a run has been interrupted, and can be told that its time is over."""

    @property
    def mark(self) -> str | None: ...
    def interrupt(self, mark: str) -> None: ...


class Attempting(Interrupting, Protocol):
    """A run as this module needs to know it."""

    claim: Claim
    deadline: Deadline
    trace: RunTrace | None


class CurrentJob:
    """What a handler may know of its job, and do with it."""

    __slots__ = ("_run", "_unit", "attempt", "deadline", "fence", "id", "key", "queue")

    def __init__(
        self,
        run: Interrupting,
        *,
        queue: str,
        job: str,
        key: str,
        attempt: int,
        fence: int,
        deadline: Deadline,
        unit: Callable[[UnitCall], Any],
    ) -> None:
        self._run = run
        self._unit = unit
        self.queue = queue
        """The name of its queue."""
        self.id = job
        self.key = key
        self.attempt = attempt
        """Which start of the job this is, from 1; give-backs count too."""
        self.fence = fence
        """Higher for every later start in this queue: a fencing token for the user's own writes."""
        self.deadline = deadline

    @classmethod
    def of(cls, run: Attempting, queue: str, unit: Callable[[UnitCall], Any]) -> CurrentJob:
        """What the handler of ``run`` sees."""
        claim = run.claim
        return cls(
            run,
            queue=queue,
            job=claim.id,
            key=claim.key,
            attempt=claim.attempt,
            fence=claim.fence,
            deadline=run.deadline,
            unit=unit if run.trace is None else run.trace.units(unit),
        )

    def check(self) -> None:
        """Return if the job may go on.

        Raises:
            DeadlineExceeded: its deadline, or the limit of this attempt, has passed.
            Cancelled: somebody cancelled it, or the worker stops.
            LeaseLost: the worker's lease lapsed; somebody else may be running it.
        """
        if self._run.mark is None and self.deadline.expired:
            self._run.interrupt("cut")
        mark = self._run.mark
        if mark is not None:
            raise interrupted(mark, self.id)

    @overload
    def unit(
        self,
        name: str,
        fn: Callable[..., Coroutine[Any, Any, R]],
        /,
        *args: Any,
        needs: float = 0.0,
        limit: float = 30.0,
        on_doubt: Literal["rerun", "fail"] = "rerun",
        **kwargs: Any,
    ) -> Coroutine[Any, Any, R]: ...
    @overload
    def unit(
        self,
        name: str,
        fn: Callable[..., Any],
        /,
        *args: Any,
        needs: float = 0.0,
        limit: float = 30.0,
        on_doubt: Literal["rerun", "fail"] = "rerun",
        **kwargs: Any,
    ) -> Any: ...

    def unit(
        self,
        name: str,
        fn: Callable[..., Any],
        /,
        *args: Any,
        needs: float = 0.0,
        limit: float = 30.0,
        on_doubt: Literal["rerun", "fail"] = "rerun",
        **kwargs: Any,
    ) -> Any:
        """Run ``fn(*args, **kwargs)`` as a unit: it completes or never starts.

        In an async handler the result is awaited; in a plain one it is returned.

        Args:
            name: of the step, unique within one attempt; its result is recorded under it.
            fn: the function. A plain one runs in a thread of its own beside an event loop, on the
                handler's own thread in a process of its own; a coroutine function called there
                runs on a loop of its own.
            *args: for ``fn``, as are further keywords.
            needs: seconds that must be left for it to start at all; or its own p99, as measured
                of late, where that is longer.
            limit: seconds after which it is interrupted and counts as in doubt; so does one that
                was begun that long ago by an attempt that left no end.
            on_doubt: what a later attempt does then: ``rerun`` it (the same ``unit_key``), or
                ``fail`` the job.
            **kwargs: for ``fn``.

        Raises:
            DeadlineExceeded: too little time is left; it did not start.
            Cancelled: the job was cancelled; it did not start.
            LeaseLost: the job is no longer this worker's; it did not start.
            UnitError: the name was used already, or with other arguments; or the job has 1,000
                units on record, which is the most.
            UnitInDoubt: it outlived ``limit``; or an earlier attempt left it in doubt, and
                ``on_doubt="fail"``.
        """
        return self._unit(UnitCall(name, fn, args, kwargs, needs, limit, on_doubt))

    def unit_key(self, name: str) -> str:
        """A key for the unit ``name`` that stays the same across attempts: for a payment API."""
        return f"{self.id}:{name}"

    def __repr__(self) -> str:
        return f"<CurrentJob {self.id} attempt {self.attempt}>"


def current_job() -> CurrentJob:
    """The job that is running here.

    Raises:
        DeadqError: no job is; the code runs outside a worker.
    """
    job = _current.get()
    if job is None:
        msg = "no job is running here; current_job() works inside a handler only"
        raise DeadqError(msg)
    return job


def set_current(job: CurrentJob) -> None:
    """Make ``job`` the current one of this context (the job's own context)."""
    _current.set(job)


def unit(
    *, needs: float = 0.0, limit: float = 30.0, on_doubt: Literal["rerun", "fail"] = "rerun"
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make a function a unit wherever it is called inside a job; outside it is a plain call.

    The settings are those of :meth:`CurrentJob.unit`; the unit's name is the function's own. A
    plain function called inside an async handler gives a coroutine there, to be awaited.
    """

    def declare(fn: Callable[P, R]) -> Callable[P, R]:
        name = fn.__qualname__

        @functools.wraps(fn)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            job = _current.get()
            if job is None:
                return fn(*args, **kwargs)
            made = UnitCall(name, fn, args, dict(kwargs), needs, limit, on_doubt)
            return cast("R", job._unit(made))

        UnitCall(name, fn, (), {}, needs, limit, on_doubt)  # checks the settings here and now
        return call

    return declare
