"""finish: what becomes of a run, by its outcome and by what happened meanwhile."""

import pytest

from deadq.errors import StoreUnavailable
from deadq.store import scripts
from tests.scripts.world import (
    BRIEF,
    RETENTION,
    T0,
    UNIT_LIMIT,
    settlement,
    submission,
)

NOW = 1_000
"""When each run ends, in ms after T0; its own deadline is 1,500 unless a row says otherwise."""

SITUATIONS = {
    "in time": {"deadline": 1_500},
    "late": {"deadline": 1_000},
    "attached": {"deadline": 1_000, "due": 9_000},
    "cancelled": {"deadline": 1_500, "cancel": 1},
    "wanted again": {"deadline": 1_500, "cancel": 1, "again": 1},
}

EXPECTED = {
    # outcome: in time, late, attached, cancelled, wanted again
    "done": ("done", "exceeded", "done", "done", "done"),
    "failed": ("failed", "failed", "failed", "failed", "failed"),
    "retry": ("ready", "exhausted", "ready", "cancelled", "ready"),
    "release": ("ready", "exceeded", "ready", "cancelled", "ready"),
    "cut": ("exceeded", "exceeded", "ready", "cancelled", "exceeded"),
    "cancelled": ("cancelled", "cancelled", "cancelled", "cancelled", "ready"),
    "unrun": (None, "expired", "ready", "cancelled", "ready"),
}
"""None: the worker's clock was early; both to expire it and to give it back is right."""

ROWS = [
    (outcome, situation, state)
    for outcome, states in EXPECTED.items()
    for situation, state in zip(SITUATIONS, states, strict=True)
    if state
]

PAYLOAD = "p" * 300


def seed_run(world, ident="a", **fields):
    world.now = T0 + NOW
    world.seed_worker("c", slots=4)
    values = {"owner": "c", "payload": PAYLOAD, "deadline": 1_500, "seq": 3} | fields
    world.seed_job(ident, state="running", **values)


@pytest.mark.parametrize(("outcome", "situation", "state"), ROWS)
def test_what_becomes_of_a_run(world, outcome, situation, state):
    seed_run(world, **SITUATIONS[situation])
    assert world.finish("c", settlement("a", outcome, blob=b"it")) == [state]
    assert world.state("a") == state
    assert world.places("a") == ({"due", "ready"} if state == "ready" else set())
    assert world.get("run:c") is None


@pytest.mark.parametrize(("outcome", "situation", "state"), ROWS)
def test_the_same_call_once_more_changes_nothing_and_hears_the_same(
    world, outcome, situation, state
):
    seed_run(world, **SITUATIONS[situation])
    made = settlement("a", outcome, blob=b"it")
    assert world.finish("c", made) == [state]
    with world.changes() as changed:
        assert world.finish("c", made) == [state]
    assert changed == {}


@pytest.mark.parametrize(("outcome", "situation", "state"), {row[2]: row for row in ROWS}.values())
def test_a_record_with_more_units_than_unpack_takes_survives_its_end(
    world, outcome, situation, state
):
    units = {f"u:{n}": f"done 1 {T0} 30000 ab " for n in range(4_200)}
    seed_run(world, **SITUATIONS[situation], **units)
    assert world.finish("c", settlement("a", outcome, blob=b"it")) == [state]
    record = world.get("job:a")
    assert record["state"] == state
    assert units.items() <= record.items()


def test_a_run_whose_failure_cannot_be_listed_is_still_a_run(world):
    seed_run(world)
    world.client.set(world.key("dead"), "planted")
    with pytest.raises(StoreUnavailable, match="WRONGTYPE"):
        world.finish("c", settlement("a", "failed", blob=b"it"))
    assert (world.state("a"), world.places("a")) == ("running", {"due", "run:c"})


@pytest.mark.parametrize(("outcome", "situation", "state"), ROWS)
@pytest.mark.parametrize("units", [{}, {"u:pay": "done 1"}], ids=["no unit", "a unit"])
def test_what_is_kept_and_for_how_long(world, outcome, situation, state, units):
    seed_run(world, **SITUATIONS[situation], **units)
    world.finish("c", settlement("a", outcome, blob=b"it"))
    record = world.job("a")
    assert units.items() <= record.items(), "what has taken effect is remembered"
    assert {"key": "key-a", "fingerprint": "fp", "task": "t"}.items() <= record.items()
    if state == "ready":
        assert world.payload("a") == PAYLOAD
        assert world.lasts("job:a") > UNIT_LIMIT + RETENTION
        return
    replayable = state in ("failed", "exhausted", "exceeded")
    effectless = state in ("cancelled", "expired") and not units
    assert world.keeps("job:a", BRIEF if effectless else RETENTION)
    assert world.payload("a") == (PAYLOAD if replayable else None)
    if replayable:
        assert world.keeps_payload("a", RETENTION)
        assert world.get("dead") == {"a": T0 + NOW}
    else:
        assert world.get("dead") is None
    assert not {"owner", "claim", "cancel", "again", "probe"} & record.keys()


