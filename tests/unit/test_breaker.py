"""The circuit breaker: late to open, one probe, and a ramp that no wave passes."""

import asyncio
import bisect
import concurrent.futures
import contextvars
import functools
import itertools
import logging
import math
import random
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deadq import (
    BreakerOpen,
    Cancelled,
    DeadlineExceeded,
    DeadlineExpired,
    Interrupt,
    RetryDenied,
    clock,
    testing,
)
from deadq.resilience import Backoff, Breaker, BreakerState, retry
from deadq.resilience.breaker import _held
from deadq.resilience.ramp import Ramp

CLOSED, OPEN, HALF_OPEN, RAMP = BreakerState


class Hand:
    """A clock that is set by hand, as finely as floats are."""

    def __init__(self, at=1_000.0):
        self.at = at

    def monotonic(self):
        return self.at

    def wall_ms(self):
        return self.at * 1_000


@pytest.fixture
def hand():
    with clock.installed(Hand()) as made:
        yield made


def call(breaker, *, fails):
    """One call that ends at once; whether it was let through."""
    try:
        permit = breaker.allow()
    except BreakerOpen:
        return False
    (breaker.failed if fails else breaker.succeeded)(permit)
    return True


def traffic(hand, breaker, rate, length, *, fails=False):
    """Calls, evenly spaced, ``rate`` a second for ``length`` s; when those let through began."""
    begin, through = hand.at, []
    for n in range(round(rate * length)):
        hand.at = begin + n / rate
        if call(breaker, fails=fails):
            through.append(hand.at)
    hand.at = begin + length
    return through


def opened(hand, rate=10.0, **settings):
    """A breaker that an outage has just opened, after a minute that was well."""
    breaker = Breaker(**settings)
    traffic(hand, breaker, rate, 60.0)
    for _ in range(round(600 * rate)):
        hand.at += 1 / rate
        call(breaker, fails=True)
        if breaker.state is OPEN:
            return breaker
    pytest.fail("it did not open in ten minutes")


def in_its_ramp(hand, rate=10.0, **settings):
    breaker = opened(hand, rate, **settings)
    hand.at += 10.0
    assert call(breaker, fails=False)
    assert breaker.state is RAMP
    return breaker


# When it opens.


@pytest.mark.parametrize("rate", [1, 20, 1_000])
def test_a_spike_of_5_s_never_opens_it(hand, rate):
    breaker = Breaker()
    for _ in range(4):
        traffic(hand, breaker, 20, 60.0)
        assert len(traffic(hand, breaker, rate, 5.0, fails=True)) == 5 * rate
    assert len(traffic(hand, breaker, 20, 60.0)) == 1_200


@pytest.mark.parametrize("rate", [1, 20, 500])
def test_an_outage_of_3_minutes_opens_it_after_one(hand, rate):
    breaker = Breaker()
    traffic(hand, breaker, rate, 120.0)
    begin = hand.at
    through = traffic(hand, breaker, rate, 180.0, fails=True)
    lasted = [at - begin for at in through if at - begin <= 71]
    assert 60 <= lasted[-1] <= 71
    assert len(through) - len(lasted) <= 180 / 10  # probes
    assert breaker.state is OPEN


gaps = st.floats(0, 40, allow_nan=False)


@settings(deadline=None)
@given(
    before=st.lists(gaps, max_size=30),
    spike=st.lists(st.floats(0, 5), min_size=1, max_size=200),
    after=st.lists(gaps, max_size=60),
)
def test_whatever_the_traffic_failures_within_5_s_never_open_it(before, spike, after):
    with clock.installed(Hand()) as hand:
        breaker = Breaker(minimum_calls=1)
        for gap in before:
            hand.at += gap
            assert call(breaker, fails=False)
        begin = hand.at
        for at in sorted(spike):
            hand.at = begin + at
            assert call(breaker, fails=True)
        for gap in after:
            hand.at += gap
            assert call(breaker, fails=False)
        assert breaker.state is CLOSED


@settings(deadline=None)
@given(
    phase=st.floats(0, 10),
    seed=st.integers(0, 1_000),
    gap=st.floats(0.1, 2.0),
)
def test_whatever_the_traffic_3_minutes_of_failures_open_it(phase, seed, gap):
    rng = random.Random(seed)
    with clock.installed(Hand(1_000 + phase)) as hand:
        breaker = Breaker()
        for _ in range(50):
            hand.at += rng.uniform(0, gap)
            assert call(breaker, fails=False)
        begin = hand.at
        while breaker.state is CLOSED:
            hand.at += rng.uniform(0, 2 * gap)
            assert call(breaker, fails=True)
        assert 60 <= hand.at - begin <= 180


