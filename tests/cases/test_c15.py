"""C15: timeout 0 means wait for ever.

The rule: zero is a value like any other, never "not given". A wait of 0 only looks; a negative one
is an error; None waits to the caller's deadline and no longer. An instant that equals the server's
time has passed: such a job is refused, expires, never starts.
"""

import asyncio
import contextlib
import time

import pytest

from deadq import (
    Deadline,
    DeadlineExceeded,
    DeadlineExpired,
    Queue,
    Retry,
    State,
    Worker,
    current_job,
)
from deadq.job import job_id
from deadq.store import scripts
from tests.patience import slack_s
from tests.servers import wait_until

AT_ONCE_S = 0.25 + slack_s(0.0)  # far above a round trip


def declare(queue, book):
    @queue.task(within=5.0)
    async def echo(value):
        book.note("start")
        return value

    @queue.task(within=5.0)
    async def hold(seconds):
        book.note("start")
        await asyncio.sleep(seconds)
        return "held"

    @queue.task(within=3.0, retries=3, backoff=lambda n: 60.0)
    async def again_at_once(value):
        book.note("start")
        if current_job().attempt == 1:
            raise Retry(after=0)
        return value

    @queue.task(within=3.0, retries=3, backoff=lambda n: 0)
    async def no_backoff(value):
        book.note("start")
        if current_job().attempt < 3:
            raise Retry
        return value

    @queue.task(within=3.0, retries=3)
    async def failing():
        book.note("start")
        raise Retry(after=0)


def waits(handle, timeout, *, concurrent):
    """Wait on one of the two faces; how long it took, and what came of it."""

    async def both():
        begun = time.monotonic()
        try:
            return await handle.aresult(timeout), time.monotonic() - begun
        except Exception as error:
            return error, time.monotonic() - begun
        finally:
            await handle._producer.aclose()

    if concurrent:
        return asyncio.run(both())
    begun = time.monotonic()
    try:
        return handle.result(timeout), time.monotonic() - begun
    except Exception as error:
        return error, time.monotonic() - begun


faces = pytest.mark.parametrize("concurrent", [False, True], ids=["sync", "asyncio"])


@faces
@pytest.mark.parametrize("timeout", [0, 0.0, -0.0, 1e-9, 5e-324, False + 0])
def test_zero_only_looks_at_a_pending_job(scene, timeout, concurrent):
    made = scene(declare)
    handle = made.tasks.echo.enqueue("x")
    outcome, took = waits(handle, timeout, concurrent=concurrent)
    assert type(outcome) is TimeoutError
    assert "ready" in str(outcome)
    assert took < AT_ONCE_S
    assert handle.state() == State.READY  # the hold is kept


@faces
@pytest.mark.parametrize("timeout", [0, 0.0])
def test_zero_gives_the_result_of_a_job_that_is_done(scene, timeout, concurrent):
    made = scene(declare)
    made.worker()
    handle = made.tasks.echo.enqueue("x")
    handle.result()
    assert waits(handle, timeout, concurrent=concurrent)[0] == "x"


@faces
def test_zero_on_a_running_job_looks_and_lets_it_run(scene, concurrent):
    made = scene(declare)
    made.worker()
    handle = made.tasks.hold.enqueue(0.6)
    wait_until(lambda: handle.state() == State.RUNNING, "it to run")
    outcome, took = waits(handle, 0, concurrent=concurrent)
    assert type(outcome) is TimeoutError
    assert took < AT_ONCE_S
    assert handle.result() == "held"


@faces
@pytest.mark.parametrize("timeout", [-1, -1.0, -1e-9])
def test_a_negative_timeout_is_an_error_at_once(scene, timeout, concurrent):
    made = scene(declare)
    handle = made.tasks.echo.enqueue("x")
    outcome, took = waits(handle, timeout, concurrent=concurrent)
    assert type(outcome) is ValueError
    assert "timeout" in str(outcome)
    assert took < AT_ONCE_S


@faces
@pytest.mark.parametrize("within", [0.05, 0.4])
def test_none_waits_to_the_deadline_and_no_longer(scene, within, concurrent):
    made = scene(declare)
    handle = made.tasks.echo.options(within=within).enqueue("x")
    left = handle.deadline.remaining()
    outcome, took = waits(handle, None, concurrent=concurrent)
    assert type(outcome) is DeadlineExceeded
    assert left - 0.02 < took < left + AT_ONCE_S
    assert handle.state() == State.EXPIRED


@faces
def test_a_timeout_past_the_deadline_ends_at_the_deadline(scene, concurrent):
    made = scene(declare)
    handle = made.tasks.echo.options(within=0.2).enqueue("x")
    outcome, took = waits(handle, 1e9, concurrent=concurrent)
    assert type(outcome) is DeadlineExceeded
    assert took < 0.2 + AT_ONCE_S


@faces
@pytest.mark.parametrize("timeout", [None, 0, 5])
def test_a_wait_after_the_deadline_returns_at_once(scene, timeout, concurrent):
    made = scene(declare)
    handle = made.tasks.echo.options(within=0.05).enqueue("x")
    wait_until(lambda: handle.deadline.expired, "its deadline to pass")
    outcome, took = waits(handle, timeout, concurrent=concurrent)
    assert type(outcome) is DeadlineExceeded
    assert took < AT_ONCE_S


@faces
def test_each_handle_waits_to_its_own_deadline(scene, concurrent):
    made = scene(declare)
    long = made.tasks.echo.options(key="k", within=30.0).enqueue("x")
    short = made.tasks.echo.options(key="k", within=0.2).enqueue("x")
    outcome, took = waits(short, None, concurrent=concurrent)
    assert type(outcome) is DeadlineExceeded
    assert took < 0.2 + AT_ONCE_S
    assert long.state() == State.READY


