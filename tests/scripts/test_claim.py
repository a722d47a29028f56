"""claim: expiry first, then the earliest latest start; owner, attempt, fence; repeats; parking."""

import pytest

from deadq.store import scripts
from tests.scripts.world import (
    BRIEF,
    LEASE,
    RETENTION,
    T0,
    settlement,
    submission,
    with_argument,
)

# Which jobs, and in what order.


def test_the_earliest_latest_start_comes_first(world):
    world.seed_worker("c", slots=3)
    world.seed_job("a", deadline=9_000, estimate=100, seq=1)  # 8,900
    world.seed_job("b", deadline=8_950, estimate=10, seq=2)  # 8,940
    world.seed_job("c", deadline=9_500, estimate=700, seq=3)  # 8,800
    assert world.claimed("c", 1, 3) == ["c", "a", "b"]


def test_equal_ones_come_in_the_order_of_their_arrival(world):
    world.seed_worker("c", slots=40)
    idents = [f"{(i * 7) % 40:02}" for i in range(40)]
    world.admit(*(submission(ident) for ident in idents))
    assert world.claimed("c", 1, 40) == idents


def test_arrivals_are_told_apart_beyond_sixteen_and_beyond_a_million(world):
    world.client.hset(world.key("stats"), "admitted", 16**5 - 2)
    world.seed_worker("c", slots=4)
    world.admit(*(submission(ident) for ident in "dbca"))
    assert world.claimed("c", 1, 4) == ["d", "b", "c", "a"]


def test_under_fifo_the_first_to_arrive_comes_first(world):
    world.order = "fifo"
    world.seed_worker("c", slots=3)
    for i, (ident, within) in enumerate([("b", 9_000), ("a", 500), ("c", 7_000)]):
        world.now = T0 + i
        world.admit(submission(ident, within=within))
    assert world.claimed("c", 1, 3) == ["b", "a", "c"]


def test_a_job_given_back_keeps_its_place_among_equals(world):
    world.seed_worker("c", slots=3)
    world.seed_worker("d", slots=3)
    world.admit(*(submission(ident) for ident in "abc"))
    assert world.claimed("d") == ["a"]
    world.release("d")
    assert world.claimed("c", 1, 3) == ["a", "b", "c"]


@pytest.mark.parametrize(("want", "got"), [(0, 0), (1, 1), (2, 2), (9, 3)])
def test_never_more_than_wanted(world, want, got):
    world.seed_worker("c", slots=9)
    for i in range(3):
        world.seed_job(f"e{i}", seq=i)
    assert len(world.claimed("c", 1, want)) == got
    assert len(world.get("ready") or ()) == 3 - got


# What a claim writes and brings.


def test_a_claim_names_owner_attempt_and_fence(world):
    world.seed_worker("c", parked=61_000)
    world.seed_job("a", deadline=9_000)
    with world.changes() as changed:
        (claim,) = world.claim("c", 5).claims
    assert changed.keys() == {
        "job:a",
        "ready",
        "run:c",
        "fence",
        "worker:c",
        "stats",
        "parked",
        "budget",
    }
    assert changed["budget"] == {f"f{T0 // 500}": "1"}
    record = world.job("a")
    expected = {"state": "running", "owner": "c", "claim": "5", "attempt": "1"}
    assert expected.items() <= record.items()
    assert record["fence"] == str(claim.fence) == world.get("fence") == str(T0 * 1000)
    assert world.places("a") == {"due", "run:c"}
    assert world.get("worker:c")["claim"] == "5"
    assert world.counters() == {"started": 1}


def test_a_claim_brings_all_that_the_run_needs(world):
    world.seed_worker("c")
    world.now += 10
    world.seed_job(
        "a", deadline=9_000, fails=1, attempt=3, payload="p" * 500, **{"u:pay": "done 1"}
    )
    (claim,) = world.claim("c").claims
    assert (claim.id, claim.key, claim.task) == ("a", "key-a", "t")
    assert (claim.deadline_ms, claim.attempt, claim.fails) == (T0 + 9_000, 4, 1)
    assert claim.payload == b"p" * 500