def test_two_spikes_with_silence_between_are_no_outage(hand):
    breaker = Breaker(minimum_calls=1)
    for _ in range(10):
        traffic(hand, breaker, 100, 5.0, fails=True)
        hand.at += 31.0
    assert breaker.state is CLOSED


def test_calls_that_were_under_way_all_the_time_are_no_silence(hand):
    """Ten threads, each of whose calls times out after 45 s."""
    breaker = Breaker()
    for _ in range(3):
        permits = [breaker.allow() for _ in range(10)]
        hand.at += 45.0
        for permit in permits:
            breaker.failed(permit)
    assert breaker.state is OPEN


def test_a_trickle_does_not_open_it_before_there_were_calls_enough(hand):
    breaker = Breaker(minimum_calls=20)
    for _ in range(19):
        assert call(breaker, fails=True)
        hand.at += 20.0
    assert breaker.state is CLOSED
    assert call(breaker, fails=True)
    assert breaker.state is OPEN


def test_of_a_dependency_that_fails_in_part_it_keeps_off(hand):
    breaker = Breaker()
    for n in range(100_000):
        hand.at += 0.01
        assert call(breaker, fails=n % 5 < 2)  # 40 %
    for n in range(7_000):
        hand.at += 0.01
        call(breaker, fails=n % 5 < 3)  # 60 %
    assert breaker.state is OPEN


def test_a_dependency_that_has_just_recovered_is_not_given_up_for_one_failure(hand):
    breaker = Breaker()
    traffic(hand, breaker, 10, 59.0, fails=True)
    hand.at += 1.0
    traffic(hand, breaker, 10, 5.0)
    assert call(breaker, fails=True)
    assert breaker.state is CLOSED


def test_the_rate_from_before_is_that_of_whole_slots():
    with clock.installed(Hand(1_009.0)) as hand:  # a second before one ends
        breaker = Breaker()
        traffic(hand, breaker, 10, 11.0)
        traffic(hand, breaker, 2, 65.0, fails=True)
        hand.at += 10.0
        assert call(breaker, fails=False)
        assert len(traffic(hand, breaker, 1_000, 60.0)) == pytest.approx(10 * 60 * 0.55, rel=0.05)


def test_the_rate_from_before_is_that_of_idle_times_too(hand):
    breaker = Breaker()
    for _ in range(5):
        traffic(hand, breaker, 40, 10.0)
        hand.at += 30.0
    traffic(hand, breaker, 2, 71.0, fails=True)
    hand.at += 10.0
    assert call(breaker, fails=False)
    assert len(traffic(hand, breaker, 1_000, 60.0)) == pytest.approx(10 * 60 * 0.55, rel=0.35)


def test_a_clock_that_stands_still_moves_nothing(hand):
    breaker = Breaker()
    for _ in range(10_000):
        assert call(breaker, fails=True)
    breaker = opened(hand)
    assert not any(call(breaker, fails=False) for _ in range(1_000))
    breaker = in_its_ramp(hand)
    assert sum(call(breaker, fails=False) for _ in range(1_000)) == 1


# What each setting does: an outcome that differs.


def opens_within(seconds, hand, *, share=1.0, rate=10.0, **settings):
    breaker = Breaker(**settings)
    for n in range(round(seconds * rate)):
        hand.at += 1 / rate
        call(breaker, fails=(n * share) % 1 + share >= 1)
    return breaker.state is not CLOSED


@pytest.mark.parametrize(("ratio", "opens"), [(0.2, True), (0.25, True), (0.3, False)])
def test_failure_ratio_is_the_share_that_counts(hand, ratio, opens):
    assert opens_within(120, hand, share=0.25, failure_ratio=ratio) is opens


@pytest.mark.parametrize(("sustained", "opens"), [(30, True), (60, True), (300, False)])
def test_sustained_is_how_long_calls_have_to_fail(hand, sustained, opens):
    assert opens_within(90, hand, sustained=sustained) is opens


@pytest.mark.parametrize(("calls", "opens"), [(1, True), (902, True), (903, False)])
def test_minimum_calls_is_how_many_have_to_be_seen(hand, calls, opens):
    assert opens_within(90.2, hand, minimum_calls=calls) is opens


