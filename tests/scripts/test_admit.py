"""admit: malformed, duplicate, paused, expired, sweep, share of the cap, cap; what is written.

Feasibility has a file of its own.
"""

import math

import pytest

from tests.scripts.world import (
    BRIEF,
    RETENTION,
    T0,
    UNIT_LIMIT,
    submission,
    with_argument,
)

WAITING = ("ready", "suspect", "later", "strange")


# Accepting.


SHORT, LONG = "args", "x" * 1_000


@pytest.mark.parametrize("payload", [SHORT, LONG], ids=["short", "long"])
def test_accepting_writes_record_payload_and_place_and_nothing_else(world, payload):
    with world.changes() as changed:
        answer = world.admit(submission("a", payload=payload.encode()))
    assert answer == [("admitted", T0 + 10_000, 0)]
    assert world.job("a") == {
        "key": "key-a",
        "fingerprint": "fp",
        "task": "t",
        "deadline": str(T0 + 10_000),
        "estimate": "0",
        "retries": "2",
        "born": str(T0),
        "seq": "1",
        "version": "1",
        "state": "ready",
        "w:pC.1": str(T0 + 10_000),
    }
    assert world.payload("a") == payload
    for name in ("job:a", "data:a"):
        changed.pop(name, None)
    assert changed == {
        "due": {"a": T0 + 10_000},
        "ready": {"0000000001:a": T0 + 10_000},
        "stats": {"offered": "1", "admitted": "1"},
    }


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 127, 128, 129, 191, 192, 193, 5_000])
def test_a_payload_of_any_size_is_kept_whole(world, size):
    payload = bytes(range(256)) * 20
    world.admit(submission("a", payload=payload[:size]))
    world.seed_worker("c")
    (claim,) = world.claim("c").claims
    assert claim.payload == payload[:size]


@pytest.mark.parametrize("payload", [SHORT, LONG], ids=["short", "long"])
def test_record_and_payload_live_as_long_as_the_job_can(world, payload):
    world.admit(submission("a", within=10_000, payload=payload.encode()))
    assert world.keeps("job:a", 10_000 + UNIT_LIMIT + RETENTION)
    assert world.keeps_payload("a", 10_000 + UNIT_LIMIT + RETENTION)


def test_what_the_seeds_write_is_what_admit_writes(world):
    world.admit(submission("a"))
    admitted = world.dump() | {"job:a": world.job("a")}
    world.client.flushall()
    world.seed_job("a")
    seeded = world.dump() | {"job:a": world.job("a")}
    assert seeded == {name: value for name, value in admitted.items() if name != "stats"}


def test_under_fifo_the_place_is_by_arrival(world):
    world.order = "fifo"
    world.admit(submission("late", within=9_000))
    world.now += 5
    world.admit(submission("soon", within=1_000))
    assert world.get("ready") == {"0000000001:late": T0, "0000000002:soon": T0 + 5}
    assert world.job("late")["fifo"] == "1"


def test_a_job_for_later_waits_apart_and_is_not_ready(world):
    world.admit(submission("a", not_before=3_000))
    assert world.state("a") == "later"
    assert world.get("later") == {"a": T0 + 3_000}
    assert world.get("delayed") == {"a": T0 + 3_000}
    assert world.get("ready") is None
    assert world.get("due") == {"a": T0 + 10_000}


def test_an_instant_that_has_come_is_no_reason_to_wait(world):
    world.admit(
        submission("a", not_before=-5), submission("b", within=10_000)._replace(not_before_ms=T0)
    )
    assert world.state("a") == world.state("b") == "ready"


def test_a_batch_arrives_in_its_own_order(world):
    world.admit(*(submission(ident) for ident in "cab"))
    assert world.order_of() == ["c", "a", "b"]