# Deadline = now.


class Hands:
    """A server's clock that the test moves, and a worker without hurry."""

    def __init__(self, made):
        self.now = made.now_ms()
        self.queue = Queue(
            "hands", capacity=10, admission="cap", url=made.queue.backend.url, _now=self._read
        )
        declare(self.queue, made.book)
        self.store = self.queue.backend.sync()
        self.store.run(
            scripts.register(
                "child", lease_ms=10**6, slots=5, who="", retention_ms=1000, tasks=["echo"]
            )
        )
        self._number = 0

    def _read(self):
        return str(self.now)

    def claimed(self):
        self._number += 1
        call = scripts.claim(
            "child", self._number, 5, retention_ms=1000, park=False, tasks=["echo"]
        )
        return self.store.run(call).claims


@pytest.fixture
def hands(scene):
    made = Hands(scene(declare))
    yield made
    made.queue.close()


@pytest.mark.parametrize(("late_ms", "started"), [(-1, True), (0, False), (1, False)])
def test_a_job_claimed_at_its_deadline_has_expired(hands, late_ms, started):
    handle = hands.queue.tasks["echo"].options(deadline=hands.now + 1000).enqueue("x")
    hands.now += 1000 + late_ms
    assert len(hands.claimed()) == started
    assert handle.state() == (State.RUNNING if started else State.EXPIRED)
    assert hands.queue.stats().live == started


@pytest.mark.parametrize(("late_ms", "refused"), [(-1, False), (0, True), (1, True)])
def test_a_job_submitted_at_its_deadline_is_dead_on_arrival(hands, late_ms, refused):
    options = hands.queue.tasks["echo"].options(key="k", deadline=hands.now - late_ms)
    if refused:
        with pytest.raises(DeadlineExpired):
            options.enqueue("x")
        assert not hands.store.client.exists(f"deadq:{{hands}}:job:{job_id('k')}")
    else:
        assert options.enqueue("x").state() == State.READY


@pytest.mark.parametrize(("late_ms", "ready"), [(-1, False), (0, True), (1, True)])
def test_a_put_off_job_may_start_at_the_very_millisecond(hands, late_ms, ready):
    start = hands.now + 500
    options = hands.queue.tasks["echo"].options(not_before=start, deadline=hands.now + 5000)
    handle = options.enqueue("x")
    hands.now = start + late_ms
    assert len(hands.claimed()) == ready
    assert handle.state() == (State.RUNNING if ready else State.LATER)


@pytest.mark.parametrize("within", [5e-324, 1e-9, 1e-4, 0.0009])
def test_less_than_a_millisecond_is_refused_or_starts_in_time(scene, within):
    made = scene(declare)
    made.worker()
    for _ in range(20):
        try:
            handle = made.tasks.echo.options(within=within).enqueue("x")
        except DeadlineExpired:
            continue
        with contextlib.suppress(DeadlineExceeded):
            assert handle.result() == "x"
        for note in made.book.notes("start", key=handle.key):
            assert note.at < handle.deadline.monotonic + 0.01
    wait_until(lambda: made.queue.stats().unfinished == 0, "all to be done with")


# Other zeros.


def test_a_retry_after_zero_is_at_once_and_not_the_usual_backoff(scene):
    made = scene(declare)
    made.worker()
    begun = time.monotonic()
    assert made.tasks.again_at_once.call("x") == "x"
    assert time.monotonic() - begun < 1.0


def test_a_backoff_of_zero_is_at_once(scene):
    made = scene(declare)
    made.worker()
    assert made.tasks.no_backoff.options(key="k").call("x") == "x"
    assert made.book.starts()["k"] == 3


def test_no_retries_for_this_call_is_not_the_tasks_default(scene):
    made = scene(declare)
    made.worker()
    for retries, starts in ((0, 1), (1, 2), (None, 4)):
        key = f"k{retries}"
        handle = made.tasks.failing.options(key=key, retries=retries).enqueue()
        wait_until(lambda handle=handle: handle.state() == State.EXHAUSTED, "it to give up")
        assert made.book.starts()[key] == starts


def test_a_grace_of_zero_interrupts_at_once(scene):
    made = scene(declare)
    worker = made.worker(grace=0.0)
    handle = made.tasks.hold.options(within=30.0).enqueue(20.0)
    wait_until(lambda: handle.state() == State.RUNNING, "it to run")
    begun = time.monotonic()
    assert worker.stop() == 0
    assert time.monotonic() - begun < 2.0
    assert handle.state() == State.READY  # given back


def test_zero_where_something_is_needed_is_refused():
    for wrong in (
        {"capacity": 0},
        {"retention": 0},
        {"lease": 0},
        {"horizon": 0},
        {"max_payload": 0},
    ):
        with pytest.raises(ValueError):
            Queue("case", **{"capacity": 1, **wrong})
    queue = Queue("case", capacity=1)
    for wrong in ({"within": 0}, {"timeout": 0}):
        with pytest.raises(ValueError):
            queue.task(**wrong)
    declare(queue, None)
    with pytest.raises(ValueError):
        Worker(queue, concurrency=0)
    with pytest.raises(ValueError):
        queue.tasks["echo"].options(within=0)


def test_a_deadline_after_zero_is_an_instant_that_is_just_passing():
    now = Deadline.after(0)
    assert now.expired
    assert now.remaining() <= 0
    assert now.child(reserve=0) is None
    assert 4.5 < Deadline.after(5).child(reserve=0).remaining() <= 5
