"""record: how a unit ended; it is remembered whatever has become of its job meanwhile."""

import pytest

from deadq.store import scripts
from tests.scripts.world import RETENTION, T0, renewal

BEGUN = f"begun 7 {T0} 30000 ab "


def record(world, *, fence=7, end="done", us=12_000, result=b"it", unit="pay"):
    return world.run(scripts.record("a", fence, unit, end, us, result))


def seed(world, **fields):
    world.seed_worker("c", slots=2)
    values = {"owner": "c", "fence": 7, "u:pay": BEGUN} | fields
    world.seed_job("a", state="running", **values)


@pytest.mark.parametrize("end", ["done", "raised"])
@pytest.mark.parametrize("result", [b"", b"it", b"two words", bytes(range(256)) * 20])
def test_it_closes_with_its_result(world, end, result):
    seed(world)
    assert record(world, end=end, result=result) == "ok"
    begin = scripts.begin(
        "c", "a", 7, "pay", "ab", needs_ms=0, limit_ms=1, on_doubt="fail", retention_ms=RETENTION
    )
    if end == "done":
        assert world.run(begin).result == result
    else:
        assert world.run(begin).word == "run"


def test_it_touches_its_field_and_its_time_alone(world):
    seed(world)
    with world.changes() as changed:
        record(world)
    assert changed.keys() == {"job:a", "service"}
    assert world.job("a")["u:pay"] == f"done 7 {T0} 30000 ab it"


def test_its_time_is_learned_apart_from_that_of_the_job(world):
    seed(world)
    record(world, us=12_000)
    assert world.quantiles("t\1pay")[0] == pytest.approx(12.6, rel=0.05)
    assert "s:t" not in world.get("service")
    assert "all" not in world.get("service")


def test_a_repeat_changes_nothing(world):
    seed(world)
    assert record(world) == "ok"
    with world.changes() as changed:
        assert record(world) == "ok"
    assert changed == {}


@pytest.mark.parametrize(
    "became", ["ready", "later", "running elsewhere", "cancelled", "expired", "exceeded"]
)
def test_the_fence_that_began_it_may_record_it_whatever_became_of_the_job(world, became):
    match became:
        case "ready" | "later":
            world.seed_job("a", state=became, ready_at=500, **{"u:pay": BEGUN})
        case "running elsewhere":
            world.seed_worker("d")
            seed(world, owner="d", fence=9)
        case _:
            world.seed_ended("a", became, **{"u:pay": BEGUN})
    assert record(world) == "ok"
    assert world.job("a")["u:pay"].startswith("done 7")


def test_an_attempt_that_waits_for_it_hears(world):
    world.seed_worker("d")
    seed(world, owner="d", fence=9)
    record(world)
    assert world.get("ctl:d") == ["unit a 9"]
    assert world.lasts("ctl:d") > 0


def test_its_own_attempt_hears_nothing(world):
    seed(world)
    record(world)
    assert world.get("ctl:c") is None


@pytest.mark.parametrize("fence", [6, 8])
def test_once_another_fence_has_begun_it_no_other_may_record_it(world, fence):
    seed(world)
    with world.changes() as changed:
        assert record(world, fence=fence) == "stale"
    assert changed == {}


def test_a_unit_that_never_began_is_not_recorded(world):
    seed(world)
    with world.changes() as changed:
        assert record(world, unit="other") == "stale"
    assert changed == {}


@pytest.mark.parametrize("planted", ["absent", "wrong type"])
def test_without_a_record_it_is_gone(world, planted):
    if planted == "wrong type":
        world.client.rpush(world.key("job:a"), "x")
    with world.changes() as changed:
        assert record(world) == "gone"
    assert changed == {}


def test_the_record_survives_what_becomes_of_the_job(world):
    seed(world, claim=3)
    record(world)
    world.renew(renewal("c", 3))  # given back
    assert world.job("a")["u:pay"].startswith("done 7")
    world.cancel("a")
    assert world.job("a")["u:pay"].startswith("done 7")
    assert world.keeps("job:a", RETENTION)