def test_the_same_key_twice_in_one_batch_is_one_job(world):
    answers = world.admit(submission("a", token="w:pC.1"), submission("a", token="w:pC.2"))
    assert [verdict for verdict, *_ in answers] == ["admitted", "duplicate"]
    assert world.get("due") == {"a": T0 + 10_000}


@pytest.mark.parametrize(
    ("parked", "tokens", "fresh", "after"),
    [
        (0, 0, 2, 0),
        (1, 0, 2, 1),
        (2, 0, 2, 2),
        (3, 0, 2, 2),
        (3, 2, 2, 3),
        (1, 1, 2, 1),
    ],
)
def test_one_token_for_each_new_job_and_at_most_one_for_each_parked_worker(
    world, parked, tokens, fresh, after
):
    for child in range(parked):
        world.seed_worker(f"c{child}", parked=61_000)
    for _ in range(tokens):
        world.client.rpush(world.key("wake"), "1")
    world.admit(*(submission(f"j{i}") for i in range(fresh)))
    assert world.client.llen(world.key("wake")) == after


def test_a_job_for_later_wakes_a_worker_that_would_sleep_past_it(world):
    world.seed_worker("c", parked=61_000)
    world.admit(submission("a", within=90_000, not_before=30_000))
    assert world.get("wake") == ["1"]


def test_a_job_for_later_wakes_nobody_who_is_up_before(world):
    world.seed_worker("c", parked=21_000)
    world.admit(submission("a", within=90_000, not_before=30_000))
    assert world.get("wake") is None


# The order of the checks: of all that is wrong, the first is said.


class Faults:
    """What can be wrong at once, from the first check to the last."""

    ALL = ("malformed", "key_reused", "paused", "expired", "full", "unmeetable")

    @staticmethod
    def plant(world, faults):
        world.capacity = 1 if "full" in faults else 50
        world.seed_worker("c", slots=1)
        for i in range(1, 3):  # no slot idle
            world.seed_job(f"busy{i}", state="running", owner="c", seq=i)
        if "unmeetable" in faults:
            world.seed_service("t", 20_000, 20_000)
            world.seed_mean(20_000, 0)
        if "paused" in faults:
            world.client.hset(world.key("fleet"), "paused", "1")
        if "key_reused" in faults:
            world.seed_ended("a", "cancelled", fingerprint="other")
        made = submission("a", within=0 if "expired" in faults else 9_000)
        return made._replace(rank=9) if "malformed" in faults else made


@pytest.mark.parametrize("first", range(len(Faults.ALL)))
def test_of_several_faults_the_first_in_order_is_named(world, first):
    made = Faults.plant(world, Faults.ALL[first:])
    verdict, deadline, _ = world.admit(made)[0]
    assert verdict == Faults.ALL[first]
    assert deadline == 0


@pytest.mark.parametrize("fault", Faults.ALL)
def test_refusing_writes_nothing_but_counters(world, fault):
    made = Faults.plant(world, (fault,))
    with world.changes() as changed:
        assert world.verdict(made) == fault
    assert changed == {"stats": {"offered": "1", f"rejected:{fault}": "1"}}


def test_a_queue_in_order_refuses_nothing(world):
    made = Faults.plant(world, ())
    assert world.verdict(made) == "admitted"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("deadline_ms", bad) for bad in ("", "nan", "inf", "-inf", "1e999", "x", b"\xff", 2**53)),
        *(("not_before_ms", bad) for bad in ("", "nan", "inf", "soon")),
        *(("rank", bad) for bad in ("", -1, 4, "1.5", "nan", "critical")),
        ("id", ""),
        ("task", ""),
    ],
)
def test_what_no_record_could_hold_is_refused_as_malformed(world, field, value):
    with world.changes() as changed:
        assert world.verdict(submission("a")._replace(**{field: value})) == "malformed"
    assert changed.keys() == {"stats"}


def test_a_deadline_of_now_has_passed(world):
    assert world.verdict(submission("a", within=0)) == "expired"
    assert world.verdict(submission("b", within=1)) == "admitted"


