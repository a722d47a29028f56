"""The public face as types see it. Never run, only type-checked.

Every ``type: ignore`` has to be needed: without it that line is an error.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, assert_type

import deadq
from deadq import (
    BoundCall,
    BreakerOpen,
    Cancelled,
    Criticality,
    CurrentJob,
    DeadJob,
    Deadline,
    DeadlineExceeded,
    DeadlineExpired,
    DeadqError,
    Interrupt,
    JobFailed,
    JobGone,
    JobHandle,
    JobReport,
    KeyReused,
    LeaseLost,
    ListedJob,
    Paused,
    PayloadTooLarge,
    Prepared,
    Queue,
    QueueFull,
    Rejected,
    Retry,
    RetryDenied,
    State,
    StoreUnavailable,
    Task,
    TiedHandle,
    UnitError,
    UnitInDoubt,
    UnitReport,
    Unmeetable,
    Worker,
    atie,
    current_job,
    tie,
    unit,
)
from deadq.contrib.django import Pending, on_commit
from deadq.contrib.opentelemetry import instrument
from deadq.resilience import Breaker, BreakerState, ChainFault, ChainVerdict, Permit
from deadq.testing import assert_chain

queue = Queue("checkout", capacity=64)
tuned = Queue(
    "tuned",
    capacity=1,
    url="redis://localhost",
    order="fifo",
    admission="cap",
    retention=60,
    lease=1.5,
    max_payload=1000,
    horizon=60.0,
    allow_eviction=True,
)
Queue("q", capacity="64")  # type: ignore[arg-type]
Queue("q", capacity=1, order="lifo")  # type: ignore[arg-type]
Queue("q", capacity=1, admission="none")  # type: ignore[arg-type]
Queue("q")  # type: ignore[call-arg]
Queue("q", 64)  # type: ignore[call-arg]
Queue("q", capacity=1, capazity=2)  # type: ignore[call-arg]
Queue(5, capacity=1)  # type: ignore[arg-type]

# Declaring.


@queue.task(
    name="charge",
    within=2.0,
    retries=2,
    timeout=1.0,
    retry_on=(OSError, TimeoutError),
    criticality="critical",
    backoff=lambda n: 0.1 * n,
    on_crash="fail",
)
async def charge(order_id: str, cents: int, *, note: str = "") -> dict[str, int]:
    """A coroutine function with settings."""
    return {order_id: cents}


@queue.task
def plain(order_id: str, cents: int = 0) -> str:
    """A plain function without settings."""
    return f"{order_id}{cents}"


@queue.task
async def nothing() -> None:
    """A coroutine function without settings, arguments or result."""


@queue.task(within="2")  # type: ignore[call-overload, untyped-decorator]
async def badly_declared() -> None:
    """A setting of the wrong type."""


@queue.task(hedge=True)
async def hedged(order_id: str) -> str:
    """May run twice at a time."""
    return order_id


@queue.task(hedge="yes")  # type: ignore[call-overload, untyped-decorator]
async def badly_hedged() -> None:
    """A word where True or False belongs."""


@queue.task(on_crash="never")  # type: ignore[call-overload, untyped-decorator]
async def oddly_declared() -> None:
    """A word that means nothing."""


@queue.lifespan
@asynccontextmanager
async def pools() -> AsyncIterator[None]:
    """What handlers need."""
    yield


@queue.lifespan
def plain_pools() -> Iterator[None]:
    """What handlers need."""
    yield


charged: Task[..., dict[str, int]] = charge

# Submitting, in blocking code.


def submitting() -> None:
    """The handler's own signature, everywhere."""
    job = charge.enqueue("17", 999, note="x")
    assert_type(job, JobHandle[dict[str, int]])
    assert_type(job.result(), dict[str, int])
    assert_type(job.result(timeout=0), dict[str, int])
    assert_type(charge.call("17", cents=999), dict[str, int])
    assert_type(plain.call("17"), str)
    assert_type(plain.enqueue("17", 5), JobHandle[str])
    assert_type(nothing.enqueue(), JobHandle[None])
    bound = charge.options(
        key="order-17",
        within=1.5,
        not_before=datetime.now(UTC),
        criticality="sheddable",
        retries=0,
    )
    assert_type(bound.enqueue("17", 999), JobHandle[dict[str, int]])
    assert_type(bound.call("17", 999), dict[str, int])
    assert_type(bound.bind("17", 999), Prepared[dict[str, int]])
    assert_type(bound.enqueue_many([("17", 999)]), list[JobHandle[dict[str, int]] | Rejected])
    tied = tie(plain.bind("17"), plain.options(key="k").bind("17"))
    assert_type(tied, TiedHandle[str])
    assert_type(tied.result(timeout=0.1), str)
    assert_type(tied.cancel(), bool)
    assert_type(tied.key, str)
    assert_type(tied.state(), State)
    charge.options(deadline=Deadline.after(2)).enqueue("17", 999)
    charge.options(deadline=datetime.now(UTC)).enqueue("17", 999)
    charge.options(deadline=1_900_000_000_000).enqueue("17", 999)
    charge.options(criticality=Criticality.SHEDDABLE).enqueue("17", 999)
    for outcome in queue.enqueue_many([charge.bind("17", 1), plain.bind("18", 2)]):
        if isinstance(outcome, Rejected):
            assert_type(outcome.reason, str)
            assert_type(outcome.retry_after, float | None)


