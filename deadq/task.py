"""Tasks: functions that can be submitted, and keep their own signature."""

from __future__ import annotations

import copy
import functools
import inspect
import os
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any, Generic, ParamSpec, Protocol, TypeVar

from . import codec
from .arguments import plain_args
from .config import TaskConfig
from .deadline import Deadline
from .errors import DeadlineExpired, PayloadTooLarge, Rejected, shown
from .handle import JobHandle
from .job import BOUNDED, CRITICALITY_RANK, HEDGED, Submission, job_id
from .options import NO_OPTIONS, Options, checked, within_horizon
from .prepared import Owner, Prepared
from .resilience.allowance import Allowance

P = ParamSpec("P")
R = TypeVar("R")


class Submitter(Owner, Protocol):
    """What a task needs of its queue."""

    @property
    def horizon(self) -> float: ...
    @property
    def max_payload(self) -> int: ...
    def connect(self) -> None: ...
    async def aconnect(self) -> None: ...
    def new_token(self) -> str: ...
    def submit_many(
        self, calls: Iterable[Prepared[R] | Rejected]
    ) -> list[JobHandle[R] | Rejected]: ...
    async def asubmit_many(
        self, calls: Iterable[Prepared[R] | Rejected]
    ) -> list[JobHandle[R] | Rejected]: ...