@pytest.mark.parametrize("outcome", ["done", "failed"])
@pytest.mark.parametrize("size", [0, 1, 64, 65, 5_000])
def test_a_result_of_any_size_is_kept_whole(world, outcome, size):
    seed_run(world)
    blob = bytes(range(256)) * 20
    world.finish("c", settlement("a", outcome, blob=blob[:size]))
    (sight,) = world.run(scripts.fetch(["a"]))
    assert sight.blob == blob[:size]
    if size > 64:
        assert world.keeps("result:a", RETENTION)


def test_several_reports_go_together_each_by_its_own_fence(world):
    seed_run(world, "a", fence=7)
    seed_run(world, "b", fence=8)
    seed_run(world, "x", fence=9)
    answers = world.finish(
        "c",
        settlement("a", "done", fence=7),
        settlement("b", "failed", fence=8),
        settlement("x", "done", fence=8),
        settlement("nobody", "done"),
    )
    assert answers == ["done", "failed", "stale", "gone"]
    assert world.state("x") == "running"
    assert world.places("x") == {"due", "run:c"}


# Who may finish.


@pytest.mark.parametrize("outcome", list(EXPECTED))
def test_a_stale_fence_is_refused(world, outcome):
    seed_run(world, fence=8)
    with world.changes() as changed:
        assert world.finish("c", settlement("a", outcome, fence=7)) == ["stale"]
    assert changed == {"stats": {"stale": "1"}}


@pytest.mark.parametrize("outcome", list(EXPECTED))
def test_another_child_is_refused(world, outcome):
    seed_run(world)
    world.seed_worker("d")
    with world.changes() as changed:
        assert world.finish("d", settlement("a", outcome)) == ["stale"]
    assert changed.keys() == {"stats"}


def test_the_owner_before_is_refused_when_somebody_else_has_the_job(world):
    seed_run(world)
    world.seed_worker("d", lease=60_000)
    world.now = T0 + 6_000  # the lease of c has lapsed
    world.client.zadd(world.key("due"), {"a": T0 + 9_000})
    (claim,) = world.claim("d").claims
    assert world.finish("c", settlement("a", "done")) == ["stale"]
    assert world.finish("d", settlement("a", "done", fence=claim.fence)) == ["done"]


def test_the_owner_may_finish_under_a_lapsed_lease_until_somebody_takes_the_job(world):
    seed_run(world, deadline=9_000)
    world.now = T0 + 6_000
    assert world.finish("c", settlement("a", "done")) == ["done"]


def test_an_earlier_life_cannot_settle_a_later_one(world):
    seed_run(world)
    world.finish("c", settlement("a", "cancelled"))
    assert world.verdict(submission("a", token="w:pC.2")) == "admitted"
    assert world.finish("c", settlement("a", "done")) == ["stale"]
    assert world.state("a") == "ready"


@pytest.mark.parametrize("planted", ["absent", "wrong type"])
def test_a_record_that_is_gone_is_let_go(world, planted):
    seed_run(world)
    world.client.delete(world.key("job:a"))
    if planted == "wrong type":
        world.client.rpush(world.key("job:a"), "x")
    assert world.finish("c", settlement("a")) == ["gone"]
    assert world.get("run:c") is None


# Going back.


@pytest.mark.parametrize("outcome", ["release", "cut", "unrun", "retry"])
def test_a_later_caller_gets_a_run_of_its_own_under_its_deadline(world, outcome):
    seed_run(world, deadline=1_000, due=9_000, estimate=100)
    world.finish("c", settlement("a", outcome))
    assert world.job("a")["deadline"] == str(T0 + 9_000)
    assert world.get("ready") == {"0000000003:a": T0 + 8_900}
    assert world.get("due") == {"a": T0 + 9_000}


@pytest.mark.parametrize(("outcome", "fails"), [("release", None), ("cut", None), ("retry", "1")])
def test_only_a_retry_is_charged(world, outcome, fails):
    seed_run(world, deadline=1_000, due=9_000)
    world.finish("c", settlement("a", outcome))
    assert world.job("a").get("fails") == fails


