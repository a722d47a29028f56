"""Hedged jobs: a straggler is started a second time, and the first success settles it."""

import pytest

from deadq.job import Departure
from deadq.store import scripts
from tests.scripts.world import T0, renewal, settlement, submission

P50, P95 = 40, 100
AT = T0 + 100  # T0 + p95, which happens to be a multiple of p95 // 8
SETS = ("stragglers", "hedges", "twice")
FAILURES = ("failed", "retry", "cut", "cancelled", "release", "unrun")


@pytest.fixture
def world(world):
    world.seed_service("t", P50, P95)
    world.admission = "cap"
    world.seed_earned()
    for child in ("a", "b", "c"):
        world.seed_worker(child, lease=60_000)
    return world


def run(world, ident="a0", child="a", number=1, **given):
    """A job of a hedged task begins to run."""
    given.setdefault("marks", "h")
    world.admit(submission(ident, **given))
    (claim,) = world.claim(child, number).claims
    assert claim.id == ident
    return claim


def straggle(world, ident="a0", **given):
    """It runs, and its instant has come."""
    claim = run(world, ident, **given)
    world.now = AT
    return claim


def hedge(world, **given):
    """Both runs of a straggler: that of ``a``, that of ``b``."""
    first = straggle(world, **given)
    (second,) = world.claim("b").claims
    assert second.id == first.id
    return first, second


def report(claim, outcome="done", **given):
    return settlement(claim.id, outcome, fence=claim.fence, **given)


def denied(world):
    return {n[13:]: v for n, v in world.counters().items() if n.startswith("hedge_denied:")}


def nothing_left(world, ident="a0"):
    assert not any(ident in (world.get(name) or {}) for name in SETS)
    assert not any(ident in (world.get(f"run:{child}") or ()) for child in "abc")


# When.


def test_an_idle_worker_gets_a_straggler_once_its_instant_has_come(world):
    first = run(world)
    assert world.get("stragglers") == world.get("hedges") == {"a0": AT}
    world.now = AT - 1
    assert world.claimed("b", 1) == []
    world.now = AT
    (second,) = world.claim("b", 2).claims
    assert second.fence > first.fence
    assert second._replace(fence=first.fence) == first
    assert second.attempt == 1
    assert world.get("twice") == {"a0": AT}
    assert world.counters()["started"] == 1
    assert world.counters()["hedged"] == 1
    assert sum(int(n) for f, n in world.get("budget").items() if f[0] == "f") == 1_001


def test_it_is_started_a_second_time_and_not_a_third(world):
    hedge(world)
    world.now += 5_000
    assert world.claimed("c", 1) == []


def test_a_repeated_claim_gets_the_second_run_once_more(world):
    _, second = hedge(world)
    with world.changes() as changed:
        assert world.claim("b").claims == [second]
    assert changed == {}


def test_what_waits_comes_first(world):
    straggle(world)
    world.admit(submission("b0"))
    assert world.claimed("b", 1) == ["b0"]


def test_a_child_with_slots_left_gets_both(world):
    world.seed_worker("d", slots=2, lease=60_000)
    straggle(world)
    world.admit(submission("b0"))
    assert world.claimed("d", 1, 2) == ["b0", "a0"]


def test_whose_service_time_nobody_knows_is_no_straggler(world):
    world.client.delete(world.key("service"))
    run(world)
    world.now += 5_000
    assert world.claimed("b", 1) == []
    assert "began" not in world.job("a0")


def test_instants_are_rounded_up_to_an_eighth_of_the_p95(world):
    world.now += 1
    run(world)
    assert world.get("hedges") == {"a0": AT + 12}


def test_the_p95_counts_as_it_was_measured_however_long_ago(world):
    """What fades for the sake of admission does not make everything a straggler."""
    world.now += 8_000
    run(world)
    assert world.now + P95 <= world.get("hedges")["a0"] < world.now + P95 * 9 / 8


