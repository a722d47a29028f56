"""Deadlines are instants: immutable, exact where they were given exactly, never growing."""

import asyncio
import copy
import math
import pickle
import threading
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deadq import Deadline
from deadq.clock import ServerClock, installed
from deadq.deadline import NETWORK_MARGIN_S, epoch_ms, seconds, set_ambient


class Hands:
    """A clock that the test moves; monotonic and wall time apart from each other."""

    def __init__(self, monotonic=1000.0, wall_ms=1.8e12):
        self.now = monotonic
        self.wall = wall_ms

    def monotonic(self):
        return self.now

    def wall_ms(self):
        return self.wall


@pytest.fixture
def hands():
    with installed(Hands()) as clock:
        yield clock


def test_after_counts_on_the_monotonic_clock_alone(hands):
    deadline = Deadline.after(5)
    hands.wall += 90_000
    assert deadline.remaining() == 5
    hands.now += 2
    assert deadline.remaining() == 3
    assert not deadline.expired
    assert deadline.monotonic == 1005


def test_the_instant_itself_has_expired(hands):
    deadline = Deadline.after(5)
    hands.now += 5
    assert deadline.expired
    assert deadline.remaining() == 0
    hands.now += 1
    assert deadline.remaining() == -1


@pytest.mark.parametrize("clocked", [True, False])
def test_at_keeps_its_millisecond_whatever_the_clocks_do(hands, clocked):
    server = ServerClock()
    if clocked:
        server.learn(1.9e12, hands.now, hands.now + 0.01)
    instant = 1_900_000_000_123
    deadline = Deadline.at(instant)
    hands.wall += 3_600_000
    hands.now += 7
    assert deadline.server_ms(server) == instant
    assert deadline.on(server).server_ms(server) == instant


def test_at_counts_by_the_servers_clock_once_it_is_known(hands):
    """The host's wall clock is an hour slow; the server's decides."""
    server = ServerClock()
    server.learn(hands.wall + 3_600_000, hands.now, hands.now)
    deadline = Deadline.at(hands.wall + 3_600_000 + 5000)
    assert deadline.remaining() == pytest.approx(3605)
    assert deadline.on(server).remaining() == pytest.approx(5, abs=0.01)
    assert Deadline.after(5).on(server) == Deadline.after(5)


def test_after_is_turned_into_an_instant_by_the_servers_clock(hands):
    server = ServerClock()
    server.learn(1_900_000_000_000, hands.now, hands.now)
    assert abs(Deadline.after(2.5).server_ms(server) - 1_900_000_002_500) <= 1


def test_an_aware_datetime_is_its_millisecond():
    moment = datetime(2030, 5, 6, 7, 8, 9, 123_999, tzinfo=UTC)
    assert epoch_ms(moment) == 1_904_281_689_123
    assert epoch_ms(datetime.min.replace(tzinfo=UTC)) < 0