def test_under_fifo_it_goes_back_to_its_old_place(world):
    seed_run(world, fifo=1, born=-50)
    world.finish("c", settlement("a", "release"))
    assert world.get("ready") == {"0000000003:a": T0 - 50}


def test_a_job_that_goes_back_wakes_a_parked_worker(world):
    seed_run(world)
    world.seed_worker("p", parked=61_000)
    world.finish("c", settlement("a", "release"))
    assert world.get("wake") == ["1"]


def test_who_is_wanted_again_is_no_longer_cancelled(world):
    seed_run(world, cancel=1, again=1)
    world.finish("c", settlement("a", "cancelled"))
    assert not {"cancel", "again"} & world.job("a").keys()


# Retries.


@pytest.mark.parametrize(
    ("retries", "fails", "state"),
    [
        (0, 0, "exhausted"),
        (1, 0, "later"),
        (1, 1, "exhausted"),
        (2, 1, "later"),
        (2, 2, "exhausted"),
    ],
)
def test_a_retry_needs_a_try_that_is_left(world, retries, fails, state):
    seed_run(world, deadline=9_000, retries=retries, fails=fails)
    assert world.finish("c", settlement("a", "retry", delay=100, blob=b"why")) == [state]
    if state == "exhausted":
        assert world.outcome("a") == "why"


@pytest.mark.parametrize(("remaining", "state"), [(600, "exhausted"), (601, "later")])
def test_backoff_and_expected_service_have_to_fit_into_what_remains(world, remaining, state):
    """A backoff of 500 ms, and a p95 of 100 ms."""
    seed_run(world, deadline=NOW + remaining)
    world.seed_service("t", 40, 100, at=NOW)
    world.seed_histogram("t", {0: 0})
    made = settlement("a", "retry", delay=500, ms=100)
    assert world.finish("c", made) == [state]


def test_a_retry_waits_for_its_backoff_under_the_same_deadline(world):
    seed_run(world, deadline=9_000)
    world.finish("c", settlement("a", "retry", delay=250))
    assert world.get("later") == {"a": T0 + NOW + 250}
    assert world.get("delayed") is None, "backoff is counted apart from not_before"
    record = world.job("a")
    assert (record["state"], record["fails"], record["attempt"]) == ("later", "1", "1")
    assert record["deadline"] == str(T0 + 9_000), "nothing slides"
    assert not {"owner", "claim"} & record.keys()
    assert world.places("a") == {"due", "later"}


def test_a_retry_whose_backoff_a_parked_worker_would_sleep_past_wakes_it(world):
    seed_run(world, deadline=9_000)
    world.seed_worker("p", parked=61_000)
    world.finish("c", settlement("a", "retry", delay=250))
    assert world.get("wake") == ["1"]


# The list of the dead.


def seed_dead(world, n):
    """So many that have died before, the last of them a moment ago."""
    world.client.zadd(world.key("dead"), {f"e{i}": T0 + NOW - n + i for i in range(n)})


MOST_DEAD = 1_000


def test_the_dead_are_bounded_in_number_and_the_oldest_leave_first(world):
    seed_dead(world, MOST_DEAD - 1)
    for ident in ("e0", "e1"):
        world.seed_ended(ident, "failed", data="args")
    seed_run(world, "a")
    world.finish("c", settlement("a", "failed"))
    assert len(world.get("dead")) == MOST_DEAD
    seed_run(world, "b")
    world.finish("c", settlement("b", "failed"))
    assert len(world.get("dead")) == MOST_DEAD
    assert "e0" not in world.get("dead")
    assert [world.payload(ident) for ident in ("e0", "e1", "b")] == [None, "args", PAYLOAD]
    assert world.state("e0") == "failed", "its outcome is kept all the same"


def test_the_dead_are_bounded_in_age(world):
    world.client.zadd(world.key("dead"), {"old": T0 + NOW - RETENTION, "new": T0 + NOW})
    seed_run(world)
    world.finish("c", settlement("a", "failed"))
    assert world.get("dead").keys() == {"new", "a"}


@pytest.mark.parametrize("payload", ["short", PAYLOAD], ids=["short", "long"])
def test_a_second_life_keeps_its_payload_when_the_first_is_crowded_out(world, payload):
    seed_run(world, "a", retries=0, payload=payload)
    assert world.finish("c", settlement("a", "retry")) == ["exhausted"]
    world.admit(submission("a", token="w:pC.2", payload=payload.encode()))
    world.client.zadd(world.key("dead"), {"a": T0})  # even if it stood there still
    seed_dead(world, MOST_DEAD)
    seed_run(world, "b", fence=8)
    world.finish("c", settlement("b", "failed", fence=8))
    assert world.payload("a") == payload


