"""What single parameters do, where no test of a larger thing depends on them; all in memory."""

import asyncio

import pytest

from deadq import (
    Deadline,
    DeadlineExceeded,
    JobFailed,
    PayloadTooLarge,
    Queue,
    QueueFull,
    Retry,
    State,
    StoreUnavailable,
    UnitInDoubt,
    Unmeetable,
    current_job,
    testing,
    unit,
)
from deadq.job import Settlement
from deadq.resilience import BudgetRule
from deadq.store import scripts

NOBODY = "redis://127.0.0.1:1"


@pytest.fixture
def clock():
    with testing.clock() as made:
        yield made


@pytest.fixture
def queue(clock):
    return testing.queue(capacity=4)


# Arguments, by every way of submitting.


@pytest.fixture
def noted(queue):
    """A task, and what its runs were called with."""
    seen = []

    @queue.task(within=2.0)
    async def note(order, *, of=None):
        seen.append((order, of))
        return order, of

    return note, seen


async def _each(kind, call, queue, arguments, keywords):
    """Submit by the way called ``kind``; the handle of the job, or its result."""
    match kind:
        case "enqueue" | "call":
            return getattr(call, kind)(*arguments, **keywords)
        case "aenqueue" | "acall":
            return await getattr(call, kind)(*arguments, **keywords)
        case "bind":
            return queue.enqueue_many([call.bind(*arguments, **keywords)])[0]
        case "abind":
            return (await queue.aenqueue_many([await call.abind(*arguments, **keywords)]))[0]
        case "enqueue_many":
            return call.enqueue_many([arguments])[0]
        case "aenqueue_many":
            return (await call.aenqueue_many([arguments]))[0]


@pytest.mark.parametrize("kind", ["enqueue", "aenqueue", "bind", "abind"])
def test_a_submit_carries_key_and_arguments(kind, noted, queue):
    note, seen = noted
    call = note.options(key="order-17")
    job = asyncio.run(_each(kind, call, queue, ("17",), {"of": "Monday"}))
    assert job.key == "order-17"
    assert queue.show(job.id).key == "order-17"
    testing.run_until_idle(queue)
    assert seen == [("17", "Monday")]
    assert job.result() == ("17", "Monday")


@pytest.mark.parametrize("kind", ["call", "acall"])
def test_a_call_carries_its_arguments(kind, noted, queue):
    note, seen = noted
    if kind == "call":
        assert note.call("17", of="Monday") == ("17", "Monday")
    else:
        assert asyncio.run(note.acall("17", of="Monday")) == ("17", "Monday")
    assert seen == [("17", "Monday")]


@pytest.mark.parametrize("kind", ["enqueue_many", "aenqueue_many"])
def test_many_carry_their_arguments_and_go_by_the_options(kind, noted, queue):
    note, seen = noted
    call = note.options(key="order-17", within=1.0)
    job = asyncio.run(_each(kind, call, queue, ("17",), {}))
    assert job.key == "order-17"
    assert job.deadline.remaining() == pytest.approx(1.0)
    testing.run_until_idle(queue)
    assert seen == [("17", None)]


def test_a_task_that_is_called_runs_here_and_now(queue):
    @queue.task
    def join(*words, by=" "):
        return by.join(words)

    assert join("a", "b", by="-") == "a-b"
    assert queue.stats().live == 0


# The options of one submit.


def test_the_deadline_may_be_the_instant_itself(noted, queue, clock):
    note, _ = noted
    job = note.options(deadline=Deadline.after(0.5)).enqueue("17")
    assert job.deadline.remaining() == pytest.approx(0.5)
    clock.advance(0.5)
    assert testing.run_until_idle(queue) == 0
    assert job.state() is State.EXPIRED


def test_less_critical_calls_have_less_of_the_cap(noted):
    note, _ = noted
    sheddable = note.options(criticality="sheddable")
    for order in "12":
        sheddable.enqueue(order)
    with pytest.raises(QueueFull):
        sheddable.enqueue("3")
    note.enqueue("3")


def test_a_call_may_be_tried_more_often_than_its_task(queue):
    @queue.task(within=2.0)
    async def flaky():
        if current_job().attempt < 3:
            raise Retry(after=0)
        return current_job().attempt

    assert flaky.options(retries=2).call() == 3
    with pytest.raises(JobFailed):
        flaky.call()