@pytest.mark.parametrize(
    ("last", "first"),
    [
        (None, T0 * 1000),
        (T0 * 1000 - 5, T0 * 1000),
        (T0 * 1000, T0 * 1000 + 1),
        (T0 * 1000 + 10**9, T0 * 1000 + 10**9 + 1),  # the server's clock was set back
    ],
)
def test_fences_follow_the_last_one_and_the_clock_whichever_is_more(world, last, first):
    if last is not None:
        world.client.set(world.key("fence"), last)
    world.seed_worker("c", slots=3)
    for i in range(3):
        world.seed_job(f"e{i}", seq=i)
    claims = world.claim("c", 1, 3).claims
    assert [claim.fence for claim in claims] == [first, first + 1, first + 2]
    assert world.get("fence") == str(first + 2)
    assert world.client.ttl(world.key("fence")) == -1, "the last fence is never forgotten"


def test_an_empty_claim_uses_up_no_fence(world):
    world.seed_worker("c")
    with world.changes() as changed:
        assert world.claimed("c", 3) == []
    assert changed.keys() <= {"worker:c"}


# Expiry before anything else.


@pytest.mark.parametrize(("left", "starts"), [(-1, False), (0, False), (1, True)])
def test_a_job_whose_deadline_has_come_never_starts(world, left, starts):
    world.seed_worker("c", lease=50_000)
    world.seed_job("a", deadline=5_000)
    world.now = T0 + 5_000 - left
    assert world.claimed("c") == (["a"] if starts else [])
    assert world.state("a") == ("running" if starts else "expired")


@pytest.mark.parametrize("state", ["ready", "suspect", "later", "strange"])
@pytest.mark.parametrize(("units", "keeps"), [({}, BRIEF), ({"u:x": "done 1"}, RETENTION)])
def test_the_expired_leave_whole(world, state, units, keeps):
    world.seed_worker("c")
    world.seed_job("a", state=state, deadline=100, ready_at=50, payload="p" * 500, **units)
    world.now += 100
    assert world.claimed("c") == []
    assert world.state("a") == "expired"
    assert world.places("a") == set()
    assert world.payload("a") is None
    assert world.keeps("job:a", keeps)
    assert world.counters() == {"expired:queue": 1}


def test_a_great_many_expired_are_swept_in_bounded_steps(world):
    world.seed_worker("c")
    for i in range(250):
        world.seed_job(f"e{i}", deadline=100, seq=i)
    world.seed_job("a", deadline=9_000, seq=999)
    world.now += 100
    number = 1
    while world.claim("c", number, 0).more:
        number += 1
        assert number < 20
    assert number > 1, "a call does so much and says that there is more"
    assert world.get("due") == {"a": T0 + 9_000}
    assert world.claimed("c", number + 1) == ["a"]


def test_the_expired_are_never_handed_out_even_when_they_are_too_many_to_sweep(world):
    world.seed_worker("c", slots=10)
    for i in range(400):
        world.seed_job(f"e{i}", deadline=100, seq=i)
    world.now += 100
    for number in range(1, 9):
        assert world.claimed("c", number, 10) == []
    assert world.get("ready") is None


# Time enough: by the smaller of the estimate it was admitted with and today's.


def no_more_probes(world, n=1):
    world.client.zadd(world.key("probes"), {f"x{i}": T0 + 99_999 for i in range(n)})


@pytest.mark.parametrize(
    ("admitted_with", "p95", "least"),
    [
        (100, 100, 100),
        (100, 300, 100),  # it was admitted with less than it would be today
        (300, 100, 100),  # it has become quicker since
        (100, None, 0),  # nothing is known any more
        (0, 300, 0),  # a probe, or admitted by the cap only
    ],
)
def test_a_job_starts_until_its_latest_start(world, admitted_with, p95, least):
    world.seed_worker("c", slots=1, lease=50_000)
    no_more_probes(world)
    if p95:
        world.seed_service("t", p95 / 2, p95, at=9_000)
    world.seed_job("fade", deadline=9_000 + max(1, least) - 1, estimate=admitted_with, seq=1)
    world.seed_job("face", deadline=9_000 + max(1, least), estimate=admitted_with, seq=2)
    world.now += 9_000
    assert world.claimed("c", 1, 2) == ["face"]
    assert world.state("fade") == "expired"
    where = "unmeetable" if least else "queue"
    assert world.counters()[f"expired:{where}"] == 1


def test_todays_estimate_fades_like_that_of_admission(world):
    """p95 1,000 halves in 2 s; after 4 s it is 250."""
    world.seed_worker("c", lease=50_000)
    world.seed_service("t", 500, 1_000)
    no_more_probes(world)
    world.seed_job("fade", deadline=4_249, estimate=1_000, seq=1)
    world.seed_job("face", deadline=4_250, estimate=1_000, seq=2)
    world.now += 4_000
    assert world.claimed("c", 1, 2) == ["face"]


