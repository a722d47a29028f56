"""release: a child's id is retired; what it still holds goes back uncharged."""

import pytest

from tests.scripts.world import T0, settlement


def test_its_jobs_go_back_uncharged_and_nothing_of_it_is_left(world):
    world.seed_worker("c", slots=2, parked=61_000)
    world.seed_job("a", state="running", owner="c", estimate=100, seq=4, fails=1)
    world.client.rpush(world.key("ctl:c"), "cancel f 1")
    world.release("c")
    assert world.get("ready") == {"0000000004:a": T0 + 9_900}
    record = world.job("a")
    assert (record["state"], record["fails"], record["attempt"]) == ("ready", "1", "1")
    assert not {"owner", "claim", "crashes"} & record.keys()
    for name in ("run:c", "worker:c", "ctl:c", "workers", "parked"):
        assert world.get(name) is None, name
    assert world.get("fleet")["slots"] == "0"


def test_a_run_that_others_have_attached_to_goes_back_under_their_deadline(world):
    world.seed_worker("c")
    world.seed_job("a", state="running", owner="c", deadline=500, due=9_000)
    world.now += 600
    world.release("c")
    assert world.get("ready") == {"0000000001:a": T0 + 9_000}
    assert world.job("a")["deadline"] == str(T0 + 9_000)


@pytest.mark.parametrize(
    ("fields", "state"),
    [
        ({"deadline": 0}, "exceeded"),
        ({"cancel": 1}, "cancelled"),
        ({"cancel": 1, "again": 1}, "ready"),
    ],
)
def test_a_run_that_is_wanted_no_more_ends(world, fields, state):
    world.seed_worker("c")
    world.seed_job("a", state="running", owner="c", **fields)
    world.release("c")
    assert world.state("a") == state
    assert world.places("a") == ({"due", "ready"} if state == "ready" else set())


def test_an_id_that_has_been_let_go_does_not_come_back(world):
    world.seed_worker("c", claim=3)
    world.seed_job("a", state="running", owner="c", claim=3)
    world.release("c")
    assert not world.claim("c", 3).known
    assert not world.claim("c", 4).known
    assert world.finish("c", settlement("a")) == ["stale"] or world.state("a") == "ready"
    assert world.state("a") == "ready"


def test_others_keep_what_they_hold(world):
    world.seed_worker("c")
    world.seed_worker("d")
    world.seed_job("a", state="running", owner="c", seq=1)
    world.seed_job("b", state="running", owner="d", seq=2)
    world.release("c")
    assert world.places("b") == {"due", "run:d"}
    assert world.get("fleet")["slots"] == "1"


def test_one_token_for_each_job_that_goes_back(world):
    world.seed_worker("c", slots=2)
    for i in range(3):
        world.seed_worker(f"p{i}", parked=61_000)
    world.seed_job("a", state="running", owner="c", seq=1)
    world.seed_job("b", state="running", owner="c", seq=2)
    world.release("c")
    assert world.client.llen(world.key("wake")) == 2


def test_a_repeat_changes_nothing(world):
    world.seed_worker("c")
    world.seed_worker("d")
    world.seed_job("a", state="running", owner="c")
    world.release("c")
    with world.changes() as changed:
        world.release("c")
    assert changed == {}


def test_a_job_that_somebody_else_has_by_now_is_left_alone(world):
    world.seed_worker("c")
    world.seed_worker("d")
    world.seed_job("a", state="running", owner="d")
    world.client.sadd(world.key("run:c"), "a")
    world.release("c")
    assert world.places("a") == {"due", "run:d"}