def wrong_submits() -> None:
    """Each of these must be an error to a type checker."""
    charge.enqueue("17")  # type: ignore[call-arg]
    charge.enqueue(17, 999)  # type: ignore[arg-type]
    tie(plain.bind("17"), charge.bind("17", 999)).result().upper()  # type: ignore[attr-defined]
    tie(plain.bind("17"), "17")  # type: ignore[arg-type]
    tie(plain.bind("17"))  # type: ignore[call-arg]
    charge.enqueue("17", "999")  # type: ignore[arg-type]
    charge.enqueue("17", 999, "x")  # type: ignore[call-arg]
    charge.enqueue("17", 999, nota="x")  # type: ignore[call-arg]
    charge.enqueue("17", 999, note=5)  # type: ignore[arg-type]
    charge.enqueue()  # type: ignore[call-arg]
    charge.call("17")  # type: ignore[call-arg]
    charge.call("17", None)  # type: ignore[arg-type]
    charge.bind("17", b"9")  # type: ignore[arg-type]
    plain.enqueue()  # type: ignore[call-arg]
    plain.enqueue("17", 5, 6)  # type: ignore[call-arg]
    nothing.enqueue(1)  # type: ignore[call-arg]
    charge.options(key="k").enqueue("17")  # type: ignore[call-arg]
    charge.options(key="k").enqueue("17", 1.5)  # type: ignore[arg-type]
    charge.options(key=5).enqueue("17", 1)  # type: ignore[arg-type]
    charge.options(within="1").enqueue("17", 1)  # type: ignore[arg-type]
    charge.options(withn=1).enqueue("17", 1)  # type: ignore[call-arg]
    charge.options(deadline="soon").enqueue("17", 1)  # type: ignore[arg-type]
    charge.options(not_before="soon").enqueue("17", 1)  # type: ignore[arg-type]
    charge.options(retries=1.5).enqueue("17", 1)  # type: ignore[arg-type]
    charge.options("key").enqueue("17", 1)  # type: ignore[call-arg]
    charge.enqueue("17", 1).result("5")  # type: ignore[arg-type]
    charge.enqueue("17", 1).key = "other"  # type: ignore[misc]
    queue.enqueue_many([("17", 1)])  # type: ignore[list-item]


# Submitting, in asyncio code.