def test_one_probe_for_each_slot_and_span_here_too(world):
    """300 ms are left, the estimate is 1,000, and two slots are idle."""
    world.seed_worker("c", slots=2)
    world.seed_service("t", 500, 1_000)
    for i, ident in enumerate("abd", 1):
        world.seed_job(ident, deadline=300, estimate=1_000, seq=i)
    assert world.claimed("c", 1, 3) == ["a", "b"]
    assert world.job("a")["probe"] == world.job("b")["probe"] == "1"
    assert world.state("d") == "expired"
    assert world.counters()["expired:unmeetable"] == 1
    assert world.get("probes") == {"a": T0 + 300, "b": T0 + 300}


def test_only_a_slot_that_nothing_feasible_fills_is_idle(world):
    world.seed_worker("c", slots=2)
    world.seed_service("t", 500, 1_000)
    for i, ident in enumerate("ab", 1):
        world.seed_job(ident, deadline=300 + i, estimate=1_000, seq=i)
    world.seed_job("d", deadline=9_000, estimate=100, seq=3)
    assert world.claimed("c", 1, 2) == ["d", "a"]
    assert world.state("b") == "expired"


@pytest.mark.parametrize(("ends", "starts"), [(899, True), (900, True), (901, False)])
def test_the_span_of_a_probe_ends_and_frees_the_next(world, ends, starts):
    world.seed_worker("c", slots=1, lease=50_000)
    world.seed_service("t", 500, 1_000, at=900)
    world.client.zadd(world.key("probes"), {"old": T0 + ends})
    world.seed_job("a", deadline=1_800, estimate=1_000)
    world.now += 900
    assert world.claimed("c") == (["a"] if starts else [])


def test_a_probe_never_passes_its_deadline(world):
    world.seed_worker("c", slots=5)
    world.seed_service("t", 500, 1_000)
    world.seed_job("a", deadline=0, estimate=1_000)
    assert world.claimed("c") == []
    assert world.state("a") == "expired"


def test_a_job_admitted_as_a_probe_starts_whatever_is_left(world):
    world.seed_worker("c", slots=1)
    world.seed_service("t", 400, 1_000)
    assert world.verdict(submission("a", within=300)) == "admitted"
    world.now += 299
    world.seed_service("t", 400, 1_000, at=299)
    assert world.claimed("c") == ["a"]
    assert world.job("a")["probe"] == "1"


# Jobs that this worker, or no worker, knows.


def test_what_another_worker_knows_is_left_where_it_is(world):
    world.seed_worker("c", "t")
    world.seed_worker("d", "other")
    world.seed_job("a", task="other", deadline=5_000, seq=1)
    world.seed_job("b", task="t", deadline=9_000, seq=2)
    assert world.claimed("c", 1, 5) == ["b"]
    assert world.state("a") == "ready"
    assert world.claimed("d", 1, 5, "other") == ["a"]


def test_many_jobs_for_others_do_not_hide_ones_own(world):
    world.seed_worker("c", "t")
    world.seed_worker("d", "other")
    for i in range(200):
        world.seed_job(f"e{i}", task="other", deadline=5_000, seq=i)
    world.seed_job("ace", task="t", deadline=9_000, seq=999)
    assert world.claimed("c", 1, 1) == ["ace"]


def test_what_no_living_worker_knows_is_set_apart(world):
    world.seed_worker("c", "t")
    world.seed_worker("gone", "other", lease=0)
    world.seed_job("a", task="other", deadline=5_000)
    assert world.claimed("c") == []
    assert world.state("a") == "strange"
    assert world.get("strange") == {"a": T0 + 5_000}
    assert world.places("a") == {"due", "strange"}
    assert world.counters()["strange"] == 1


@pytest.mark.parametrize(("other_knows", "state"), [(1, "strange"), (2, "ready"), (3, "ready")])
def test_a_newer_record_waits_for_one_that_knows_it(world, other_knows, state):
    world.seed_worker("c", "t", version=1)
    world.seed_worker("d", "t", version=other_knows)
    world.seed_job("fee", version=2, seq=1)
    world.seed_job("ada", version=1, seq=2)
    assert world.claimed("c", 1, 5) == ["ada"]
    assert world.state("fee") == state
    newer = scripts.claim("d", 1, 5, retention_ms=RETENTION, park=False, tasks=["t"])
    newer = with_argument(newer, 6, other_knows)
    brought = [claim.id for claim in world.run(newer).claims]
    assert brought == (["fee"] if state == "ready" else [])


