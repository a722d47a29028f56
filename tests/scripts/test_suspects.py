"""Workers that die under their jobs: what counts against a job, and how it is run from then on."""

import pytest

from deadq.job import Departure
from deadq.store import scripts
from tests.scripts.world import LEASE, RETENTION, T0, renewal, settlement, submission, with_argument

LEAVES, KILLED, DIED = Departure.LEAVES, Departure.KILLED, Departure.DIED


def lapse(world):
    """The lease of c ends and somebody sweeps."""
    world.pass_time(LEASE)
    world.renew()


def go(world, how):
    """The child c is gone: its supervisor says how, or its lease lapses (``lapsed``)."""
    return lapse(world) if how == "lapsed" else world.release("c", how)


def seed_held(world, **fields):
    world.seed_worker("c", slots=4)
    world.seed_job("a", state="running", owner="c", **({"deadline": 60_000} | fields))


# What counts, and what becomes of the job.


@pytest.mark.parametrize(
    ("how", "crashes", "state", "counted"),
    [
        (LEAVES, 0, "ready", 0),
        (KILLED, 0, "ready", 0),
        (DIED, 0, "suspect", 1),
        ("lapsed", 0, "ready", 1),
        (LEAVES, 1, "ready", 1),
        (KILLED, 1, "ready", 1),
        (DIED, 1, "suspect", 2),
        ("lapsed", 1, "suspect", 2),
        (LEAVES, 2, "ready", 2),
        (KILLED, 2, "ready", 2),
        (DIED, 2, "crashed", 3),
        ("lapsed", 2, "crashed", 3),
    ],
)
def test_each_death_counts_and_the_third_is_the_last(world, how, crashes, state, counted):
    seed_held(world, estimate=100, seq=4, **({"crashes": crashes} if crashes else {}))
    go(world, how)
    record = world.job("a")
    assert record["state"] == state
    place = {"ready": "ready", "suspect": "suspects"}.get(state)
    assert world.places("a") == ({"due", place} if place else set())
    if place:
        assert world.get(place) == {"0000000004:a": T0 + 59_900}
        assert int(record.get("crashes", 0)) == counted
        assert record.get("alone") == ("1" if state == "suspect" else None)
    else:
        assert world.outcome("a") == str(counted)
    assert world.counters().get("reclaimed", 0) == (how in (DIED, "lapsed"))
    assert world.counters().get("finished:crashed", 0) == (state == "crashed")


@pytest.mark.parametrize("how", [DIED, "lapsed"])
def test_at_most_once_ends_with_the_first_death_of_either_kind(world, how):
    seed_held(world, once=1)
    go(world, how)
    assert world.state("a") == "crashed"
    assert world.outcome("a") == "1"
    assert world.get("dead") == {"a": world.now}


@pytest.mark.parametrize("how", [LEAVES, KILLED])
def test_at_most_once_is_not_touched_by_what_is_no_death(world, how):
    seed_held(world, once=1)
    go(world, how)
    assert world.state("a") == "ready"


@pytest.mark.parametrize("how", [LEAVES, KILLED, DIED, "lapsed"])
@pytest.mark.parametrize("fields", [{}, {"once": 1}, {"crashes": 2, "alone": 1}])
@pytest.mark.parametrize(
    ("why", "state"), [({"cancel": 1}, "cancelled"), ({"deadline": 1_000, "due": 0}, "exceeded")]
)
def test_what_nobody_wants_or_is_too_late_ends_as_ever(world, how, fields, why, state):
    seed_held(world, **fields, **why)
    go(world, how)
    assert world.state("a") == state
    assert world.places("a") == set()


def test_a_crash_at_a_cancel_that_was_taken_back_counts(world):
    seed_held(world, cancel=1, again=1)
    world.release("c", DIED)
    record = world.job("a")
    assert (record["state"], record["crashes"]) == ("suspect", "1")
    assert not {"owner", "claim", "cancel", "again"} & record.keys()


