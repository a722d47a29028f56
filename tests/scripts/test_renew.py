"""renew: leases are prolonged, lost claims given back, and the housekeeping is done."""

import pytest

from tests.scripts.world import (
    LEASE,
    RETENTION,
    T0,
    UNIT_LIMIT,
    renewal,
    settlement,
)


def test_the_lease_of_each_child_counts_from_now(world):
    world.seed_worker("c")
    world.seed_worker("d")
    world.seed_worker("e")
    world.now += 1_000
    first_lapse, _, _, answers = world.renew(renewal("c"), renewal("d"))
    assert [answer.known for answer in answers] == [True, True]
    assert world.get("workers") == {
        "c": T0 + 1_000 + LEASE,
        "d": T0 + 1_000 + LEASE,
        "e": T0 + LEASE,
    }
    assert first_lapse == T0 + LEASE, "that of e"
    assert world.lasts("worker:c") >= LEASE


@pytest.mark.parametrize(("at", "known"), [(LEASE - 1, True), (LEASE, False)])
def test_a_lapsed_lease_is_not_renewed(world, at, known):
    world.seed_worker("c")
    world.now += at
    (answer,) = world.renew(renewal("c")).children
    assert answer.known is known
    assert ("c" in (world.get("workers") or {})) is known


def test_a_child_that_never_registered_is_unknown(world):
    first_lapse, _, _, (answer,) = world.renew(renewal("nobody"))
    assert (first_lapse, answer.known) == (0, False)
    assert world.get("workers") is None


# Jobs of a child.


def seed_held(world, **fields):
    world.seed_worker("c", slots=4, claim=3)
    world.seed_job("a", state="running", owner="c", **({"claim": 3, "fence": 7} | fields))


def test_a_job_that_is_listed_stays(world):
    seed_held(world)
    with world.changes() as changed:
        (answer,) = world.renew(renewal("c", 3, {"a": 7})).children
    assert answer.words == {}
    assert changed == {}


@pytest.mark.parametrize(
    ("claimed_under", "seen", "state"),
    [
        (3, 3, "ready"),  # the reply came and named it, but the child does not hold it
        (2, 3, "ready"),
        (3, 2, "running"),  # its reply may still be on the way
    ],
)
def test_a_job_that_is_not_listed_goes_back_if_its_claim_was_answered(
    world, claimed_under, seen, state
):
    seed_held(world, claim=claimed_under)
    world.renew(renewal("c", seen))
    assert world.state("a") == state
    assert world.places("a") == {"due", "ready" if state == "ready" else "run:c"}


def test_a_job_that_goes_back_wakes_somebody(world):
    seed_held(world)
    world.seed_worker("p", parked=61_000)
    world.renew(renewal("c", 3))
    assert world.get("wake") == ["1"]


def test_a_job_that_goes_back_stands_under_the_latest_attached_deadline(world):
    seed_held(world, deadline=500, due=9_000)
    world.renew(renewal("c", 3))
    assert world.get("ready") == {"0000000001:a": T0 + 9_000}


@pytest.mark.parametrize(("again", "state"), [({}, "cancelled"), ({"again": 1}, "ready")])
def test_a_cancelled_job_that_is_not_listed_does_not_run_again(world, again, state):
    seed_held(world, cancel=1, **again)
    world.renew(renewal("c", 3))
    assert world.state("a") == state


def test_a_job_that_is_not_listed_and_past_its_time_ends(world):
    seed_held(world, deadline=500)
    world.now += 500
    world.renew(renewal("c", 3))
    assert world.state("a") in ("expired", "exceeded")
    assert world.places("a") == set()


@pytest.mark.parametrize("why", ["another owner", "another fence", "waits", "ended", "gone"])
def test_a_job_that_is_no_longer_its_own_is_lost(world, why):
    match why:
        case "another owner":
            world.seed_worker("c")
            world.seed_worker("d")
            world.seed_job("a", state="running", owner="d")
        case "another fence":
            seed_held(world, fence=8)
        case "waits":
            world.seed_worker("c")
            world.seed_job("a")
        case "ended":
            world.seed_worker("c")
            world.seed_ended("a", "done", fence=7)
        case "gone":
            world.seed_worker("c")
    before = world.get("job:a")
    (answer,) = world.renew(renewal("c", 3, {"a": 7})).children
    assert answer.words == {"a": "lost"}
    if why != "another fence":
        assert world.get("job:a") == before


def test_a_cancelled_job_is_named_each_time(world):
    """The control message may have been lost with a connection."""
    seed_held(world, cancel=1)
    for _ in range(2):
        (answer,) = world.renew(renewal("c", 3, {"a": 7})).children
        assert answer.words == {"a": "cancel"}


