"""The retry budget of a queue, and lend: what first attempts earn, retries and loans spend."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deadq.store import scripts
from deadq.store.scripts import Deed
from tests.scripts.world import LEASE, RETENTION, T0, settlement, submission

WINDOW = 10_000


def rule(world, ratio=0.1, floor=0.0, window=WINDOW):
    """Register a child that brings the rule."""
    return world.run(
        scripts.register(
            "c", lease_ms=10 * LEASE, slots=100, who="h", retention_ms=RETENTION,
            rule=f"{ratio} {floor} {window}", tasks=["t"],
        )
    )  # fmt: skip


class Runs:
    """A child that claims jobs and reports of them."""

    def __init__(self, world):
        self.world, self.number, self.made = world, 0, 0

    def start(self, n=1, retries=5):
        names = [f"{self.made + i:04x}" for i in range(n)]
        self.made += n
        self.world.admit(*(submission(name, within=10**6, retries=retries) for name in names))
        return self.claim(n)

    def claim(self, n):
        self.number += 1
        return self.world.claim("c", self.number, n).claims

    def retry(self, claim, delay_ms=0):
        report = settlement(claim.id, "retry", fence=claim.fence, delay=delay_ms)
        return self.world.finish("c", report)[0]


def lend(world, holder="p", number=1, *, wanted=0, deeds=(), text="", length_ms=5_000):
    call = scripts.lend(holder, number, rule=text, wanted=wanted, length_ms=length_ms, deeds=deeds)
    return world.run(call)


def counted(world):
    return {name: n for name, n in world.counters().items() if n and name.startswith("retr")}


def test_one_retry_for_ten_first_attempts(world):
    rule(world)
    runs = Runs(world)
    first = runs.start(10)
    assert runs.retry(first[0]) == "ready"
    assert runs.retry(first[1]) == "exhausted"
    assert counted(world) == {"retried": 1, "retry_denied:budget": 1}


@pytest.mark.parametrize(
    ("ratio", "floor", "window", "allowed"),
    [(0.2, 0, WINDOW, 2), (0, 0.3, WINDOW, 3), (0, 0.3, 20_000, 6), (0, 0, WINDOW, 0)],
)
def test_ratio_floor_and_window_each_tell(world, ratio, floor, window, allowed):
    rule(world, ratio, floor, window)
    runs = Runs(world)
    answers = [runs.retry(claim) for claim in runs.start(10)]
    assert answers.count("ready") == allowed


def test_a_retry_earns_nothing(world):
    rule(world)
    runs = Runs(world)
    first = runs.start(19)
    assert runs.retry(first[0]) == "ready"
    (again,) = runs.claim(1)
    assert again.attempt == 2
    assert runs.retry(again) == "exhausted", "19 first attempts and a second one are not 20"


def test_what_is_older_than_the_window_neither_earns_nor_weighs(world):
    rule(world)
    runs = Runs(world)
    first = runs.start(10)
    assert runs.retry(first[0]) == "ready"
    world.now += WINDOW + 500
    assert runs.retry(first[1]) == "exhausted", "too old to earn"
    later = runs.start(11)  # one of them is the retry
    assert runs.retry(later[-1]) == "ready"


def test_a_retry_that_does_not_fit_takes_no_token(world):
    rule(world)
    runs = Runs(world)
    first = runs.start(10)
    assert runs.retry(first[0], delay_ms=10**7) == "exhausted"
    assert counted(world) == {"retry_denied:deadline": 1}
    assert runs.retry(first[1]) == "ready"


def test_the_reasons_are_told_apart(world):
    rule(world, floor=10)
    runs = Runs(world)
    (none, some, bad) = runs.start(1, 0)[0], runs.start(1, 1)[0], runs.start(1, 1)[0]
    assert runs.retry(none) == "exhausted"
    assert runs.retry(some) == "ready"
    (again,) = runs.claim(1)
    assert runs.retry(again) == "exhausted"
    assert world.finish("c", settlement(bad.id, "failed", fence=bad.fence)) == ["failed"]
    assert counted(world) == {
        "retried": 1,
        "retry_denied:tries": 2,
        "retry_denied:permanent": 1,
    }


def test_the_key_holds_no_more_than_a_window_needs(world):
    rule(world)
    runs = Runs(world)
    for _ in range(400):
        runs.start(1)
        world.now += 500
    assert len(world.get("budget")) <= 1 + 61_500 // 500


@pytest.mark.parametrize("planted", ["a string", {"f0": "x", "rule": "nan 1e999 x", "o": "?"}])
def test_garbage_in_its_place_stops_no_job(world, planted):
    rule(world)
    key = world.key("budget")
    world.client.delete(key)
    if isinstance(planted, str):
        world.client.set(key, planted)
    else:
        world.client.hset(key, mapping=planted)
    runs = Runs(world)
    (claim,) = runs.start(1)
    assert runs.retry(claim) == "ready", "by the default rule, whose floor allows it"


# Loans.


def test_a_loan_is_a_part_of_what_is_left(world):
    loan = lend(world, wanted=3, deeds=[Deed("f", 0, 100)], text="0.1 0 10000")
    assert loan == (3, 7)
    assert lend(world, "q", 1, wanted=100) == (4, 3), "half of it: others may be about to ask"


def test_a_loan_weighs_until_it_is_told_of_or_runs_out(world):
    lend(world, wanted=10, deeds=[Deed("f", 0, 100)], text="0.1 0 10000", length_ms=3_000)
    lend(world, wanted=10, number=2, length_ms=3_000)
    assert world.get("budget")["op"].startswith("5 ")
    assert lend(world, "q", 1).left == 5
    world.now += 3_000
    assert lend(world, "q", 2).left == 10


def test_what_is_told_as_spent_weighs_for_a_window(world):
    lend(world, wanted=4, deeds=[Deed("f", 0, 100)], text="0.1 0 10000")
    assert lend(world, "p", 2, deeds=[Deed("s", 2_000, 4)]).left == 6
    world.now += 7_000
    assert lend(world, "p", 3, deeds=[Deed("f", 0, 100)]).left == 16
    world.now += 1_500
    assert lend(world, "p", 4).left == 20, "what was spent 10.5 s ago is forgotten"


def test_the_same_call_again_counts_nothing_twice(world):
    deeds = [Deed("f", 0, 100), Deed("s", 0, 2)]
    first = lend(world, wanted=3, deeds=deeds, text="0.1 0 10000")
    assert lend(world, wanted=3, deeds=deeds, text="0.1 0 10000") == first
    assert lend(world, "q", 1).left == first.left


def test_a_queues_retries_and_loans_share_one_budget(world):
    rule(world)
    runs = Runs(world)
    first = runs.start(20)
    assert lend(world, wanted=1) == (1, 1)
    assert runs.retry(first[0]) == "ready"
    assert runs.retry(first[1]) == "exhausted"


@settings(
    max_examples=60, deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip
@given(
    ratio=st.sampled_from([0.1, 0.2]),
    floor=st.sampled_from([0.0, 0.5]),
    steps=st.lists(
        st.tuples(st.integers(0, 3_000), st.integers(0, 30), st.integers(0, 8)), max_size=40
    ),
)
def test_no_window_of_ten_seconds_holds_more_than_its_share(world, ratio, floor, steps):
    """Whatever comes when: at each retry the window that ends there keeps the bound."""
    world.client.flushall()
    world.now = T0
    rule(world, ratio, floor)
    firsts, spent = [], []
    for number, (pause, arrivals, wanted) in enumerate(steps, 1):
        world.now += pause
        firsts += [world.now] * arrivals
        loan = lend(world, "p", number, wanted=wanted, deeds=[Deed("f", 0, arrivals)])
        spent += [world.now] * loan.tokens  # at once, and told of with the next call
        if loan.tokens:
            lend(world, "p", 10_000 + number, deeds=[Deed("s", 0, loan.tokens)])
            began = world.now - WINDOW
            made = sum(at > began for at in spent)
            assert made <= ratio * sum(at > began for at in firsts) + floor * 10


HOUR = 3_600_000


@pytest.mark.parametrize("how", ["spent", "lent"])
def test_a_clock_that_steps_back_does_not_hold_the_floor_back_until_it_is_there_again(world, how):
    text = f"0 1 {WINDOW}"
    if how == "spent":
        lend(world, deeds=[Deed("s", 0, 10)], text=text)
    else:
        lend(world, wanted=10, text=text)
        lend(world, "q", wanted=10, text=text)
    before = lend(world, "other", text=text)
    assert before.left < 10
    world.now -= HOUR
    assert lend(world, "other", number=2, text=text).left == 10
    assert not [f for f in world.get("budget") if f[0] in "fsh" or f in ("op", "oq")]


def test_a_retry_to_come_weighs_at_once(world):
    """It lies ahead by the longest window at most, and is not taken for a step of the clock."""
    text = "0 1 60000"
    lend(world, deeds=[Deed("s", -60_000, 10)], text=text)
    assert lend(world, "q", text=text).left == 50


@pytest.mark.parametrize("deeds", [(), [Deed("f", 0, 10)]])
def test_what_stands_in_its_place_is_replaced_though_there_is_nothing_to_tell(world, deeds):
    world.client.set(world.key("budget"), "planted")
    assert lend(world, deeds=deeds, text=f"0 1 {WINDOW}", wanted=2).tokens == 2
