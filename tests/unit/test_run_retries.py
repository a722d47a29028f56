"""When a job is run again that was told how long to wait."""

import bisect

import pytest

from deadq import BreakerOpen, JobFailed, QueueFull, Retry, testing
from deadq.config import TaskConfig
from deadq.deadline import Deadline
from deadq.job import Claim, Outcome
from deadq.runtime.jobs.run import Attempt, raised
from deadq.testing import clock

TASK = TaskConfig("work", 60.0, 3, None, None, "critical", lambda n: 0.1)


@pytest.fixture
def time():
    with clock() as found:
        yield found


def pauses(left_s, times):
    """After a refusal that said 2 s, with so many seconds left (ms)."""
    claim = Claim("id", "key", "work", 0, 1, 7, 0, b"", retries=3)
    for _ in range(times):
        run = Attempt(claim, Deadline.after(left_s), 0.0)
        told = raised(run, TASK, QueueFull("full", retry_after=2.0))
        assert told.outcome is Outcome.RETRY
        yield told.delay_ms


def test_those_who_were_told_the_same_do_not_come_back_together(time):
    found = sorted(pauses(60.0, 1_000))
    assert found[0] >= 2_000
    assert found[-1] <= 3_000
    assert max(bisect.bisect_left(found, at + 100) - n for n, at in enumerate(found)) <= 200


def test_nobody_is_spread_beyond_the_deadline(time):
    assert 2_000 <= min(pauses(2.5, 100)) <= max(pauses(2.5, 100)) <= 2_250
    assert set(pauses(1.0, 10)) == {2_000}, "which the server refuses"


def refused_once(as_is, **settings):
    """A handler that meets an open breaker at first: its queue, its job, and its runs."""
    queue, runs = testing.queue(), []

    @queue.task(within=30.0, retries=2, **settings)
    async def charge():
        runs.append(True)
        if len(runs) == 1:
            refusal = BreakerOpen("the breaker bank is open", retry_after=4.0)
            raise refusal if as_is else Retry(after=refusal.retry_after)

    job = charge.enqueue()
    testing.run_until_idle(queue)
    return queue, job, runs


def test_a_job_that_meets_an_open_breaker_fails_at_once(time):
    queue, job, runs = refused_once(as_is=True)
    time.advance(10.0)
    testing.run_until_idle(queue)
    assert (job.state(), len(runs)) == ("failed", 1)
    with pytest.raises(JobFailed) as found:
        job.result()
    assert found.value.type_name == "deadq.errors.BreakerOpen"


@pytest.mark.parametrize(
    ("as_is", "settings"), [(True, {"retry_on": BreakerOpen}), (False, {})], ids=["named", "asked"]
)
def test_if_it_is_to_be_retried_it_is_when_the_breaker_said(time, as_is, settings):
    queue, job, runs = refused_once(as_is, **settings)
    time.advance(3.9)
    testing.run_until_idle(queue)
    assert (job.state(), len(runs)) == ("later", 1)
    time.advance(2.2)  # spread over half as long again
    testing.run_until_idle(queue)
    assert (job.state(), len(runs)) == ("done", 2)