# Duplicates.


def seed_waiting(world, state, *, deadline=10_000, **fields):
    if state == "later":
        fields["ready_at"] = 2_000
    if state == "running":
        world.seed_worker("c", slots=4)
        fields["owner"] = "c"
    world.seed_job("a", state=state, deadline=deadline, **fields)


def places(state):
    return {"due", {"running": "run:c", "suspect": "suspects"}.get(state, state)}


@pytest.mark.parametrize("payload", [SHORT, LONG], ids=["short", "long"])
@pytest.mark.parametrize("state", WAITING)
def test_a_later_deadline_raises_that_of_a_job_that_waits(world, state, payload):
    seed_waiting(world, state, payload=payload)
    before = world.places("a")
    answer = world.admit(submission("a", within=12_000, token="w:pC.2"))
    assert answer == [("duplicate", T0 + 12_000, 0)]
    record = world.job("a")
    assert record["deadline"] == str(T0 + 12_000)
    assert record["state"] == state
    assert (record["w:pC.1"], "w:pC.2" in record) == (str(T0 + 10_000), True)
    assert world.get("due") == {"a": T0 + 12_000}
    assert world.places("a") == before == places(state)
    assert world.keeps("job:a", 12_000 + UNIT_LIMIT + RETENTION)
    assert world.keeps_payload("a", 12_000 + UNIT_LIMIT + RETENTION)


def test_raising_the_deadline_moves_the_latest_start(world):
    seed_waiting(world, "ready", estimate=100, seq=5)
    assert world.get("ready") == {"0000000005:a": T0 + 9_900}
    world.admit(submission("a", within=12_000, token="w:pC.2"))
    assert world.get("ready") == {"0000000005:a": T0 + 11_900}


def test_raising_the_deadline_leaves_the_instant_before_which_it_must_not_start(world):
    seed_waiting(world, "later")
    world.admit(submission("a", within=12_000, token="w:pC.2"))
    assert world.get("later") == {"a": T0 + 2_000}


def test_under_fifo_a_raised_deadline_costs_no_place(world):
    seed_waiting(world, "ready", fifo=1, born=-50)
    world.admit(submission("a", within=12_000, token="w:pC.2"))
    assert world.get("ready") == {"0000000001:a": T0 - 50}


@pytest.mark.parametrize("within", [8_000, 10_000])
@pytest.mark.parametrize("state", [*WAITING, "running"])
def test_an_earlier_or_equal_deadline_adds_a_waiter_only(world, state, within):
    seed_waiting(world, state)
    with world.changes() as changed:
        answer = world.admit(submission("a", within=within, token="w:pC.2"))
    assert answer == [("duplicate", T0 + 10_000, 0)]
    assert changed.keys() == {"job:a", "stats"}
    assert "w:pC.2" in world.job("a")
    assert world.job("a")["deadline"] == str(T0 + 10_000)


def test_a_run_keeps_its_instant_and_the_later_one_is_noted_beside_it(world):
    seed_waiting(world, "running", payload=LONG)
    answer = world.admit(submission("a", within=12_000, token="w:pC.2"))
    assert answer == [("duplicate", T0 + 12_000, 0)]
    assert world.job("a")["deadline"] == str(T0 + 10_000)
    assert world.get("due") == {"a": T0 + 12_000}
    assert world.places("a") == {"due", "run:c"}
    assert world.keeps("job:a", 12_000 + UNIT_LIMIT + RETENTION)
    assert world.keeps_payload("a", 12_000 + UNIT_LIMIT + RETENTION)


@pytest.mark.parametrize("state", ["done", "failed"])
def test_what_is_settled_for_good_is_answered_and_not_touched(world, state):
    world.seed_ended("a", state, result="value", ttl=25_000)
    with world.changes() as changed:
        answer = world.admit(submission("a", within=20_000, token="w:pC.2"))
    assert answer == [("duplicate", T0 + 10_000, 0)]
    assert changed.keys() == {"stats"}
    assert world.keeps("job:a", 25_000)