def test_a_strange_job_takes_its_place_again_when_one_who_knows_it_registers(world):
    world.seed_worker("c", "t")
    world.seed_job("a", task="other", deadline=5_000, estimate=100, seq=3)
    world.claimed("c")
    world.register("d", "other")
    assert world.get("ready") == {"0000000003:a": T0 + 4_900}
    assert world.claimed("d", 1, 1, "other") == ["a"]


# Jobs for later.


@pytest.mark.parametrize("delayed", [False, True])
def test_what_has_fallen_due_is_claimed_at_once_and_not_before(world, delayed):
    world.seed_worker("c")
    world.seed_job("a", state="later", ready_at=500, delayed=delayed, estimate=40)
    world.now += 499
    assert world.claimed("c", 1) == []
    assert world.state("a") == "later"
    world.now += 1
    assert world.claimed("c", 2) == ["a"]
    assert world.places("a") == {"due", "run:c"}


def test_what_has_fallen_due_stands_by_its_latest_start_like_all_others(world):
    world.seed_worker("c", slots=3)
    world.seed_job("a", state="later", ready_at=500, deadline=9_000, seq=1)
    world.seed_job("b", deadline=8_000, seq=2)
    world.now += 500
    assert world.claimed("c", 1, 2) == ["b", "a"]


# Who may claim.


def test_a_child_that_never_registered_is_refused(world):
    world.seed_job("a")
    with world.changes() as changed:
        assert not world.claim("nobody").known
    assert changed == {}


@pytest.mark.parametrize(("at", "known"), [(LEASE - 1, True), (LEASE, False)])
def test_a_child_whose_lease_has_lapsed_is_refused_even_before_it_is_swept(world, at, known):
    world.seed_worker("c", lease=LEASE)
    world.seed_job("a")
    world.now += at
    assert world.claim("c").known is known
    assert world.state("a") == ("running" if known else "ready")


# Lapsed leases.


def test_jobs_of_a_child_whose_lease_has_lapsed_are_handed_out_anew(world):
    world.seed_worker("dead", lease=100)
    world.seed_worker("c")
    world.seed_job("a", state="running", owner="dead", fence=7)
    world.now += 100
    (claim,) = world.claim("c").claims
    assert (claim.id, claim.attempt) == ("a", 2)
    assert claim.fence > 7
    assert world.places("a") == {"due", "run:c"}
    assert world.get("workers").keys() == {"c"}
    assert world.get("worker:dead") is None


def test_jobs_of_a_child_are_not_taken_before_its_lease_lapses(world):
    world.seed_worker("slow", lease=100)
    world.seed_worker("c")
    world.seed_job("a", state="running", owner="slow", deadline=50)
    world.now += 99
    assert world.claimed("c") == []
    assert world.state("a") == "running", "its owner settles it, also past the deadline"


def test_a_job_taken_from_the_dead_stands_under_its_latest_attached_deadline(world):
    world.seed_worker("dead", lease=100)
    world.seed_worker("c")
    world.seed_job("a", state="running", owner="dead", deadline=50, due=9_000)
    world.now += 100
    (claim,) = world.claim("c").claims
    assert claim.deadline_ms == T0 + 9_000


def test_a_job_of_the_dead_that_is_past_its_time_ends(world):
    world.seed_worker("dead", lease=100)
    world.seed_worker("c")
    world.seed_job("a", state="running", owner="dead", deadline=50)
    world.now += 100
    assert world.claimed("c") == []
    assert world.state("a") == "exceeded"
    assert world.places("a") == set()


@pytest.mark.parametrize(("again", "state"), [({}, "cancelled"), ({"again": 1}, "running")])
def test_a_cancelled_job_of_the_dead_ends_unless_somebody_came_back(world, again, state):
    world.seed_worker("dead", lease=100)
    world.seed_worker("c")
    world.seed_job("a", state="running", owner="dead", cancel=1, **again)
    world.now += 100
    world.claimed("c")
    assert world.state("a") == state


# Repeats: the reply was lost, the same bytes come again.