@pytest.mark.parametrize("open_for", [1.0, 10.0, 300.0])
def test_open_for_is_how_long_it_waits_before_a_probe(hand, open_for):
    breaker = opened(hand, open_for=open_for)
    hand.at += open_for - 0.001
    assert not call(breaker, fails=False)
    hand.at += 0.001
    assert call(breaker, fails=False)


@pytest.mark.parametrize("length", [10.0, 60.0])
def test_ramp_is_how_long_the_way_back_to_the_whole_rate_takes(hand, length):
    breaker = in_its_ramp(hand, 100.0, ramp=length)
    through = traffic(hand, breaker, 1_000, length)
    assert len(through) == pytest.approx(100 * length * (0.1 + 1) / 2, rel=0.1)
    last = [at for at in through if at >= hand.at - length / 10]
    assert len(last) == pytest.approx(10 * length * 0.955, rel=0.1)


@pytest.mark.parametrize("start", [0.1, 0.5, 1.0])
def test_ramp_start_is_the_share_it_begins_with(hand, start):
    breaker = in_its_ramp(hand, 1_000.0, ramp_start=start)
    assert len(traffic(hand, breaker, 5_000, 1.0)) == pytest.approx(1_000 * start, rel=0.1)


def test_failures_says_what_counts_as_one(hand):
    def is_trouble(error):
        return isinstance(error, LookupError)

    # the other way round than by default
    for raised, opens in ((KeyError(), True), (ConnectionResetError(), False)):
        breaker = Breaker(failures=is_trouble)
        for _ in range(100):
            hand.at += 1.0
            with pytest.raises((type(raised), BreakerOpen)):
                with breaker:
                    raise raised
        assert (breaker.state is not CLOSED) is opens


def test_its_name_stands_in_what_it_says(hand):
    with pytest.raises(BreakerOpen, match=r"^the breaker payments is open$"):
        opened(hand, name="payments").allow()
    with pytest.raises(BreakerOpen, match=r"^the breaker is open$"):
        opened(hand).allow()
    assert repr(Breaker("payments")) == "<Breaker 'payments' closed>"


@pytest.mark.parametrize(
    ("settings", "error", "said"),
    [
        ({"name": 5}, TypeError, "a breaker's name must be a str, not 5"),
        ({"failure_ratio": 0}, ValueError, "failure_ratio 0 is no share: give more than 0"),
        ({"failure_ratio": 1.01}, ValueError, "failure_ratio 1.01 is no share"),
        ({"failure_ratio": math.nan}, ValueError, "failure_ratio nan is no share"),
        ({"failure_ratio": "0.5"}, TypeError, "failure_ratio must be a number, not '0.5'"),
        ({"failure_ratio": True}, TypeError, "failure_ratio must be a number, not True"),
        ({"ramp_start": 0}, ValueError, "ramp_start 0 is no share"),
        ({"ramp_start": None}, TypeError, "ramp_start must be a number, not None"),
        ({"sustained": 0}, ValueError, "breaker sustained must be more than 0 seconds"),
        ({"sustained": math.nan}, ValueError, "breaker sustained must be finite"),
        ({"sustained": "60"}, ValueError, "sustained must be a number of seconds, not str '60'"),
        ({"sustained": 90_000_000}, ValueError, "not between a millisecond and a day"),
        ({"open_for": -1}, ValueError, "breaker open_for must be more than 0 seconds"),
        ({"open_for": math.inf}, ValueError, "breaker open_for must be finite"),
        ({"ramp": 0.0001}, ValueError, "breaker ramp 0.0001 s is not between a millisecond and"),
        ({"minimum_calls": 0}, ValueError, "minimum_calls 0 is not a number from 1 to 100,000"),
        ({"minimum_calls": 10**9}, ValueError, "minimum_calls 1000000000 is not a number"),
        ({"minimum_calls": 20.0}, TypeError, "minimum_calls must be an int, not 20.0"),
        ({"minimum_calls": True}, TypeError, "minimum_calls must be an int, not True"),
        ({"failures": OSError()}, TypeError, "says of an exception whether it is a failure, such"),
        ({"failures": OSError}, TypeError, "lambda error: isinstance(error, OSError), not <class"),
    ],
)
def test_settings_that_make_no_sense_are_refused_with_fault_and_remedy(settings, error, said):
    with pytest.raises(error) as caught:
        Breaker(**settings)
    assert said in str(caught.value)


# The probe.