def test_what_is_settled_stays_until_the_deadline_of_all_who_were_told_of_it(world):
    world.seed_ended("a", "done", ttl=5_000)
    world.client.set(world.key("result:a"), "value", px=5_000)
    world.admit(submission("a", within=20_000, token="w:pC.2"))
    for name in ("job:a", "result:a"):
        assert 20_000 < world.lasts(name) < 25_000


@pytest.mark.parametrize("state", ["expired", "cancelled", "exhausted", "exceeded"])
def test_what_ended_without_an_outcome_for_good_is_admitted_again(world, state):
    old = {"attempt": 3, "fence": 7, "fails": 2, "crashes": 1, "result": "old", "u:pay": "done 1"}
    world.seed_ended("a", state, **old)
    world.client.set(world.key("result:a"), "an old error that did not fit into the record")
    answer = world.admit(submission("a", within=20_000, token="w:pC.2", payload=b"new"))
    assert answer == [("admitted", T0 + 20_000, 0)]
    record = world.job("a")
    assert record["u:pay"] == "done 1", "what has taken effect must not again"
    assert not {"attempt", "fence", "fails", "crashes", "result", "finished"} & record.keys()
    assert (record["state"], record["w:pC.2"]) == ("ready", str(T0 + 20_000))
    assert world.get("result:a") is None
    assert world.payload("a") == "new"
    assert world.keeps("job:a", 20_000 + UNIT_LIMIT + RETENTION)
    assert world.places("a") == {"due", "ready"}


def test_a_second_life_keeps_even_more_units_than_unpack_takes(world):
    units = {f"u:{n}": f"done 1 {T0} 30000 ab " for n in range(4_200)}
    world.seed_ended("a", "exhausted", **units)
    assert world.verdict(submission("a")) == "admitted"
    record = world.get("job:a")
    assert record["state"] == "ready"
    assert units.items() <= record.items()


@pytest.mark.parametrize("state", ["exhausted", "exceeded"])
def test_a_second_life_leaves_the_list_of_the_dead(world, state):
    world.seed_ended("a", state)
    world.client.zadd(world.key("dead"), {"a": T0})
    world.admit(submission("a"))
    assert world.get("dead") is None


@pytest.mark.parametrize("state", ["expired", "cancelled", "exhausted", "exceeded"])
@pytest.mark.parametrize("why", ["paused", "expired", "full"])
def test_a_second_life_has_to_pass_the_checks_like_a_first(world, state, why):
    world.seed_ended("a", state, **{"u:pay": "done 1"})
    made = Faults.plant(world, (why,))
    with world.changes() as changed:
        assert world.verdict(made) == why
    assert changed.keys() == {"stats"}


@pytest.mark.parametrize(
    "state", [*WAITING, "running", "done", "failed", "crashed", "expired", "cancelled", "exhausted"]
)
def test_another_payload_under_the_key_is_refused_and_nothing_is_revealed(world, state):
    if state in (*WAITING, "running"):
        seed_waiting(world, state)
    else:
        world.seed_ended("a", state, result="secret")
    with world.changes() as changed:
        answer = world.reply_to_admit(submission("a", fingerprint=b"other", token="w:pC.2"))
    assert answer == [T0, b"key_reused", 0, 0]
    assert changed.keys() == {"stats"}


@pytest.mark.parametrize("state", [*WAITING, "running", "done", "failed", "crashed"])
@pytest.mark.parametrize("why", ["paused", "full", "unmeetable"])
def test_a_duplicate_takes_no_new_room_so_nothing_refuses_it(world, state, why):
    made = Faults.plant(world, (why,))._replace(token="w:pC.2")
    if state in ("done", "failed"):
        world.seed_ended("a", state)
    else:
        seed_waiting(world, state)
    if why == "paused":
        world.client.hset(world.key("fleet"), "paused", "1")
    assert world.verdict(made) == "duplicate"