def test_it_waits_under_the_latest_attached_deadline(world):
    seed_held(world, deadline=9_000, due=70_000, estimate=50)
    world.release("c", DIED)
    assert world.job("a")["deadline"] == str(T0 + 70_000)
    assert world.get("suspects") == {"0000000001:a": T0 + 69_950}


def test_under_fifo_it_keeps_its_place_by_arrival(world):
    seed_held(world, fifo=1, born=-500)
    world.release("c", DIED)
    assert world.get("suspects") == {"0000000001:a": T0 - 500}


def test_all_jobs_of_the_dead_are_suspects_and_the_answer_tells_how_many_wait(world):
    world.seed_job("a", state="suspect", seq=1)
    world.seed_worker("c", slots=3)
    for i, ident in enumerate(["b", "d", "e"], 2):
        world.seed_job(ident, state="running", owner="c", seq=i)
    assert world.release("c", DIED) == 4
    assert world.order_of("suspects") == ["a", "b", "d", "e"]
    assert world.release("c", DIED) == 4, "the same call once more"
    assert [world.job(i)["crashes"] for i in "abde"] == ["1"] * 4
    assert world.release("nobody") == 4


def test_a_repeat_of_a_report_changes_nothing(world):
    seed_held(world)
    world.seed_worker("p", slots=2, parked=61_000)
    world.release("c", DIED)
    with world.changes() as changed:
        world.release("c", DIED)
    assert changed == {}


# Units that were open.


@pytest.mark.parametrize(
    ("how", "limit"), [(LEAVES, 30_000), (KILLED, 0), (DIED, 0), ("lapsed", 30_000)]
)
def test_open_units_are_in_doubt_at_once_where_the_child_is_known_to_be_dead(world, how, limit):
    seed_held(world, fence=7, **{"u:pay": f"begun 7 {T0} 30000 ab "})
    go(world, how)
    assert world.job("a")["u:pay"] == f"begun 7 {T0} {limit} ab "
    world.seed_worker("d", slots=1, lease=90_000)
    (claim,) = world.claim("d").claims
    begin = scripts.begin(
        "d", "a", claim.fence, "pay", "ab",
        needs_ms=0, limit_ms=1_000, on_doubt="fail", retention_ms=RETENTION,
    )  # fmt: skip
    assert world.run(begin).word == ("open" if limit else "doubt")


@pytest.mark.parametrize("how", [LEAVES, KILLED])
@pytest.mark.parametrize(("fence", "ran", "over"), [(7, 999, 0), (7, 1_000, 1), (6, 1_000, 0)])
@pytest.mark.parametrize("once", [{}, {"once": 1}])
def test_who_is_killed_for_a_unit_beyond_its_limit_charges_that_job(
    world, how, fence, ran, over, once
):
    seed_held(world, fence=7, seq=1, **{"u:pay": f"begun {fence} {T0} 1000 ab "}, **once)
    world.seed_job("b", state="running", owner="c", seq=2)
    world.now += ran
    world.release("c", how)
    charged = over and how is KILLED
    assert world.state("a") == (("crashed" if once else "suspect") if charged else "ready")
    assert world.state("b") == "ready"
    assert world.counters().get("reclaimed", 0) == charged


@pytest.mark.parametrize(
    "unit",
    [
        f"begun 6 {T0} 30000 ab ",  # of an earlier run, whose child may live
        f"done 7 {T0} 30000 ab it",
        f"raised 7 {T0} 30000 ab ",
        "no unit",
    ],
)
def test_other_units_are_left_as_they_are(world, unit):
    seed_held(world, fence=7, **{"u:pay": unit})
    world.release("c", DIED)
    assert world.job("a")["u:pay"] == unit