def test_a_repeat_gets_the_same_jobs_under_the_same_fences(world):
    world.seed_worker("c", slots=2)
    for i in range(4):
        world.seed_job(f"e{i}", seq=i)
    first = world.claim("c", 1, 2)
    with world.changes() as changed:
        again = world.claim("c", 1, 2)
    assert changed == {}
    assert again._replace(claims=sorted(again.claims, key=lambda claim: claim.id)) == first


@pytest.mark.parametrize("ready", [0, 1])
def test_a_repeat_hears_the_same_about_parking(world, ready):
    world.seed_worker("c", slots=2)
    world.seed_job("a", state="later", ready_at=700)
    for i in range(ready):
        world.seed_job(f"e{i}", seq=i)
    first = world.claim("c", 1, 2, park=True)
    assert first.park_until_ms == T0 + 700
    assert world.claim("c", 1, 2, park=True) == first


def test_a_repeat_leaves_out_what_has_been_settled_since(world):
    world.seed_worker("c", slots=2)
    world.seed_job("a", seq=1)
    world.seed_job("b", seq=2)
    first = world.claim("c", 1, 2).claims
    world.finish("c", settlement("a", fence=first[0].fence))
    assert world.claimed("c", 1, 2) == ["b"]


def test_a_repeat_of_an_empty_claim_brings_nothing_that_came_later(world):
    """Whoever sends it again may have claimed under the next number meanwhile."""
    world.seed_worker("c")
    assert world.claimed("c", 1) == []
    world.seed_job("a")
    assert world.claimed("c", 1) == []
    assert world.claimed("c", 2) == ["a"]


def test_a_repeat_of_an_older_claim_brings_nothing(world):
    world.seed_worker("c", slots=2)
    world.seed_job("a", seq=1)
    world.seed_job("b", seq=2)
    assert world.claimed("c", 1) == ["a"]
    assert world.claimed("c", 2) == ["b"]
    with world.changes() as changed:
        assert world.claimed("c", 1) == []
    assert changed == {}


# Parking, and handing the token on.


@pytest.mark.parametrize(
    ("later", "until"), [([], 60_000), ([700], 700), ([900, 700], 700), ([90_000], 60_000)]
)
def test_with_nothing_to_do_it_parks_until_the_next_job_falls_due(world, later, until):
    world.seed_worker("c", lease=100_000)
    for i, at in enumerate(later):
        world.seed_job(f"e{i}", state="later", ready_at=at, deadline=99_000)
    assert world.claim("c", park=True).park_until_ms == T0 + until
    assert world.get("parked")["c"] >= T0 + until


def test_who_does_not_ask_for_it_is_not_parked(world):
    world.seed_worker("c")
    assert world.claim("c", park=False).park_until_ms == 0
    assert world.get("parked") is None


def test_with_all_slots_filled_it_is_not_parked(world):
    world.seed_worker("c")
    world.seed_job("a")
    assert world.claim("c", 1, 1, park=True).park_until_ms == 0
    assert world.get("parked") is None


def test_a_parked_child_that_claims_is_parked_no_longer(world):
    world.seed_worker("c", parked=61_000)
    world.seed_job("a")
    world.claim("c", 1, 1, park=True)
    assert world.get("parked") is None


@pytest.mark.parametrize(("jobs", "parked", "tokens"), [(1, 3, 0), (2, 3, 1), (9, 3, 3), (9, 0, 0)])
def test_the_token_is_handed_on_while_work_is_left(world, jobs, parked, tokens):
    world.seed_worker("c")
    for i in range(parked):
        world.seed_worker(f"p{i}", parked=61_000)
    for i in range(jobs):
        world.seed_job(f"e{i}", seq=i)
    assert len(world.claimed("c")) == 1
    assert world.client.llen(world.key("wake")) == tokens


@pytest.mark.parametrize("version", [1, 2])
def test_a_token_for_what_it_does_not_know_goes_by_name_to_one_that_does(world, version):
    world.seed_worker("c", "t", slots=2)
    world.seed_worker("deaf", "t", parked=61_000)
    world.seed_worker("p1", "t", "other", parked=61_001)
    world.seed_worker("p2", "t", "other", version=2, parked=61_002)
    world.seed_worker("p3", "t", "other", version=2, parked=61_003)
    world.seed_job("a", task="other", version=version)
    assert world.claimed("c") == []
    woken = "p1" if version == 1 else "p2"
    assert {n for n in world.dump() if n.startswith("ctl:")} == {f"ctl:{woken}"}
    assert world.get(f"ctl:{woken}") == [f"token {woken}"]
    assert world.get("parked").keys() == {"deaf", "p1", "p2", "p3"} - {woken}
    assert world.get("wake") is None


