"""The local retry budget: its bound in every window, its presets, its quota, its errors."""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deadq.resilience import PRESETS, Budget, BudgetRule, QuotaRule
from deadq.resilience.budget import budget_of
from deadq.resilience.rules import window_rule
from deadq.testing import clock


@pytest.fixture
def time():
    with clock() as found:
        yield found


def granted(budget, asked=10_000):
    return sum(bool(budget.take()) for _ in range(asked))


def firsts(budget, number):
    for _ in range(number):
        budget.first()


def test_one_retry_for_ten_first_attempts_and_the_floor(time):
    budget = Budget(BudgetRule(ratio=0.1, floor=0.0))
    firsts(budget, 100)
    assert granted(budget) == 10


@pytest.mark.parametrize(
    ("rule", "number"),
    [
        (BudgetRule(0.2, 0.0, 10.0), 20),
        (BudgetRule(0.1, 1.0, 10.0), 20),
        (BudgetRule(0.1, 1.0, 20.0), 30),
        (BudgetRule(0.0, 0.0, 10.0), 0),
    ],
)
def test_ratio_floor_and_window_each_tell(time, rule, number):
    budget = Budget(rule)
    firsts(budget, 100)
    assert granted(budget) == number


def test_what_left_the_window_neither_earns_nor_weighs(time):
    budget = Budget(BudgetRule(0.1, 0.0, 10.0))
    firsts(budget, 100)
    assert granted(budget) == 10
    time.advance(10.5)
    assert budget.available() == 0
    firsts(budget, 50)
    assert granted(budget) == 5


def test_a_shorter_window_forgets_sooner(time):
    budget = Budget(BudgetRule(0.1, 0.0, 1.0))
    firsts(budget, 100)
    granted(budget)
    time.advance(1.05)
    firsts(budget, 20)
    assert granted(budget) == 2


def test_available_is_what_would_be_granted(time):
    budget = Budget("sre")
    assert budget.available() == 10
    firsts(budget, 50)
    assert budget.available() == 15
    assert granted(budget, 3) == 3
    assert budget.available() == 12


def test_a_retry_weighs_when_it_is_made(time):
    budget = Budget(BudgetRule(ratio=0.0, floor=1.0, window=1.0))
    assert budget.take(after=0.8)
    time.advance(1.1)
    assert not budget.take(), "it was made 0.3 s ago"
    time.advance(0.8)
    assert budget.take()


@pytest.mark.parametrize(("preset", "number"), [("sre", 10 + 10), ("finagle", 20 + 100)])
def test_presets_are_the_published_ones(time, preset, number):
    budget = Budget(preset)
    firsts(budget, 100)
    assert granted(budget) == number


def test_the_quota_of_2026_allows_35_retries_in_a_total_outage(time):
    """OVERLOAD, 1.3: floor(500 / 14)."""
    budget = Budget("aws-2026")
    firsts(budget, 10_000)
    assert budget.available() == 35
    assert granted(budget) == 35


def test_a_quota_charges_refusals_for_overload_otherwise(time):
    budget = Budget("aws-2026")
    taken = [budget.take(throttled=True) for _ in range(101)]
    assert taken == [5.0] * 100 + [0.0]


def test_a_success_gives_one_back_and_a_retried_one_what_it_took(time):
    budget = Budget(QuotaRule(capacity=28, cost=14, refund=1))
    assert (budget.take(), budget.take(), budget.take()) == (14, 14, 0)
    for _ in range(13):
        budget.succeeded()
    assert not budget.take()
    budget.succeeded()
    assert budget.take() == 14
    budget.succeeded(14)
    assert budget.take() == 14


