"""dead: what has failed for good; and its replay, an admission with a new deadline."""

import pytest

from deadq.job import Departure, Submission
from deadq.store import scripts
from tests.scripts.world import (
    LEASE,
    RETENTION,
    T0,
    UNIT_LIMIT,
    replay_of,
    settlement,
    submission,
)

ENDS = ("failed", "exhausted", "exceeded", "crashed")
SMALL, LARGE = b"args", b"p" * 500


def die(world, ident="a", how="failed", *, payload=SMALL, blob=b"", **fields):
    """A job that has come to such an end."""
    world.seed_worker("c", slots=9, lease=10_000_000)
    fields = {"deadline": 9_000, "payload": payload.decode(), "fence": 7} | fields
    if how == "exceeded":
        fields["deadline"] = world.now - T0
    if how == "crashed":
        fields["once"] = 1
    world.seed_job(ident, state="running", owner="c", **fields)
    if how == "crashed":
        world.release("c", Departure.DIED)
    else:
        outcome = {"failed": "failed", "exhausted": "retry", "exceeded": "cut"}[how]
        world.client.hset(world.key(f"job:{ident}"), "retries", 0)
        world.finish("c", settlement(ident, outcome, blob=blob))
    assert world.state(ident) == how


def waiting(world, ident="a"):
    return world.places(ident) == {"due", "ready"}


# The list.


def test_nobody_has_died(world):
    world.seed_job("a")
    world.seed_ended("b", "done")
    assert world.dead() == []


@pytest.mark.parametrize("blob", [b"why", b"w" * 500])
def test_each_is_told_with_what_it_was_and_why_it_failed(world, blob):
    world.now += 100
    die(world, blob=blob)
    ((job, error),) = world.dead()
    assert error == blob
    assert job == ("a", "key-a", "t", "failed", T0 + 100, 1, None, None)


@pytest.mark.parametrize("how", ENDS)
def test_every_end_for_good_is_listed(world, how):
    die(world, how=how)
    assert [(job.id, job.state) for job, _ in world.dead()] == [("a", how)]


@pytest.mark.parametrize(("most", "found"), [(0, []), (1, ["d"]), (2, ["d", "b"]), (9, [*"dba"])])
def test_the_newest_come_first_and_no_more_than_asked_for(world, most, found):
    for i, ident in enumerate("abd"):
        world.now = T0 + 10 * i
        die(world, ident, seq=i)
    assert [job.id for job, _ in world.dead(most)] == found


def test_one_whose_record_is_gone_is_left_out_and_makes_room(world):
    die(world, "a", seq=1)
    world.now += 1
    die(world, "b", seq=2)
    world.client.delete(world.key("job:b"))
    assert [job.id for job, _ in world.dead(1)] == ["a"]


@pytest.mark.parametrize("state", ["ready", "done", None])
def test_one_job_by_its_id_dead_or_not(world, state):
    die(world, "b", seq=5)
    if state == "ready":
        world.seed_job("a")
    elif state:
        world.seed_ended("a", state, attempt=3)
    found = world.dead(1, "a")
    if state is None:
        assert found == []
    else:
        ((job, _),) = found
        assert (job.id, job.key, job.state) == ("a", "key-a", state)
        assert job.attempts == (3 if state == "done" else 0)


@pytest.mark.parametrize("planted", ["wrong type", "odd state", "odd numbers", "odd result"])
def test_a_planted_record_hides_no_other(world, planted):
    die(world, "a", seq=1)
    world.client.zadd(world.key("dead"), {"bad": T0 + 5})
    if planted == "wrong type":
        world.client.rpush(world.key("job:bad"), "x")
    else:
        fields = {"state": "no such" if planted == "odd state" else "failed"}
        if planted == "odd numbers":
            fields |= {"finished": "nan", "attempt": "many"}
        if planted == "odd result":
            world.client.rpush(world.key("result:bad"), "x")
        world.client.hset(world.key("job:bad"), mapping=fields)
    assert [job.id for job, _ in world.dead()][-1] == "a"


# A replay.


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("payload", [SMALL, b"p" * 150, LARGE])
def test_it_is_the_same_job_under_a_new_deadline(world, how, payload):
    fields = {"fails": 1, "crashes": 1, "alone": 1, "u:pay": f"done 3 {T0} 30000 ab it"}
    die(world, how=how, payload=payload, **fields)
    world.now += 1_000
    assert world.admit(replay_of("a", within=20_000)) == [("admitted", T0 + 20_000, 0)]
    record = world.job("a")
    kept = {"key": "key-a", "fingerprint": "fp", "task": "t", "state": "ready"}
    assert (kept | {"deadline": str(T0 + 20_000), "born": str(T0 + 1_000)}).items() <= (
        record.items()
    )
    assert record["u:pay"] == f"done 3 {T0} 30000 ab it"
    anew = {"fails", "crashes", "alone", "attempt", "fence", "finished", "result", "owner"}
    assert not anew & record.keys()
    assert world.payload("a") == payload.decode()
    assert waiting(world)
    assert world.get("dead") is None
    assert world.get("result:a") is None
    for name in ("job:a", "data:a") if payload == LARGE else ("job:a",):
        assert world.keeps(name, 19_000 + UNIT_LIMIT + RETENTION)
    assert world.counters()["admitted"] == 1