def test_a_task_says_after_which_errors_it_is_tried_again(queue):
    @queue.task(within=2.0, retries=1, retry_on=LookupError, backoff=lambda _: 0.0)
    async def flaky():
        if current_job().attempt == 1:
            raise KeyError("17")
        return current_job().attempt

    assert flaky.call() == 2


def test_a_retry_waits_as_long_as_it_asks(queue, clock):
    @queue.task(within=20.0, retries=1)
    async def flaky():
        if current_job().attempt == 1:
            raise Retry(after=10.0)

    flaky.enqueue()
    testing.run_until_idle(queue)
    clock.advance(9.999)
    assert testing.run_until_idle(queue) == 0
    clock.advance(0.001)
    assert testing.run_until_idle(queue) == 1


def test_merely_looking_from_a_loop_runs_nothing(noted):
    note, seen = noted

    async def look():
        job = await note.aenqueue("17")
        with pytest.raises(TimeoutError):
            await job.aresult(timeout=0)

    asyncio.run(look())
    assert seen == []


# What a queue promises.


def test_a_queue_keeps_everything_under_its_name(clock):
    queue = testing.queue("orders")
    queue.task(within=2.0, name="work")(print).enqueue()
    stored = queue.backend.sync_client().keys()
    assert stored
    assert all(key.startswith(b"deadq:{orders}:") for key in stored)


@pytest.mark.parametrize(
    ("order", "ran"), [("deadline", ["late but urgent", "first"]), ("fifo", ["first"])]
)
def test_the_order_is_that_of_latest_starts_or_of_arrival(order, ran, clock):
    queue, seen = testing.queue(order=order), []

    @queue.task
    async def note(name):
        seen.append(name)

    note.options(within=9.0).enqueue("first")
    note.options(within=1.0).enqueue("late but urgent")
    testing.run_until_idle(queue)
    assert seen[: len(ran)] == ran


@pytest.mark.parametrize("admission", ["feasible", "cap"])
def test_what_cannot_be_finished_in_time_is_refused_unless_the_cap_alone_counts(admission, clock):
    queue = testing.queue(admission=admission)
    work = queue.task(within=60.0, name="work")(print)
    run = queue.backend.sync().run
    kept = {"retention_ms": 60_000, "tasks": queue.tasks}
    run(scripts.register("child", lease_ms=60_000, slots=1, who="h", **kept))
    for number in range(1, 21):
        work.enqueue()
        (claim,) = run(scripts.claim("child", number, 1, park=False, **kept)).claims
        ten_seconds = Settlement(claim.id, claim.fence, "done", 10_000_000, False, 0, b"")
        run(scripts.finish("child", [ten_seconds], retention_ms=60_000))
    work.enqueue()
    run(scripts.claim("child", 21, 1, park=False, **kept))

    (outcome,) = work.options(within=1.0).enqueue_many([()])
    assert isinstance(outcome, Unmeetable) == (admission == "feasible")


def test_an_outcome_is_kept_as_long_as_the_queue_says(clock):
    queue = testing.queue(retention=10.0)
    job = queue.task(within=2.0, name="work")(lambda: "done").enqueue()
    assert job.result() == "done"
    clock.advance(9.9)
    assert queue.show(job.id)
    clock.advance(0.2)
    assert queue.show(job.id) is None


def test_retries_stay_within_the_queues_budget(clock):
    queue, attempts = testing.queue(retry_budget=BudgetRule(ratio=0, floor=0.2)), []

    @queue.task(within=2.0, retries=5)
    async def flaky():
        attempts.append(current_job().attempt)
        raise Retry(after=0)

    flaky.enqueue()
    testing.run_until_idle(queue)
    assert attempts == [1, 2, 3], "0.2 retries a second over ten seconds"


def test_arguments_may_be_as_large_as_the_queue_says(clock):
    queue = testing.queue(max_payload=100)
    work = queue.task(within=2.0, name="work")(len)
    assert work.call("x" * 90) == 90
    with pytest.raises(PayloadTooLarge, match="100"):
        work.enqueue("x" * 100)


def test_a_deadline_may_lie_as_far_ahead_as_the_queue_says(clock):
    queue = testing.queue(horizon=60.0)
    work = queue.task(name="work")(lambda: None)
    assert work.options(within=60.0).enqueue()
    with pytest.raises(ValueError, match="past the queue's horizon of 60 s"):
        work.options(within=61.0).enqueue()


@pytest.mark.parametrize("given", [{"url": "redis://127.0.0.1:7"}, {}])
def test_a_queue_is_where_its_url_says(given, monkeypatch):
    monkeypatch.setenv("DEADQ_URL", NOBODY)
    queue = Queue("mine", capacity=4, **given)
    with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1:7" if given else r"127\.0\.0\.1:1"):
        queue.stats()


