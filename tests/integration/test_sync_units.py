"""Units in a child of the process runner: they complete or never start, on the handler's thread."""

import asyncio
import contextlib
import multiprocessing
import sqlite3
import threading
import time

import pytest

from deadq import (
    DeadlineExceeded,
    JobFailed,
    Queue,
    Retry,
    State,
    UnitError,
    UnitInDoubt,
    current_job,
    unit,
)
from deadq.errors import Interrupt
from deadq.runtime.jobs.unit_steps import UnitCall
from deadq.store import keys, scripts
from deadq.testing.proxy import slow_proxy
from tests.marks import on_newest
from tests.nursery import Nurse
from tests.servers import Server, binaries

pytestmark = on_newest


def made(url, **settings):
    settings = {"capacity": 200, "admission": "cap", "lease": 1.0, **settings}
    return Queue("sync", url=url, **settings)


@pytest.fixture
def queue(server):
    return made(server.url)


@pytest.fixture
def nurse(queue):
    with Nurse(queue) as found:
        yield found


def test_a_unit_runs_on_the_handlers_own_thread(queue, nurse):
    @queue.task(within=10.0)
    def work():
        local = threading.local()
        local.value = 5
        connection = sqlite3.connect(":memory:")

        def act(factor, plus=0):
            (found,) = connection.execute("select 7").fetchone()
            return local.value * found * factor + plus

        with contextlib.closing(connection):
            return current_job().unit("act", act, 2, plus=1)

    job = work.enqueue()
    nurse.begin()
    nurse.ended(job)
    assert job.result() == 71


def test_the_decorator_and_coroutine_functions_work_too(queue, nurse):
    @unit(needs=0.1)
    def double(value):
        return value * 2

    async def looping(value):
        await asyncio.sleep(0.01)
        return value + 1

    @queue.task(within=10.0)
    def work():
        job = current_job()
        return [double(3), job.unit("looping", looping, 4), job.unit("late", lambda: looping(5))]

    job = work.enqueue()
    nurse.begin()
    nurse.ended(job)
    assert job.result() == [6, 5, 6]


def test_a_retry_gets_the_recorded_result_and_the_unit_does_not_run_again(queue, nurse):
    @queue.task(within=10.0, retries=1, backoff=lambda _: 0.0)
    def work():
        def act():
            nurse.note("effect")
            return current_job().attempt

        value = current_job().unit("act", act)
        if current_job().attempt == 1:
            raise Retry
        return [value, current_job().attempt]

    job = work.enqueue()
    nurse.begin()
    nurse.ended(job)
    assert job.result() == [1, 2]
    assert nurse.notes.count("effect") == 1


def test_a_unit_that_raised_runs_again_and_its_exception_is_the_handlers(queue, nurse):
    @queue.task(within=10.0, retries=1, backoff=lambda _: 0.0)
    def work():
        def act():
            if current_job().attempt == 1:
                raise StopIteration("first")
            return "second"

        try:
            return current_job().unit("act", act)
        except StopIteration as error:
            nurse.note(f"raised {error}")
            raise Retry from error

    job = work.enqueue()
    nurse.begin()
    nurse.ended(job)
    assert job.result() == "second"
    assert "raised first" in nurse.notes


def test_misuse_is_refused(queue, nurse):
    @queue.task(within=10.0, retries=1, backoff=lambda _: 0.0)
    def work():
        job = current_job()
        job.unit("act", pow, job.attempt, 2)
        job.unit("act", pow, 1, 2)

    @queue.task(within=10.0, retries=1, backoff=lambda _: 0.0)
    def other():
        job = current_job()
        job.unit("act", pow, job.attempt, 2)
        raise Retry

    @queue.task(within=10.0)
    def elsewhere():
        job, caught = current_job(), []

        def call():
            try:
                job.unit("act", pow, 2, 2)
            except UnitError as error:
                caught.append(str(error))

        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
        return caught

    jobs = work.enqueue(), other.enqueue(), elsewhere.enqueue()
    nurse.begin()
    for job in jobs:
        nurse.ended(job)
    with pytest.raises(JobFailed, match="used already in this attempt"):
        jobs[0].result()
    with pytest.raises(JobFailed, match="with other arguments"):
        jobs[1].result()
    (said,) = jobs[2].result()
    assert "another thread or process" in said


def test_a_result_that_cannot_be_kept_fails_the_job_and_never_runs_again(queue, nurse):
    @queue.task(within=10.0, retries=1, retry_on=(Exception,), backoff=lambda _: 0.0)
    def work():
        def act():
            nurse.note("effect")
            return object()

        current_job().unit("act", act)

    job = work.enqueue()
    nurse.begin()
    nurse.ended(job)
    with pytest.raises(JobFailed, match="took effect, but its result could not be kept"):
        job.result()
    assert nurse.notes.count("effect") == 1


