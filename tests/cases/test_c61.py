"""C61: an unknown name is thrown away.

The rule: what no living worker knows waits aside, untouched and out of everybody's way, until one
that knows it registers, or until its deadline, when it ends as EXPIRED. Never destroyed, never
handed to and fro, and it costs those who do not know it one look.
"""

import time

import pytest

from deadq import DeadlineExceeded, State, Worker
from tests.cases.support import Planter, counting, pause, script_calls
from tests.servers import wait_until
from tests.shifts import in_processes_slowly


def declare(queue, book):
    """The new release."""

    @queue.task(within=10.0)
    async def old(value):
        book.note("start")
        return value

    @queue.task(within=10.0)
    async def ghost(value):
        book.note("start")
        return f"ghost {value}"

    @queue.task(name="ghost\u00e9 %s {x} 'a\"", within=10.0)
    async def odd_name(value):
        book.note("start")
        return f"odd {value}"


def declare_old(queue, book):
    """The old release: it lacks the new names."""

    @queue.task(within=10.0)
    async def old(value):
        book.note("start")
        return value


def declare_ghost(queue, book):
    """A worker of the new names only."""

    @queue.task(within=10.0)
    async def ghost(value):
        book.note("start")
        return f"ghost {value}"


def declare_nothing(queue, book):
    pass


def declare_plain(queue, book):
    @queue.task(within=10.0)
    def old(value):
        book.note("start")
        return value

    @queue.task(within=10.0)
    def ghost(value):
        book.note("start")
        return f"ghost {value}"


def declare_old_plain(queue, book):
    @queue.task(within=10.0)
    def old(value):
        book.note("start")
        return value


def declare_ghost_plain(queue, book):
    @queue.task(within=10.0)
    def ghost(value):
        book.note("start")
        return f"ghost {value}"


PLAIN = {
    declare: declare_plain,
    declare_old: declare_old_plain,
    declare_ghost: declare_ghost_plain,
}


@in_processes_slowly
def test_a_new_worker_that_joins_later_runs_it(scene):
    made = scene(declare)
    made.worker(declare_old)
    handle = made.tasks.ghost.options(key="k", within=5.0).enqueue(1)
    wait_until(lambda: handle.state() == State.STRANGE, "it to be set aside")
    pause(0.5)
    made.worker()
    joined = time.monotonic()
    assert handle.result() == "ghost 1"
    assert time.monotonic() - joined < 1.0
    assert made.book.starts()["k"] == 1
    made.calm()


def test_without_one_it_ends_with_a_reason_by_its_deadline(scene):
    made = scene(declare)
    worker = made.worker(declare_old)
    handle = made.tasks.ghost.options(key="k", within=0.6).enqueue(1)
    begun = time.monotonic()
    with pytest.raises(DeadlineExceeded):
        handle.result()
    assert time.monotonic() - begun < 0.9
    assert handle.state() == State.EXPIRED
    wait_until(lambda: made.queue.stats().unfinished == 0, "it to be swept")
    assert made.stat("expired:") == 1
    assert not made.book.starts()
    assert worker.alive
    made.calm()


@pytest.mark.slow
@in_processes_slowly
def test_200_of_them_ahead_do_not_hold_up_the_healthy_job_and_nothing_loops(scene):
    made = scene(declare)
    worker = made.worker(declare_old)
    made.tasks.old.call("warm")
    ghosts = made.tasks.ghost.options(within=1.8).enqueue_many([(i,) for i in range(200)])
    begun = time.monotonic()
    assert made.tasks.old.options(within=8.0).call("healthy") == "healthy"
    assert time.monotonic() - begun < 1.5  # the ghosts stay for 1.8
    assert {handle.state() for handle in ghosts} == {State.STRANGE}
    with counting(made.client) as found:
        pause(1.0)
    assert script_calls(found) <= 10
    for number in range(20):  # each claim afterwards costs no look at the 200
        assert made.tasks.old.call(number) == number
    wait_until(lambda: made.queue.stats().unfinished == 0, "them to expire", within_s=8.0)
    assert made.stat("expired:") == 200
    assert {handle.state() for handle in ghosts} == {State.EXPIRED}
    assert worker.alive
    made.calm()


@in_processes_slowly
def test_two_workers_of_different_names_do_not_pass_work_to_and_fro(scene):
    made = scene(declare)
    made.worker(declare_old)
    made.worker(declare_ghost)
    made.tasks.old.call("warm")
    made.tasks.ghost.call("warm")
    with counting(made.client) as found:
        for number in range(30):
            assert made.tasks.old.call(number) == number
            assert made.tasks.ghost.call(number) == f"ghost {number}"
    # a submit, a claim, a finish and this side's looks each; here and there a token too many
    assert script_calls(found) < 60 * 10
    with counting(made.client) as found:
        pause(1.0)
    assert script_calls(found) <= 12
    made.calm()