# Records that nobody of ours wrote.


def wrong_type(world):
    world.client.rpush(world.key("job:bad"), "x")
    world.client.zadd(world.key("due"), {"bad": T0 + 5_000})
    world.client.zadd(world.key("ready"), {"0000000001:bad": T0})


def with_field(field, value):
    def planting(world):
        world.seed_job("bad", deadline=5_000, seq=1)
        world.client.hset(world.key("job:bad"), field, value)

    planting.__name__ = f"{field}={value!r}"
    return planting


def without(field):
    def planting(world):
        world.seed_job("bad", deadline=5_000, seq=1)
        world.client.hdel(world.key("job:bad"), field)

    planting.__name__ = f"no_{field}"
    return planting


BAD_NUMBERS = ("", "nan", "-nan", "inf", "-inf", "1e999", "soon", "9" * 40, "None")
PLANTED = [
    wrong_type,
    *(with_field(field, bad) for field in ("deadline", "estimate", "born", "seq", "version")
      for bad in BAD_NUMBERS),
    *map(without, ("deadline", "born", "seq", "version", "state", "task")),
    with_field("state", "no such state"),
    with_field("state", ""),
]  # fmt: skip


@pytest.mark.parametrize("planting", PLANTED, ids=lambda planting: planting.__name__)
def test_a_planted_record_is_set_aside_and_the_healthy_job_runs(world, planting):
    world.seed_worker("c")
    planting(world)
    world.seed_job("feed", deadline=9_000, seq=2)
    assert world.claimed("c", 1, 1) == ["feed"]
    assert world.places("bad") == set()
    assert world.lasts("job:bad") > 0, "it goes by itself"
    with world.changes() as changed:
        assert world.claimed("c", 2, 1) == []
    assert changed.keys() <= {"worker:c"}, "nobody looks at it a second time"


@pytest.mark.parametrize(
    ("field", "value"),
    [("retries", "many"), ("fails", "few"), ("attempt", "first"), ("key", b"\xff\xfe")],
)
def test_odd_values_that_decide_nothing_do_not_keep_a_job_from_running(world, field, value):
    world.seed_worker("c")
    world.seed_job("a")
    world.client.hset(world.key("job:a"), field, value)
    (claim,) = world.claim("c").claims
    assert (claim.id, claim.attempt) == ("a", 1)


@pytest.mark.parametrize("name", ["later", "strange"])
def test_a_planted_record_elsewhere_is_set_aside_when_its_time_comes(world, name):
    world.seed_worker("c")
    world.client.hset(world.key("job:bad"), mapping={"state": name, "deadline": "nan"})
    world.client.zadd(world.key("due"), {"bad": T0 + 100})
    world.client.zadd(world.key(name), {"bad": T0 + 50})
    world.seed_job("feed", deadline=9_000)
    world.now += 100
    assert world.claimed("c", 1, 1) == ["feed"]
    assert world.places("bad") == set()
    assert world.lasts("job:bad") > 0


@pytest.mark.parametrize("member", ["a", "0000000009:a", "zz:a"])
@pytest.mark.parametrize("state", ["ready", "later", "running"])
def test_a_stray_member_of_ready_harms_no_healthy_job(world, member, state):
    world.seed_worker("c", slots=2)
    world.seed_worker("d")
    world.seed_job("a", state=state, owner="d", ready_at=900, seq=1)
    world.client.zadd(world.key("ready"), {member: T0})
    world.claimed("c", 1, 2)
    assert world.state("a") == ("later" if state == "later" else "running")
    assert world.get("ready") is None
    assert "a" in world.get("due")


@pytest.mark.parametrize("name", ["ready", "later", "strange"])
def test_an_id_without_a_record_is_skipped_and_forgotten(world, name):
    world.seed_worker("c", lease=9_000)
    world.client.zadd(world.key("due"), {"deaf": T0 + 5_000})
    member = "0000000001:deaf" if name == "ready" else "deaf"
    world.client.zadd(world.key(name), {member: T0})
    world.seed_job("feed", deadline=9_000, seq=2)
    assert world.claimed("c", 1, 1) == ["feed"]
    world.now += 5_000
    assert world.claimed("c", 2, 1) == []
    assert world.places("deaf") == set()