@pytest.mark.parametrize(
    ("rule", "number"),
    [
        (QuotaRule(capacity=100), 7),
        (QuotaRule(cost=50), 10),
        (QuotaRule(throttled_cost=250), 35),
        (QuotaRule(refund=14), 35),
    ],
)
def test_each_number_of_a_quota_tells(time, rule, number):
    assert granted(Budget(rule)) == number
    if rule.refund == 14:
        budget = Budget(rule)
        granted(budget)
        budget.succeeded()
        assert budget.take()
    if rule.throttled_cost == 250:
        assert [bool(Budget(rule).take(throttled=True))] == [True]
        budget = Budget(rule)
        assert [bool(budget.take(throttled=True)) for _ in range(3)] == [True, True, False]


def test_a_quota_says_what_overload_costs_and_what_a_success_gives_back(time):
    budget = Budget(QuotaRule(capacity=28, throttled_cost=20))
    assert [budget.take(throttled=True) for _ in range(2)] == [20, 0]
    budget = Budget(QuotaRule(capacity=14, refund=14))
    assert budget.take() == 14
    budget.succeeded()
    assert budget.take() == 14


def test_a_full_quota_stays_as_it_is(time):
    budget = Budget("aws-2026")
    for _ in range(1_000):
        budget.succeeded()
    assert granted(budget) == 35


@given(
    steps=st.lists(
        st.tuples(st.integers(0, 4_000), st.integers(0, 40), st.integers(0, 10)), max_size=60
    ),
    ratio=st.sampled_from([0.1, 0.25]),
    floor=st.sampled_from([0.0, 0.3]),
)
def test_no_window_that_ends_with_a_retry_holds_too_many(steps, ratio, floor):
    with clock() as time:
        budget = Budget(BudgetRule(ratio, floor, 10.0))
        came, went = [], []
        for pause, arrivals, asked in steps:
            time.advance(pause / 1000)
            now = time.monotonic()
            came += [now] * arrivals
            firsts(budget, arrivals)
            for _ in range(asked):
                if budget.take():
                    went.append(now)
                    earned = ratio * sum(at > now - 10 for at in came) + floor * 10
                    assert sum(at > now - 10 for at in went) <= earned + 1e-9


def test_threads_take_no_more_than_there_is(time):
    budget = Budget(BudgetRule(0.1, 0.0))
    firsts(budget, 1_000)
    taken = []
    threads = [
        threading.Thread(target=lambda: taken.append(granted(budget, 100))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(taken) == 100


def test_a_budget_may_be_given_by_name_by_rule_or_as_it_is(time):
    own = Budget("finagle")
    assert budget_of(own) is own
    assert budget_of("finagle").available() == own.available()
    assert budget_of(BudgetRule(0, 0.5)).available() == 5
    assert "left" in repr(own)


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: Budget("srE"), ValueError, "sre, finagle, aws-2026"),
        (lambda: Budget(10), TypeError, "preset's name"),
        (lambda: BudgetRule(ratio=-0.1), ValueError, "ratio"),
        (lambda: BudgetRule(ratio=float("nan")), ValueError, "ratio"),
        (lambda: BudgetRule(floor="1"), TypeError, "floor"),
        (lambda: BudgetRule(floor=True), TypeError, "floor"),
        (lambda: BudgetRule(window=0), ValueError, "window"),
        (lambda: BudgetRule(window=61), ValueError, "window"),
        (lambda: BudgetRule(floor=float("inf")), ValueError, "floor"),
        (lambda: QuotaRule(cost=0), ValueError, "cost"),
        (lambda: QuotaRule(capacity=-1), ValueError, "capacity"),
        (lambda: QuotaRule(throttled_cost=0), ValueError, "throttled_cost"),
        (lambda: QuotaRule(refund=-1), ValueError, "refund"),
        (lambda: window_rule("aws-2026", "a queue"), ValueError, "sre, finagle"),
        (lambda: budget_of(object()), TypeError, "FleetBudget"),
    ],
)
def test_odd_settings_are_refused_with_a_remedy(make, error, words):
    with pytest.raises(error, match=words):
        make()


def test_the_presets_are_three():
    assert set(PRESETS) == {"sre", "finagle", "aws-2026"}
