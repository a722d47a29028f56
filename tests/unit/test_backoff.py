"""The delays are the published ones, bounded, validated, and of this process alone."""

import copy
import dataclasses
import math
import pickle
import random
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deadq.resilience import Backoff

KINDS = ["none", "exponential", "equal", "full", "decorrelated"]


class Fixed:
    """A source that always gives the same number."""

    def __init__(self, number):
        self.number = number

    def random(self):
        return self.number


LOWEST = Fixed(0.0)
HIGHEST = Fixed(math.nextafter(1.0, 0.0))

settings_of_any_size = {
    "kind": st.sampled_from(KINDS),
    "base": st.just(0) | st.floats(1e-9, 86_400.0),
    "cap": st.floats(0, 366 * 86_400.0) | st.integers(0, 86_400),
    "multiplier": st.floats(1, 1e308) | st.integers(1, 10**400),
}


def test_defaults_are_full_jitter_from_a_tenth_of_a_second_to_five():
    backoff = Backoff()
    assert (backoff.kind, backoff.base, backoff.cap, backoff.multiplier) == ("full", 0.1, 5.0, 2.0)


@pytest.mark.parametrize(
    ("kind", "low", "high"),
    [
        ("none", [0, 0, 0, 0, 0], [0, 0, 0, 0, 0]),
        ("exponential", [5, 10, 20, 1280, 2000], [5, 10, 20, 1280, 2000]),
        ("equal", [2.5, 5, 10, 640, 1000], [5, 10, 20, 1280, 2000]),
        ("full", [0, 0, 0, 0, 0], [5, 10, 20, 1280, 2000]),
    ],
)
def test_ranges_are_those_of_the_published_formulas(kind, low, high):
    attempts = [0, 1, 2, 8, 9]
    lowest = Backoff(kind, base=5, cap=2000, rng=LOWEST)
    highest = Backoff(kind, base=5, cap=2000, rng=HIGHEST)
    assert [lowest.delay(n) for n in attempts] == low
    assert [highest.delay(n) for n in attempts] == pytest.approx(high)


def test_decorrelated_draws_between_base_and_three_times_the_previous_delay():
    low = Backoff("decorrelated", base=5, cap=2000, rng=LOWEST)
    high = Backoff("decorrelated", base=5, cap=2000, rng=HIGHEST)
    assert low.delay(1, previous=100) == 5
    assert high.delay(1, previous=100) == pytest.approx(300)
    assert high.delay(1, previous=1999) == 2000
    assert high.delay(1, previous=1e308) == 2000
    assert high.delay(1, previous=10**400) == 2000
    assert high.delay(1, previous=0) == 5


def test_decorrelated_without_the_previous_delay_draws_the_chain_from_base():
    high = Backoff("decorrelated", base=5, cap=2000, rng=HIGHEST)
    assert [high.delay(n) for n in range(4)] == pytest.approx([5, 15, 45, 135])
    assert high.delay(10**6) == 2000

    chained, drawn = [], []
    for seed in range(4000):
        walk = Backoff("decorrelated", rng=random.Random(seed))
        previous = walk.delay(0)
        for n in range(1, 6):
            previous = walk.delay(n, previous)
        chained.append(previous)
        drawn.append(Backoff("decorrelated", rng=random.Random(seed)).delay(5))
    assert drawn == chained


def test_full_jitter_fills_its_range_evenly():
    backoff = Backoff("full", base=1, cap=8, rng=random.Random(7))
    delays = [backoff.delay(3) for _ in range(20_000)]
    assert fmean(delays) == pytest.approx(4, abs=0.1)
    tenths = [sum(1 for d in delays if i * 0.8 <= d < (i + 1) * 0.8) for i in range(10)]
    assert min(tenths) > 1800
    assert max(tenths) < 2200


@given(n=st.integers(0, 10**400), seed=st.integers(0, 9), **settings_of_any_size)
def test_any_attempt_number_gives_a_delay_between_zero_and_cap(
    n, seed, kind, base, cap, multiplier
):
    for rng in (LOWEST, HIGHEST, random.Random(seed)):
        backoff = Backoff(kind, base, cap, multiplier, rng)
        delay = backoff.delay(n)
        assert type(delay) is float
        assert 0 <= delay <= cap