def test_while_it_is_open_nothing_is_called(hand):
    called = []
    breaker = opened(hand)
    for refused in (breaker(called.append), lambda _: breaker.__enter__()):
        with pytest.raises(BreakerOpen):
            refused(1)
    assert called == []


def test_one_call_probes_and_the_others_are_refused(hand):
    breaker = opened(hand)
    hand.at += 10.0
    permit = breaker.allow()
    assert breaker.state is HALF_OPEN
    with pytest.raises(BreakerOpen, match="is open, and a probe is under way"):
        breaker.allow()
    breaker.succeeded(permit)
    assert breaker.state is RAMP


@pytest.mark.race
def test_of_many_threads_one_probes(hand):
    breaker = opened(hand)
    hand.at += 10.0
    ready, through = threading.Barrier(16), []

    def knock():
        ready.wait()
        for _ in range(100):
            try:
                through.append(breaker.allow())
            except BreakerOpen:
                continue

    threads = [threading.Thread(target=knock) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(through) == 1


def test_threads_ask_one_after_the_other():
    class Slow(Hand):
        """The first who asks what time it is gets no answer for some time."""

        def monotonic(self):
            if threading.current_thread() is first:
                asked.set()
                assert answered.wait(10)
            return self.at

    asked, answered, done = threading.Event(), threading.Event(), threading.Event()
    breaker = Breaker()
    first = threading.Thread(target=breaker.allow)
    second = threading.Thread(target=lambda: (breaker.allow(), done.set()))
    with clock.installed(Slow()):
        first.start()
        assert asked.wait(10)
        second.start()
        assert not done.wait(0.1)
        answered.set()
        assert done.wait(10)
        first.join()
        second.join()


def test_a_probe_that_fails_keeps_it_open(hand):
    breaker = opened(hand)
    for _ in range(5):
        hand.at += 9.999
        assert not call(breaker, fails=True)
        hand.at += 0.001
        assert call(breaker, fails=True)
        assert breaker.state is OPEN


def test_a_probe_that_was_cancelled_leaves_its_place_to_the_next_call(hand):
    breaker = opened(hand)
    hand.at += 10.0
    with pytest.raises(asyncio.CancelledError), breaker:
        raise asyncio.CancelledError
    assert breaker.state is OPEN
    assert call(breaker, fails=False)
    assert breaker.state is RAMP


def test_a_probe_without_an_outcome_is_given_up(hand):
    breaker = opened(hand)
    hand.at += 10.0
    lost = breaker.allow()
    hand.at += 59.999
    assert not call(breaker, fails=False)
    hand.at += 0.001
    permit = breaker.allow()
    breaker.failed(lost)  # too late: it tells of another time
    assert breaker.state is HALF_OPEN
    breaker.succeeded(permit)
    assert breaker.state is RAMP


def test_a_call_from_before_it_opened_is_no_probe(hand):
    breaker = Breaker()
    traffic(hand, breaker, 10, 60.0)
    slow = [breaker.allow() for _ in range(3)]
    while breaker.state is CLOSED:
        hand.at += 0.1
        call(breaker, fails=True)
    breaker.succeeded(slow[0])
    assert breaker.state is OPEN
    hand.at += 10.0
    probe = breaker.allow()
    breaker.failed(slow[1])
    assert breaker.state is HALF_OPEN
    breaker.succeeded(probe)
    breaker.failed(slow[2])
    assert breaker.state is RAMP


@pytest.mark.parametrize("outcome", ["succeeded", "failed", "abandoned"])
def test_what_a_call_from_before_tells_does_not_end_the_probe(hand, outcome):
    breaker = Breaker()
    slow = breaker.allow()
    while breaker.state is CLOSED:
        hand.at += 0.1
        call(breaker, fails=True)
    hand.at += 10.0
    breaker.allow()
    getattr(breaker, outcome)(slow)
    assert breaker.state is HALF_OPEN
    getattr(breaker, outcome)()  # without its permit it counts as the probe
    assert breaker.state is (RAMP if outcome == "succeeded" else OPEN)


def test_after_a_day_without_calls_the_first_one_is_a_probe(hand):
    breaker = opened(hand)
    hand.at += 86_400.0
    assert breaker.state is OPEN
    assert call(breaker, fails=False)
    assert breaker.state is RAMP
    hand.at += 86_400.0
    assert call(breaker, fails=False)
    assert breaker.state is CLOSED


def test_those_who_were_refused_are_spread_over_the_ramp(hand):
    breaker = opened(hand, open_for=10.0, ramp=60.0)

    def hints():
        for _ in range(1_000):
            with pytest.raises(BreakerOpen) as refusal:
                breaker.allow()
            yield refusal.value.retry_after

    waits = sorted(hints())
    assert 10.0 < waits[0] < 12.0
    assert 68.0 < waits[-1] <= 70.0
    assert 38.0 < sum(waits) / len(waits) < 42.0
    hand.at += 10.0
    assert call(breaker, fails=False)
    assert call(breaker, fails=False)
    hand.at += 0.001
    waits = sorted(hints())
    assert 0.0 < waits[0] < 2.0
    assert 58.0 < waits[-1] <= 60.0


# The ramp.


def ramp_integral(rate, start, length):
    """Calls from one instant of the ramp to another, by the definition: s after its beginning."""

    def until(t):
        linear = min(t, length)
        calls = rate * (start * linear + (1 - start) / length * linear**2 / 2)
        if t > length:
            growth = 4 * math.log(2) / length
            calls += rate / growth * math.expm1(growth * (t - length))
        return calls

    return lambda begin, end: until(end) - until(begin)


def windows(through, begin, calls_between):
    """For each window of 100 ms that ends with a call: its calls, and those of the ramp.

    Any other window can be moved towards the beginning of the ramp until it does, and then has
    as many calls, and less of the ramp.
    """
    for at in through:
        opening = max(begin, at - 0.1)
        count = bisect.bisect_right(through, opening + 0.1) - bisect.bisect_left(through, opening)
        yield count, calls_between(opening - begin, opening - begin + 0.1)


def test_no_100_ms_window_after_reopening_exceeds_the_ramp_by_a_tenth(hand):
    """An outage of 3 minutes at 200 calls a second, after which callers ask for 1,000."""
    breaker = Breaker(ramp_start=0.5)
    traffic(hand, breaker, 200, 60.0)
    traffic(hand, breaker, 200, 180.0, fails=True)
    through = []
    while breaker.state is not CLOSED:
        hand.at += 0.001
        if call(breaker, fails=False) and breaker.state is RAMP:
            through.append(hand.at)
    begin = through.pop(0)  # the probe's: with its end the ramp begins
    seen = [count / ramp for count, ramp in windows(through, begin, ramp_integral(200, 0.5, 60.0))]
    assert 1.0 <= max(seen) <= 1.1
    # and no wave comes behind it: it has closed at the rate that they ask for
    assert hand.at - begin == pytest.approx(60 + 60 / 4 * math.log2(1_000 / 200), abs=6.1)
    assert len([at for at in through if at >= hand.at - 0.1]) >= 95


@settings(deadline=None)
@given(
    rate=st.floats(0.5, 5_000),
    start=st.floats(0.01, 1),
    length=st.floats(0.5, 100),
    asked=st.lists(
        st.tuples(st.floats(0, 5), st.integers(1, 60), st.floats(0, 0.005)), max_size=30
    ),
)
def test_whatever_is_asked_for_no_window_exceeds_the_ramp(rate, start, length, asked):
    at, through = 0.0, []
    ramp = Ramp(at, rate, start, length, 20)
    for pause, calls, spacing in asked:
        at += pause
        for _ in range(calls):
            at += spacing
            if ramp.admits(at):
                through.append(at)
    for count, of_ramp in windows(through, 0.0, ramp_integral(rate, start, length)):
        # a tenth above the ramp, or the one call that cannot be divided
        assert count <= max(1.1 * of_ramp, of_ramp + 1) + 1e-6


@settings(deadline=None)
@given(rate=st.floats(0.5, 5_000), start=st.floats(0.01, 1), length=st.floats(0.5, 100))
def test_the_ramp_is_what_it_says(rate, start, length):
    ramp = Ramp(7.0, rate, start, length, 20)
    calls_between = ramp_integral(rate, start, length)
    assert ramp.rate(7.0) == pytest.approx(rate * start)
    assert ramp.rate(7.0 + length) == pytest.approx(rate)
    assert ramp.rate(7.0 + length * 1.25) == pytest.approx(2 * rate)
    for part in (0.0, 0.3, 1.0, 1.2, 2.0):
        assert ramp.calls(7.0 + part * length) == pytest.approx(calls_between(0, part * length))


def test_the_bound_would_notice_a_bucket(hand):
    """Where unused turns are kept, a wave passes: this is what the tests above must see."""
    burst = [hand.at + 10.0 + n / 100_000 for n in range(50)]
    seen = windows(burst, hand.at, ramp_integral(1_000, 0.1, 60.0))
    assert max(count / of_ramp for count, of_ramp in seen) > 1.1


def test_what_arrives_between_two_turns_does_not_lose_them(hand):
    """At 300 a second, of calls that come each millisecond, every third or fourth begins."""
    breaker = in_its_ramp(hand, 300.0, ramp_start=1.0)
    assert len(traffic(hand, breaker, 1_000, 10.0)) >= 2_990


def test_whoever_is_refused_past_the_ramp_waits_for_a_next_turn(hand):
    breaker = in_its_ramp(hand, 10.0, ramp=20.0)
    while len(traffic(hand, breaker, 1_000, 0.5)) < 10:
        assert breaker.state is RAMP
    call(breaker, fails=False)
    with pytest.raises(BreakerOpen, match="is closing, and lets no more calls through at") as soon:
        breaker.allow()
    assert 0 < soon.value.retry_after <= 0.1


def test_a_pause_in_the_ramp_saves_up_no_calls(hand):
    breaker = in_its_ramp(hand, 100.0)
    hand.at += 30.0
    assert sum(call(breaker, fails=False) for _ in range(100)) == 1


def test_a_lonely_caller_is_let_through_and_closes_it(hand):
    breaker = opened(hand, 0.5)
    hand.at += 10.0
    through = 0
    for _ in range(45):
        through += call(breaker, fails=False)
        hand.at += 2.0
    assert through >= 20
    assert breaker.state is CLOSED


def test_it_closes_when_callers_ask_for_no_more_than_before(hand):
    breaker = in_its_ramp(hand, 100.0, ramp=20.0)
    begin = hand.at
    while breaker.state is RAMP:
        traffic(hand, breaker, 100, 0.1)
    assert 20.0 <= hand.at - begin <= 22.2
    assert len(traffic(hand, breaker, 1_000, 1.0)) == 1_000


def test_calls_that_fail_in_the_ramp_open_it_again(hand):
    breaker = in_its_ramp(hand, 100.0)
    traffic(hand, breaker, 100, 20.0)
    assert breaker.state is RAMP
    through = traffic(hand, breaker, 100, 2.0, fails=True)
    assert breaker.state is OPEN
    assert len(through) == 10  # half of minimum_calls
    hand.at += 10.0
    assert call(breaker, fails=False)
    # the ramp is that of the rate before the outage, not of the trickle that it let through
    assert len(traffic(hand, breaker, 1_000, 60.0)) == pytest.approx(60 * 100 * 0.55, rel=0.1)


def test_some_failures_in_the_ramp_do_not_open_it(hand):
    breaker = in_its_ramp(hand, 100.0, ramp=20.0)
    for n in range(2_300):
        hand.at += 0.01
        call(breaker, fails=n % 4 == 0)
    assert breaker.state is CLOSED


def test_a_few_calls_that_failed_keep_it_from_closing(hand):
    breaker = in_its_ramp(hand, 0.5, minimum_calls=20)
    for _ in range(3):
        hand.at += 15.0
        assert call(breaker, fails=True)
    hand.at += 20.0
    assert not call(breaker, fails=True)
    assert breaker.state is OPEN


def test_once_closed_it_opens_again_only_by_an_outage(hand):
    breaker = in_its_ramp(hand, 100.0, ramp=20.0)
    traffic(hand, breaker, 100, 25.0)
    assert breaker.state is CLOSED
    assert len(traffic(hand, breaker, 100, 59.0, fails=True)) == 5_900
    traffic(hand, breaker, 100, 12.0, fails=True)
    assert breaker.state is OPEN


def test_an_outage_that_is_over_is_forgotten(hand):
    breaker = in_its_ramp(hand, ramp=1.0)
    while breaker.state is RAMP:
        traffic(hand, breaker, 10, 0.1)
    for _ in range(50):
        assert call(breaker, fails=True)
    assert breaker.state is CLOSED


def test_what_it_did_not_see_before_the_outage_it_takes_from_the_outage(hand):
    breaker = Breaker()
    traffic(hand, breaker, 50, 65.0, fails=True)
    assert breaker.state is OPEN
    hand.at += 10.0
    assert call(breaker, fails=False)
    assert len(traffic(hand, breaker, 1_000, 60.0)) == pytest.approx(60 * 50 * 0.55, rel=0.1)


# The forms.


def test_what_is_guarded_keeps_its_name_arguments_and_result():
    breaker = Breaker()

    @breaker
    def double(n: int, *, times: int = 2) -> int:
        """Doubles."""
        return n * times

    @breaker
    async def adouble(n: int, *, times: int = 2) -> int:
        return n * times

    assert (double(4), double(4, times=3), double.__name__) == (8, 12, "double")
    assert double.__doc__ == "Doubles."
    assert asyncio.iscoroutinefunction(adouble)
    assert asyncio.run(adouble(4, times=3)) == 12


def test_an_object_that_is_called_like_a_coroutine_function_is_awaited(hand):
    class Bank:
        async def __call__(self, order):
            raise TimeoutError(order)

    async def partly(reason, order):
        raise TimeoutError(reason, order)

    for asked in (Bank(), functools.partial(partly, "slow")):
        breaker = Breaker()
        ask = breaker(asked)
        for _ in range(61):
            with pytest.raises(TimeoutError):
                asyncio.run(ask("17"))
            hand.at += 1.0
        assert breaker.state is OPEN


@pytest.mark.parametrize("form", ["plain", "coroutine", "block", "by hand"])
def test_each_form_counts_failures_and_refuses(hand, form):
    breaker = Breaker()
    called = 0

    @breaker
    def plain():
        nonlocal called
        called += 1
        raise TimeoutError

    @breaker
    async def coroutine():
        nonlocal called
        called += 1
        raise TimeoutError

    def block():
        nonlocal called
        with breaker:
            called += 1
            raise TimeoutError

    def by_hand():
        nonlocal called
        breaker.allow()
        called += 1
        breaker.failed()
        raise TimeoutError

    attempt = {
        "plain": plain,
        "coroutine": lambda: asyncio.run(coroutine()),
        "block": block,
        "by hand": by_hand,
    }[form]
    for _ in range(61):
        with pytest.raises(TimeoutError):
            attempt()
        hand.at += 1.0
    assert called == 61
    with pytest.raises(BreakerOpen):
        attempt()
    assert called == 61


def test_around_a_retry_it_is_the_dependency_that_counts(hand):
    breaker = Breaker()

    @breaker
    @retry(tries=2, backoff=Backoff("none"))
    def ask():
        raise ConnectionResetError

    for _ in range(61):
        with pytest.raises(RetryDenied):
            ask()
        hand.at += 1.0
    assert breaker.state is OPEN


def denied_for(cause):
    error = RetryDenied("not retried", reason="permanent")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    "error",
    [
        asyncio.CancelledError(),
        concurrent.futures.CancelledError(),
        Cancelled(),
        KeyboardInterrupt(),
        Interrupt(),
        BreakerOpen("another is open", retry_after=1.0),
        denied_for(BreakerOpen("another is open", retry_after=1.0)),
        DeadlineExceeded(),
        DeadlineExpired("the deadline has passed"),
    ],
    ids=lambda error: type(error).__qualname__,
)
def test_what_was_given_up_is_neither_failure_nor_success(hand, error):
    failing, healthy = Breaker(), Breaker()
    for n in range(1_000):
        hand.at += 0.1
        for breaker in (failing, healthy):
            with pytest.raises(type(error)), breaker:
                raise error
        assert call(failing, fails=n < 590)
        assert call(healthy, fails=False)
    assert failing.state is healthy.state is CLOSED
    hidden = Breaker()  # the same amid failures does not hide them
    for _ in range(700):
        hand.at += 0.1
        for _ in range(10):
            if hidden.state is CLOSED:
                with pytest.raises(type(error)), hidden:
                    raise error
        call(hidden, fails=True)
    assert hidden.state is OPEN