@pytest.mark.parametrize("state", WAITING)
def test_a_dead_job_that_nobody_has_swept_is_admitted_anew(world, state):
    seed_waiting(world, state, deadline=500, **{"u:pay": "done 1"})
    world.now += 500
    answer = world.admit(submission("a", within=9_000, token="w:pC.2"))
    assert answer == [("admitted", T0 + 9_000, 0)]
    assert world.places("a") == {"due", "ready"}
    assert world.job("a")["u:pay"] == "done 1"
    assert "w:pC.1" not in world.job("a")
    assert world.counters()["expired:queue"] == 1


# A run that is past its own deadline and not settled yet.


def test_attaching_to_a_run_that_is_past_its_deadline_takes_a_place_in_the_cap(world):
    world.capacity = 2
    seed_waiting(world, "running", deadline=500)
    world.seed_job("other", deadline=9_000, seq=2)
    world.now += 500
    answer = world.admit(submission("a", within=9_000, token="w:pC.2"))
    assert answer == [("duplicate", T0 + 9_000, 0)]
    assert world.get("due") == {"a": T0 + 9_000, "other": T0 + 9_000}
    assert world.job("a")["deadline"] == str(T0 + 500)
    assert world.verdict(submission("b")) == "full"


def test_attaching_to_a_run_that_is_past_its_deadline_does_not_pass_a_full_cap(world):
    world.capacity = 1
    seed_waiting(world, "running", deadline=500)
    world.seed_job("other", deadline=9_000, seq=2)
    world.now += 500
    with world.changes() as changed:
        assert world.verdict(submission("a", within=9_000, token="w:pC.2")) == "full"
    assert changed.keys() == {"stats"}


def test_attaching_twice_in_one_batch_to_such_a_run_takes_one_place(world):
    world.capacity = 1
    seed_waiting(world, "running", deadline=500)
    world.now += 500
    answers = world.admit(
        submission("a", within=8_000, token="w:pC.2"),
        submission("a", within=9_000, token="w:pC.3"),
        submission("b", within=9_000),
    )
    assert [verdict for verdict, *_ in answers] == ["duplicate", "duplicate", "full"]


# Repeats: the reply was lost, the same bytes come again.


@pytest.mark.parametrize("state", [None, *WAITING, "running", "done", "failed", "cancelled"])
@pytest.mark.parametrize("within", [8_000, 12_000])
def test_a_repeat_gets_the_first_answer_and_changes_nothing(world, state, within):
    if state in (*WAITING, "running"):
        seed_waiting(world, state)
    elif state:
        world.seed_ended("a", state)
    made = submission("a", within=within, token="w:pC.2")
    first = world.admit(made)
    counted = world.counters()
    with world.changes() as changed:
        assert world.admit(made) == first
    assert changed.keys() <= {"stats"}
    assert world.counters().get("admitted") == counted.get("admitted")


def test_a_repeat_to_a_full_queue_is_not_refused(world):
    world.capacity = 1
    assert world.verdict(submission("a")) == "admitted"
    assert world.verdict(submission("a")) == "admitted"
    assert world.verdict(submission("a", token="w:pC.2")) == "duplicate"


# Cancelled while it runs, and asked for again.


def test_who_comes_back_to_a_cancelled_run_is_remembered(world):
    seed_waiting(world, "running", cancel=1, token=None)
    assert world.verdict(submission("a", token="w:pC.2")) == "duplicate"
    assert world.job("a")["again"] == "1"


# The cap.


