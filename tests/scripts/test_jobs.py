"""jobs: what is unfinished, and where it stands; show: all that is known of one job."""

import pytest

from deadq.job import State
from deadq.store import scripts
from tests.scripts.world import LEASE, RETENTION, T0, settlement

PLACES = ("ready", "suspect", "later", "strange", "running")


def jobs(world, state="", most=100):
    with world.changes() as changed:
        found = world.run(scripts.jobs(state, most))
    assert changed == {}
    return found


def show(world, ident):
    with world.changes() as changed:
        found = world.run(scripts.show(ident))
    assert changed == {}
    return found


def seed_one_of_each(world):
    world.seed_worker("c", slots=9)
    for number, state in enumerate(PLACES):
        owner = {"owner": "c"} if state == "running" else {}
        world.seed_job(
            state[:1] * 2 + state, state=state, deadline=5_000 - number, seq=number, **owner
        )


# The list.


def test_an_empty_queue_has_none(world):
    assert [jobs(world, state) for state in ("", *PLACES)] == [[]] * 6


def test_all_are_listed_by_their_deadlines(world):
    seed_one_of_each(world)
    world.seed_ended("over", "done")
    assert [job.state for job in jobs(world)] == [State(place) for place in reversed(PLACES)]


@pytest.mark.parametrize("place", PLACES)
def test_those_of_one_state_are_listed(world, place):
    seed_one_of_each(world)
    assert [(job.id[2:], job.state) for job in jobs(world, place)] == [(place, place)]


def test_those_that_wait_are_listed_as_they_will_be_claimed(world):
    for ident, deadline in (("b", 2_000), ("a", 3_000), ("c", 1_000)):
        world.seed_job(ident, deadline=deadline)
    assert [job.id for job in jobs(world, "ready")] == ["c", "b", "a"]


@pytest.mark.parametrize("state", ["", "ready", "running"])
@pytest.mark.parametrize(("most", "found"), [(0, 0), (1, 1), (2, 2), (3, 3), (9, 3)])
def test_no_more_than_asked_for(world, state, most, found):
    world.seed_worker("c", slots=9)
    for number in range(3):
        world.seed_job(f"j{number}", state=state or "ready", seq=number, owner="c")
    assert len(jobs(world, state, most)) == found


def test_each_is_told_with_where_it_stands(world):
    world.now += 500
    world.seed_worker("c")
    world.seed_job("a", state="running", owner="c", deadline=4_000, due=6_000)
    (job,) = jobs(world)
    assert job == ("a", "key-a", "t", "running", T0 + 6_000, 5.5, 1, "host")


def test_one_past_its_deadline_is_expired_unless_it_runs(world):
    world.seed_worker("c", lease=10_000)
    world.seed_job("a", deadline=1_000)
    world.seed_job("b", deadline=1_000, state="running", owner="c")
    world.now += 1_000
    assert {job.id: (job.state, job.remaining_s) for job in jobs(world)} == {
        "a": ("expired", 0.0),
        "b": ("running", 0.0),
    }


def test_one_whose_record_is_gone_or_odd_is_left_out(world):
    world.seed_job("a")
    world.seed_job("b")
    world.client.delete(world.key("job:a"))
    world.client.delete(world.key("job:b"))
    world.client.set(world.key("job:b"), "text")
    assert jobs(world) == []


def test_one_whose_worker_is_gone_is_told_without(world):
    world.seed_worker("c")
    world.seed_job("a", state="running", owner="c")
    world.client.delete(world.key("worker:c"))
    (job,) = jobs(world)
    assert job.worker == ""


# One job.


def test_there_is_no_such_job(world):
    assert show(world, "nobody") is None


def test_one_that_waits(world):
    world.now += 1_000
    world.seed_job("a", deadline=5_000, due=7_000, payload="p" * 40)
    report, blob = show(world, "a")
    assert (report.id, report.key, report.task, report.state) == ("a", "key-a", "t", "ready")
    assert (report.deadline_ms, report.remaining_s) == (T0 + 7_000, 6.0)
    assert (report.submitted_ms, report.ended_ms) == (T0, None)
    assert (report.attempts, report.retries_used, report.retries, report.crashes) == (0, 0, 2, 0)
    assert (report.fence, report.worker, report.waiters, report.cancelling) == (0, "", 1, False)
    assert (report.argument_bytes, report.result_bytes, blob) == (40, 0, b"")
    assert report.units == ()
    assert report.kept_s > 0


@pytest.mark.parametrize("size", [10, 1_000])
def test_one_that_has_ended(world, size):
    world.seed_worker("c", slots=9)
    world.seed_job("a", state="running", owner="c", payload="p" * size)
    world.now += 100
    world.finish("c", settlement("a", "done", blob=b"r" * size))
    report, blob = show(world, "a")
    assert (report.state, report.ended_ms) == ("done", T0 + 100)
    assert (report.attempts, report.fence, report.worker) == (1, 7, "")
    assert (report.argument_bytes, report.result_bytes, blob) == (0, size, b"")
    assert RETENTION / 1_000 - 5 < report.kept_s <= RETENTION / 1_000


@pytest.mark.parametrize("size", [10, 100, 200, 5_000])
def test_its_arguments_alone_while_they_are_kept(world, size):
    world.seed_worker("c", slots=9)
    world.seed_job("a", state="running", owner="c", payload="p" * size)
    assert world.run(scripts.payload("a")) == b"p" * size
    assert world.run(scripts.payload("nobody")) == b""
    world.finish("c", settlement("a", "done"))
    assert world.run(scripts.payload("a")) == b""


@pytest.mark.parametrize("blob", [b"why", b"w" * 500])
def test_one_that_has_failed_comes_with_its_error(world, blob):
    world.seed_worker("c", slots=9)
    world.seed_job("a", state="running", owner="c")
    world.finish("c", settlement("a", "failed", blob=blob))
    assert show(world, "a")[1] == blob


def test_one_that_runs_its_units_and_is_to_stop(world):
    world.seed_worker("c", slots=9, lease=LEASE)
    world.seed_job("a", state="running", owner="c", fails=1, crashes=2)
    for unit, end in (("pay", "done"), ("mail", "raised"), ("ship", "")):
        begun = world.run(
            scripts.begin(
                "c",
                "a",
                7,
                unit,
                "ab",
                needs_ms=0,
                limit_ms=3_000,
                on_doubt="rerun",
                retention_ms=RETENTION,
            )
        )
        assert begun.word == "run"
        if end:
            world.run(scripts.record("a", 7, unit, end, 1, b"with spaces in it"))
        world.now += 10
    world.cancel("a")
    report, _ = show(world, "a")
    assert sorted(report.units) == [
        ("mail", "raised", 7, T0 + 10, 3_000),
        ("pay", "done", 7, T0, 3_000),
        ("ship", "begun", 7, T0 + 20, 3_000),
    ]
    assert (report.worker, report.cancelling) == ("host", True)
    assert (report.retries_used, report.crashes) == (1, 2)


def test_what_is_no_record_is_malformed(world):
    world.client.set(world.key("job:a"), "text")
    assert show(world, "a")[0].state is State.MALFORMED
