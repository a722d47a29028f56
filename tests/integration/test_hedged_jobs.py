"""Hedged jobs in real workers: a straggler starts a second time, and the first success counts."""

import asyncio
import os
import signal
import time

import pytest

from deadq import Cancelled, JobFailed, current_job
from deadq.store import keys
from tests.servers import wait_until
from tests.shifts import Shift, aat_gate, at_gate

USUAL_S = 0.01


def nth(book):
    """Which start of its job this is."""
    book.note("start")
    return book.starts()[current_job().key]


def declare_async(queue, book):
    @queue.task(within=20.0, hedge=True)
    async def work(first, second):
        """``first`` and ``second``: what its first and its second start do."""
        what = (first, second)[nth(book) > 1]
        try:
            if what == "hang":
                await asyncio.sleep(60.0)
            elif "gate" in what:
                await aat_gate(book)
            if "fail" in what:
                raise LookupError(what)
            if what == "unit":
                await current_job().unit("step", dict)
            await asyncio.sleep(0.3 if what == "slow" else USUAL_S)
        except asyncio.CancelledError:
            book.note("interrupted")
            raise
        book.note("end")
        return [what, os.getpid()]


def declare_process(queue, book):
    @queue.task(within=20.0, hedge=True)
    def work(first, second):
        what = (first, second)[nth(book) > 1]
        try:
            if what == "hang":
                time.sleep(60.0)
            elif "gate" in what:
                at_gate(book)
            if "fail" in what:
                raise LookupError(what)
            if what == "unit":
                current_job().unit("step", dict)
            time.sleep(0.3 if what == "slow" else USUAL_S)
        except LookupError:
            raise
        except BaseException:
            book.note("interrupted")
            raise
        book.note("end")
        return [what, os.getpid()]


TWINS = {"async": declare_async, "process": declare_process}


@pytest.fixture
def shift(valkey_server, tmp_path, request):
    with Shift(valkey_server, tmp_path, TWINS, request.param, lease=2.0) as made:
        yield made


under_both = pytest.mark.parametrize("shift", ["async", "process"], indirect=True)
on_loops = pytest.mark.parametrize("shift", ["async"], indirect=True)


def at_work(shift, concurrency=2, children=2, jobs=60):
    """A worker of two children that knows how long the task takes, and has earned some hedges."""
    worker = shift.worker(
        concurrency=concurrency, children=children if shift.runner == "async" else None
    )
    for handle in shift.tasks.work.enqueue_many([("quick", "quick")] * jobs):
        assert handle.result()[0] == "quick"
    return worker


def counted(shift):
    return shift.queue.stats().counters


def holds_nothing(shift):
    """No job, no record of a second run, nothing in a child's hands."""
    shift.rests()
    for name in ("stragglers", "hedges", "twice"):
        assert not shift.client.exists(keys.key(shift.queue.name, name))


@under_both
def test_a_straggler_is_ended_by_a_second_worker_and_the_first_one_is_interrupted(shift):
    worker = at_work(shift)
    before, began = counted(shift), time.monotonic()
    job = shift.tasks.work.options(key="one").enqueue("hang", "quick")
    what, pid = job.result()
    assert time.monotonic() - began < 3.0
    assert what == "quick"
    first, second = shift.book.notes("start", "one")
    assert second.pid == pid != first.pid
    assert first.attempt == second.attempt == 1
    assert second.at - first.at < 1.0
    assert shift.noted("interrupted", "one").pid == first.pid
    holds_nothing(shift)
    wait_until(lambda: worker.said("outrun", job.id), "the loser to leave")
    assert not worker.said("WARNING")
    assert len(shift.book.notes("end", "one")) == 1
    for name in ("hedged", "hedge_won"):
        assert counted(shift)[name] == before.get(name, 0) + 1
    # the loser's slot is of use again
    both = shift.tasks.work.enqueue_many([("gate", "gate")] * 2)
    wait_until(lambda: shift.queue.stats().ready == 0, "both slots to be taken")
    shift.let()
    assert {job.result()[1] for job in both} == {first.pid, second.pid}


@under_both
def test_a_fast_error_never_wins(shift):
    at_work(shift)
    job = shift.tasks.work.options(key="one").enqueue("gate", "fail")
    wait_until(lambda: shift.book.starts()["one"] == 2, "the second start")
    twice = keys.key(shift.queue.name, "twice")
    wait_until(lambda: not shift.client.zscore(twice, job.id), "the error to be reported")
    shift.let()
    assert job.result()[0] == "gate"
    assert shift.book.starts()["one"] == 2
    holds_nothing(shift)


@under_both
def test_where_both_fail_the_job_fails_once(shift):
    at_work(shift)
    failed = counted(shift).get("finished:failed", 0)
    job = shift.tasks.work.options(key="one").enqueue("gate then fail", "fail")
    twice = keys.key(shift.queue.name, "twice")
    wait_until(lambda: shift.book.starts()["one"] == 2, "the second start")
    wait_until(lambda: not shift.client.zscore(twice, job.id), "its error to be reported")
    shift.let()
    with pytest.raises(JobFailed, match="LookupError: gate then fail"):
        job.result()
    assert shift.book.starts()["one"] == 2
    assert counted(shift)["finished:failed"] == failed + 1
    holds_nothing(shift)


@under_both
def test_a_worker_that_dies_leaves_the_job_to_the_other(shift):
    at_work(shift)
    job = shift.tasks.work.options(key="one").enqueue("gate", "gate")
    wait_until(lambda: shift.book.starts()["one"] == 2, "the second start")
    first, second = shift.book.notes("start", "one")
    os.kill(first.pid, signal.SIGKILL)
    wait_until(lambda: shift.queue.show(job.id).crashes == 1, "the death to be known")
    shift.let()
    assert job.result() == ["gate", second.pid]
    assert shift.book.starts()["one"] == 2
    holds_nothing(shift)


@under_both
def test_a_cancellation_reaches_both(shift):
    at_work(shift)
    job = shift.tasks.work.options(key="one").enqueue("hang", "hang")
    wait_until(lambda: shift.book.starts()["one"] == 2, "the second start")
    assert len(shift.queue.show(job.id).worker.split()) == 2
    assert shift.queue.stats().live == 1
    assert job.cancel() is False
    with pytest.raises(Cancelled):
        job.result()
    assert len(shift.book.notes("interrupted", "one")) == 2
    holds_nothing(shift)


@under_both
def test_such_a_job_has_no_units(shift):
    at_work(shift, jobs=1)
    with pytest.raises(JobFailed, match=r"UnitError: unit 'step': a task with hedge=True has no"):
        shift.tasks.work.call("unit", "unit")


@on_loops
def test_where_all_are_slow_hedging_stops_by_itself(shift):
    at_work(shift, concurrency=40)
    jobs = shift.tasks.work.enqueue_many([("gate", "gate")] * 12)
    wait_until(lambda: counted(shift).get("hedge_denied:slow", 0) >= 10, "hedges to be denied")
    assert counted(shift).get("hedged", 0) <= 2
    shift.let()
    assert [job.result()[0] for job in jobs] == ["gate"] * 12
    holds_nothing(shift)


@on_loops
def test_at_most_one_start_in_twenty_is_a_second_one(shift):
    at_work(shift, concurrency=40, jobs=20)
    for _ in range(8):
        jobs = shift.tasks.work.enqueue_many([("quick", "quick")] * 18 + [("slow", "quick")] * 2)
        for job in jobs:
            job.result()
    counters = counted(shift)
    assert 0 < counters["hedged"] <= 0.05 * counters["started"]
    holds_nothing(shift)
