"""register: a child takes up work under an id of its own."""

import pytest

from deadq.config import SRE_BUDGET
from deadq.store import scripts
from tests.scripts.world import LEASE, RETENTION, T0, UNIT_LIMIT, settlement, with_argument


def test_what_a_child_can_do_is_on_record_for_as_long_as_its_lease(world):
    with world.changes() as changed:
        assert world.register("c", "t", "other", slots=3) == "c"
    assert changed.keys() == {"worker:c", "workers", "fleet", "budget"}
    assert changed["budget"] == {"rule": SRE_BUDGET}
    assert changed["workers"] == {"c": T0 + LEASE}
    expected = {"slots": "3", "version": "1", "tasks": "t\nother", "who": "host", "since": str(T0)}
    assert expected.items() <= changed["worker:c"].items()
    assert LEASE <= world.lasts("worker:c") <= LEASE + UNIT_LIMIT
    assert changed["fleet"]["slots"] == "3"


def test_what_the_seeds_write_is_what_register_writes(world):
    world.register("c", "t", slots=2)
    world.register("d", "t", "u", slots=1)
    registered = world.dump()
    world.client.flushall()
    world.seed_worker("c", "t", slots=2)
    world.seed_worker("d", "t", "u", slots=1)
    seeded = world.dump()
    assert registered.pop("budget") == {"rule": SRE_BUDGET}
    for found in (registered, seeded):
        found["fleet"]["known"] = sorted(found["fleet"]["known"].split("\n"))
    assert seeded == registered


def test_slots_of_all_who_live_add_up(world):
    world.register("a", slots=3)
    world.register("b", slots=4, lease=100)
    world.register("c", slots=5)
    assert world.get("fleet")["slots"] == "12"
    world.now += 100
    world.register("d", slots=1)
    assert world.get("fleet")["slots"] == "9"


def test_strange_jobs_that_it_knows_are_ready_again_and_wake_somebody(world):
    world.seed_worker("p", "other", parked=61_000)
    world.seed_job("a", state="strange", task="t", estimate=100, seq=1)
    world.seed_job("b", state="strange", task="unheard of", seq=2)
    world.register("c", "t")
    assert world.get("ready") == {"0000000001:a": T0 + 9_900}
    assert world.get("strange").keys() == {"b"}
    assert (world.state("a"), world.state("b")) == ("ready", "strange")
    assert world.get("wake") == ["1"]


@pytest.mark.parametrize(("knows", "state"), [(1, "strange"), (2, "ready"), (3, "ready")])
def test_a_newer_record_stays_strange_until_one_registers_that_knows_it(world, knows, state):
    world.seed_job("a", state="strange", version=2)
    call = scripts.register(
        "c", lease_ms=LEASE, slots=1, who="host", retention_ms=RETENTION, tasks=["t"]
    )
    world.run(with_argument(call, 5, knows))
    assert world.state("a") == state


def test_a_strange_job_whose_deadline_has_come_is_not_brought_back(world):
    world.seed_job("a", state="strange", deadline=500)
    world.now += 500
    world.register("c")
    assert world.claimed("c") == []
    assert world.state("a") == "expired"


@pytest.mark.parametrize("planted", ["absent", "wrong type", "bad number"])
def test_a_strange_record_that_is_none_does_not_keep_anybody_from_registering(world, planted):
    world.client.zadd(world.key("strange"), {"bad": T0 + 900})
    world.client.zadd(world.key("due"), {"bad": T0 + 900})
    if planted == "wrong type":
        world.client.rpush(world.key("job:bad"), "x")
    elif planted == "bad number":
        world.client.hset(world.key("job:bad"), mapping={"state": "strange", "deadline": "nan"})
    world.seed_job("a", state="strange")
    world.register("c")
    assert world.claimed("c") == ["a"]
    world.now += 900
    world.claimed("c", 2)
    assert world.places("bad") == set()


def test_jobs_of_a_child_whose_lease_has_lapsed_come_back(world):
    """A lone worker that died and was started again finds its jobs."""
    world.seed_worker("old", lease=100)
    world.seed_job("a", state="running", owner="old")
    world.now += 100
    world.register("new")
    assert world.state("a") == "ready"
    assert world.get("workers").keys() == {"new"}
    assert world.claimed("new") == ["a"]


def test_a_repeat_changes_nothing(world):
    world.seed_job("a", state="strange")
    world.register("c")
    with world.changes() as changed:
        assert world.register("c") == "c"
    assert changed == {}


def test_a_repeat_that_comes_late_takes_no_job_away(world):
    world.register("c")
    world.seed_job("a")
    (claim,) = world.claim("c", 1).claims
    world.register("c")
    assert world.claimed("c", 1) == ["a"], "its claim number is remembered"
    assert world.finish("c", settlement("a", fence=claim.fence)) == ["done"]


def test_any_task_name_will_do(world):
    world.register("c", "pkg.mod:Ünï.çode", "two words", "1 t")
    world.seed_job("a", task="two words", seq=1)
    world.seed_job("b", task="1 t", seq=2)
    world.seed_worker("d", "t")
    assert world.claimed("d", 1, 5) == []
    assert world.state("a") == world.state("b") == "ready", "c knows them"
    claims = world.claim("c", 1, 5, "two words", "1 t").claims
    assert [claim.task for claim in claims] == ["two words", "1 t"]