@given(previous=st.floats(0, 1e308), **settings_of_any_size)
def test_any_previous_delay_gives_a_delay_between_zero_and_cap(
    previous, kind, base, cap, multiplier
):
    for rng in (LOWEST, HIGHEST):
        delay = Backoff(kind, base, cap, multiplier, rng).delay(3, previous)
        assert 0 <= delay <= cap


@given(
    base=st.floats(1e-9, 100.0),
    cap=st.floats(1e-9, 86_400.0),
    multiplier=st.floats(1, 10),
    n=st.integers(0, 300),
)
def test_capping_the_exponent_changes_no_value(base, cap, multiplier, n):
    expected = min(cap, base * multiplier**n)
    assert Backoff("exponential", base, cap, multiplier).delay(n) == pytest.approx(expected)


@given(n=st.integers(0, 2000), **settings_of_any_size)
def test_more_failures_never_shorten_the_ceiling(n, kind, base, cap, multiplier):
    del kind
    backoff = Backoff("exponential", base, cap, multiplier)
    assert backoff.delay(n) <= backoff.delay(n + 1)


def test_a_fixed_source_repeats_itself():
    def delays():
        backoff = Backoff(rng=random.Random(3))
        return [backoff.delay(n) for n in range(8)]

    assert delays() == delays()


def test_seeding_the_random_module_does_not_bring_processes_in_step():
    def delays():
        random.seed(1)
        return [Backoff().delay(5) for _ in range(4)]

    assert delays() != delays()


def test_a_copied_or_pickled_backoff_uses_the_source_of_the_process_it_arrives_in():
    backoff = Backoff("equal", base=0.5)
    for twin in (pickle.loads(pickle.dumps(backoff)), copy.deepcopy(backoff)):
        assert twin == backoff
        assert twin.rng is backoff.rng


def test_it_is_frozen_and_prints_what_it_does():
    backoff = Backoff("none")
    with pytest.raises(dataclasses.FrozenInstanceError):
        backoff.cap = 1.0
    assert repr(backoff) == "Backoff(kind='none', base=0.1, cap=5.0, multiplier=2.0)"


@pytest.mark.parametrize(
    ("settings", "error", "said"),
    [
        ({"kind": "jitter"}, ValueError, "'jitter': use one of none, exponential, equal, full"),
        ({"kind": None}, ValueError, "unknown backoff kind None"),
        ({"base": -0.1}, ValueError, "backoff base -0.1 is not a finite number of seconds"),
        ({"base": math.nan}, ValueError, "backoff base nan is not a finite"),
        ({"base": 1e-12}, ValueError, "kind='none' for no delay"),
        ({"base": True}, TypeError, "backoff base must be a number of seconds, not True"),
        ({"cap": math.inf}, ValueError, "backoff cap inf is not a finite"),
        ({"cap": "5"}, TypeError, "backoff cap must be a number of seconds, not '5'"),
        ({"cap": None}, TypeError, "backoff cap must be a number of seconds, not None"),
        ({"cap": 10**400}, ValueError, "give seconds, not milliseconds"),
        ({"cap": 40_000_000}, ValueError, "give seconds, not milliseconds"),
        ({"multiplier": 0.5}, ValueError, "use 1 for a constant delay"),
        ({"multiplier": math.nan}, ValueError, "backoff multiplier nan is not 1 or more"),
        ({"multiplier": math.inf}, ValueError, "backoff multiplier inf is not 1 or more"),
        ({"multiplier": "2"}, TypeError, "backoff multiplier must be a number, not '2'"),
        ({"rng": 4}, TypeError, "backoff rng 4 has no random"),
    ],
)
def test_settings_that_make_no_sense_are_refused_with_fault_and_remedy(settings, error, said):
    with pytest.raises(error) as caught:
        Backoff(**settings)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ((-1,), ValueError, "the number of failures is -1: count from 0 up"),
        ((1.0,), TypeError, "the number of failures must be an int, not 1.0"),
        ((True,), TypeError, "the number of failures must be an int, not True"),
        ((1, -3.0), ValueError, "previous delay -3.0 is not a finite"),
        ((1, math.nan), ValueError, "previous delay nan is not a finite"),
        ((1, "1"), TypeError, "previous delay must be a number of seconds, not '1'"),
    ],
)
def test_odd_arguments_are_refused_with_fault_and_remedy(arguments, error, said):
    with pytest.raises(error) as caught:
        Backoff("decorrelated").delay(*arguments)
    assert said in str(caught.value)