def test_it_runs_with_what_was_recorded_and_from_its_first_attempt(world):
    die(world, payload=LARGE, **{"u:pay": f"done 3 {T0} 30000 ab it"})
    world.admit(replay_of("a"))
    (claim,) = world.claim("c").claims
    assert (claim.payload, claim.attempt, claim.fails) == (LARGE, 1, 0)
    assert world.job("a")["u:pay"] == f"done 3 {T0} 30000 ab it"
    assert claim.fence > 7
    assert world.finish("c", settlement("a", fence=claim.fence, blob=b"it")) == ["done"]


def test_retries_are_those_of_its_submit(world):
    world.seed_worker("c", lease=10_000_000)
    world.admit(submission("a", retries=5))
    (claim,) = world.claim("c").claims
    world.finish("c", settlement("a", "failed", fence=claim.fence))
    world.admit(replay_of("a"))
    assert world.job("a")["retries"] == "5"


@pytest.mark.parametrize("marks", ["", "b", "b0AF7", "0AF7"])
def test_its_trace_is_kept_but_not_when_it_was_submitted_first(world, marks):
    die(world, marks=f"{marks}@19C")
    world.admit(replay_of("a"))
    assert world.job("a").get("marks", "") == marks
    (claim,) = world.claim("c").claims
    assert claim.marks == marks


def test_who_promised_at_most_once_promises_it_anew(world):
    die(world, how="crashed")
    world.admit(replay_of("a"))
    assert world.job("a")["once"] == "1"


def test_the_one_who_replays_it_is_who_waits_for_it(world):
    die(world)
    world.admit(replay_of("a", token="w:pC.9"))
    assert world.leave(("a", "w:pC.9")) == ["cancelled"]


def test_it_wakes_a_worker(world):
    die(world)
    world.seed_worker("p", parked=61_000)
    world.admit(replay_of("a"))
    assert world.get("wake") == ["1"]


def test_under_fifo_it_arrives_now(world):
    die(world)
    world.order = "fifo"
    world.now += 50
    world.admit(replay_of("a"))
    assert [*world.get("ready").values()] == [T0 + 50]


# It is refused like any submit, and stays among the dead.


@pytest.mark.parametrize("verdict", ["paused", "expired", "full", "unmeetable", "malformed"])
def test_it_passes_all_that_a_submit_passes(world, verdict):
    die(world)
    made = replay_of("a", within=500)
    match verdict:
        case "paused":
            world.run(scripts.pause(paused=True))
        case "expired":
            made = made._replace(deadline_ms=world.now)
        case "full":
            world.capacity = 1
            world.seed_job("b")
        case "unmeetable":
            world.seed_service("t", 1_000, 2_000)
            world.client.zadd(world.key("probes"), {f"x{i}": T0 + 99_999 for i in range(9)})
        case "malformed":
            made = made._replace(deadline_ms="soon")
    with world.changes() as changed:
        assert world.verdict(made) == verdict
    assert changed.keys() <= {"stats"}
    assert [job.id for job, _ in world.dead()] == ["a"]


@pytest.mark.parametrize(
    "state",
    ["ready", "later", "running", "suspect", "strange", "done", "cancelled", "expired", None],
)
def test_what_is_not_among_the_dead_is_refused(world, state):
    world.seed_worker("d")
    if state in ("done", "cancelled", "expired"):
        world.seed_ended("a", state, data="args")
    elif state:
        world.seed_job("a", state=state, owner="d")
    with world.changes() as changed:
        assert world.verdict(replay_of("a")) == "not_dead"
    assert changed.keys() == {"stats"}
    assert world.counters()["rejected:not_dead"] == 1


@pytest.mark.parametrize("gone", ["job", "data"])
def test_what_cannot_be_run_any_more_is_refused(world, gone):
    die(world, payload=LARGE)
    world.client.delete(world.key(f"{gone}:a"))
    assert world.verdict(replay_of("a")) == "not_dead"
    assert world.get("due") is None


def test_a_replay_of_nothing_is_malformed(world):
    assert world.verdict(replay_of("")) == "malformed"


def test_one_that_the_list_has_no_room_for_cannot_be_replayed(world):
    die(world, "a", seq=1)
    for i in range(1_000):
        world.client.zadd(world.key("dead"), {f"f{i}": T0 + 1 + i})
    world.now += 5_000
    die(world, "b", seq=2)
    assert world.verdict(replay_of("a")) == "not_dead"
    assert world.verdict(replay_of("b")) == "admitted"