async def concurrently() -> None:
    """The same, awaited."""
    job = await charge.options(key="order-17").aenqueue("17", 999)
    assert_type(job, JobHandle[dict[str, int]])
    assert_type(await job.aresult(), dict[str, int])
    assert_type(await job.astate(), State)
    assert_type(await job.acancel(), bool)
    await job.aleave()
    assert_type(await charge.acall("17", 999), dict[str, int])
    assert_type(await plain.acall("17"), str)
    assert_type(await charge.abind("17", 999), Prepared[dict[str, int]])
    tied = await atie(await plain.abind("17"), plain.bind("17"))
    assert_type(tied, TiedHandle[str])
    assert_type(await tied.aresult(), str)
    outcomes = await charge.aenqueue_many([("17", 1)])
    assert_type(outcomes, list[JobHandle[dict[str, int]] | Rejected])
    await queue.aenqueue_many([charge.bind("17", 1)])
    assert_type(await queue.adead(5), list[DeadJob])
    assert_type(await queue.areplay("id", within=1), JobHandle[Any])
    await queue.aclose()
    await charge.aenqueue("17")  # type: ignore[call-arg]
    await charge.aenqueue("17", "999")  # type: ignore[arg-type]
    await charge.acall(17, 999)  # type: ignore[arg-type]
    await charge.options(key="k").acall("17", 999, "x")  # type: ignore[call-arg]
    await charge.options(key="k").aenqueue("17", cent=1)  # type: ignore[call-arg]


# Handles, deadlines, the running job.


def handles(job: JobHandle[str], call: BoundCall[[int], str]) -> None:
    """What a caller may ask."""
    assert_type(job.id, str)
    assert_type(job.key, str)
    assert_type(job.duplicate, bool)
    assert_type(job.deadline, Deadline)
    assert_type(job.state(), State)
    assert_type(job.state().final, bool)
    assert_type(job.cancel(), bool)
    job.leave()
    assert_type(call.call(5), str)
    call.call("5")  # type: ignore[arg-type]


def deadlines() -> None:
    """Instants."""
    deadline = Deadline.after(1.5)
    assert_type(deadline.remaining(), float)
    assert_type(deadline.expired, bool)
    assert_type(deadline.child(), Deadline | None)
    assert_type(deadline.tighten(Deadline.at(datetime.now(UTC))), Deadline)
    assert_type(Deadline.current(), Deadline | None)
    with deadline.scope() as inner:
        assert_type(inner, Deadline)
    Deadline.after("5")  # type: ignore[arg-type]
    Deadline.at("soon")  # type: ignore[arg-type]
    deadline.child(reserve="1")  # type: ignore[arg-type]
    deadline.child().remaining()  # type: ignore[union-attr]


async def pay(order_id: str, cents: int) -> str:
    """Changes state."""
    return f"{order_id}{cents}"


@unit(needs=0.2)
async def as_unit(order_id: str) -> int:
    """Inside a job a unit, outside a plain call."""
    return len(order_id)


async def handler() -> None:
    """What a handler may do."""
    job = current_job()
    assert_type(job, CurrentJob)
    assert_type(job.attempt, int)
    assert_type(job.fence, int)
    assert_type(job.deadline, Deadline)
    assert_type(job.unit_key("charge"), str)
    job.check()
    assert_type(await job.unit("charge", pay, "17", 999, needs=0.2, on_doubt="fail"), str)
    assert_type(await as_unit("17"), int)
    await as_unit(17)  # type: ignore[arg-type]
    raise Retry(after=0.5)


def plain_handler(order_id: str) -> object:
    """What a handler in a process of its own may do when it is interrupted."""
    try:
        return plain(order_id, 1)
    except Interrupt:
        current_job().check()
        raise


def errors(error: DeadqError) -> str:
    """Every error and what it tells."""
    match error:
        case QueueFull() | Unmeetable() | DeadlineExpired() | KeyReused() | Paused():
            return error.reason
        case PayloadTooLarge() | StoreUnavailable():
            return str(error.retry_after)
        case DeadlineExceeded():
            return "".join(error.units)
        case JobFailed():
            return error.type_name + error.message + error.traceback
        case RetryDenied():
            return error.reason
        case BreakerOpen():
            return f"{error.retry_after:.1f}"
        case Cancelled() | JobGone() | LeaseLost() | UnitError() | UnitInDoubt():
            return str(error)
        case _:
            return deadq.__version__