@pytest.mark.parametrize("how", ["deadline", "cancel"])
def test_what_was_to_interrupt_comes_after_the_record(queue, nurse, how):
    @queue.task(within=0.4 if how == "deadline" else 10.0)
    def work():
        def act():
            nurse.note("begun")
            time.sleep(0.8)
            nurse.note("ended")

        try:
            current_job().unit("act", act)
        except Interrupt:
            nurse.note("interrupted")
            raise
        nurse.note("not reached")

    job = work.enqueue()
    nurse.begin()
    nurse.noted("begun")
    if how == "cancel":
        job.cancel()
    state = nurse.ended(job)
    assert state is (State.CANCELLED if how == "cancel" else State.EXCEEDED)
    assert nurse.notes[-3:] == ["begun", "ended", "interrupted"]
    record = nurse.client.hget(keys.key("sync", "job", job.id), "u:act")
    assert record.startswith(b"done ")


def test_too_little_time_and_an_interrupted_run_begin_nothing(queue, nurse):
    @queue.task(within=1.0)
    def short():
        try:
            current_job().unit("act", nurse.note, "effect", needs=5.0)
        except DeadlineExceeded:
            nurse.note("not interrupted")
        except Interrupt:
            nurse.note("interrupted")
            raise

    @queue.task(within=0.2)
    def late():
        with contextlib.suppress(Interrupt):
            time.sleep(5)
        with contextlib.suppress(Interrupt, DeadlineExceeded):
            current_job().unit("act", nurse.note, "effect")

    first, second = short.enqueue(), late.options(within=0.5).enqueue()
    nurse.begin()
    assert nurse.ended(first) is State.EXCEEDED
    assert nurse.ended(second) is State.EXCEEDED
    assert "interrupted" in nurse.notes
    assert "effect" not in nurse.notes


@pytest.mark.parametrize("on_doubt", ["rerun", "fail"])
def test_beyond_its_limit_a_unit_is_in_doubt(queue, nurse, on_doubt):
    @queue.task(within=10.0, retries=1, backoff=lambda _: 0.0)
    def work():
        def act():
            nurse.note("effect")
            time.sleep(5 if current_job().attempt == 1 else 0)

        try:
            current_job().unit("act", act, limit=0.3, on_doubt=on_doubt)
        except UnitInDoubt as error:
            nurse.note(f"{type(error).__name__} {type(error.__cause__).__name__}")
            time.sleep(0.05)
            raise Retry from error
        return "done"

    job = work.enqueue()
    nurse.begin()
    nurse.noted("UnitInDoubt Interrupt")
    state = nurse.ended(job)
    assert state is (State.DONE if on_doubt == "rerun" else State.FAILED)
    assert nurse.notes.count("effect") == (2 if on_doubt == "rerun" else 1)
    assert not nurse.said("stubborn")


def test_a_unit_that_stays_beyond_its_limit_is_told_to_the_supervisor(queue, nurse):
    @queue.task(within=10.0)
    def work():
        def act():
            until = time.monotonic() + 0.7
            while time.monotonic() < until:
                with contextlib.suppress(Interrupt):
                    time.sleep(5)

        current_job().unit("act", act, limit=0.1)
        return [current_job().id, current_job().fence]

    job = work.enqueue()
    nurse.begin()
    nurse.ended(job)
    name, fence = job.result()
    assert nurse.said("stubborn") == [f"stubborn {name} {fence} unit"]


def test_the_gate_is_held_from_before_the_unit_to_after_its_record(queue, nurse):
    @queue.task(within=10.0)
    def work():
        current_job().unit("act", time.sleep, 0.4, limit=7.0)
        nurse.note("after")
        time.sleep(0.4)

    job = work.enqueue()
    nurse.begin()
    nurse.until(lambda: not free(nurse), "the gate to be held")
    assert 6.0 < nurse.page.unit_until - time.monotonic() <= 7.0
    nurse.noted("after")
    assert free(nurse)
    assert nurse.page.unit_until == 0
    assert nurse.ended(job) is State.DONE


def test_behind_a_closed_gate_nothing_begins_and_the_job_goes_back(queue, nurse):
    @queue.task(within=10.0)
    def work():
        try:
            current_job().unit("act", nurse.note, "effect")
        except Interrupt:
            nurse.note("interrupted")
            raise

    nurse.begin()
    nurse.page.condemn()
    job = work.enqueue()
    nurse.noted("interrupted")
    assert nurse.stop() == 0
    assert "effect" not in nurse.notes
    assert not job.state().final