def test_a_late_record_of_the_dead_still_counts(world):
    """It was on its way when the child died."""
    seed_held(world, fence=7, **{"u:pay": f"begun 7 {T0} 30000 ab "})
    world.release("c", DIED)
    assert world.run(scripts.record("a", 7, "pay", "done", 5, b"it")) == "ok"
    assert world.job("a")["u:pay"] == f"done 7 {T0} 0 ab it"


def test_a_job_that_ends_keeps_its_unit_in_doubt_for_a_replay(world):
    seed_held(world, once=1, fence=7, **{"u:pay": f"begun 7 {T0} 30000 ab "})
    world.release("c", DIED)
    assert world.state("a") == "crashed"
    assert world.job("a")["u:pay"] == f"begun 7 {T0} 0 ab "


# Who runs a suspect.


@pytest.mark.parametrize(("slots", "got"), [(1, ["a"]), (2, ["b"]), (9, ["b"])])
def test_only_a_child_of_one_slot_and_before_all_others(world, slots, got):
    world.seed_worker("c", slots=slots)
    world.seed_job("b", deadline=5_000, seq=1)
    world.seed_job("a", state="suspect", deadline=9_000, seq=2)
    assert world.claimed("c", 1, slots) == got
    assert world.places("a") == {"due", "run:c" if slots == 1 else "suspects"}


def test_whatever_it_wants_a_suspect_comes_alone(world):
    world.seed_worker("c", slots=1)
    world.seed_job("a", state="suspect", deadline=9_000, seq=1)
    world.seed_job("ab", state="suspect", deadline=5_000, seq=2)
    world.seed_job("b", seq=3)
    assert world.claimed("c", 1, 5) == ["ab"]
    assert world.claimed("c", 2, 0) == []
    assert world.claimed("c", 3, 5) == ["a"]
    assert world.claimed("c", 4, 5) == ["b"]


@pytest.mark.parametrize(("left", "starts"), [(0, False), (1, True)])
def test_none_starts_when_its_deadline_has_come(world, left, starts):
    world.seed_worker("c", lease=50_000)
    world.seed_job("a", state="suspect", deadline=5_000)
    world.now = T0 + 5_000 - left
    assert world.claimed("c") == (["a"] if starts else [])
    assert world.state("a") == ("running" if starts else "expired")
    if not starts:
        assert world.places("a") == set()
        assert world.counters() == {"expired:queue": 1}


@pytest.mark.parametrize(("ready", "got"), [(False, ["a"]), (True, ["b"])])
def test_one_that_cannot_make_it_may_be_tried_by_an_idle_slot_only(world, ready, got):
    world.seed_worker("c", slots=1)
    world.seed_service("t", 500, 1_000)
    world.seed_job("a", state="suspect", deadline=300, estimate=1_000, seq=1)
    if ready:
        world.seed_job("b", seq=2)
    assert world.claimed("c", 1, 5) == got
    assert world.state("a") == ("expired" if ready else "running")


def test_two_that_cannot_make_it_are_not_tried_together(world):
    world.seed_worker("c", slots=1)
    world.seed_worker("d", slots=1)
    world.seed_service("t", 500, 1_000)
    world.seed_job("a", state="suspect", deadline=300, estimate=1_000, seq=1)
    world.seed_job("b", deadline=300, estimate=1_000, seq=2)
    assert world.claimed("c", 1, 5) == ["a"]
    assert world.state("b") == "expired"


def test_what_it_does_not_know_is_left_for_one_that_does(world):
    world.seed_worker("c", "t", slots=1)
    world.seed_worker("d", "t", "other", slots=1)
    world.seed_job("a", state="suspect", task="other", seq=1)
    world.seed_job("b", seq=2)
    assert world.claimed("c", 1, 1) == ["b"]
    assert world.state("a") == "suspect"
    assert world.claimed("d", 1, 1, "t", "other") == ["a"]