@pytest.mark.parametrize(
    "case", ["own", "other task", "plain", "little time", "cancelled", "suspect", "crashed before"]
)
def test_what_is_not_started_a_second_time(world, case):
    match case:
        case "plain":
            straggle(world, marks="")
        case "little time":
            straggle(world, within=AT - T0 + P50)
        case "other task":
            straggle(world)
        case _:
            straggle(world)
    if case == "cancelled":
        world.cancel("a0")
    elif case == "suspect":
        world.client.hset(world.key("job:a0"), "alone", 1)
    elif case == "crashed before":
        world.client.hset(world.key("job:a0"), "crashes", 1)
    child, tasks = ("a", "t") if case == "own" else ("b", "u" if case == "other task" else "t")
    with world.changes() as changed:
        assert world.claimed(child, 2, 1, tasks) == []
    assert not {"job:a0", "twice"} & changed.keys()


def test_a_millisecond_more_than_the_p50_is_time_enough(world):
    hedge(world, within=AT - T0 + P50 + 1)


@pytest.mark.parametrize(("firsts", "hedges"), [(18, 0), (19, 1), (38, 1), (39, 2)])
def test_one_hedge_for_twenty_first_attempts(world, firsts, hedges):
    world.client.delete(world.key("budget"))
    world.seed_worker("d", slots=2, lease=60_000)
    world.admit(*(submission(f"a{i}", marks="h", within=10_000 + i) for i in range(2)))
    assert len(world.claim("d", 1, 2).claims) == 2
    world.now = AT
    world.seed_earned(firsts - 1)  # which makes, with the stragglers' own, one more
    given = [*world.claimed("b", 1), *world.claimed("c", 1)]
    assert len(given) == hedges
    if hedges < 2:
        assert denied(world)["share"] >= 1


def test_a_hedge_takes_a_token_of_the_retry_budget(world):
    world.client.hset(world.key("budget"), "rule", "0.1 0 10000")
    world.client.hincrby(world.key("budget"), f"s{world.now // 500}", 100)
    straggle(world)
    assert world.claimed("b", 1) == []
    assert denied(world) == {"budget": 1}


def test_one_that_was_denied_is_looked_at_again_when_it_has_run_twice_as_long(world):
    world.client.delete(world.key("budget"))
    straggle(world)
    assert world.claimed("b", 1) == []
    assert world.get("hedges") == {"a0": AT + (AT - T0)}
    assert world.get("stragglers") == {"a0": AT}
    world.seed_earned()
    assert world.claimed("b", 2) == []
    world.now = AT + (AT - T0)
    assert world.claimed("b", 3) == ["a0"]


@pytest.mark.parametrize(("late", "running", "given"), [(2, 2, 2), (3, 9, 0), (3, 30, 3)])
def test_where_all_are_slow_none_is_hedged(world, late, running, given):
    world.seed_worker("d", slots=50, lease=60_000)
    for i in range(running):
        if i == late:
            world.now = T0 + 50
        world.admit(submission(f"{i:02x}", marks="h", within=90_000))
        world.claim("d", 1 + i, 1)
    world.now = AT
    world.seed_worker("e", slots=50, lease=60_000)
    assert len(world.claimed("e", 1, 50)) == given
    assert denied(world) == ({} if given else {"slow": late})


def test_those_that_were_hedged_still_count_as_slow(world):
    for child, ident in (("a", "a0"), ("b", "b0"), ("c", "c0")):
        run(world, ident, child, within=90_000)
    for child in ("d", "e"):
        world.seed_worker(child, slots=9, lease=60_000)
    world.client.zadd(world.key("hedges"), {"b0": AT + 50, "c0": AT + 51})
    world.client.zadd(world.key("stragglers"), {"b0": AT + 50, "c0": AT + 51})
    world.now = AT
    assert world.claimed("d", 1, 9) == ["a0"]
    world.now = AT + 50
    assert world.claimed("d", 2, 9) == ["b0"]
    world.now = AT + 51
    assert world.claimed("d", 3, 9) == []
    assert denied(world) == {"slow": 1}


# How it ends.


