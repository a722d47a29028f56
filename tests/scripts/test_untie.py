"""Tied jobs: the one that starts takes away its twin in another queue, or yields to it."""

import pytest

from deadq.store import scripts
from deadq.twins import Twin
from tests.scripts.world import BRIEF, RETENTION, T0, World, settlement, submission, tied

WAITING = ("ready", "suspect", "later", "strange")
FINAL = ("failed", "exhausted", "exceeded", "crashed", "expired", "cancelled")


@pytest.fixture
def other(world):
    """The queue of the job that asks; ``world`` is that of its twin."""
    made = World(world.client, "other")
    made.seed_worker("w")
    return made


def names(role):
    """What the record here says of the twin over there, if it is ``role`` of the two."""
    return Twin(role, "a0", "other").text


def ask(world, role):
    """The job in the other queue, which is ``role`` of the two, is about to start."""
    claim = tied("a0", role)
    return "start" if world.run(scripts.untie(claim, "other", retention_ms=RETENTION)) else "yield"


def opposite(role):
    return "second" if role == "first" else "first"


both_roles = pytest.mark.parametrize("role", ["first", "second"])


@both_roles
@pytest.mark.parametrize("state", WAITING)
def test_a_twin_that_waits_is_taken_away(world, role, state):
    world.seed_job("a0", state=state, twin=names(opposite(role)), ready_at=5_000, delayed=True)
    assert ask(world, role) == "start"
    assert world.places("a0") == set()
    assert world.job("a0").items() >= {"state": "cancelled", "result": "tied"}.items()
    assert world.keeps("job:a0", BRIEF)
    assert world.payload("a0") is None
    assert world.counters() == {"tied_away": 1}
    (sight,) = world.run(scripts.fetch(["a0"]))
    assert sight.tied_away
    with world.changes() as changed:
        assert ask(world, role) == "start", "the same call once more"
    assert changed == {}


@both_roles
def test_its_waiters_are_told(world, role):
    world.seed_job("a0", twin=names(opposite(role)), token="w:pC.1")
    with world.client.pubsub() as heard:
        heard.subscribe(world.key("reply:C"))
        heard.get_message(timeout=1.0)
        ask(world, role)
        assert heard.get_message(timeout=1.0)["data"] == b"a0"


@pytest.mark.parametrize(("role", "word"), [("first", "start"), ("second", "yield")])
def test_of_two_that_have_been_claimed_the_first_one_starts(world, role, word):
    world.seed_job("a0", state="running", owner="c", twin=names(opposite(role)))
    with world.changes() as changed:
        assert ask(world, role) == word
    assert changed == {}


@both_roles
def test_to_one_that_is_being_cancelled_nobody_yields(world, role):
    world.seed_job("a0", state="running", owner="c", twin=names(opposite(role)), cancel=1)
    assert ask(world, role) == "start"


@both_roles
@pytest.mark.parametrize("state", ["done", *FINAL])
def test_a_twin_that_has_ended_is_yielded_to_if_it_has_succeeded(world, role, state):
    world.seed_ended("a0", state, twin=names(opposite(role)))
    with world.changes() as changed:
        assert ask(world, role) == ("yield" if state == "done" else "start")
    assert changed == {}


@both_roles
@pytest.mark.parametrize(
    "twin", [None, "", "first a0 third", "second a0 third", "first b0 other", "x"]
)
def test_somebody_elses_job_under_the_same_key_is_left_alone(world, role, twin):
    world.seed_job("a0", **({} if twin is None else {"twin": twin}))
    with world.changes() as changed:
        assert ask(world, role) == "start"
    assert changed == {}


@both_roles
@pytest.mark.parametrize("planted", [None, "a string", {"twin": "x"}, {"state": "ready"}])
def test_without_a_sound_record_it_starts(world, role, planted):
    if isinstance(planted, str):
        world.client.set(world.key("job:a0"), planted)
    elif planted:
        world.client.hset(world.key("job:a0"), mapping=planted)
    assert ask(world, role) == "start"


def test_the_twin_travels_with_the_claim_and_outlives_the_job(world):
    world.seed_worker("c")
    world.admit(submission("a0", twin=names("first")))
    (claim,) = world.claim("c").claims
    assert Twin.read(claim.twin) == ("first", "a0", "other")
    world.finish("c", settlement("a0", fence=claim.fence))
    assert world.job("a0")["twin"] == names("first")
    assert ask(world, "second") == "yield"


def test_a_queue_may_have_any_name():
    for queue in ("a b", " ", "first x y", "ü"):
        assert Twin.read(Twin("first", "a0", queue).text).queue == queue


def test_a_replay_is_not_tied(world):
    world.seed_worker("c")
    world.admit(submission("a0", twin=names("first")))
    (claim,) = world.claim("c").claims
    world.finish("c", settlement("a0", "failed", fence=claim.fence))
    world.admit(submission("a0", task="", fingerprint=b"", token="w:pC.9"))
    assert world.claim("c", 2).claims[0].twin == ""


# One that yields.


def test_what_yields_ends_as_taken_away_and_is_no_sample(world):
    world.seed_worker("c")
    world.seed_job("a0", state="running", owner="c", twin=names("second"))
    assert world.finish("c", settlement("a0", "yielded", ms=500)) == ["cancelled"]
    assert world.run(scripts.fetch(["a0"]))[0].tied_away
    assert world.counters() == {"tied_away": 1}
    assert world.places("a0") == set()
    assert world.get("service") is None
    assert world.finish("c", settlement("a0", "yielded", ms=500)) == ["cancelled"]
    assert world.counters() == {"tied_away": 1}


def test_what_yields_and_was_cancelled_is_cancelled(world):
    world.seed_worker("c")
    world.seed_job("a0", state="running", owner="c", twin=names("second"), cancel=1)
    assert world.finish("c", settlement("a0", "yielded")) == ["cancelled"]
    assert not world.run(scripts.fetch(["a0"]))[0].tied_away


def test_a_submit_brings_back_what_was_taken_away(world):
    world.admit(submission("a0", twin=names("first")))
    ask(world, "second")
    assert world.verdict(submission("a0", token="w:pC.2")) == "admitted"
    assert world.state("a0") == "ready"


def test_two_queues_do_not_mix(world, other):
    other.admit(submission("a0", twin=Twin("second", "a0", "q").text))
    world.admit(submission("a0", twin=names("first")))
    (claim,) = other.claim("w").claims
    before = other.dump()
    assert other.run(scripts.untie(claim, "other", retention_ms=RETENTION))
    assert other.dump() == before, "the call is about the twin's queue alone"
    assert world.state("a0") == "cancelled"
    assert world.now == T0