def test_an_older_one_leaves_the_list_with_the_next_that_dies(world):
    die(world, "a", seq=1)
    world.client.persist(world.key("job:a"))
    world.now += RETENTION
    die(world, "b", seq=2, deadline=RETENTION + 9_000)
    assert world.get("dead").keys() == {"b"}


# Replays of the same.


def test_of_two_replays_one_is_the_admission_and_the_other_a_duplicate(world):
    die(world)
    one, other = replay_of("a", token="w:pC.8"), replay_of("a", within=15_000, token="w:pC.9")
    assert world.admit(one, other) == [
        ("admitted", T0 + 10_000, 0),
        ("duplicate", T0 + 15_000, 0),
    ]
    assert world.get("due") == {"a": T0 + 15_000}
    assert world.counters()["admitted"] == 1
    assert world.leave(("a", "w:pC.8")) == ["awaited"]


def test_one_that_comes_while_it_runs_attaches(world):
    die(world)
    world.admit(replay_of("a", token="w:pC.8"))
    world.claimed("c")
    assert world.verdict(replay_of("a", token="w:pC.9")) == "duplicate"
    assert world.state("a") == "running"


@pytest.mark.parametrize("others", [0, 50])
def test_one_that_comes_when_the_first_has_run_out_is_refused_whether_swept_or_not(world, others):
    die(world)
    for i in range(others):
        world.seed_job(f"e{i}", deadline=50, seq=i)
    world.admit(replay_of("a", within=100, token="w:pC.8"))
    world.now += 100
    assert world.verdict(replay_of("a", within=9_000, token="w:pC.9")) == "not_dead"
    assert world.state("a") == ("ready" if others else "expired")


def test_one_that_comes_while_it_runs_past_its_time_attaches_like_a_submit(world):
    die(world)
    world.admit(replay_of("a", within=100, token="w:pC.8"))
    world.claimed("c")
    world.now += 100
    assert world.verdict(replay_of("a", within=9_000, token="w:pC.9")) == "duplicate"
    assert world.get("due") == {"a": T0 + 9_000}


@pytest.mark.parametrize("since", ["at once", "running", "done", "failed"])
def test_the_same_call_once_more_is_one_replay(world, since):
    die(world)
    made = replay_of("a")
    first = world.admit(made)
    if since != "at once":
        (claim,) = world.claim("c").claims
        if since != "running":
            world.finish("c", settlement("a", since, fence=claim.fence))
    with world.changes() as changed:
        assert world.admit(made) == first
    assert changed.keys() == {"stats"}


def test_it_may_die_and_be_replayed_again(world):
    die(world)
    for i in range(3):
        assert world.verdict(replay_of("a", token=f"w:pC.a{i}")) == "admitted"
        (claim,) = world.claim("c", 10 + i).claims
        assert world.finish("c", settlement("a", "failed", fence=claim.fence)) == ["failed"]
    assert [job.id for job, _ in world.dead()] == ["a"]


def test_a_submit_of_the_same_key_meets_the_replayed_job(world):
    die(world)
    world.admit(replay_of("a"))
    assert world.verdict(submission("a", token="w:pC.2")) == "duplicate"
    assert world.verdict(submission("a", token="w:pC.3", fingerprint=b"x")) == "key_reused"


def test_a_life_that_a_submit_began_owes_nothing_to_an_earlier_replay(world):
    die(world, how="exceeded")
    world.admit(replay_of("a", within=100, token="w:pC.9"))
    world.now += 100
    assert world.verdict(submission("a", within=9_000, token="w:pC.2")) == "admitted"
    assert world.verdict(replay_of("a", token="w:pC.8")) == "not_dead"


@pytest.mark.parametrize("field", ["task", "fingerprint"])
def test_a_submit_that_lacks_one_of_the_two_is_no_replay(world, field):
    die(world)
    value = b"" if field == "fingerprint" else ""
    verdict = world.verdict(submission("a", token="w:pC.2")._replace(**{field: value}))
    assert verdict == ("key_reused" if field == "fingerprint" else "malformed")


def test_many_replays_and_submits_in_one_call(world):
    for i, ident in enumerate("abd"):
        die(world, ident, seq=i)
    made: list[Submission] = [
        replay_of("a"), submission("e"), replay_of("f"), replay_of("b"), replay_of("d"),
    ]  # fmt: skip
    verdicts = [verdict for verdict, *_ in world.admit(*made)]
    assert verdicts == ["admitted", "admitted", "not_dead", "admitted", "admitted"]
    assert world.order_of() == ["a", "e", "b", "d"]
    assert world.get("due").keys() == {*"aebd"}
    world.seed_worker("c", lease=LEASE)
    assert world.claimed("c", 99, 9) == ["a", "e", "b", "d"]