def test_a_newer_record_waits_for_one_that_knows_it(world):
    world.seed_worker("c", slots=1, version=1)
    world.seed_worker("d", slots=1, version=2)
    world.seed_job("a", state="suspect", version=2)
    assert world.claimed("c", 1, 1) == []
    assert world.state("a") == "suspect"
    newer = scripts.claim("d", 1, 1, retention_ms=RETENTION, park=False, tasks=["t"])
    assert [claim.id for claim in world.run(with_argument(newer, 6, 2)).claims] == ["a"]


def test_what_nobody_knows_is_set_apart_and_comes_back_as_a_suspect(world):
    world.seed_worker("c", "t", slots=1)
    world.seed_worker("p", "other", slots=1)
    world.client.zadd(world.key("workers"), {"p": T0 - 1})
    world.seed_job("a", state="suspect", task="other", estimate=100, seq=3)
    world.claimed("c")
    assert world.places("a") == {"due", "strange"}
    world.register("d", "other", slots=3)
    assert world.get("suspects") == {"0000000003:a": T0 + 9_900}
    assert world.state("a") == "suspect"
    assert world.claimed("d", 1, 3, "other") == []


def test_a_repeat_of_its_claim_brings_it_again(world):
    world.seed_worker("c", slots=1)
    world.seed_job("a", state="suspect")
    first = world.claim("c", 1, 1)
    with world.changes() as changed:
        assert world.claim("c", 1, 1) == first
    assert changed == {}


@pytest.mark.parametrize("member", ["a", "0000000009:a", "zz:a"])
@pytest.mark.parametrize("state", ["ready", "later", "running", "suspect"])
def test_a_stray_among_the_suspects_harms_no_healthy_job(world, member, state):
    world.seed_worker("c", slots=1)
    world.seed_worker("d", slots=3)
    world.seed_job("a", state=state, owner="d", ready_at=900, seq=1)
    world.client.zadd(world.key("suspects"), {member: T0})
    world.claimed("c", 1, 1)
    assert world.state("a") == ("later" if state == "later" else "running")
    assert world.get("suspects") is None
    assert "a" in world.get("due")


def test_a_suspect_that_stands_under_a_wrong_name_only_is_run_all_the_same(world):
    world.seed_worker("c", slots=1)
    world.seed_job("a", state="suspect", seq=1)
    world.client.delete(world.key("suspects"))
    world.client.zadd(world.key("suspects"), {"0000000009:a": T0})
    assert [*world.claimed("c", 1, 1), *world.claimed("c", 2, 1)] == ["a"]
    assert world.get("suspects") is None


@pytest.mark.parametrize("planted", ["wrong type", "bad number", "no record"])
def test_a_planted_suspect_is_set_aside_and_the_healthy_one_runs(world, planted):
    world.seed_worker("c", slots=1)
    world.seed_job("feed", state="suspect", seq=2)
    world.client.zadd(world.key("suspects"), {"0000000001:bad": T0})
    world.client.zadd(world.key("due"), {"bad": T0 + 900})
    if planted == "wrong type":
        world.client.rpush(world.key("job:bad"), "x")
    elif planted == "bad number":
        world.client.hset(world.key("job:bad"), mapping={"state": "suspect", "deadline": "nan"})
    assert world.claimed("c") == ["feed"]
    assert world.places("bad") == set()


# Once a suspect, always one.


def seed_alone(world, **fields):
    world.seed_worker("c", slots=1)
    world.seed_job("a", state="running", owner="c", crashes=1, alone=1, **fields)


@pytest.mark.parametrize("outcome", ["release", "unrun", "retry"])
def test_it_never_goes_back_among_the_others(world, outcome):
    seed_alone(world)
    assert world.finish("c", settlement("a", outcome)) == ["suspect"]
    assert world.places("a") == {"due", "suspects"}
    assert world.job("a")["crashes"] == "1"


