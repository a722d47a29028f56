"""begin: whether a unit may run; from here to its record nothing interrupts it."""

import pytest

from deadq.store import scripts
from tests.scripts.world import RETENTION, T0

LIMIT = 30_000


def begin(world, *, fence=7, child="c", unit="pay", print_="ab", needs=0, limit=LIMIT, **options):
    call = scripts.begin(
        child,
        "a",
        fence,
        unit,
        print_,
        needs_ms=needs,
        limit_ms=limit,
        on_doubt=options.get("on_doubt", "rerun"),
        retention_ms=RETENTION,
    )
    return world.run(call)


def seed(world, unit=None, **fields):
    world.seed_worker("c", slots=2, lease=900_000)
    units = {"u:pay": unit} if unit else {}
    world.seed_job("a", state="running", owner="c", fence=7, deadline=5_000, **units, **fields)


def begun(fence, *, at=0, limit=LIMIT, status="begun", result=""):
    return f"{status} {fence} {T0 + at} {limit} ab {result}"


def test_it_is_on_record_before_it_runs(world):
    seed(world)
    with world.changes() as changed:
        assert begin(world).word == "run"
    assert changed.keys() == {"job:a"}
    assert world.job("a")["u:pay"] == begun(7)


@pytest.mark.parametrize("limit", [1_000, 900_000])
def test_the_record_outlives_the_unit_however_long_it_may_take(world, limit):
    seed(world, payload="p" * 500)
    begin(world, limit=limit)
    assert world.lasts("job:a") > max(5_000, limit) + RETENTION


def test_one_that_is_done_gives_its_result_and_does_not_run(world):
    seed(world, begun(3, status="done", result="the result of it"))
    with world.changes() as changed:
        answer = begin(world)
    assert (answer.word, answer.result) == ("done", b"the result of it")
    assert changed == {}


@pytest.mark.parametrize("status", ["begun", "done", "raised"])
def test_the_same_name_with_other_arguments_is_an_error(world, status):
    seed(world, begun(3, status=status))
    with world.changes() as changed:
        assert begin(world, print_="cd").word == "mismatch"
    assert changed == {}


def test_one_that_raised_runs_again_and_is_not_in_doubt(world):
    seed(world, begun(3, status="raised", result="why"))
    assert begin(world, on_doubt="fail").word == "run"
    assert world.job("a")["u:pay"] == begun(7)


@pytest.mark.parametrize(
    ("passed", "on_doubt", "word"),
    [
        (LIMIT - 1, "rerun", "open"),
        (LIMIT - 1, "fail", "open"),
        (LIMIT, "rerun", "run"),
        (LIMIT, "fail", "doubt"),
    ],
)
def test_one_that_another_attempt_began_is_open_until_its_limit_and_then_in_doubt(
    world, passed, on_doubt, word
):
    seed(world, begun(3), due=90_000)
    world.client.hset(world.key("job:a"), "deadline", T0 + 90_000)
    world.now += passed
    answer = begin(world, on_doubt=on_doubt)
    assert answer.word == word
    if word == "open":
        assert answer.until_ms == T0 + LIMIT
    assert world.job("a")["u:pay"] == (begun(7, at=passed) if word == "run" else begun(3))


def test_it_may_begin_again_under_the_fence_that_began_it(world):
    """The reply was lost: the same call once more."""
    seed(world)
    assert begin(world).word == "run"
    with world.changes() as changed:
        assert begin(world).word == "run"
    assert changed == {}


@pytest.mark.parametrize(("needs", "left", "word"), [(200, 200, "run"), (200, 199, "short")])
def test_it_needs_time_enough(world, needs, left, word):
    seed(world)
    world.now += 5_000 - left
    with world.changes() as changed:
        assert begin(world, needs=needs).word == word
    assert (changed == {}) is (word == "short")


@pytest.mark.parametrize(("left", "word"), [(300, "run"), (299, "short")])
def test_it_needs_its_own_p99_too(world, left, word):
    seed(world)
    world.now += 5_000 - left
    world.client.hset(world.key("service"), "s:t\1pay", f"10 20 300 {world.now}")
    assert begin(world, needs=200).word == word
    assert begin(world, unit="other", needs=200).word == "run", "each unit has its own"


@pytest.mark.parametrize("left", [1, 0, -1])
def test_none_begins_when_the_deadline_has_come(world, left):
    seed(world)
    world.now += 5_000 - left
    assert begin(world).word == ("run" if left > 0 else "short")


def test_a_later_deadline_of_others_gives_this_run_no_more_time(world):
    seed(world, due=90_000)
    world.now += 5_000
    assert begin(world).word == "short"


@pytest.mark.parametrize(("again", "word"), [({}, "cancelled"), ({"again": 1}, "run")])
def test_none_begins_in_a_cancelled_run(world, again, word):
    seed(world, cancel=1, **again)
    with world.changes() as changed:
        assert begin(world).word == word
    assert (changed == {}) is (word == "cancelled")


def test_a_result_on_record_comes_even_in_a_cancelled_run(world):
    seed(world, begun(3, status="done", result="it"), cancel=1)
    assert begin(world).result == b"it"


@pytest.mark.parametrize("why", ["fence", "owner", "waits", "ended", "gone", "wrong type"])
def test_a_run_that_is_not_this_childs_any_more_is_lost(world, why):
    seed(world)
    match why:
        case "owner":
            world.seed_worker("d")
        case "waits":
            world.release("c")
        case "ended":
            world.seed_ended("a", "done", fence=7)
        case "gone" | "wrong type":
            world.client.delete(world.key("job:a"))
            if why == "wrong type":
                world.client.rpush(world.key("job:a"), "x")
    with world.changes() as changed:
        fence, child = 6 if why == "fence" else 7, "d" if why == "owner" else "c"
        assert begin(world, fence=fence, child=child).word == "lost"
    assert changed == {}


@pytest.mark.parametrize("planted", ["", "x", "begun", "begun x y z ab ", "begun 3 1 1"])
def test_a_garbled_unit_record_does_not_stop_the_run(world, planted):
    seed(world, planted or " ")
    assert begin(world).word == "run"


def test_a_lapsed_lease_alone_loses_no_run(world):
    """Jobs are taken from a child by whoever sweeps; until then they are its own."""
    seed(world)
    world.client.zadd(world.key("workers"), {"c": T0 - 1})
    assert begin(world).word in ("run", "lost")


@pytest.mark.parametrize(("recorded", "word"), [(999, "run"), (1_000, "many")])
def test_a_job_may_have_a_thousand_units(world, recorded, word):
    seed(world, **{f"u:{n}": begun(7, status="done") for n in range(recorded)})
    with world.changes() as changed:
        assert begin(world).word == word
    assert (changed == {}) is (word == "many")


def test_those_on_record_go_on_when_there_are_too_many(world):
    kinds = {"u:0": begun(7), "u:1": begun(7, status="raised"), "u:2": begun(7, status="done")}
    seed(world, **kinds, **{f"u:{n}": begun(7, status="done") for n in range(3, 1_000)})
    assert [begin(world, unit=str(n)).word for n in range(3)] == ["run", "run", "done"]