@given(st.datetimes(timezones=st.timezones()))
def test_an_aware_datetime_is_never_rounded_up(moment):
    exact = (moment - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(milliseconds=1)
    assert -1e-3 <= exact - epoch_ms(moment) < 1 + 1e-3


def test_a_child_keeps_something_back(hands):
    deadline = Deadline.after(1.0)
    assert deadline.child().remaining() == pytest.approx(1.0 - NETWORK_MARGIN_S)
    assert deadline.child(reserve=0.4).remaining() == pytest.approx(0.6)
    assert deadline.child(reserve=1.0) is None
    assert deadline.child(reserve=2.0) is None
    hands.now += 0.9
    assert deadline.child() is None


def test_a_child_of_an_instant_is_an_instant(hands):
    deadline = Deadline.at(hands.wall + 10_000)
    child = deadline.child(reserve=0.1505)
    assert child.server_ms(ServerClock()) == hands.wall + 10_000 - 151


@given(
    st.floats(0.001, 1e6),
    st.lists(
        st.tuples(st.sampled_from(["child", "tighten", "scope"]), st.floats(0, 1e6)), max_size=8
    ),
)
def test_it_never_grows_on_the_way_down(span, steps):
    with installed(Hands()):
        deadline = top = Deadline.after(span)
        for how, by in steps:
            if how == "child":
                deadline = deadline.child(reserve=by) or deadline
            elif how == "tighten":
                deadline = deadline.tighten(Deadline.after(by))
            else:
                with deadline.scope(), Deadline.after(by).scope() as inner:
                    deadline = inner
            assert deadline.remaining() <= top.remaining()
            top = deadline


def test_the_tighter_one_wins(hands):
    early, late = Deadline.after(1), Deadline.after(2)
    assert early.tighten(late) is early
    assert late.tighten(early) is early
    assert early.tighten(None) is early
    assert early < late
    assert sorted([late, early]) == [early, late]


def test_the_ambient_one_is_of_the_block_and_of_the_task():
    assert Deadline.current() is None
    outer, inner = Deadline.after(5), Deadline.after(1)
    with outer.scope() as found:
        assert found is Deadline.current() is outer
        with inner.scope():
            assert Deadline.current() is inner
            with Deadline.after(100).scope() as tightened:
                assert tightened is inner
        assert Deadline.current() is outer
        seen = []
        thread = threading.Thread(target=lambda: seen.append(Deadline.current()))
        thread.start()
        thread.join()
        assert seen == [None]
    assert Deadline.current() is None


def test_the_ambient_one_survives_an_error_and_stays_within_its_task():
    async def task(span):
        with Deadline.after(span).scope() as mine:
            await asyncio.sleep(0)
            assert Deadline.current() is mine

    async def both():
        await asyncio.gather(task(1), task(2))
        assert Deadline.current() is None

    asyncio.run(both())
    with pytest.raises(LookupError), Deadline.after(1).scope():
        raise LookupError
    assert Deadline.current() is None


def test_a_job_sets_its_own_for_its_context():
    async def job(deadline):
        set_ambient(deadline)
        await asyncio.sleep(0)
        return Deadline.current()

    async def both():
        one, other = Deadline.after(1), Deadline.after(2)
        tasks = [asyncio.create_task(job(deadline)) for deadline in (one, other)]
        return await asyncio.gather(*tasks) == [one, other] and Deadline.current() is None

    assert asyncio.run(both())


def test_it_is_immutable_and_made_by_name_only():
    deadline = Deadline.after(1)
    with pytest.raises(AttributeError, match="immutable"):
        deadline._monotonic = 0.0
    with pytest.raises(AttributeError, match="immutable"):
        deadline.anything = 1
    with pytest.raises(TypeError, match=r"Deadline\.after"):
        Deadline()


def test_equal_ones_hash_alike_and_others_are_no_deadlines(hands):
    assert Deadline.after(1) == Deadline.after(1)
    assert hash(Deadline.after(1)) == hash(Deadline.after(1))
    assert Deadline.after(1) != Deadline.after(2)
    assert Deadline.after(1) != 1
    assert "in 1.000 s" in repr(Deadline.after(1))
    with pytest.raises(TypeError):
        assert Deadline.after(1) < 5


@pytest.mark.parametrize("number", [1, 0.5, 1e9, True + 1])
def test_a_number_of_seconds_is_a_float(number):
    assert seconds(number, "x") == float(number)
    assert type(seconds(number, "x")) is float


@pytest.mark.parametrize("number", [0, -0.0])
def test_zero_is_a_span_only_where_it_may_be(number):
    assert seconds(number, "x", positive=False) == 0
    with pytest.raises(ValueError, match="x must be more than 0 seconds"):
        seconds(number, "x")


@pytest.mark.parametrize("number", [math.nan, math.inf, -1, "1", None, True, [], timedelta(1)])
def test_what_is_no_span_is_named(number):
    with pytest.raises(ValueError, match="within must be"):
        seconds(number, "within", positive=False)


@pytest.mark.parametrize("copier", [copy.copy, copy.deepcopy], ids=["copy", "deepcopy"])
def test_a_copy_is_the_same_instant(copier):
    deadline = Deadline.after(1)
    assert copier(deadline) == deadline


def test_it_is_not_packed_for_another_process():
    """The monotonic clock means nothing elsewhere: an instant travels, and a deadline does not."""
    with pytest.raises((TypeError, AttributeError)):
        pickle.loads(pickle.dumps(Deadline.after(1)))