def test_a_cancelled_task_is_neither(hand):
    async def scenario():
        breaker = opened(hand)
        hand.at += 10.0
        begun = asyncio.Event()

        @breaker
        async def hang():
            begun.set()
            await asyncio.Event().wait()

        task = asyncio.create_task(hang())
        await begun.wait()
        assert breaker.state is HALF_OPEN
        task.cancel()
        await asyncio.wait([task])
        assert breaker.state is OPEN
        assert call(breaker, fails=False)

    asyncio.run(scenario())


def test_blocks_within_blocks_keep_their_permits_apart(hand):
    outer, inner = opened(hand), Breaker()
    hand.at += 10.0
    with outer:
        with inner, pytest.raises(BreakerOpen):
            with outer:
                pytest.fail("one probe at a time")
        assert outer.state is HALF_OPEN
    assert outer.state is RAMP
    assert _held.get() == ()


def test_tasks_and_threads_keep_their_permits_apart(hand):
    breaker = opened(hand)
    hand.at += 10.0

    async def probe(done):
        with breaker:
            await done.wait()

    async def scenario():
        done = asyncio.Event()
        task = asyncio.create_task(probe(done))
        await asyncio.sleep(0)
        with pytest.raises(BreakerOpen):
            await probe(done)
        assert breaker.state is HALF_OPEN
        done.set()
        await task

    asyncio.run(scenario())
    assert breaker.state is RAMP