def test_the_cap_counts_all_that_is_unfinished_and_not_past_its_deadline(world):
    world.capacity = 5
    world.seed_worker("c", slots=4)
    world.seed_job("r", state="ready", seq=1)
    world.seed_job("l", state="later", seq=2, ready_at=1_000)
    world.seed_job("s", state="strange", seq=3)
    world.seed_job("x", state="running", seq=4, owner="c")
    world.seed_job("y", state="running", seq=5, owner="c", deadline=0)  # past its deadline
    world.seed_ended("d", "done")
    answers = world.admit(submission("a"), submission("b"))
    assert [verdict for verdict, *_ in answers] == ["admitted", "full"]


def test_a_deadline_of_now_counts_no_more(world):
    world.capacity = 1
    world.seed_job("a", deadline=500)
    world.now += 499
    assert world.verdict(submission("b")) == "full"
    world.now += 1
    assert world.verdict(submission("b")) == "admitted"


def test_a_run_counts_by_its_latest_attached_deadline(world):
    world.capacity = 1
    seed_waiting(world, "running", deadline=500, due=900)
    world.now += 899
    assert world.verdict(submission("b")) == "full"
    world.now += 1
    assert world.verdict(submission("b")) == "admitted"


def test_the_dead_take_no_room_even_before_they_are_swept(world):
    world.capacity = 1
    for i in range(60):
        world.seed_job(f"j{i}", deadline=100, seq=i)
    world.now += 100
    assert world.verdict(submission("a")) == "admitted"
    left = [ident for ident in world.get("due") if ident != "a"]
    assert 0 < len(left) < 60, "one call sweeps some of them, not all"


def test_sweeping_on_the_way_ends_them_as_expired(world):
    world.seed_job("a", deadline=100)
    world.seed_job("u", deadline=100, seq=2, **{"u:pay": "done 1"})
    world.now += 100
    world.admit(submission("b"))
    assert world.state("a") == world.state("u") == "expired"
    assert world.places("a") == world.places("u") == set()
    assert world.payload("a") is None
    assert world.keeps("job:a", BRIEF)
    assert world.keeps("job:u", RETENTION), "an effect is remembered longer"
    assert world.counters()["expired:queue"] == 2


def test_sweeping_steps_over_runs_that_are_past_their_deadline(world):
    world.seed_worker("c", slots=99)
    for i in range(50):
        world.seed_job(f"x{i}", state="running", owner="c", deadline=100, seq=i)
    world.seed_job("a", deadline=200, seq=50)
    world.now += 200
    world.admit(submission("b"))
    assert world.state("a") == "expired"
    assert {world.state(f"x{i}") for i in range(50)} == {"running"}


@pytest.mark.parametrize("capacity", [1, 2, 3, 4, 5, 7, 8, 64])
@pytest.mark.parametrize(("rank", "share"), [(0, 1), (1, 1), (2, 0.75), (3, 0.5)])
def test_each_criticality_fills_its_share_of_the_cap_rounded_up(world, capacity, rank, share):
    world.capacity = capacity
    answers = world.admit(*(submission(f"j{i}", rank=rank) for i in range(capacity + 1)))
    accepted = [verdict for verdict, *_ in answers].count("admitted")
    assert accepted == math.ceil(capacity * share)


def test_the_shares_are_of_one_cap(world):
    world.capacity = 4
    answers = world.admit(
        submission("a", rank=3),
        submission("b", rank=3),
        submission("c", rank=3),  # half is taken
        submission("d", rank=2),
        submission("e", rank=2),  # three quarters are taken
        submission("f", rank=1),
        submission("g", rank=0),
    )
    assert [verdict for verdict, *_ in answers] == [
        "admitted", "admitted", "full", "admitted", "full", "admitted", "full"
    ]  # fmt: skip


@pytest.mark.parametrize(("slots", "hint"), [(1, 150), (2, 75), (4, 38)])
def test_the_hint_of_a_full_queue_is_the_time_in_which_it_drains(world, slots, hint):
    world.capacity = 3
    world.seed_worker("c", slots=slots)
    world.seed_mean(50, 10)
    for i in range(3):
        world.seed_job(f"j{i}", seq=i)
    assert world.admit(submission("a")) == [("full", 0, hint)]


