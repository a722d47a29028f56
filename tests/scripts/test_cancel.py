"""cancel: what waits never starts, what runs is told; cancel and start, never both."""

import pytest

from tests.scripts.world import BRIEF, RETENTION, T0, renewal, settlement, submission

WAITING = ("ready", "suspect", "later", "strange")
ENDED = ("done", "failed", "exhausted", "exceeded", "crashed", "expired", "cancelled")


def seed_running(world, **fields):
    world.seed_worker("c", slots=2)
    world.seed_job("a", state="running", owner="c", fence=7, **fields)


@pytest.mark.parametrize("state", WAITING)
@pytest.mark.parametrize(("units", "keeps"), [({}, BRIEF), ({"u:x": "done 1"}, RETENTION)])
def test_what_waits_ends_at_once(world, state, units, keeps):
    world.seed_job("a", state=state, ready_at=500, delayed=True, payload="p" * 500, **units)
    assert world.cancel("a") == "cancelled"
    assert world.state("a") == "cancelled"
    assert world.places("a") == set()
    assert world.payload("a") is None
    assert world.keeps("job:a", keeps)
    assert world.counters() == {"finished:cancelled": 1}


@pytest.mark.parametrize("state", WAITING)
def test_what_is_cancelled_never_starts(world, state):
    world.seed_worker("c", slots=2)
    world.seed_job("a", state=state, ready_at=500)
    world.cancel("a")
    world.now += 600
    world.register("d", "t")
    assert world.claimed("c", 1, 2) == []
    assert world.claimed("d", 1, 2) == []


def test_who_waits_for_it_hears(world):
    world.seed_job("a")
    with world.client.pubsub(ignore_subscribe_messages=True) as heard:
        heard.subscribe(world.key("reply:C"))
        heard.get_message(timeout=1)
        world.cancel("a")
        assert heard.get_message(timeout=1)["data"] == b"a"


def test_what_runs_is_flagged_and_its_owner_told(world):
    seed_running(world)
    with world.changes() as changed:
        assert world.cancel("a") == "running"
    assert changed.keys() == {"job:a", "ctl:c"}
    assert world.job("a")["cancel"] == "1"
    assert changed["ctl:c"] == ["cancel a 7"]
    assert world.lasts("ctl:c") > 0, "nobody may be there to read it"


def test_what_was_flagged_ends_with_the_report_of_its_owner(world):
    seed_running(world)
    world.cancel("a")
    assert world.finish("c", settlement("a", "cancelled")) == ["cancelled"]


def test_a_run_that_was_quicker_than_the_cancel_has_its_result(world):
    seed_running(world)
    assert world.cancel("a") == "running"
    assert world.finish("c", settlement("a", "done", blob=b"it")) == ["done"]
    assert world.cancel("a") == "done"
    assert world.outcome("a") == "it"


@pytest.mark.parametrize("state", ENDED)
def test_what_has_ended_stays_as_it_is(world, state):
    world.seed_ended("a", state)
    with world.changes() as changed:
        assert world.cancel("a") == state
    assert changed == {}


@pytest.mark.parametrize("state", WAITING)
def test_what_is_dead_already_ends_as_expired(world, state):
    world.seed_job("a", state=state, deadline=500, ready_at=100)
    world.now += 500
    assert world.cancel("a") == "expired"
    assert world.state("a") == "expired"
    assert world.places("a") == set()


@pytest.mark.parametrize("planted", ["absent", "wrong type", "bad number"])
def test_what_is_no_job_is_gone(world, planted):
    if planted == "wrong type":
        world.client.rpush(world.key("job:a"), "x")
    elif planted == "bad number":
        world.client.hset(world.key("job:a"), mapping={"state": "ready", "deadline": "nan"})
    with world.changes() as changed:
        assert world.cancel("a") == "gone"
    assert changed == {}


@pytest.mark.parametrize("state", [*WAITING, "running", "done"])
def test_a_repeat_hears_the_same_and_changes_nothing(world, state):
    if state == "running":
        seed_running(world)
    elif state == "done":
        world.seed_ended("a", "done")
    else:
        world.seed_job("a", state=state, ready_at=500)
    first = world.cancel("a")
    with world.changes() as changed:
        assert world.cancel("a") == first
    assert changed == {}


def test_it_is_unconditional_even_when_somebody_came_back_for_the_run(world):
    seed_running(world)
    world.cancel("a")
    world.admit(submission("a", token="w:pC.2"))
    assert world.job("a")["again"] == "1"
    assert world.cancel("a") == "running"
    assert world.finish("c", settlement("a", "cancelled")) == ["cancelled"]


@pytest.mark.parametrize("loss", ["renewed without it", "lease lapsed", "released"])
def test_a_cancelled_run_that_was_lost_does_not_run_again(world, loss):
    """The claim's reply never came, or its child died: nobody is there to report."""
    seed_running(world, deadline=90_000)
    world.cancel("a")
    match loss:
        case "renewed without it":
            world.renew(renewal("c", number=1))
        case "lease lapsed":
            world.now += 5_000
            world.seed_worker("d", lease=60_000)
            world.claimed("d")
        case "released":
            world.release("c")
    assert world.state("a") == "cancelled"
    assert world.places("a") == set()


def test_a_cancelled_job_may_be_asked_for_anew(world):
    world.seed_worker("c")
    world.seed_job("a")
    world.cancel("a")
    answer = world.admit(submission("a", token="w:pC.2", within=9_000))
    assert answer == [("admitted", T0 + 9_000, 0)]
    assert world.claimed("c") == ["a"]
