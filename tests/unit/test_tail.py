"""When a call counts as slow, and when all of them do."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deadq.resilience.tail import NEW_NORMAL_S, Tail, _times
from deadq.testing import clock


@pytest.fixture
def time():
    with clock() as found:
        yield found


def fixed(usual=0.05):
    return Tail(0.95, 0.1, usual)


def feed(tail, *slow):
    for each in slow:
        tail.seen(tail.begin(0.1), 0.1, slow=each)


def until_slow(tail):
    for number in range(1, 1_000):
        feed(tail, True)
        if tail.slow:
            return number
    raise AssertionError("never off")


@pytest.mark.parametrize("usual", [0.001, 0.01, 0.05, 0.2, 0.5])
def test_a_row_of_slow_calls_turns_it_off_and_good_ones_on_again(usual):
    tail = fixed(usual)
    assert until_slow(tail) == pytest.approx(10, abs=2) or usual > 0.05
    good = 0
    while tail.slow:
        feed(tail, False)
        good += 1
    assert good > 3
    assert until_slow(tail) < 100


@pytest.mark.parametrize("usual", [0.01, 0.05])
def test_chance_hardly_ever_does(usual):
    rng = random.Random(1)
    tail, off = fixed(usual), 0
    for _ in range(100_000):
        before = tail.slow
        feed(tail, rng.random() < usual)
        off += tail.slow and not before
    assert off <= 1


def test_there_is_room_between_off_and_on():
    """At a share in between it stays what it was."""
    rng = random.Random(1)
    for before in (False, True):
        tail = fixed()
        if before:
            until_slow(tail)
            feed(tail, *[False] * 30)
        moves = 0
        for _ in range(3_000):
            was = tail.slow
            feed(tail, rng.random() < 0.13)
            moves += was != tail.slow
        assert moves < 20


def test_calls_count_in_the_order_in_which_they_began():
    """Of a thousand that begin together the fifty slow ones are the last to be known."""
    rng = random.Random(2)
    tail = fixed()
    for _ in range(20):
        sights = [(tail.begin(0.1), rng.random() < 0.05) for _ in range(1_000)]
        for sight, slow in sights:
            if not slow:
                tail.seen(sight, 0.1, slow=False)
        for sight, slow in sights:
            if slow:
                tail.seen(sight, 0.1, slow=True)
        assert not tail.slow
    assert not tail._under_way


@given(st.lists(st.sampled_from([True, False, None]), max_size=50), st.randoms())
def test_however_they_end_none_is_left(ends, rng):
    tail = fixed()
    sights = [(tail.begin(0.1), end) for end in ends]
    rng.shuffle(sights)
    for sight, end in sights:
        tail.seen(sight, 0.1, slow=end)
        tail.seen(sight, 0.1, slow=not end)  # the first word counts
    assert not tail._under_way


def test_a_measured_delay_stays_while_all_are_slow_and_for_minutes_at_most(time):
    tail = Tail(0.95, None, 0.05)
    assert tail.delay() is None
    for _ in range(100):
        tail.record(0.1)
    delay = tail.delay()
    assert delay == pytest.approx(0.1, rel=0.05)
    for _ in range(20):
        tail.seen(tail.begin(0.1), delay, slow=True)
    assert tail.slow
    for _ in range(1_000):
        tail.record(3.0)
    assert tail.delay() == delay
    time.advance(NEW_NORMAL_S - 1)
    for _ in range(1_000):
        tail.record(3.0)
    assert (tail.delay(), tail.slow) == (delay, True)
    time.advance(1)
    assert tail.delay() == pytest.approx(3.0, rel=0.05)
    assert not tail.slow


def test_it_is_measured_anew_when_the_spell_is_over(time):
    tail = Tail(0.95, None, 0.05)
    for _ in range(100):
        tail.record(0.1)
    delay = tail.delay()
    for _ in range(20):
        tail.seen(tail.begin(0.1), delay, slow=True)
    for _ in range(1_000):
        tail.record(0.5)
    while tail.slow:
        tail.seen(tail.begin(0.1), delay, slow=False)
    assert tail.delay() == pytest.approx(0.5, rel=0.05)


def test_odds_are_what_is_multiplied():
    assert _times(0.05, 4) == pytest.approx(0.1739, abs=1e-4)
    assert _times(0.05, 2) == pytest.approx(0.0952, abs=1e-4)
    assert _times(0.5, 4) == pytest.approx(0.8)


def test_a_call_of_which_nobody_will_tell_holds_up_the_others_for_half_a_minute_at_most(time):
    """Its loop ended before it, or it is a call of the process from which this one was forked."""
    tail = fixed()
    lost = tail.begin(0.1)
    for _ in range(40):
        tail.seen(tail.begin(0.1), 0.1, slow=True)
    assert not tail.slow
    time.advance(31.0)
    tail.seen(tail.begin(0.1), 0.1, slow=True)
    assert tail.slow
    assert not tail._under_way
    tail.seen(lost, 0.1, slow=False)
    assert not tail._under_way