def working() -> None:
    """Workers and the queue's own methods."""
    worker = Worker(queue, concurrency=8, grace=5.0)
    worker.run()
    worker.stop()
    Worker(charge)  # type: ignore[arg-type]
    Worker(queue, concurrency="8")  # type: ignore[arg-type]
    assert_type(queue.stats().live, int)
    assert_type(queue.stats().suspects, int)
    (job,) = queue.dead(limit=1)
    assert_type(job, DeadJob)
    assert_type(job.state, State)
    assert_type(job.error_type, str | None)
    assert_type(job.ended_ms, int)
    assert_type(queue.replay(job, within=2.0), JobHandle[Any])
    assert_type(queue.replay(job.id, deadline=datetime.now(UTC)), JobHandle[Any])
    queue.replay(job, 2.0)  # type: ignore[call-arg]
    queue.replay(job, within="2")  # type: ignore[arg-type]
    queue.replay(17, within=2.0)  # type: ignore[arg-type]
    queue.dead(limit="all")  # type: ignore[arg-type]
    (listed,) = queue.jobs(State.READY, limit=1)
    assert_type(listed, ListedJob)
    assert_type(listed.remaining_s, float)
    assert_type(queue.jobs("running"), list[ListedJob])
    queue.jobs(limit="all")  # type: ignore[arg-type]
    report = queue.show(listed.id)
    assert_type(report, JobReport | None)
    if report is not None:
        assert_type(report.units, tuple[UnitReport, ...])
    queue.show(17)  # type: ignore[arg-type]
    assert_type(queue.cancel(listed.id), State)
    queue.pause()
    queue.resume()
    queue.close()


# Resilience.

breaker = Breaker(
    "bank",
    failure_ratio=0.5,
    sustained=60,
    minimum_calls=20,
    open_for=10.0,
    ramp=60.0,
    ramp_start=0.1,
    failures=lambda error: isinstance(error, OSError),
)
Breaker(minimum_calls=2.5)  # type: ignore[arg-type]
Breaker(sustained="60")  # type: ignore[arg-type]
Breaker(failures=OSError("no"))  # type: ignore[arg-type]
Breaker("bank", 0.5)  # type: ignore[call-arg]


@breaker
def ask(order_id: str) -> int:
    """Guarded."""
    return len(order_id)


@breaker
async def aask(order_id: str) -> int:
    """Guarded, too."""
    return len(order_id)


async def guarding() -> None:
    """Signatures are kept."""
    assert_type(ask("17"), int)
    assert_type(await aask("17"), int)
    ask(17)  # type: ignore[arg-type]
    await aask(17)  # type: ignore[arg-type]
    with breaker:
        pass
    permit = breaker.allow()
    assert_type(permit, Permit)
    breaker.succeeded(permit)
    breaker.failed()
    breaker.abandoned(permit)
    assert_type(breaker.state, BreakerState)


def contributing() -> None:
    """A call that waits for a commit keeps its signature; an instrumented queue is one."""
    later = on_commit(charge.options(key="order-17"), using="default")
    pending = later.enqueue("17", 999)
    assert_type(pending, Pending[dict[str, int]])
    assert_type(pending.job, JobHandle[dict[str, int]])
    later.enqueue(17)  # type: ignore[arg-type,call-arg]
    instrument(queue)
    instrument("checkout")  # type: ignore[arg-type]


def judging() -> None:
    """A chain of calls, in a file or written down."""
    verdict = assert_chain("chain.toml")
    assert_type(verdict, ChainVerdict)
    assert_type(verdict.faults, tuple[ChainFault, ...])
    assert_type(verdict.worst_s, float)
    assert_type(verdict.most_amplified.amplification, float)
    assert_chain({"budget_s": 1.0, "tiers": {"web": {}}})
    assert_chain(b"chain.toml")  # type: ignore[arg-type]