def free(nurse):
    if not nurse.locks.take(0):
        return False
    nurse.locks.free(0)
    return True


def test_another_attempts_open_unit_is_waited_for_outside_the_gate(queue, nurse):
    """Its record comes as a word, and what it returned is the answer here."""

    @queue.task(within=10.0)
    def work():
        return current_job().unit("act", time.sleep, 0)

    with standing_in(queue, work) as (job, other, store):
        nurse.begin()
        nurse.until(lambda: job.state() is State.RUNNING, "the second attempt")
        nurse.until(
            lambda: nurse.client.hget(keys.key("sync", "job", job.id), "attempt") == b"2",
            "it to run",
        )
        until = time.monotonic() + 0.3
        nurse.until(lambda: time.monotonic() > until, "the child to wait")
        assert free(nurse)
        assert not job.state().final
        store.run(scripts.record(job.id, other.fence, "act", "done", 1000, b"\xa5other"))
        begun = time.monotonic()
        assert nurse.ended(job) is State.DONE
        assert time.monotonic() - begun < 1.0
        assert job.result() == "other"


def test_a_wait_for_another_attempts_unit_ends_when_the_job_is_cancelled(queue, nurse):
    @queue.task(within=10.0)
    def work():
        try:
            nurse.note("begun")
            return current_job().unit("act", time.sleep, 0)
        except Interrupt:
            nurse.note("interrupted")
            raise

    with standing_in(queue, work) as (job, _, _):
        nurse.begin()
        nurse.noted("begun")
        job.cancel()
        begun = time.monotonic()
        assert nurse.noted("interrupted") - begun < 1.0
        assert nurse.ended(job) is State.CANCELLED


@contextlib.contextmanager
def standing_in(queue, task):
    """Another child has begun the job's unit, and lost its lease in the midst of it."""
    store = queue.backend.sync()
    retention = queue.config.retention_ms
    store.run(
        scripts.register(
            "other", lease_ms=300, slots=1, who="", retention_ms=retention, tasks=["work"]
        )
    )
    job = task.enqueue()
    claim = scripts.claim("other", 1, 1, retention_ms=retention, park=False, tasks=("work",))
    (claimed,) = store.run(claim).claims
    begin = scripts.begin(
        "other",
        job.id,
        claimed.fence,
        "act",
        fingerprint_of(time.sleep, 0),
        needs_ms=0,
        limit_ms=30_000,
        on_doubt="rerun",
        retention_ms=retention,
    )
    assert store.run(begin).word == "run"
    yield job, claimed, store


def fingerprint_of(fn, *args):
    return UnitCall("act", fn, args, {}, 0.0, 30.0, "rerun").fingerprint()


def test_an_outage_is_waited_out_before_a_unit_and_after_it(server):
    with Server(binaries()["valkey9"], aof=True) as own:
        queue = made(own.url, lease=5.0)
        with Nurse(queue) as nurse:

            @queue.task(within=20.0)
            def work():
                nurse.note("before")
                time.sleep(0.3)
                first = current_job().unit("first", lambda: "one")
                nurse.note("between")
                second = current_job().unit("second", lambda: time.sleep(0.5) or "two")
                return [first, second]

            job = work.enqueue()
            nurse.begin()
            nurse.noted("before")
            own.stop()
            until = time.monotonic() + 0.6
            nurse.until(lambda: time.monotonic() > until, "the unit to be asked for")
            assert "between" not in nurse.notes
            own.start()
            nurse.noted("between")
            own.stop()
            until = time.monotonic() + 0.8
            nurse.until(lambda: time.monotonic() > until, "the unit to end")
            own.start()
            nurse.ended(job)
            assert job.result() == ["one", "two"]


def test_a_unit_whose_begin_is_answered_after_its_limit_begins_anew(server):
    with slow_proxy(server.url, listen="unix") as line:
        with Nurse(made(line.url, lease=5.0)) as nurse:
            slowed = multiprocessing.get_context("fork").Event()

            @nurse.queue.task(within=20.0)
            def work():
                nurse.note("ready")
                slowed.wait(10)
                begun = time.monotonic()
                current_job().unit("act", nurse.note, "effect", limit=0.2)
                return time.monotonic() - begun

            job = work.enqueue()
            nurse.begin()
            nurse.noted("ready")
            line.delay = 0.3
            slowed.set()
            until = time.monotonic() + 1.5
            nurse.until(lambda: time.monotonic() > until, "the unit to be asked for twice")
            assert "effect" not in nurse.notes
            line.delay = 0.0
            nurse.ended(job)
            assert job.result() > 1.0
            assert nurse.notes.count("effect") == 1
