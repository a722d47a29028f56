"""Deadlines in headers: what is read of them, and what is told to others."""

import math

import pytest

from deadq import Deadline
from deadq.clock import installed
from deadq.edge import BadHeader
from deadq.edge.headers import deadline_of, headers_for
from deadq.testing import Clock

MOST = 30.0


@pytest.fixture
def clock():
    with installed(Clock()) as moved:
        yield moved


def left(clock, **headers):
    """Seconds that a request with these headers is given."""
    named = {name.replace("_", "-"): str(value) for name, value in headers.items()}
    return deadline_of(named.get, MOST).remaining()


def wall(clock, seconds):
    return int(clock.wall_ms() + seconds * 1000)


def test_without_a_header_it_is_what_the_service_gives(clock):
    assert left(clock) == pytest.approx(MOST)


@pytest.mark.parametrize(
    ("name", "said", "seconds"),
    [
        ("x_timeout_ms", "1500", 1.5),
        ("x_timeout_ms", " 1500\t", 1.5),
        ("x_timeout_ms", "0.25", 0.00025),
        ("x_timeout_ms", "0", 0.0),
        ("x_timeout_ms", "29999", 29.999),
        ("x_timeout_ms", "60000", MOST),
        ("x_timeout_ms", "9" * 18, MOST),
        ("grpc_timeout", "2S", 2.0),
        ("grpc_timeout", "1500m", 1.5),
        ("grpc_timeout", "99999999u", MOST),
        ("grpc_timeout", "2500000u", 2.5),
        ("grpc_timeout", "99999999n", 0.099999999),
        ("grpc_timeout", "1M", MOST),
        ("grpc_timeout", "99999999H", MOST),
    ],
)
def test_a_duration(clock, name, said, seconds):
    assert left(clock, **{name: said}) == pytest.approx(seconds, abs=1e-6)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        *(
            ("x_timeout_ms", said)
            for said in ("", " ", "-1", "+1", "1e3", "NaN", "inf", "1.", ".5")
        ),
        *(("x_timeout_ms", said) for said in ("1,5", "\uff11\uff15", "1_000", "0x10", "9" * 19)),
        *(("x_timeout_ms", said) for said in (".5", "1500ms", "1.5s", "'1'", "1\x00", "None")),
        *(("grpc_timeout", said) for said in ("", "S", "1", "1s", "123456789S", "-1S", "1.5S")),
        *(("x_deadline_ms", said) for said in ("", "soon", "-5", "1.5e12", "1767225600", "9" * 18)),
        *(("x_deadline_ms", said) for said in ("2026-01-01T00:00:00Z", "1767225600.0", "NaN")),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(clock, name, said):
    with pytest.raises(BadHeader) as refused:
        left(clock, **{name: said})
    assert str(refused.value).startswith(name.replace("_", "-"))
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 250


def test_of_two_durations_the_shorter(clock):
    assert left(clock, x_timeout_ms=1500, grpc_timeout="1S") == pytest.approx(1.0)
    assert left(clock, x_timeout_ms=500, grpc_timeout="1S") == pytest.approx(0.5)


def test_an_instant(clock):
    assert left(clock, x_deadline_ms=wall(clock, 4.0)) == pytest.approx(4.0, abs=0.002)
    assert left(clock, x_deadline_ms=wall(clock, 4000.0)) == pytest.approx(MOST)
    assert left(clock, x_deadline_ms=wall(clock, -1.0)) == pytest.approx(-1.0, abs=0.002)


@pytest.mark.parametrize(
    ("apart", "seconds"),
    [(-0.9, 4.1), (-0.3, 4.7), (0.3, 5.0), (0.9, 5.0), (1.1, 5.0), (-1.1, 5.0)]
    + [(sign * apart, 5.0) for apart in (5.0, 50.0, 600.0) for sign in (1, -1)],
)
def test_of_an_instant_and_a_duration_the_earlier_unless_a_clock_is_wrong(clock, apart, seconds):
    found = left(clock, x_timeout_ms=5000, x_deadline_ms=wall(clock, 5.0 + apart))
    assert found == pytest.approx(seconds, abs=0.002)


def test_the_instant_is_kept_to_the_millisecond(clock):
    said = wall(clock, 4.0)
    deadline = deadline_of({"x-deadline-ms": str(said)}.get, MOST)
    assert deadline.exact
    assert headers_for(deadline, margin=0.0)["x-deadline-ms"] == str(said)


def test_what_is_told_is_less_the_margin(clock):
    told = headers_for(Deadline.after(2.0), margin=0.5)
    assert abs(int(told["x-timeout-ms"]) - 1500) <= 1
    assert abs(int(told["x-deadline-ms"]) - wall(clock, 1.5)) <= 1
    assert headers_for(Deadline.after(2.0)).keys() == told.keys()


def test_others_are_told_a_duration_alone(clock):
    assert headers_for(Deadline.after(2.0), margin=0.0, trusted=False).keys() == {"x-timeout-ms"}


@pytest.mark.parametrize("seconds", [0.5, 0.4, 0.0, 0.5005])
def test_with_no_time_left_nothing_is_told(clock, seconds):
    assert headers_for(Deadline.after(seconds), margin=0.5) is None


def test_what_is_told_never_grows_on_its_way_down(clock):
    before = math.inf
    deadline = Deadline.after(3.0)
    while (told := headers_for(deadline, margin=0.15)) is not None:
        deadline = deadline_of(told.get, MOST)
        assert deadline.remaining() < before
        before = deadline.remaining()
        clock.advance(0.01)
    assert before <= 0.16