def test_the_record_of_a_run_outlives_the_run(world):
    """A run past its deadline goes on, as a unit may: its record must not vanish under it."""
    seed_held(world, payload="p" * 500)
    for name in ("job:a", "data:a"):
        world.client.pexpire(world.key(name), 1_000)
    world.renew(renewal("c", 3, {"a": 7}))
    for name in ("job:a", "data:a"):
        assert world.lasts(name) > LEASE + UNIT_LIMIT + RETENTION


def test_a_record_that_lives_longer_anyway_is_not_cut(world):
    seed_held(world, deadline=900_000)
    before = world.lasts("job:a")
    world.renew(renewal("c", 3, {"a": 7}))
    assert world.lasts("job:a") > before - 2_000


def test_a_child_hears_under_which_number_its_last_claim_was_carried_out(world):
    """A claim whose answer was lost without a sound: it has to ask for it again."""
    world.seed_worker("c", claim=3)
    world.seed_worker("d")
    answers = world.renew(renewal("c", 2), renewal("d", 0), renewal("nobody", 1)).children
    assert [answer.number for answer in answers] == [3, 0, 0]


def test_an_older_snapshot_of_what_is_held_takes_nothing_and_prolongs_all_the_same(world):
    """A supervisor reads it from memory that the child may just be writing."""
    world.seed_worker("c", slots=4, claim=4)
    world.seed_job("a", state="running", owner="c", claim=3, fence=7, seq=1)
    world.seed_job("b", state="running", owner="c", claim=4, fence=8, seq=2)
    world.seed_ended("d", "done", fence=6)
    world.now += 1_000
    (answer,) = world.renew(renewal("c", 3, {"d": 6, "a": 7})).children
    assert (answer.known, answer.words, answer.number) == (True, {"d": "lost"}, 4)
    assert world.places("a") == world.places("b") == {"due", "run:c"}
    assert world.get("workers") == {"c": T0 + 1_000 + LEASE}


# Housekeeping.


def test_jobs_of_a_child_whose_lease_has_lapsed_come_back_with_anybodys_renewal(world):
    world.seed_worker("dead", lease=100)
    world.seed_worker("c")
    world.seed_job("a", state="running", owner="dead")
    world.now += 100
    first_lapse, *_ = world.renew(renewal("c"))
    assert world.state("a") == "ready"
    assert world.get("workers").keys() == {"c"}
    assert first_lapse == world.now + LEASE


def test_a_supervisor_does_not_sweep_the_children_that_it_renews(world):
    world.seed_worker("c", lease=100)
    world.seed_job("a", state="running", owner="c", claim=1)
    world.now += 99
    world.renew(renewal("c", 1, {"a": 7}))
    world.now += 1
    world.renew(renewal("c", 1, {"a": 7}))
    assert world.places("a") == {"due", "run:c"}


def test_the_expired_leave_and_what_has_fallen_due_gets_ready(world):
    world.seed_worker("c")
    world.seed_job("a", deadline=100, seq=1)
    world.seed_job("b", state="later", ready_at=100, seq=2)
    world.now += 100
    world.renew(renewal("c"))
    assert (world.state("a"), world.state("b")) == ("expired", "ready")


@pytest.mark.parametrize(("jobs", "parked", "tokens"), [(0, 2, 0), (1, 2, 1), (5, 2, 2)])
def test_tokens_that_went_down_with_a_worker_are_repeated(world, jobs, parked, tokens):
    world.seed_worker("c")
    for i in range(parked):
        world.seed_worker(f"p{i}", parked=61_000)
    for i in range(jobs):
        world.seed_job(f"e{i}", seq=i)
    assert world.renew(renewal("c")).tokens == 0
    assert world.client.llen(world.key("wake")) == tokens
    assert world.renew(renewal("c")).tokens == tokens, "those that were there before"
    for _ in range(3):
        world.renew(renewal("c"))
    assert world.client.llen(world.key("wake")) <= parked


def test_a_repeat_changes_nothing_and_hears_the_same(world):
    seed_held(world)
    world.seed_job("b", state="running", owner="c", claim=3, fence=8, cancel=1, seq=2)
    world.seed_job("d", state="running", owner="c", claim=3, fence=9, seq=3)
    made = renewal("c", 3, {"a": 7, "b": 8, "f": 1})
    first = world.renew(made)
    with world.changes() as changed:
        assert world.renew(made) == first
    assert changed == {}


def test_a_renewal_that_comes_late_takes_no_newer_job_away(world):
    """Written before the claim was answered, arrived after it."""
    seed_held(world, claim=4)
    world.renew(renewal("c", 3))
    assert world.places("a") == {"due", "run:c"}
    assert world.finish("c", settlement("a")) == ["done"]


def test_a_renewal_for_nobody_still_keeps_house(world):
    world.seed_job("a", deadline=100)
    world.now += 100
    assert world.renew() == (0, 0, 0, [])
    assert world.state("a") == "expired"