def test_a_block_may_be_left_in_another_context(hand):
    breaker = opened(hand)
    hand.at += 10.0
    outer = opened(hand)
    hand.at += 10.0
    assert call(outer, fails=True)  # so that its phase has another number
    hand.at += 10.0
    contextvars.copy_context().run(breaker.__enter__)
    with outer:
        breaker.__exit__(None, None, None)
        assert breaker.state is RAMP
    assert outer.state is RAMP


def test_an_error_passes_through_as_it_is():
    error = LookupError("mine")
    with pytest.raises(LookupError) as caught, Breaker():
        raise error
    assert caught.value is error


def test_what_cannot_be_guarded_is_refused_with_fault_and_remedy():
    def steps():
        yield 1

    async def asteps():
        yield 1

    for generator in (steps, asteps):
        with pytest.raises(TypeError, match=r"steps is a generator: put `with breaker:` into"):
            Breaker()(generator)
    with pytest.raises(TypeError, match="a breaker guards a function, not 5"):
        Breaker()(5)


def test_its_moves_are_logged(hand, caplog):
    caplog.set_level(logging.INFO, "deadq.breaker")
    breaker = in_its_ramp(hand, 100.0, name="payments", ramp=20.0)
    traffic(hand, breaker, 100, 25.0)
    levels = [record.levelname for record in caplog.records]
    assert levels == ["WARNING", "INFO", "INFO"]
    assert [record.message.removeprefix("the breaker payments ") for record in caplog.records] == [
        "is open: calls have been failing for 60 s; it refuses all for 10 s",
        "lets calls through again, up to 100 a second in 20 s",
        "is closed: it lets all calls through",
    ]


