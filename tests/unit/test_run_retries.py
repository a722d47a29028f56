"""When a job is run again that was told how long to wait."""

import bisect

import pytest

from deadq import QueueFull
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