def test_nor_after_a_delay(world):
    seed_alone(world)
    assert world.finish("c", settlement("a", "retry", delay=500)) == ["later"]
    world.now += 500
    world.seed_worker("d", slots=5)
    assert world.claimed("d", 1, 5) == []
    assert world.places("a") == {"due", "suspects"}
    assert world.claimed("c") == ["a"]


def test_nor_when_it_is_cut_and_others_have_attached(world):
    seed_alone(world, deadline=500, due=9_000)
    world.now += 500
    assert world.finish("c", settlement("a", "cut", cut=True)) == ["suspect"]


@pytest.mark.parametrize("how", [LEAVES, KILLED])
def test_nor_with_a_child_that_goes_in_order(world, how):
    seed_alone(world)
    assert world.release("c", how) == 1
    assert world.places("a") == {"due", "suspects"}


def test_nor_when_its_claim_was_lost(world):
    seed_alone(world, claim=3)
    world.renew(renewal("c", 3))
    assert world.places("a") == {"due", "suspects"}


def test_it_may_be_done_all_the_same(world):
    seed_alone(world)
    assert world.finish("c", settlement("a", blob=b"it")) == ["done"]
    assert world.outcome("a") == "it"
    assert not {"crashes", "alone"} & world.job("a").keys()


# Callers.


def test_one_more_caller_raises_its_deadline_where_it_stands(world):
    world.seed_job("a", state="suspect", deadline=5_000, estimate=100, seq=3)
    assert world.admit(submission("a", within=9_000, token="w:pC.2"))[0][0] == "duplicate"
    assert world.get("suspects") == {"0000000003:a": T0 + 8_900}
    assert world.get("ready") is None


def test_it_has_its_place_in_the_cap(world):
    world.capacity = 1
    world.seed_job("a", state="suspect", deadline=5_000)
    assert world.verdict(submission("b")) == "full"
    world.now += 5_000
    assert world.verdict(submission("b")) == "admitted"
    assert world.state("a") == "expired"


@pytest.mark.parametrize(("suspects", "verdict"), [(0, "admitted"), (1, "admitted")])
def test_it_takes_up_no_slot_of_those_that_are_idle(world, suspects, verdict):
    """Two slots, one at work: with an idle one a job is admitted by its p50 alone."""
    world.seed_worker("c", slots=2, lease=90_000)
    world.seed_service("t", 400, 5_000)
    world.seed_mean(400, 0)
    world.seed_job("b", state="running", owner="c", seq=1)
    for i in range(suspects):
        world.seed_worker("gone")
        world.seed_job("a", state="running", owner="gone", seq=2 + i)
        world.release("gone", DIED)
    assert world.verdict(submission("f", within=500)) == verdict


def test_two_at_work_leave_no_idle_slot_with_or_without_suspects(world):
    world.seed_worker("c", slots=2, lease=90_000)
    world.seed_service("t", 400, 5_000)
    world.seed_mean(400, 0)
    for i in range(2):
        world.seed_job(f"b{i}", state="running", owner="c", seq=i)
    world.seed_job("a", state="suspect", seq=7)
    assert world.verdict(submission("f", within=500)) == "unmeetable"


@pytest.mark.parametrize(("crash", "field"), [("", None), ("1", "1")])
def test_at_most_once_travels_with_the_record(world, crash, field):
    world.admit(submission("a", once=crash))
    assert world.job("a").get("once") == field
    world.seed_worker("c")
    world.claimed("c")
    world.release("c", DIED)
    assert world.state("a") == ("crashed" if crash else "suspect")


def test_the_outcome_of_one_that_crashed_is_kept_for_repeats(world):
    seed_held(world, once=1, payload="p" * 500)
    world.release("c", DIED)
    assert world.keeps("job:a", RETENTION)
    assert world.keeps_payload("a", RETENTION)
    with world.changes() as changed:
        assert world.verdict(submission("a", token="w:pC.2")) == "duplicate"
    assert changed.keys() == {"stats"}
    (sight,) = world.run(scripts.fetch(["a"]))
    assert (sight.state, sight.blob) == ("crashed", b"1")


