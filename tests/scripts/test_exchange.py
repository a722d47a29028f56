"""exchange: a finish and a claim in one call do what they do one after the other."""

import pytest

from deadq.store import scripts
from tests.scripts.world import LEASE, RETENTION, settlement


@pytest.fixture
def held(world):
    """A child that runs `a`; `b` waits."""
    world.seed_worker("c", "t")
    world.seed_job("a", seq=1)
    world.seed_job("b", seq=2)
    (claim,) = world.claim("c", 1, 1).claims
    return claim


def test_what_is_done_makes_room_for_the_next(world, held):
    assert world.exchange("c", 2, 1, settlement("a", fence=held.fence)) == (["done"], ["b"])
    assert world.state("a") == "done"
    assert world.state("b") == "running"
    assert world.get("run:c") == {"b"}


def test_a_repeat_settles_nothing_twice_and_gets_the_same_jobs(world, held):
    world.seed_job("d", seq=3)
    first = world.exchange("c", 2, 1, settlement("a", fence=held.fence))
    before = world.dump()
    assert world.exchange("c", 2, 1, settlement("a", fence=held.fence)) == first
    assert world.dump() == before


def test_a_job_that_is_given_back_may_be_claimed_in_the_same_call(world, held):
    given_back = settlement("a", "release", fence=held.fence)
    assert world.exchange("c", 2, 3, given_back) == (["ready"], ["a", "b"])


def test_a_stale_report_does_not_keep_the_child_from_claiming(world, held):
    assert world.exchange("c", 2, 1, settlement("a", fence=held.fence - 1)) == (["stale"], ["b"])
    assert world.state("a") == "running"


def test_a_child_that_is_not_known_any_more_settles_what_is_its_own_and_claims_nothing(world, held):
    world.now += LEASE
    claim = scripts.claim("c", 2, 1, retention_ms=RETENTION, park=True, tasks=["t"])
    words, claimed = world.run(scripts.exchange([settlement("a", fence=held.fence)], claim))
    assert (words, claimed.known, claimed.claims) == (["done"], False, [])
    assert world.state("b") == "ready"


@pytest.mark.parametrize(("park", "parked"), [(True, {"c"}), (False, set())])
def test_with_nothing_left_it_parks_if_it_likes(world, park, parked):
    world.seed_worker("c", "t")
    world.seed_job("a")
    (claim,) = world.claim("c", 1, 1).claims
    report = settlement("a", fence=claim.fence)
    assert world.exchange("c", 2, 1, report, park=park) == (["done"], [])
    assert set(world.get("parked") or ()) == parked