# Telling those who wait.


@pytest.mark.parametrize("outcome", ["done", "failed", "cancelled", "unrun"])
def test_each_reply_channel_hears_once_of_the_end(world, outcome):
    seed_run(world, deadline=1_000, **{"w:pC.2": T0 + 900, "w:pD.1": T0 + 900})
    with world.client.pubsub(ignore_subscribe_messages=True) as heard:
        heard.subscribe(world.key("reply:C"), world.key("reply:D"), world.key("reply:E"))
        for _ in range(3):
            heard.get_message(timeout=1)
        world.finish("c", settlement("a", outcome))
        messages = [heard.get_message(timeout=1) for _ in range(2)]
        assert heard.get_message(timeout=0) is None
    channels = {message["channel"].decode().removeprefix(world.prefix) for message in messages}
    assert channels == {"reply:C", "reply:D"}
    assert {message["data"] for message in messages} == {b"a"}


@pytest.mark.parametrize("outcome", ["release", "retry"])
def test_nobody_hears_of_a_job_that_goes_on(world, outcome):
    seed_run(world)
    with world.client.pubsub(ignore_subscribe_messages=True) as heard:
        heard.subscribe(world.key("reply:C"))
        heard.get_message(timeout=1)
        world.finish("c", settlement("a", outcome))
        assert heard.get_message(timeout=0.01) is None


# Service times.


def take(world, *times, task="t", **options):
    """Runs that took ``times`` (ms)."""
    world.now = T0 + NOW
    with world.client.pipeline() as pipe:
        for i in range(len(times)):
            world.seed_job(
                f"{task}{i}", state="running", owner="c", task=task, fence=i, pipeline=pipe
            )
        pipe.execute()
    world.finish(
        "c",
        *(settlement(f"{task}{i}", fence=i, ms=ms, **options) for i, ms in enumerate(times)),
    )


def about(ms):
    """Buckets grow by a tenth, so a quantile is at most that much above what was measured."""
    return pytest.approx(ms * 1.05, rel=0.05)


def test_one_run_is_all_that_is_known(world):
    take(world, 10)
    assert world.quantiles("t") == (about(10), about(10))
    assert world.mean_and_sd() == (pytest.approx(10), pytest.approx(0, abs=0.1))


@pytest.mark.parametrize(
    ("times", "p50", "p95"),
    [
        ([10] * 9 + [1_000], 10, 1_000),
        (([10] * 49 + [1_000]) * 4, 10, 10),  # one in fifty is beyond the p95
        (([10] * 9 + [1_000]) * 20, 10, 1_000),
        ([10, 20, 30, 40, 50], 30, 50),
    ],
)
def test_p50_and_p95(world, times, p50, p95):
    take(world, *times)
    assert world.quantiles("t") == (about(p50), about(p95))


def test_the_latest_two_hundred_or_so_count(world):
    """0.995 ** 300 = 0.22 of the old weight is left, 0.995 ** 1000 = 0.007."""

    def take_in(*times):
        """Some may be set aside for a moment; the last one comes after it."""
        take(world, *times[1:])
        world.now += 20
        take(world, times[0])

    take_in(*[100] * 300)
    take_in(*[10] * 300)
    assert world.quantiles("t") == (about(10), about(100))
    take_in(*[10] * 700)
    assert world.quantiles("t") == (about(10), about(10))


@pytest.mark.parametrize(
    ("known", "ms", "cut", "probe", "waits"),
    [
        (150, 19, False, False, True),
        (150, 20, False, False, False),  # the digest has been good for long enough
        (149, 19, False, False, False),  # too little is known to leave anything aside
        (150, 19, True, False, False),
        (150, 19, False, True, False),
    ],
)
def test_plain_samples_wait_a_moment_where_much_is_known(world, known, ms, cut, probe, waits):
    world.seed_worker("c")
    world.seed_job("a", state="running", owner="c", **({"probe": "1"} if probe else {}))
    world.seed_histogram("t", {121: 100})
    world.seed_service("t", 100, 100)
    world.seed_mean(100, 0, n=known)
    world.now += ms
    before = world.histogram("t")
    world.finish("c", settlement("a", ms=10, cut=cut))
    assert (world.histogram("t") == before) is waits
    aside = world.get("service").get("q:t", "").split()
    assert aside == (["10000"] if waits else [])


