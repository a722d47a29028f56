"""The server's clock, as estimated from round trips; the host's wall clock decides nothing."""

import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deadq import clock
from deadq.clock import ServerClock, SystemClock, installed, jittered


class Hands:
    def __init__(self, monotonic=0.0, wall_ms=0.0):
        self.now = monotonic
        self.wall = wall_ms

    def monotonic(self):
        return self.now

    def wall_ms(self):
        return self.wall


@pytest.fixture
def hands():
    with installed(Hands(50.0, 1.8e12)) as found:
        yield found


def test_before_the_first_reply_the_hosts_clock_has_to_do(hands):
    server = ServerClock()
    assert not server.known
    assert server.now_ms() == hands.wall
    hands.now += 1
    hands.wall += 1000
    assert server.now_ms() == hands.wall


def test_a_reply_makes_the_servers_clock_known_and_the_hosts_irrelevant(hands):
    server = ServerClock()
    server.learn(1_900_000_000_000, 50.0, 50.010)
    assert server.known
    assert server.at_ms(50.005) == pytest.approx(1_900_000_000_000, abs=6)
    hands.wall -= 90_000
    hands.now += 3
    assert server.now_ms() == pytest.approx(1_900_000_003_000, abs=6)


def test_a_narrower_bound_replaces_a_wider_one(hands):
    server = ServerClock()
    server.learn(1000, 0.0, 1.0)
    server.learn(2000, 1.0, 1.002)
    assert server.at_ms(1.001) == pytest.approx(2000, abs=2)


def test_a_wider_bound_that_agrees_changes_nothing(hands):
    server = ServerClock()
    server.learn(2000, 1.0, 1.002)
    before = server.at_ms(5.0)
    server.learn(6300, 5.0, 6.0)
    assert server.at_ms(5.0) == before


def test_a_server_that_steps_is_followed_at_once(hands):
    server = ServerClock()
    server.learn(2000, 1.0, 1.002)
    server.learn(92_000 + 1000, 2.0, 2.3)
    assert server.at_ms(2.15) == pytest.approx(93_000, abs=200)
    server.learn(3_100, 2.4, 2.7)
    assert server.at_ms(2.55) == pytest.approx(3_100, abs=200)


def test_a_better_bound_puts_no_later_deadline_before_an_earlier_one(hands):
    server = ServerClock()
    hands.now = 1.1
    server.learn(2000, 1.0, 1.1)  # read at the end of a long trip: the estimate runs 50 ms ahead
    earlier = server.stamp_ms(hands.now + 10)
    hands.now += 0.001
    server.learn(2001, 1.1005, 1.101)
    stamps = []
    for _ in range(200):
        stamps.append(server.stamp_ms(hands.now + 10))
        hands.now += 0.001
    assert stamps[0] >= earlier
    assert stamps == sorted(stamps)
    assert server.at_ms(hands.now) == pytest.approx(900 + hands.now * 1000, abs=2)
    assert server.stamp_ms(hands.now) == server.at_ms(hands.now)


def test_a_server_that_stepped_back_is_followed_by_what_is_submitted_too(hands):
    server = ServerClock()
    hands.now = 2.3
    server.learn(92_000, 1.0, 1.002)
    server.learn(3_000, 2.0, 2.3)
    assert server.stamp_ms(hands.now) == server.at_ms(hands.now)


@given(
    offset=st.floats(-1e12, 1e12),
    drift=st.floats(-0.0004, 0.0004),
    trips=st.lists(
        st.tuples(st.floats(0, 30), st.floats(0.0001, 2), st.floats(0, 1)), min_size=1, max_size=30
    ),
)
def test_the_estimate_is_never_off_by_more_than_the_last_trip(offset, drift, trips):
    """A server whose clock drifts, asked at random; each trip bounds it by its own length."""
    server, now = ServerClock(), 100.0

    def true_ms(at):
        return offset + at * 1000 * (1 + drift)

    for pause, length, share in trips:
        sent = now + pause
        now = sent + length
        server.learn(int(true_ms(sent + length * share)), sent, now)
        error = abs(server.at_ms(now) - true_ms(now))
        assert error <= length * 1001 + 2


@given(st.floats(-1e6, 1e6))
def test_there_and_back_is_the_same_instant(ahead):
    with installed(Hands(50.0, 1.8e12)):
        server = ServerClock()
        server.learn(1_900_000_000_000, 50.0, 50.01)
        monotonic = server.monotonic_at(1_900_000_000_000 + ahead)
        assert server.at_ms(monotonic) == pytest.approx(1_900_000_000_000 + ahead, abs=0.01)


def test_the_real_clock_is_in_use_unless_a_test_installs_another():
    assert isinstance(clock.current(), SystemClock)
    assert abs(clock.current().wall_ms() - time.time() * 1000) < 1000
    assert abs(clock.monotonic() - time.monotonic()) < 1
    with installed(Hands(7.0)) as outer:
        assert clock.current() is outer
        assert clock.monotonic() == 7.0
        with installed(Hands(8.0)):
            assert clock.monotonic() == 8.0
        assert clock.current() is outer
    assert isinstance(clock.current(), SystemClock)


def test_the_real_clock_is_back_after_an_error():
    with pytest.raises(LookupError), installed(Hands()):
        raise LookupError
    assert isinstance(clock.current(), SystemClock)


def test_hints_are_spread_evenly_around_what_they_say():
    random.seed(7)
    hints = [jittered(2.0) for _ in range(2000)]
    assert 1.0 <= min(hints) < 1.1
    assert 2.9 < max(hints) <= 3.0
    assert sum(hints) / len(hints) == pytest.approx(2.0, abs=0.05)


def test_the_round_trip_is_the_mean_of_the_last_few(hands):
    server = ServerClock()
    assert server.round_trip_s == 0.0
    server.learn(1.8e12, 50.0, 50.1)
    assert server.round_trip_s == pytest.approx(0.1)
    for _ in range(100):
        server.learn(1.8e12, 50.0, 50.02)
    assert server.round_trip_s == pytest.approx(0.02, rel=0.01)


def test_a_call_that_had_to_wait_hardly_changes_the_round_trip(hands):
    server = ServerClock()
    server.learn(1.8e12, 50.0, 50.01)
    server.learn(1.8e12, 50.0, 110.0)
    assert server.round_trip_s == pytest.approx(0.01 * 9 / 8)
