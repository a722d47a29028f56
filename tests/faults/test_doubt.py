"""A child dies in a unit, and nobody knows whether it took effect."""

import os
import random
import signal

import pytest

from deadq import JobFailed, State
from tests.faults.halting import IN_UNIT, SLOTS, at_work, begins, halt, rounds
from tests.marks import THOROUGH
from tests.servers import wait_until
from tests.supervised import mostly, passed

_NAP_S = 0.004
"""Between each two points of a job."""


@rounds(2)
@mostly("process")
def test_a_unit_that_may_have_taken_effect_is_not_repeated_where_that_is_forbidden(yard, rounds):
    worker = at_work(yard)
    for number in range(rounds):
        for point in sorted(IN_UNIT):
            halted = halt(yard, point, number, "fail")
            os.kill(halted.note.pid, signal.SIGKILL)
            with pytest.raises(JobFailed, match="left no end"):
                halted.job.result()
            assert halted.job.state() is State.FAILED
            assert [note.attempt for note in begins(yard, halted.job.key)] == [1]
        yard.ready(worker, children=SLOTS)
    yard.calm()


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("kills", [10, pytest.param(500, marks=THOROUGH)])
@mostly("async")
def test_no_effect_comes_twice_where_that_is_forbidden_whenever_the_child_is_killed(yard, kills):
    chance = random.Random(7)
    worker = at_work(yard)
    ends = set()
    for number in range(kills):
        job = yard.tasks.order.options(key=f"round-{number}").enqueue("fail", _NAP_S)
        first = wait_until(lambda key=job.key: yard.book.notes("start", key), "it to start")[0]
        passed(chance.uniform(0.0, 7 * _NAP_S), first.at)
        os.kill(first.pid, signal.SIGKILL)
        try:
            ends.add(job.result()[1])
        except JobFailed as error:
            ends.add("in doubt" if "left no end" in str(error) else str(error))
        assert len(yard.book.notes("effect", job.key)) <= 1
        if number % 5 == 4:
            yard.ready(worker, children=SLOTS)
    assert ends <= {1, 2, "in doubt"}
    assert len(ends) > 1 if kills < 100 else len(ends) == 3  # the instants were spread
    yard.calm()
