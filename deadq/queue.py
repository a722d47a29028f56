"""The queue: its promises, its tasks, and submitting to it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from typing import Any, ParamSpec, TypeVar, overload

from .clock import ServerClock
from .config import AdmissionPolicy, OnCrash, Order, QueueConfig
from .declare import Declare, task_config
from .errors import Rejected, shown
from .handle import JobHandle
from .job import Admission, Submission, Verdict
from .lifespan import Lifespan, as_manager, opened_here, opened_on_loop
from .prepared import Prepared, check_in_time, submittable
from .producer import Producer
from .refusals import refusal
from .resilience.rules import Rule, window_rule
from .steering import Steering
from .store import keys, scripts
from .store.connect import Backend
from .store.wire import Now, server_time
from .task import Task
from .tracing import Tracer

P = ParamSpec("P")
R = TypeVar("R")


class Queue(Steering):
    """A work queue with a hard cap, on Redis or Valkey. Making one does no I/O.

    Args:
        name: 1 to 255 bytes; any text.
        capacity: bound on all live accepted jobs: waiting, put off and running.
        url: of the server; default ``$DEADQ_URL``, else the embedded server.
        client: instead of a URL the user's own redis client (Sentinel, Cluster, TLS); a pair
            (blocking, asyncio) where one does not follow from the other, as with a Sentinel.
        order: ``deadline`` runs the job with the earliest latest start first; ``fifo`` the oldest.
        admission: ``feasible`` also refuses what cannot be finished in time; ``cap`` does not.
        retention: seconds for which an outcome is kept for repeats of its key.
        lease: seconds after which a silent worker's jobs go to others.
        max_payload: most bytes of encoded arguments.
        horizon: most seconds that a deadline may lie ahead.
        allow_eviction: start even on a server that may evict keys.
        retry_budget: how many retries all jobs together may make: a preset's name, or a
            ``BudgetRule``. What the worker that registered last says holds for the fleet.

    Raises:
        ValueError, TypeError: a setting is odd; the message names the fault and the remedy.
    """

    def __init__(
        self,
        name: str,
        *,
        capacity: int,
        url: str | None = None,
        client: Any = None,
        order: Order = "deadline",
        admission: AdmissionPolicy = "feasible",
        retention: float = 3600.0,
        lease: float = 5.0,
        max_payload: int = 262_144,
        horizon: float = 7 * 86_400.0,
        allow_eviction: bool = False,
        retry_budget: str | Rule = "sre",
        _now: Now = server_time,
    ) -> None:
        keys.check_name(name, "queue name")
        rule = window_rule(retry_budget, "a queue's retry_budget").words
        self.config = QueueConfig(
            name,
            capacity,
            order,
            admission,
            retention,
            lease,
            max_payload,
            horizon,
            allow_eviction,
            rule,
        )
        self.backend = Backend(name, url, client, allow_eviction=allow_eviction, now=_now)
        self.producer = Producer(self.config, self.backend)
        self.tasks: dict[str, Task[..., Any]] = {}
        self.tracer: Tracer | None = None
        self._lifespans: list[Lifespan] = []

    @property
    def name(self) -> str:
        """The queue's name."""
        return self.config.name

    # --- declaring

    @overload
    def task(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> Task[P, R]: ...
    @overload
    def task(self, fn: Callable[P, R], /) -> Task[P, R]: ...
    @overload
    def task(
        self,
        fn: None = None,
        /,
        *,
        name: str | None = None,
        within: float | None = None,
        retries: int = 0,
        timeout: float | None = None,
        retry_on: type[Exception] | Sequence[type[Exception]] | None = None,
        criticality: str = "critical",
        backoff: Callable[[int], float] | None = None,
        on_crash: OnCrash = "rerun",
        hedge: bool = False,
    ) -> Declare: ...

    def task(
        self,
        fn: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        within: float | None = None,
        retries: int = 0,
        timeout: float | None = None,
        retry_on: type[Exception] | Sequence[type[Exception]] | None = None,
        criticality: str = "critical",
        backoff: Callable[[int], float] | None = None,
        on_crash: OnCrash = "rerun",
        hedge: bool = False,
    ) -> Any:
        """Declare a handler, with or without settings.

        Args:
            fn: the handler, when used as a plain ``@queue.task``.
            name: under which jobs refer to it; default: the function's own.
            within: default time budget, seconds from the submit.
            retries: how often the handler may be run again.
            timeout: limit of one attempt, seconds.
            retry_on: exceptions that ask for a retry; default: what ``is_transient`` names.
            criticality: critical_plus, critical, sheddable_plus or sheddable.
            backoff: seconds to wait before the n-th retry; default: full jitter, 0.1 s
                doubling up to 5 s.
            on_crash: rerun, or fail: a job whose worker has died, or whose lease has lapsed, as
                in an outage longer than the lease, is never run again.
            hedge: start a straggler a second time where a worker is idle; the first success counts.
                Only for a handler that may run twice at a time. It has no units.

        Raises:
            ValueError, TypeError: a setting is odd, or the name is taken.
        """
        settings = task_config(
            name, within, retries, timeout, retry_on, criticality, backoff, on_crash, hedge
        )
        declare = Declare(self, settings)
        return declare if fn is None else declare(fn)

    def lifespan(self, factory: Callable[[], Any]) -> Callable[[], Any]:
        """Declare what handlers need: opened before a worker's first job, closed after its last.

        ``factory`` is an async generator function (or a plain one) with one ``yield``, or
        returns a context manager.
        """
        self._lifespans.append(as_manager(factory))
        return factory

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Run the lifespans around a worker on the running loop."""
        async with opened_on_loop(self._lifespans):
            yield

    def opened_blocking(self) -> contextlib.AbstractContextManager[None]:
        """The twin of :meth:`opened` for a worker that runs no loop."""
        return opened_here(self._lifespans)

    # --- submitting many; single submits are methods of the task

    def enqueue_many(self, calls: Iterable[Prepared[Any]]) -> list[JobHandle[Any] | Rejected]:
        """Submit what :meth:`Task.bind` made: one round trip, one outcome for each.

        Raises:
            TypeError: an item is something else; nothing was submitted.

        A refused one is its :class:`Rejected`, returned and not raised.
        """
        self.connect()
        return self.submit_many([submittable(call) for call in calls])

    async def aenqueue_many(
        self, calls: Iterable[Prepared[Any]]
    ) -> list[JobHandle[Any] | Rejected]:
        """The asyncio twin of :meth:`enqueue_many`."""
        await self.aconnect()
        return await self.asubmit_many(calls)

    # --- what all of that needs

    def close(self) -> None:
        """Close what blocking code opened. The queue may be used again."""
        if self._budget is not None:
            self._budget.close()
        self.producer.close()

    async def aclose(self) -> None:
        """Close what the running loop opened. The queue may be used again."""
        await self.producer.aclose()

    # --- what tasks need of their queue

    @property
    def horizon(self) -> float:
        return self.config.horizon

    @property
    def max_payload(self) -> int:
        return self.config.max_payload

    @property
    def clock(self) -> ServerClock:
        return self.backend.clock

    def connect(self) -> None:
        """Connect and check the server, once; otherwise the first submit does."""
        self.backend.sync()

    async def aconnect(self) -> None:
        """The asyncio twin of :meth:`connect`."""
        await self.backend.aio()

    def new_token(self) -> str:
        return self.producer.new_token()

    def submit(self, prepared: Prepared[R]) -> JobHandle[R]:
        check_in_time(prepared)
        return self._accepted(prepared, self.producer.admit(prepared.submission))

    async def asubmit(self, prepared: Prepared[R]) -> JobHandle[R]:
        check_in_time(prepared)
        return self._accepted(prepared, await self.producer.aadmit(prepared.submission))

    def submit_many(self, calls: Iterable[Prepared[R] | Rejected]) -> list[JobHandle[R] | Rejected]:
        made: list[Prepared[R] | Rejected] = []

        def submissions() -> Iterator[Submission]:
            for call in calls:
                made.append(call)
                if isinstance(call, Prepared):
                    yield call.submission

        answers = iter(self.producer.admit_many(scripts.batches(submissions())))
        return self._outcomes(made, answers)

    async def asubmit_many(
        self, calls: Iterable[Prepared[R] | Rejected]
    ) -> list[JobHandle[R] | Rejected]:
        made = [submittable(call) for call in calls]
        answers = await self.producer.aadmit_many(
            [call.submission for call in made if isinstance(call, Prepared)]
        )
        return self._outcomes(made, iter(answers))

    def _outcomes(
        self, made: list[Prepared[R] | Rejected], answers: Iterator[Admission]
    ) -> list[JobHandle[R] | Rejected]:
        return [
            call if isinstance(call, Rejected) else self._outcome(call, next(answers))
            for call in made
        ]

    def _accepted(self, prepared: Prepared[R], answer: Admission) -> JobHandle[R]:
        outcome = self._outcome(prepared, answer)
        if isinstance(outcome, Rejected):
            raise outcome
        return outcome

    def _outcome(self, prepared: Prepared[R], answer: Admission) -> JobHandle[R] | Rejected:
        verdict, _, hint_ms = answer
        submission = prepared.submission
        if verdict in (Verdict.ADMITTED, Verdict.DUPLICATE):
            return JobHandle(
                self.producer,
                submission.id,
                submission.key,
                submission.token,
                prepared.deadline,
                duplicate=verdict == Verdict.DUPLICATE,
            )
        return refusal(verdict, self.config, hint_ms)

    def __repr__(self) -> str:
        return f"<Queue {shown(self.name)} capacity={self.config.capacity}>"