def test_a_queue_moves_to_where_it_is_sent():
    queue = Queue("mine", capacity=4, url=NOBODY)
    queue.relocate("redis://127.0.0.1:7")
    with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1:7\b"):
        queue.stats()


def test_a_faked_queue_needs_no_server():
    queue = Queue("mine", capacity=4, url=NOBODY)
    work = queue.task(within=2.0, name="work")(lambda: "done")
    with testing.faked(queue):
        assert work.call() == "done"
    with pytest.raises(StoreUnavailable):
        work.enqueue()


def test_a_task_may_have_another_name_than_its_function(queue):
    @queue.task(name="pay", within=2.0)
    async def charge(): ...

    charge.enqueue()
    assert [job.task for job in queue.jobs()] == ["pay"]
    assert list(queue.tasks) == ["pay"]


# Looking and steering, in blocking code.


def test_jobs_are_listed_shown_and_cancelled(noted, queue):
    note, _ = noted
    later = note.options(key="later", not_before=Deadline.after(1.0)).enqueue("2")
    ready = note.options(key="ready").enqueue("1")
    assert {job.key for job in queue.jobs()} == {"later", "ready"}
    assert [job.key for job in queue.jobs("later")] == ["later"]
    assert len(queue.jobs(limit=1)) == 1
    assert queue.show(ready.id).key == "ready"
    assert queue.cancel(later.id) is State.CANCELLED
    assert [job.key for job in queue.jobs()] == ["ready"]


# Units.


@pytest.mark.parametrize("way", ["method", "decorator"])
def test_a_unit_starts_only_while_there_is_the_time_that_it_needs(way, queue, clock):
    took_effect = []

    @unit(needs=0.5)
    def pay():
        took_effect.append("paid")

    @queue.task(within=2.0)
    async def work():
        clock.advance(1.6)
        if way == "decorator":
            await pay()
        else:
            await current_job().unit("pay", took_effect.append, "paid", needs=0.5)

    with pytest.raises(DeadlineExceeded):
        work.call()
    assert took_effect == []


def test_a_unit_takes_keywords_for_its_function(queue):
    @queue.task(within=2.0)
    async def work():
        return await current_job().unit("sort", sorted, [1, 3, 2], reverse=True)

    assert work.call() == [3, 2, 1]


def test_a_key_for_the_outside_is_the_units_own(queue):
    @queue.task(within=2.0, retries=1)
    async def work():
        if current_job().attempt == 1:
            raise Retry(after=0)
        return current_job().unit_key("pay"), current_job().unit_key("mail")

    job = work.enqueue()
    testing.run_until_idle(queue)
    assert job.result() == (f"{job.id}:pay", f"{job.id}:mail")


@pytest.mark.parametrize("on_doubt", ["rerun", "fail"])
@pytest.mark.parametrize("way", ["method", "decorator"])
def test_beyond_its_limit_a_unit_is_in_doubt_and_rerun_or_not(way, on_doubt):
    queue, begun = testing.queue(), []

    async def pay():
        begun.append(current_job().attempt)
        if len(begun) == 1:
            await asyncio.sleep(0.9)

    as_unit = unit(limit=0.3, on_doubt=on_doubt)(pay)

    @queue.task(within=20.0, retries=1, retry_on=UnitInDoubt, backoff=lambda _: 0.1)
    async def work():
        if way == "decorator":
            await as_unit()
        else:
            await current_job().unit("pay", pay, limit=0.3, on_doubt=on_doubt)

    if on_doubt == "rerun":
        work.call()
        assert begun == [1, 2]
    else:
        with pytest.raises(JobFailed, match="left no end"):
            work.call()
        assert begun == [1]


# Helpers of a user's tests.


def test_in_blocking_code_too_handlers_may_meet(queue):
    running = []

    @queue.task(within=2.0)
    async def meet():
        running.append("here")
        await asyncio.sleep(0)
        return len(running)

    jobs = meet.enqueue_many([(), ()])
    assert testing.run_until_idle(queue, concurrency=2) == 2
    assert [job.result() for job in jobs] == [2, 2]


def test_a_watcher_hears_of_every_move(clock):
    moves = []
    with clock.watched(lambda: moves.append(clock.monotonic())):
        clock.advance(1.0)
        clock.advance(2.0)
    clock.advance(3.0)
    assert len(moves) == 2