@pytest.mark.parametrize("winner", [0, 1])
def test_the_first_success_settles_it(world, winner):
    runs = hedge(world)
    won, lost = runs[winner], runs[1 - winner]
    child, other = "ab"[winner], "ab"[1 - winner]
    assert world.finish(child, report(won, blob=b"r")) == ["done"]
    assert world.outcome("a0") == "r"
    assert world.job("a0")["fence"] == str(won.fence)
    assert world.get(f"ctl:{other}") == [f"outrun a0 {lost.fence}"]
    assert world.get(f"ctl:{child}") is None
    nothing_left(world)
    answer = world.renew(renewal(other, 1, {"a0": lost.fence}))
    assert answer.children[0].words == {"a0": "lost"}
    assert world.finish(other, report(lost, "cancelled")) == ["stale"]
    assert world.finish(child, report(won, blob=b"r")) == ["done"], "the same call once more"
    assert world.counters()["finished:done"] == 1
    assert world.counters().get("hedge_won", 0) == winner


def test_a_run_that_was_outrun_counts_as_one_that_was_cut_short(world):
    first, second = hedge(world)
    world.seed_histogram("t", {200: 1.0})
    world.now += 60
    world.finish("b", report(second, ms=60))
    lengths = world.histogram("t")
    assert len(lengths) == 2
    assert max(lengths) == 200, "the other one had run for 168 ms, and goes to what is longer"
    assert sum(lengths.values()) > 2.9
    assert first.fence


@pytest.mark.parametrize("outcome", [*FAILURES, "late"])
@pytest.mark.parametrize("loser", [0, 1])
def test_without_a_success_the_other_run_goes_on(world, outcome, loser):
    runs = hedge(world)
    out, other = runs[loser], runs[1 - loser]
    child, goes_on = "ab"[loser], "ab"[1 - loser]
    if outcome == "late":
        world.now = T0 + 10_000
    made = report(out, "done" if outcome == "late" else outcome, blob=b"e")
    assert world.finish(child, made) == ["running"]
    assert world.finish(child, made) == ["running"], "the same call once more"
    record = world.job("a0")
    assert (record["owner"], record["fence"]) == (goes_on, str(other.fence))
    assert not {"owner2", "fence2", "claim2", "began2", "fails"} & record.keys()
    assert world.places("a0") == {"due", f"run:{goes_on}"}
    assert not world.get("twice")
    assert "stale" not in world.counters()
    assert world.claimed("c", 1) == [], "it has had its second run"
    if outcome != "late":
        assert world.finish(goes_on, report(other)) == ["done"]
        nothing_left(world)


def test_of_two_failures_the_last_one_counts(world):
    first, second = hedge(world)
    world.finish("b", report(second, "failed", blob=b"fast"))
    assert world.finish("a", report(first, "failed", blob=b"slow")) == ["failed"]
    assert world.outcome("a0") == "slow"
    nothing_left(world)


def test_two_failed_runs_are_one_attempt(world):
    first, second = hedge(world)
    world.finish("a", report(first, "retry"))
    assert world.finish("b", report(second, "retry")) == ["ready"]
    assert world.job("a0")["fails"] == "1"
    assert world.counters()["retried"] == 1
    nothing_left(world)
    (again,) = world.claim("c").claims
    assert (again.attempt, again.fails) == (2, 1)
    assert world.get("hedges").keys() == {"a0"}


def test_a_retry_with_a_delay_leaves_nothing_behind(world):
    first, second = hedge(world)
    world.finish("a", report(first, "retry"))
    assert world.finish("b", report(second, "retry", delay=50)) == ["later"]
    nothing_left(world)
    assert not {"began", "left", "owner"} & world.job("a0").keys()


def test_cut_at_its_deadline_it_is_requeued_for_a_later_caller(world):
    first, second = hedge(world)
    world.admit(submission("a0", marks="h", within=20_000, token="w:pC.2"))
    world.now = T0 + 10_000
    assert world.finish("a", report(first, "cut", cut=True)) == ["running"]
    assert world.finish("b", report(second, "cut", cut=True)) == ["ready"]
    assert world.job("a0")["deadline"] == str(T0 + 20_000)