def test_a_logger_that_calls_by_the_same_breaker_does_not_lock_up(hand):
    breaker = opened(hand)

    class Sending(logging.Handler):
        def emit(self, record):
            said.append(call(breaker, fails=False))

    said = []
    handler = Sending()
    logging.getLogger("deadq.breaker").addHandler(handler)
    try:
        hand.at += 10.0
        done = threading.Thread(target=call, args=(breaker,), kwargs={"fails": True}, daemon=True)
        done.start()
        done.join(10)
        assert not done.is_alive()
    finally:
        logging.getLogger("deadq.breaker").removeHandler(handler)
    assert said == [False]


@pytest.mark.race
def test_many_threads_in_the_ramp_get_no_more_than_one(hand):
    breaker = in_its_ramp(hand, 1_000.0)
    ready, through = threading.Barrier(8), itertools.count()

    def knock():
        ready.wait()
        for _ in range(200):
            if call(breaker, fails=False):
                next(through)

    threads = [threading.Thread(target=knock) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert next(through) == 1


def test_it_goes_by_the_clock_that_tests_move():
    with testing.clock() as moved:
        breaker = Breaker()
        for _ in range(61):
            assert call(breaker, fails=True)
            moved.advance(1.0)
        assert breaker.state is OPEN
        moved.advance(9.0)
        assert call(breaker, fails=False)
        assert breaker.state is RAMP


def test_a_judge_that_raises_leaves_no_probe_under_way(hand):
    """The permit would be held until it is given up, and all calls be refused meanwhile."""
    at_odds = threading.Event()

    def judge(error):
        if at_odds.is_set():
            raise LookupError("the judge")
        return True

    breaker = opened(hand, failures=judge)
    at_odds.set()
    hand.at += 10.0
    with pytest.raises(LookupError, match="the judge"), breaker:
        raise ConnectionError
    assert breaker.state is OPEN
    assert call(breaker, fails=False), "the next call is a probe in its place"
    assert breaker.state is RAMP


def test_generators_side_by_side_leave_no_permits_behind(hand):
    def items(breaker):
        with breaker:
            yield 1

    one, other = Breaker("one"), Breaker("other")
    for _ in range(3):
        assert list(zip(items(one), items(other), strict=True)) == [(1, 1)]
    assert _held.get() == ()
