"""fetch: where jobs are and how they ended; it changes nothing."""

import pytest

from deadq.job import State
from deadq.store import scripts
from tests.scripts.world import T0


def fetch(world, *idents):
    with world.changes() as changed:
        sights = world.run(scripts.fetch(idents))
    assert changed == {}
    return sights


@pytest.mark.parametrize("state", ["ready", "suspect", "later", "strange", "running"])
def test_a_job_on_its_way_shows_its_latest_attached_deadline(world, state):
    world.seed_worker("c")
    world.seed_job("a", state=state, owner="c", deadline=5_000, due=9_000)
    (sight,) = fetch(world, "a")
    assert sight.state == state
    assert sight.deadline_ms == T0 + 9_000
    assert sight.attempt == (1 if state == "running" else 0)
    assert sight.blob == b""


@pytest.mark.parametrize(("state", "blob"), [("done", "it"), ("failed", "e"), ("exhausted", "e")])
@pytest.mark.parametrize("size", [1, 500])
def test_an_outcome_comes_with_its_result_or_error(world, state, blob, size):
    if size == 1:
        world.seed_ended("a", state, result=blob, attempt=2)
    else:
        world.seed_ended("a", state, attempt=2)
        world.client.set(world.key("result:a"), blob * size)
    (sight,) = fetch(world, "a")
    assert (sight.state, sight.attempt) == (state, 2)
    assert sight.blob.decode() == blob * size


@pytest.mark.parametrize("state", ["exceeded", "expired", "cancelled"])
def test_an_end_without_an_outcome_names_the_effects_on_record(world, state):
    done, begun = "done 7 1700000000000 30000 ab ", "begun 7 1700000000000 30000 ab "
    world.seed_ended("a", state, **{"u:pay": done, "u:mail": done, "u:open": begun})
    (sight,) = fetch(world, "a")
    assert sight.state == state
    assert {"pay", "mail"} <= set(sight.units)
    assert sight.blob == b""


@pytest.mark.parametrize("state", ["ready", "suspect", "later", "strange"])
def test_a_job_that_can_no_longer_start_shows_as_expired_before_it_is_swept(world, state):
    world.seed_job("a", state=state, deadline=500, ready_at=100)
    world.now += 499
    assert fetch(world, "a")[0].state == state
    world.now += 1
    assert fetch(world, "a")[0].state == "expired"


def test_a_run_past_its_deadline_is_still_a_run(world):
    world.seed_worker("c")
    world.seed_job("a", state="running", owner="c", deadline=500)
    world.now += 600
    assert fetch(world, "a")[0].state == "running"


def test_many_at_once_keep_their_order(world):
    world.seed_job("a")
    world.seed_ended("b", "done", result="it")
    states = [sight.state for sight in fetch(world, "b", "none", "a")]
    assert states == [State.DONE, State.GONE, State.READY]


def test_what_is_no_record_shows_as_malformed(world):
    world.client.rpush(world.key("job:a"), "x")
    world.client.hset(world.key("job:b"), "state", "no such state")
    assert {sight.state for sight in fetch(world, "a", "b")} == {State.MALFORMED}


def test_nobody_asked_for_anything(world):
    assert fetch(world) == []