def test_cut_at_the_deadline_of_all_it_is_exceeded(world):
    first, second = hedge(world)
    world.now = T0 + 10_000
    made = [report(first, "cut", cut=True), report(second, "cut", cut=True)]
    assert world.finish("a", made[0]) == ["running"]
    assert world.finish("b", made[1]) == ["exceeded"]
    nothing_left(world)


# Cancelling, leaving, renewing.


def test_both_are_told_of_a_cancellation(world):
    first, second = hedge(world)
    assert world.leave(("a0", "w:pC.1")) == ["running"]
    assert world.get("ctl:a") == [f"cancel a0 {first.fence}"]
    assert world.get("ctl:b") == [f"cancel a0 {second.fence}"]
    held = [renewal("a", 1, {"a0": first.fence}), renewal("b", 1, {"a0": second.fence})]
    assert [child.words for child in world.renew(*held).children] == [{"a0": "cancel"}] * 2
    assert world.finish("b", report(second, "cancelled")) == ["running"]
    assert world.finish("a", report(first, "cancelled")) == ["cancelled"]
    nothing_left(world)


def test_renewals_keep_both_runs(world):
    first, second = hedge(world)
    held = [renewal("a", 1, {"a0": first.fence}), renewal("b", 1, {"a0": second.fence})]
    with world.changes() as changed:
        assert [child.words for child in world.renew(*held).children] == [{}, {}]
    assert not {"job:a0", *SETS, "run:a", "run:b"} & changed.keys()


@pytest.mark.parametrize("gone", [0, 1])
def test_a_run_that_its_child_does_not_hold_is_taken_from_it_alone(world, gone):
    runs = hedge(world)
    world.renew(renewal("ab"[gone], 1))
    assert world.job("a0")["owner"] == "ab"[1 - gone]
    assert world.state("a0") == "running"
    assert world.places("a0") == {"due", f"run:{'ab'[1 - gone]}"}
    assert world.finish("ab"[1 - gone], report(runs[1 - gone])) == ["done"]


def test_a_claim_whose_answer_is_lost_keeps_its_second_run(world):
    hedge(world)
    world.renew(renewal("b", 0))
    assert world.job("a0")["owner2"] == "b"


# Deaths.


@pytest.mark.parametrize("how", Departure)
@pytest.mark.parametrize("gone", [0, 1])
def test_where_one_child_goes_the_other_goes_on(world, how, gone):
    runs = hedge(world)
    world.release("ab"[gone], how)
    record = world.job("a0")
    assert (record["state"], record["owner"]) == ("running", "ab"[1 - gone])
    assert record.get("crashes") == ("1" if how == Departure.DIED else None)
    assert world.places("a0") == {"due", f"run:{'ab'[1 - gone]}"}
    assert world.finish("ab"[1 - gone], report(runs[1 - gone])) == ["done"]
    nothing_left(world)


def test_a_lapse_of_one_is_counted_too(world):
    hedge(world)
    world.client.zadd(world.key("workers"), {"a": world.now})
    world.renew(renewal("b", 1, {"a0": int(world.job("a0")["fence2"])}))
    assert world.job("a0")["crashes"] == "1"
    assert world.job("a0")["owner"] == "b"


def test_each_death_counts_and_poison_ends_as_it_would_alone(world):
    hedge(world)
    world.release("a", Departure.DIED)
    world.release("b", Departure.DIED)
    assert world.state("a0") == "suspect"
    assert world.job("a0")["crashes"] == "2"
    nothing_left(world)
    assert world.claimed("c", 1) == ["a0"]
    world.release("c", Departure.DIED)
    assert world.state("a0") == "crashed"


# Places and slots.


def test_it_has_one_place_in_the_cap_and_two_slots(world):
    hedge(world)
    world.capacity, world.admission = 2, "feasible"
    assert world.run(scripts.stats()).live == 1
    world.release("c")
    world.seed_mean(P50, 0)
    busy = submission("b0", within=world.now - T0 + P50 + 10)
    assert world.verdict(busy) == "unmeetable", "no slot is idle"
    assert world.verdict(submission("c0")) == "admitted"
    assert world.verdict(submission("d0")) == "full"