def test_mean_and_deviation_are_those_of_the_whole_queue(world):
    take(world, 10, task="t")
    take(world, 30, task="other")
    mean, sd = world.mean_and_sd()
    assert mean == pytest.approx(20, rel=0.01)
    assert sd == pytest.approx(10, rel=0.01)
    assert world.quantiles("t")[0] == about(10)
    assert world.quantiles("other")[0] == about(30)


@pytest.mark.parametrize("outcome", ["done", "failed", "retry", "cut", "cancelled"])
def test_each_run_that_began_is_measured(world, outcome):
    seed_run(world)
    world.finish("c", settlement("a", outcome, ms=30))
    assert world.quantiles("t") == (about(30), about(30))


@pytest.mark.parametrize("outcome", ["release", "unrun"])
def test_a_run_that_was_not_tried_is_not_measured(world, outcome):
    seed_run(world)
    world.finish("c", settlement("a", outcome, ms=30))
    assert world.get("service") is None


def test_a_run_cut_short_lasted_at_least_as_long_as_the_longer_ones_do(world):
    """Its weight goes to those above it: nothing is learned of 50 ms, and p50 stays."""
    take(world, *[10, 100] * 10)
    before = world.histogram("t")
    take(world, 50, cut=True)
    after = world.histogram("t")
    assert after.keys() == before.keys()
    assert sum(after.values()) == pytest.approx(sum(before.values()) * 0.995 + 1, rel=1e-3)
    short, long = min(before), max(before)
    assert after[short] == pytest.approx(before[short] * 0.995, rel=1e-3)
    assert after[long] == pytest.approx(before[long] * 0.995 + 1, rel=1e-3)


def test_a_run_cut_short_that_was_the_longest_counts_at_its_length(world):
    take(world, 10)
    take(world, 200, cut=True)
    assert world.quantiles("t")[1] == about(200)


def test_runs_cut_short_never_make_an_estimate_smaller(world):
    take(world, *[1_000] * 20)
    take(world, *[50] * 100, cut=True)
    assert world.quantiles("t") == (about(1_000), about(1_000))


def test_a_repeat_is_not_measured_twice(world):
    seed_run(world)
    world.finish("c", settlement("a", ms=30))
    before = world.get("service")
    world.finish("c", settlement("a", ms=30))
    assert world.get("service") == before


# Probes.


def seed_probe(world, n=20, ms=1_000):
    take(world, *[ms] * n)
    seed_run(world, deadline=9_000, probe="1", fence=99)
    world.client.zadd(world.key("probes"), {"a": T0 + 2_000, "other": T0 + 2_000})
    return world.histogram("t")


def test_a_probe_that_is_twice_as_quick_quarters_the_older_weights(world):
    ((slow, weight),) = seed_probe(world).items()
    world.finish("c", settlement("a", fence=99, ms=490))
    after = world.histogram("t")
    assert after.pop(slow) == pytest.approx(weight / 4, rel=1e-3)
    assert list(after.values()) == [pytest.approx(1)]


def test_two_quick_probes_outweigh_twenty_slow_runs(world):
    seed_probe(world)
    world.finish("c", settlement("a", fence=99, ms=10))
    assert world.quantiles("t")[0] == about(1_000)
    seed_run(world, "b", deadline=9_000, probe="1", fence=98)
    world.finish("c", settlement("b", fence=98, ms=10))
    assert world.quantiles("t")[0] == about(10)


def test_a_quick_probe_frees_the_next_at_once(world):
    seed_probe(world)
    world.finish("c", settlement("a", fence=99, ms=490))
    assert world.get("probes") == {"other": T0 + 2_000}


@pytest.mark.parametrize(
    ("ms", "cut"), [(560, False), (2_000, False), (490, True)], ids=["slow", "slower", "cut"]
)
def test_any_other_probe_keeps_its_place_until_its_span_is_over(world, ms, cut):
    ((slow, weight),) = seed_probe(world).items()
    world.finish("c", settlement("a", "cut" if cut else "done", fence=99, ms=ms, cut=cut))
    assert world.get("probes").keys() == {"a", "other"}
    assert world.histogram("t")[slow] > weight * 0.99


def test_a_quick_run_that_is_no_probe_forgets_nothing(world):
    take(world, *[1_000] * 20)
    ((slow, weight),) = world.histogram("t").items()
    take(world, 10)
    assert world.histogram("t")[slow] == pytest.approx(weight * 0.995, rel=1e-3)