@pytest.mark.slow
def test_work_for_a_busy_worker_waits_for_it_and_costs_the_idle_one_nothing(scene):
    made = scene(declare)
    made.worker(declare_old)
    busy = made.worker(declare_ghost, concurrency=1)
    made.tasks.ghost.call("warm")
    busy.freeze()
    held = made.tasks.ghost.enqueue_many([(i,) for i in range(50)])
    assert made.tasks.old.call("healthy") == "healthy"
    with counting(made.client) as found:
        pause(1.0)
    assert script_calls(found) <= 20
    assert {handle.state() for handle in held} <= {State.READY, State.RUNNING}
    busy.thaw()
    assert [handle.result() for handle in held] == [f"ghost {i}" for i in range(50)]


@pytest.mark.slow
def test_its_caller_may_still_cancel_leave_and_repeat_it(scene):
    made = scene(declare)
    made.worker(declare_old)
    handle = made.tasks.ghost.options(key="k", within=0.5).enqueue(1)
    wait_until(lambda: handle.state() == State.STRANGE, "it to be set aside")
    again = made.tasks.ghost.options(key="k", within=5.0).enqueue(1)
    assert again.duplicate
    with pytest.raises(DeadlineExceeded):
        handle.result()
    assert again.state() == State.STRANGE  # the later deadline keeps it
    assert again.cancel()
    assert again.state() == State.CANCELLED
    assert made.queue.stats().strange == 0
    made.worker()
    assert made.tasks.ghost.options(key="k").call(1) == "ghost 1"


def test_it_counts_against_the_cap_until_its_deadline(scene):
    made = scene(declare, capacity=2)
    made.worker(declare_old)
    handles = [made.tasks.ghost.options(within=0.6).enqueue(i) for i in range(2)]
    wait_until(lambda: handles[1].state() == State.STRANGE, "them to be set aside")
    stats = made.queue.stats()
    assert (stats.live, stats.strange) == (2, 2)
    wait_until(lambda: made.queue.stats().live == 0, "their deadline to pass")
    assert made.tasks.old.call(1) == 1


@pytest.mark.slow
def test_a_job_whose_only_worker_dies_waits_for_the_next(scene):
    made = scene(declare, lease=0.5)
    made.worker(declare_old)
    ghost = made.worker(declare_ghost)
    ghost.kill()
    handle = made.tasks.ghost.options(within=8.0).enqueue(1)
    wait_until(lambda: handle.state() in (State.STRANGE, State.READY), "it to wait")
    assert made.tasks.old.call("healthy") == "healthy"
    made.worker(declare_ghost)
    assert handle.result() == "ghost 1"


@pytest.mark.slow
def test_names_with_odd_characters_are_known_or_unknown_like_any_other(scene):
    made = scene(declare)
    odd = made.queue.tasks["ghost\u00e9 %s {x} 'a\""]
    made.worker(declare_old)
    handle = odd.enqueue(1)
    wait_until(lambda: handle.state() == State.STRANGE, "it to be set aside")
    made.worker()
    assert handle.result() == "odd 1"


def test_a_name_that_only_begins_alike_is_unknown(scene):
    made = scene(declare)
    made.worker(declare_old)
    planter = Planter(made)
    idents = [planter.ready(task=name) for name in ("ol", "old2", "OLD", " old", "old ", "o", "%")]
    assert made.tasks.old.call("healthy") == "healthy"
    states = [made.client.hget(made.key("job", ident), "state") for ident in idents]
    assert states == [b"strange"] * len(idents)


@pytest.mark.parametrize("version", [2, pytest.param(10**6, marks=pytest.mark.slow)])
@in_processes_slowly
def test_a_record_of_a_newer_release_waits_and_is_not_touched(scene, version):
    """The worker knows its name; what the record looks like, only the newer release knows."""
    made = scene(declare)
    worker = made.worker()
    planter = Planter(made)
    fields = {"novelty": b"\xff\x00", "estimate": 0, "u:charge": "in a newer form"}
    ident = planter.ready(task="ghost", version=version, more=fields)
    before = made.client.hgetall(made.key("job", ident))
    for number in range(10):
        assert made.tasks.old.call(number) == number
    after = made.client.hgetall(made.key("job", ident))
    assert after.pop(b"state") == b"strange"
    before.pop(b"state")
    assert after == before
    assert made.client.exists(made.key("data", ident))
    with counting(made.client) as found:
        pause(0.5)
    assert script_calls(found) <= 6
    assert worker.alive


@pytest.mark.slow
def test_a_worker_that_registers_leaves_what_is_too_new_for_it(scene):
    made = scene(declare)
    made.worker(declare_old)
    planter = Planter(made)
    ident = planter.ready(task="ghost", version=2)
    assert made.tasks.old.call("healthy") == "healthy"
    made.worker()
    assert made.tasks.ghost.call(1) == "ghost 1"
    assert made.client.hget(made.key("job", ident), "state") == b"strange"


def test_a_worker_without_any_task_is_refused_at_the_door(scene):
    made = scene(declare_nothing)
    with pytest.raises(ValueError, match="no tasks"):
        Worker(made.queue)