# Jobs for later have a share of their own.


@pytest.mark.parametrize(
    ("capacity", "bound"), [(1, 1), (2, 1), (4, 1), (7, 1), (8, 2), (12, 3), (15, 3)]
)
def test_jobs_for_later_are_bounded_by_a_quarter_of_the_cap(world, capacity, bound):
    world.capacity = capacity
    made = [submission(f"j{i}", not_before=1_000) for i in range(capacity)]
    verdicts = [verdict for verdict, *_ in world.admit(*made)]
    assert verdicts == ["admitted"] * bound + ["full"] * (capacity - bound)
    if capacity > bound:
        assert world.verdict(submission("now")) == "admitted"


def test_backoff_is_counted_apart(world):
    world.capacity = 4
    world.seed_job("backoff", state="later", ready_at=1_000)
    assert world.verdict(submission("a", not_before=1_000)) == "admitted"
    assert world.verdict(submission("b", not_before=1_000)) == "full"


def test_a_job_for_later_whose_instant_has_come_is_not_counted(world):
    world.capacity = 4
    world.seed_job("a", state="later", ready_at=1_000, delayed=True)
    world.now += 999
    assert world.verdict(submission("b", not_before=2_000)) == "full"
    world.now += 1
    assert world.verdict(submission("b", not_before=2_000)) == "admitted"


@pytest.mark.parametrize("end", ["cancel", "leave", "expire"])
def test_a_job_for_later_that_ends_gives_its_place_back(world, end):
    world.capacity = 4
    world.seed_job("a", state="later", ready_at=500, deadline=600, delayed=True)
    match end:
        case "cancel":
            world.cancel("a")
        case "leave":
            world.leave(("a", "w:pC.1"))
        case "expire":
            world.now += 600
    assert world.verdict(submission("b", not_before=2_000)) == "admitted"
    assert world.get("delayed") == {"b": T0 + 2_000}


@pytest.mark.parametrize("within", [999, 1_000])
def test_a_job_that_may_not_start_before_its_deadline_is_unmeetable(world, within):
    assert world.verdict(submission("a", within=within, not_before=1_000)) == "unmeetable"
    assert world.verdict(submission("a", within=1_001, not_before=1_000)) == "admitted"


# Records that nobody of ours wrote.


def plant_wrong_type(world):
    world.client.rpush(world.key("job:a"), "x")


def plant(field, value):
    def planting(world):
        world.seed_job("a")
        world.client.hset(world.key("job:a"), field, value)

    planting.__name__ = f"{field}={value}"
    return planting


def plant_without(field):
    def planting(world):
        world.seed_job("a")
        world.client.hdel(world.key("job:a"), field)

    planting.__name__ = f"no_{field}"
    return planting


@pytest.mark.parametrize(
    "planting",
    [
        plant_wrong_type,
        plant("born", "nan"),
        plant("estimate", "inf"),
        plant("version", "new"),
        *map(plant_without, ("fingerprint", "deadline", "seq", "state", "born", "version")),
    ],
    ids=lambda planting: planting.__name__,
)
def test_a_record_that_is_none_does_not_keep_the_key_from_use(world, planting):
    planting(world)
    world.now += 1
    assert world.verdict(submission("a", within=9_000)) == "admitted"
    assert world.places("a") == {"due", "ready"}
    assert len(world.get("ready")) == 1, "one place and no more"
    world.seed_worker("c")
    assert world.claimed("c") == ["a"]


def test_only_whole_calls_are_taken(world):
    """The arguments in the header are all there are: thirteen for each job after the first five."""
    call_for = world.call_for_admit
    assert len(call_for(submission("a")).args) == 4 + 13
    assert len(call_for(submission("a"), submission("b")).args) == 4 + 26
    with world.changes() as changed:
        assert world.run(with_argument(call_for(), 2, 5)) == []
    assert changed.keys() <= {"stats"}