class BoundCall(Generic[P, R]):
    """A task with the options of one submit."""

    __slots__ = ("_options", "_task")

    def __init__(self, task: Task[P, R], options: Options) -> None:
        self._task = task
        self._options = options

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """Submit the call; returns once the server has accepted it.

        Raises:
            Rejected: refused; its subclass and ``.reason`` say why. Nothing was stored.
            TypeError: the arguments do not fit the handler's signature.
            ValueError: a value cannot travel, or no deadline is to be had.
        """
        queue = self._task.queue
        queue.connect()
        return queue.submit(self._task.prepare(self._options, args, kwargs))

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """The asyncio twin of :meth:`enqueue`. Concurrent calls share round trips."""
        queue = self._task.queue
        await queue.aconnect()
        return await queue.asubmit(self._task.prepare(self._options, args, kwargs))

    def call(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Submit, and wait for the result until the deadline. Raises as both do."""
        return self.enqueue(*args, **kwargs).result()

    async def acall(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Submit, and wait for the result. Cancelling the wait gives the job up."""
        handle = await self.aenqueue(*args, **kwargs)
        return await handle.aresult()

    def bind(self, *args: P.args, **kwargs: P.kwargs) -> Prepared[R]:
        """The call as an item for ``Queue.enqueue_many``. Its deadline counts from now."""
        self._task.queue.connect()
        return self._task.prepare(self._options, args, kwargs)

    async def abind(self, *args: P.args, **kwargs: P.kwargs) -> Prepared[R]:
        """The asyncio twin of :meth:`bind`; it only waits for the first connection."""
        await self._task.queue.aconnect()
        return self._task.prepare(self._options, args, kwargs)

    def enqueue_many(self, calls: Iterable[tuple[Any, ...]]) -> list[JobHandle[R] | Rejected]:
        """Submit once for each tuple of positional arguments; one outcome each, none raised."""
        queue = self._task.queue
        queue.connect()
        return queue.submit_many(self._task.prepare_many(self._options, calls))

    async def aenqueue_many(
        self, calls: Iterable[tuple[Any, ...]]
    ) -> list[JobHandle[R] | Rejected]:
        """The asyncio twin of :meth:`enqueue_many`."""
        queue = self._task.queue
        await queue.aconnect()
        return await queue.asubmit_many(self._task.prepare_many(self._options, calls))


class Task(BoundCall[P, R]):
    """A handler that its queue knows. Calling it runs the function here and now."""

    __slots__ = ("__dict__", "_plain_args", "_signature", "config", "fn", "is_async", "queue")

    def __init__(self, queue: Submitter, fn: Callable[P, Any], config: TaskConfig) -> None:
        super().__init__(self, NO_OPTIONS)
        self.queue = queue
        self.fn = fn
        self.config = config
        self.is_async = inspect.iscoroutinefunction(fn)
        self._signature = inspect.signature(fn)
        self._plain_args = plain_args(self._signature)
        functools.update_wrapper(self, fn)

    @property
    def name(self) -> str:
        """The name under which jobs refer to the handler."""
        return self.config.name

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        return self.fn(*args, **kwargs)

    def options(
        self,
        *,
        key: str | None = None,
        within: float | None = None,
        deadline: Deadline | datetime | float | None = None,
        not_before: Deadline | datetime | float | None = None,
        criticality: str | None = None,
        retries: int | None = None,
    ) -> BoundCall[P, R]:
        """A bound call.

        Args:
            key: the idempotency key; a repeat under it is the same job.
            within: time budget in seconds from the submit.
            deadline: the instant itself: a Deadline, an aware datetime, or epoch ms.
            not_before: the earliest start: a Deadline, an aware datetime, or epoch ms.
            criticality: critical_plus, critical, sheddable_plus or sheddable.
            retries: how often the handler may be run again.

        Raises:
            ValueError: any of these is odd, or ``within`` is more than the queue's ``horizon``; the
                message names the fault and the remedy. An instant past it is refused on submit.
        """
        given = checked(
            key=key,
            within=within,
            deadline=deadline,
            not_before=not_before,
            criticality=criticality,
            retries=retries,
            horizon=self.queue.horizon,
        )
        return BoundCall(self, given)

    def prepare(
        self, options: Options, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Prepared[R]:
        """Encode a call and fix its deadline. Needs a connected queue, for the server's clock."""
        value, payload = self._encode(args, kwargs)
        return self._stamp(options, self._deadline(options), value, payload)

    def prepare_many(
        self, options: Options, calls: Iterable[tuple[Any, ...]]
    ) -> Iterator[Prepared[R] | Rejected]:
        """Prepare many under one deadline. All that can be wrong with an argument is found
        before the first one is given out, so that nothing is submitted beside an error."""
        encoded: list[tuple[Any, bytes] | Rejected] = []
        for args in calls:
            if not isinstance(args, tuple | list):
                msg = (
                    f"each call must be a tuple of arguments, not {shown(args)}; "
                    "write (value,) for one"
                )
                raise TypeError(msg)
            try:
                encoded.append(self._encode(tuple(args), {}))
            except PayloadTooLarge as error:
                encoded.append(error)
        try:
            deadline = self._deadline(options)
        except DeadlineExpired as error:
            return iter([copy.copy(error) for _ in encoded])
        return (
            item if isinstance(item, Rejected) else self._stamp(options, deadline, *item)
            for item in encoded
        )

    def _encode(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, bytes]:
        value = self._arguments(args, kwargs)
        try:
            return value, codec.encode(value, limit=self.queue.max_payload, what="args")
        except codec.TooLarge as error:
            raise PayloadTooLarge(str(error)) from None

    def _stamp(
        self, options: Options, deadline: Deadline, value: Any, payload: bytes
    ) -> Prepared[R]:
        """Key, id, token and instants."""
        queue, config = self.queue, self.config
        key = os.urandom(16).hex() if options.key is None else options.key
        submission = Submission(
            job_id(key),
            key,
            codec.fingerprint(config.name, value, payload),
            config.name,
            deadline.server_ms(queue.clock),
            0 if options.not_before is None else self._not_before_ms(options.not_before),
            CRITICALITY_RANK[options.criticality or config.criticality],
            self._retries(options),
            queue.new_token(),
            payload,
            "1" if config.on_crash == "fail" else "",
            self._marks(),
        )
        return Prepared(submission, deadline, queue, keyed=options.key is not None)

    def _marks(self) -> str:
        bounded = "" if Allowance.current() is None else BOUNDED
        return bounded + (HEDGED if self.config.hedge else "")

    def _retries(self, options: Options) -> int:
        """As the task or the call says, within what a layer above has left: one layer retries."""
        allowance = Allowance.current()
        said = options.retries
        if allowance is None:
            return self.config.retries if said is None else said
        if said is None:
            return min(self.config.retries, allowance.left)
        return min(said, allowance.most)

    def _arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The arguments in one form, however they were passed; TypeError when they do not fit."""
        if not kwargs and len(args) == self._plain_args:
            return list(args)
        bound = self._signature.bind(*args, **kwargs)
        if not bound.kwargs:
            return list(bound.args)
        return {"args": list(bound.args), "kwargs": bound.kwargs}

    def _deadline(self, options: Options) -> Deadline:
        """From the options; else the ambient one less the margin; else the task's own budget."""
        queue = self.queue
        ambient = Deadline.current()
        if ambient is not None:
            ambient = ambient.on(queue.clock)
        if options.deadline is not None:
            deadline = options.deadline.on(queue.clock).tighten(ambient)
        elif options.within is not None:
            deadline = Deadline.after(options.within).tighten(ambient)
        elif ambient is not None:
            child = ambient.child()
            if child is None:
                msg = "no useful time is left of the deadline in force"
                raise DeadlineExpired(msg)
            deadline = child
        elif self.config.within is not None:
            deadline = Deadline.after(self.config.within)
        else:
            msg = (
                f"task {self.name} has no deadline: give options(within=...) or "
                "options(deadline=...), or declare it with @queue.task(within=...)"
            )
            raise ValueError(msg)
        return within_horizon(deadline, queue.horizon)

    def _not_before_ms(self, start: Deadline | int) -> int:
        return start.server_ms(self.queue.clock) if isinstance(start, Deadline) else start