# Waking those who can run it.


def parked(world, name, *tasks, slots=1, version=1):
    world.seed_worker(name, *(tasks or ("t",)), slots=slots, version=version, parked=61_000)


@pytest.mark.parametrize("how", ["release", "lapse", "finish", "later", "register", "renew"])
def test_a_parked_child_of_one_slot_is_woken_by_name(world, how):
    parked(world, "awide", slots=2)
    parked(world, "deaf", "other")
    parked(world, "old", version=0)
    parked(world, "p")
    parked(world, "p2")
    world.seed_worker("c", slots=2, lease=100 if how == "lapse" else 60_000)
    match how:
        case "release":
            world.seed_job("a", state="running", owner="c")
            world.release("c", DIED)
        case "lapse":
            world.seed_job("a", state="running", owner="c", crashes=1)
            world.now += 100
            world.seed_worker("d", slots=2)
            world.claim("d", 1, 2)
        case "finish":
            world.seed_job("a", state="running", owner="c", crashes=1, alone=1)
            world.finish("c", settlement("a", "release"))
        case "later":
            world.seed_job("a", state="later", ready_at=50, crashes=1, alone=1)
            world.now += 50
            world.claim("c", 1, 2)
        case "register":
            world.seed_job("a", state="strange", crashes=1, alone=1)
            world.register("d", "t", slots=2)
        case "renew":
            world.seed_job("a", state="suspect")
            world.renew(renewal("c"))
    assert world.places("a") == {"due", "suspects"}
    assert world.get("ctl:p") == ["token p"]
    assert 0 < world.lasts("ctl:p") <= 60_000
    assert world.get("wake") is None, "a token might be eaten by one that cannot use it"
    assert world.get("parked").keys() == {"awide", "deaf", "old", "p2"}
    assert [world.get(f"ctl:{name}") for name in ("awide", "deaf", "old", "p2")] == [None] * 4


@pytest.mark.parametrize(("suspects", "woken"), [(1, 1), (2, 2), (5, 3)])
def test_each_suspect_wakes_one(world, suspects, woken):
    for name in ("p0", "p1", "p2"):
        parked(world, name)
    world.seed_worker("c", slots=9)
    for i in range(suspects):
        world.seed_job(f"e{i}", state="running", owner="c", seq=i)
    world.release("c", DIED)
    assert len([n for n in ("p0", "p1", "p2") if world.get(f"ctl:{n}")]) == woken
    assert len(world.get("parked") or ()) == 3 - woken


def test_who_has_taken_one_wakes_the_next_for_another(world):
    world.seed_worker("c", slots=1)
    parked(world, "p")
    world.seed_job("a", state="suspect", seq=1)
    world.seed_job("b", state="suspect", seq=2)
    assert world.claimed("c") == ["a"]
    assert world.get("ctl:p") == ["token p"]


def test_who_has_taken_the_only_one_wakes_nobody(world):
    world.seed_worker("c", slots=1)
    parked(world, "p")
    world.seed_job("a", state="suspect")
    assert world.claimed("c") == ["a"]
    assert world.get("ctl:p") is None


def test_who_was_woken_and_wants_nothing_any_more_wakes_another(world):
    world.seed_worker("c", slots=1)
    parked(world, "p")
    world.seed_job("a", state="suspect")
    world.claim("c", 1, 0)
    assert world.get("ctl:p") == ["token p"]


def test_who_goes_unheard_may_have_been_the_one_that_was_woken(world):
    parked(world, "p")
    world.seed_worker("c", slots=1)
    world.client.rpush(world.key("ctl:c"), "token c")
    world.seed_job("a", state="suspect")
    world.release("c")
    assert world.get("ctl:p") == ["token p"]