def test_both_workers_are_shown(world):
    hedge(world)
    for child, who in (("a", "h1:1"), ("b", "h2:2")):
        world.client.hset(world.key(f"worker:{child}"), "who", who)
    (listed,) = world.run(scripts.jobs("running", 9))
    assert listed.worker == "h1:1 h2:2"
    assert world.run(scripts.jobs("", 9)) == [listed]
    assert world.run(scripts.show("a0"))[0].worker == "h1:1 h2:2"


def test_a_replay_is_hedged_like_the_first_one(world):
    first = run(world)
    world.finish("a", report(first, "failed"))
    world.admit(submission("a0", task="", fingerprint=b"", token="w:pC.9"))
    (claim,) = world.claim("a", 2).claims
    assert claim.marks == "h"
    assert "a0" in world.get("hedges")


# Who wakes for it.


def parked(world, child, number, *tasks):
    return world.claim(child, number, 1, *tasks, park=True).park_until_ms


def test_an_idle_worker_parks_until_the_instant_and_the_next_ones_sleep_on(world):
    run(world)
    assert parked(world, "b", 1) == AT
    assert parked(world, "b", 1) == AT, "the same call once more"
    assert parked(world, "c", 1) == T0 + 60_000


def test_one_that_sleeps_past_it_is_woken_to_wait_anew(world):
    assert parked(world, "b", 1) == T0 + 60_000
    world.admit(submission("a0", marks="h"), submission("b0", marks="h", within=20_000))
    world.client.delete(world.key("wake"))
    assert world.claimed("a", 1) == ["a0"]
    assert world.get("wake") == ["1"]
    world.client.delete(world.key("wake"), world.key("ready"))
    assert parked(world, "b", 2) == AT
    world.client.zadd(world.key("ready"), {"0000000002:b0": T0})
    assert world.claimed("c", 1) == ["b0"]
    assert world.get("wake") is None, "somebody waits for it already"


def test_who_waited_for_it_and_is_busy_now_leaves_it_to_another(world):
    run(world)
    assert parked(world, "b", 1) == AT
    assert parked(world, "c", 1) == T0 + 60_000
    world.admit(submission("b0"))
    world.client.delete(world.key("wake"))
    assert world.claimed("b", 2) == ["b0"]
    assert world.get("wake") == ["1"]
    assert parked(world, "c", 2) == AT


def test_who_cannot_start_it_wakes_one_that_can(world):
    world.seed_worker("d", "u", lease=60_000)
    world.seed_worker("e", "u", lease=60_000, parked=61_000)
    run(world)
    world.client.zadd(world.key("parked"), {"b": T0 + 61_000})
    world.now = AT
    assert world.claimed("d", 1, 1, "u") == []
    assert world.get("ctl:b") == ["token b"]
    assert world.get("ctl:e") is None


def test_a_renewal_repeats_what_was_lost(world):
    straggle(world)
    world.client.zadd(world.key("parked"), {"b": T0 + 61_000})
    world.renew(renewal("a", 1, {"a0": int(world.job("a0")["fence"])}))
    assert world.get("wake") == ["1"]


# What is left of records that have gone.


def test_strays_go_when_they_are_met(world):
    straggle(world)
    world.client.delete(world.key("job:a0"))
    assert world.claimed("b", 1) == []
    assert not any(world.get(name) for name in SETS)
    straggler = {"ff": T0}
    for name in SETS:
        world.client.zadd(world.key(name), straggler)
    world.client.zadd(world.key("due"), straggler)
    world.renew(renewal("a", 1))
    nothing_left(world, "ff")


@pytest.mark.parametrize("planted", ["", "nan", "x"])
def test_garbage_in_its_place_stops_nobody(world, planted):
    straggle(world)
    world.client.hset(world.key("job:a0"), mapping={"began": planted, "marks": "h"})
    world.admit(submission("b0"))
    assert world.claimed("b", 1) == ["b0"]
    assert world.claimed("c", 1) == []
