"""Processes are killed and stopped while jobs stand at every point of their way.

In each round eight jobs halt, each in a child of one slot, each at a point of its own; then it
happens. No job may be lost, no recorded unit may run again, nobody may report under an old fence.
"""

import os
import signal
import time

import pytest

from tests.depot import POINTS
from tests.faults.halting import (
    IN_UNIT,
    OUTSIDE,
    SLOTS,
    again,
    at_work,
    check,
    go,
    halt,
    halt_everywhere,
    recorded,
    rounds,
)
from tests.servers import wait_until
from tests.supervised import LEASE_S, mostly, passed

AT_ONCE_S = 0.2
"""From the death of a child to the next start of its job."""

LATE_SHARE = 0.1
"""So many may come later than that, where other programs keep the machine busy."""


# A child is killed.


def kill_child(yard, point, name):
    """Kill it at a point; the seconds from its death to the next start."""
    halted = halt(yard, point, name)
    os.kill(halted.note.pid, signal.SIGKILL)
    died = time.monotonic()
    if point == "finished":
        check(yard, halted, by=1, runs=1)
        return 0.0
    started = again(yard, halted)
    # an effect without a record is in doubt: it comes once more, under the same key
    effects = 2 if point == "effect" else 1
    check(yard, halted, by=1 if recorded(point) else 2, runs=2, effects=effects)
    return started.at - died


@rounds(2)
@mostly("process")
def test_a_killed_childs_job_starts_again_at_once(yard, rounds):
    worker = at_work(yard)
    waits = []
    for number in range(rounds):
        for point in POINTS:
            waits.append((kill_child(yard, point, str(number)), point))
            yard.ready(worker, children=SLOTS)
    late = [(wait, point) for wait, point in waits if wait > AT_ONCE_S]
    assert len(late) <= LATE_SHARE * len(waits), late
    yard.calm()
    assert yard.queue.stats().dead == 0
    assert worker.alive


# A supervisor is killed.


@rounds(1)
@mostly("async")
def test_a_killed_supervisors_children_end_their_units_and_leave(yard, rounds):
    worker = at_work(yard)
    for number in range(rounds):
        jobs = halt_everywhere(yard, number)
        heir = at_work(yard)
        stale = yard.counted("stale")
        worker.kill()
        died = time.monotonic()
        for halted in jobs:
            if halted.point in OUTSIDE:
                assert again(yard, halted).at - died < LEASE_S + 1.0, halted.point
        # the units go on, under a lease that the children now renew themselves
        passed(2 * LEASE_S, died)
        for halted in jobs:
            if halted.point in IN_UNIT:
                assert len(yard.book.notes("start", halted.job.key)) == 1, halted.point
        go(yard, jobs)
        for halted in jobs:
            here = halted.point in IN_UNIT or recorded(halted.point)
            runs = 1 if halted.point == "finished" else 2
            # a child that has not heard yet that it is an orphan may take one up and give it back
            check(yard, halted, by=1 if here else 2, runs=runs, spare=runs - 1)
        worker.gone(LEASE_S + 2.0)
        assert yard.counted("stale") > stale  # of the job that had returned
        worker = heir
    yard.calm()


# Processes stand still for longer than the lease.


@pytest.mark.slow
@rounds(2)
@mostly("process")
def test_a_stopped_childs_jobs_stay_its_own(yard, rounds):
    """Its supervisor renews for it, whatever it does."""
    worker = at_work(yard)
    for number in range(rounds):
        jobs = halt_everywhere(yard, number)
        pids = {halted.note.pid for halted in jobs}
        assert len(pids) == len(POINTS)
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        passed(2 * LEASE_S, time.monotonic())
        go(yard, jobs)
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
        for halted in jobs:
            check(yard, halted, by=1, runs=1)
            starts = yard.book.notes("start", halted.job.key)
            assert [note.pid for note in starts] == [halted.note.pid]
        yard.ready(worker, children=SLOTS)
    assert yard.counted("stale") == yard.counted("reclaimed") == 0
    yard.calm()


def lapse(yard, jobs, heir, stopped):
    """The lease of what holds the jobs lapses: each goes to the heir within its time."""
    for halted in jobs:
        if halted.point != "finished":
            start = again(yard, halted)
            assert start.pid in heir.children(), halted.point
            assert start.at - stopped < LEASE_S + 1.0, halted.point
        if halted.point in OUTSIDE:
            check(yard, halted, by=1 if recorded(halted.point) else 2, runs=2)


def nothing_twice(yard, jobs, stale):
    for halted in jobs:
        if halted.point in IN_UNIT:
            check(yard, halted, by=1, runs=2)  # the record that the second attempt waited for
        elif halted.point == "finished":
            check(yard, halted, by=1, runs=1)
        else:
            check(yard, halted, by=1 if recorded(halted.point) else 2, runs=2)
    # the job that had returned is reported under its old fence, and refused
    wait_until(lambda: yard.counted("stale") > stale, "the stale finish to be refused")


@pytest.mark.slow
@rounds(1)
@mostly("async")
def test_the_jobs_of_a_worker_that_was_stopped_go_to_another_and_its_finishes_are_refused(
    yard, rounds
):
    worker = at_work(yard)
    for number in range(rounds):
        jobs = halt_everywhere(yard, number)
        heir = at_work(yard, slots=3)
        stale = yard.counted("stale")
        worker.send_all(signal.SIGSTOP)
        lapse(yard, jobs, heir, time.monotonic())
        go(yard, jobs)
        worker.send_all(signal.SIGCONT)
        nothing_twice(yard, jobs, stale)
        yard.ready(worker, children=SLOTS)
        heir.send(signal.SIGTERM)
        assert heir.wait(10.0) == 0
    yard.calm()


@pytest.mark.slow
@rounds(1)
@mostly("process")
def test_children_whose_supervisor_is_stopped_let_go_before_their_lease_lapses(yard, rounds):
    worker = at_work(yard)
    for number in range(rounds):
        jobs = halt_everywhere(yard, number)
        heir = at_work(yard, slots=3)
        stale = yard.counted("stale")
        worker.send(signal.SIGSTOP)
        lapse(yard, jobs, heir, time.monotonic())
        go(yard, jobs)  # the units are recorded while the supervisor still stands
        nothing_twice(yard, jobs, stale)
        worker.send(signal.SIGCONT)
        yard.ready(worker, children=SLOTS)
        heir.send(signal.SIGTERM)
        assert heir.wait(10.0) == 0
    yard.calm()


@pytest.mark.slow
@mostly("async")
def test_a_stopped_supervisor_ruins_no_job(yard):
    """Its child does not take the job again and again, to lose it each time."""
    worker = yard.worker()
    yard.ready(worker)
    job = yard.tasks.nap.options(key="long").enqueue(3 * LEASE_S, "slept")
    wait_until(lambda: yard.book.notes("start"), "it to start")
    worker.send(signal.SIGSTOP)
    passed(5 * LEASE_S, time.monotonic())
    worker.send(signal.SIGCONT)
    assert job.result() == "slept"
    assert [note.attempt for note in yard.book.notes("start")] == [1, 2]