def test_a_repeat_that_parks_has_a_suspect_looked_at(world):
    world.seed_worker("c", slots=1)
    world.claim("c", 1, 1, park=True)
    world.seed_job("a", state="suspect")
    assert world.claim("c", 1, 1, park=True).claims == []
    assert world.get("ctl:c") == ["token c"]


def test_what_it_does_not_know_does_not_wake_itself(world):
    world.seed_worker("c", "t", slots=1)
    world.seed_worker("busy", "other", slots=1)
    world.seed_job("a", state="suspect", task="other")
    assert world.claim("c", 1, 1, park=True).park_until_ms > T0
    assert world.get("ctl:c") is None


def test_jobs_that_go_back_to_all_wake_by_token_and_suspects_do_not(world):
    for name in ("p0", "p1", "p2"):
        parked(world, name, slots=2)
    world.seed_worker("c", slots=3, lease=100)
    world.seed_job("a", state="running", owner="c", seq=1)
    world.seed_job("b", state="running", owner="c", crashes=1, seq=2)
    world.now += 100
    world.register("d", slots=2)
    assert (world.state("a"), world.state("b")) == ("ready", "suspect")
    assert world.get("wake") == ["1"]


# How many wait.


def test_a_renewal_tells_how_many_suspects_wait(world):
    world.seed_worker("c", slots=1)
    assert world.renew(renewal("c")).suspects == 0
    world.seed_job("a", state="suspect", seq=1)
    world.seed_job("b", state="suspect", seq=2, deadline=100)
    assert world.renew(renewal("c")).suspects == 2
    world.now += 100
    answer = world.renew(renewal("c"))
    assert (answer.first_lapse_ms, answer.suspects) == (world.now + LEASE, 1)
    assert [child.known for child in answer.children] == [True]
    world.claimed("c")
    assert world.renew(renewal("c", 1, {"a": int(world.job("a")["fence"])})).suspects == 0


def test_others_look_for_suspects_only_while_there_may_be_some(world):
    seed_held(world)
    world.release("c", DIED)
    assert world.get("fleet")["suspects"] == "1"
    world.seed_worker("d", slots=1)
    world.claimed("d")
    world.renew()
    assert "suspects" not in world.get("fleet")


# Control lists.


@pytest.mark.parametrize(
    ("child", "name"), [("c", "c"), ("ab12.c3", "ab12"), ("ab12.c3.x", "ab12"), (".c", ".c")]
)
def test_children_of_a_post_share_its_control_list(world, child, name):
    world.seed_worker(child, slots=1, claim=1)
    world.seed_job("a", state="running", owner=child, fence=7, seq=1)
    unit = {"u:pay": f"begun 6 {T0} 30000 ab "}
    world.seed_job("b", state="running", owner=child, fence=9, seq=2, **unit)
    world.cancel("a")
    world.run(scripts.record("b", 6, "pay", "done", 5, b""))
    world.finish(child, settlement("a", "cancelled"), settlement("b", fence=9))
    call = scripts.claim(child, 2, 1, retention_ms=RETENTION, park=True, deaf=True, tasks=["t"])
    assert world.run(call).park_until_ms > T0
    world.seed_job("d", state="suspect", seq=3)
    world.renew(renewal(child, 2))
    words = ["cancel a 7", "unit b 9", f"parked {child}", f"token {child}"]
    assert world.get(f"ctl:{name}") == words
    assert [key for key in world.dump() if key.startswith("ctl:")] == [f"ctl:{name}"]


@pytest.mark.parametrize("how", [LEAVES, DIED, "lapsed"])
def test_a_shared_list_outlives_the_child(world, how):
    world.seed_worker("ab.c1", lease=LEASE)
    world.client.rpush(world.key("ctl:ab"), "token ab.c2")
    if how == "lapsed":
        lapse(world)
    else:
        world.release("ab.c1", how)
    assert world.get("ctl:ab") == ["token ab.c2"]
