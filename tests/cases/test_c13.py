"""C13: nonsense time accepted by the producer kills the consumer. The first line: the door.

Every odd time is refused with one line that names fault and remedy, wherever it is given, and
nothing is stored. An instant that is merely past is a refusal, DeadlineExpired. What is sensible
but unusual is taken as what it says.
"""

import asyncio
import math
import time
from datetime import UTC, date, datetime, timedelta, timezone
from datetime import time as clock_time
from decimal import Decimal
from enum import IntEnum
from fractions import Fraction

import pytest

from deadq import Deadline, DeadlineExpired, Queue, State, Unmeetable, Worker
from tests.cases.support import nothing_stored, says

STATS = "deadq:{case}:stats"


class Float64(float):
    """As numpy's is: a subclass of float with a text of its own."""

    def __repr__(self):
        return f"np.float64({float(self)!r})"


class Float32:
    """As numpy's is: no subclass of float, though it turns into one."""

    def __float__(self):
        return 1.5


class Level(IntEnum):
    TWO = 2


class TwoLines:
    """As an array prints itself."""

    def __repr__(self):
        return "[[1 2]\n [3 4]]"


class NoText:
    def __repr__(self):
        raise RuntimeError("no text")


NO_NUMBER = {
    "text": "soon",
    "digits": "5",
    "empty": "",
    "bytes": b"5",
    "timedelta": timedelta(seconds=5),
    "date": date(2100, 1, 1),
    "time of day": clock_time(12, 0),
    "Decimal": Decimal("1.5"),
    "Fraction": Fraction(3, 2),
    "complex": 1 + 2j,
    "numpy float32": Float32(),
    "list": [5],
    "dict": {"seconds": 5},
    "function": time.time,
    "type": float,
    "True": True,
    "False": False,
    "two lines": TwoLines(),
    "no text": NoText(),
    "control characters": "5\x00\u202e\n",
}
NO_TIME = {
    "NaN": math.nan,
    "numpy NaN": Float64("nan"),
    "inf": math.inf,
    "-inf": -math.inf,
    "10**400": 10**400,
    "-10**400": -(10**400),
    "10**5000": 10**5000,
}
NO_SPAN = {
    **NO_NUMBER,
    **NO_TIME,
    "-1": -1,
    "-1e-9": -1e-9,
    "-5e-324": -5e-324,
    "datetime": datetime.now(UTC),
}
NO_INSTANT = {
    **NO_NUMBER,
    **NO_TIME,
    "-1": -1,
    "0": 0,
    "1": 1,
    "-0.0": -0.0,
    "seconds": time.time() + 5,
    "seconds, whole": int(time.time()) + 5,
    "10**30": 10**30,
    "1e30": 1e30,
    "microseconds": (time.time() + 5) * 1e6,
    "nanoseconds": time.time_ns(),
    "naive": datetime.now() + timedelta(seconds=5),
}


def by_name(odd):
    return pytest.mark.parametrize("odd", odd.values(), ids=odd)


def declare(queue, book):
    @queue.task(within=5.0)
    async def work(value=None):
        return value

    @queue.task
    async def timeless():
        return None


@pytest.fixture
def made(scene):
    return scene(declare)


# Spans of time.


@by_name({**NO_SPAN, "0": 0, "-0.0": -0.0})
def test_an_odd_within_is_refused_and_nothing_is_stored(made, odd):
    with nothing_stored(made.client), pytest.raises(ValueError) as caught:
        made.tasks.work.options(within=odd).enqueue()
    says(caught.value, "within", "seconds|finite")


@by_name({**NO_SPAN, "0": 0})
def test_an_odd_budget_of_a_task_is_refused_where_it_is_declared(odd):
    queue = Queue("case", capacity=1)
    with pytest.raises(ValueError) as caught:
        queue.task(within=odd)
    says(caught.value, "within")
    with pytest.raises(ValueError) as caught:
        queue.task(timeout=odd)
    says(caught.value, "timeout")
    assert not queue.tasks


@by_name(NO_SPAN)
def test_an_odd_span_makes_no_deadline(odd):
    with pytest.raises(ValueError) as caught:
        Deadline.after(odd)
    says(caught.value, "Deadline.after")


@by_name(NO_SPAN)
def test_an_odd_timeout_of_a_wait_is_refused_and_the_hold_is_kept(made, odd):
    handle = made.tasks.work.enqueue()
    with pytest.raises(ValueError) as caught:
        handle.result(timeout=odd)
    says(caught.value, "timeout")
    with pytest.raises(ValueError) as caught:
        asyncio.run(closing(made.queue, handle.aresult(timeout=odd)))
    says(caught.value, "timeout")
    assert handle.state() == State.READY


@by_name(NO_SPAN)
def test_an_odd_reserve_is_refused(odd):
    with pytest.raises(ValueError) as caught:
        Deadline.after(5).child(reserve=odd)
    says(caught.value, "reserve")


@by_name(NO_SPAN)
def test_odd_times_of_a_queue_and_a_worker_are_refused(odd):
    for name in ("retention", "lease", "horizon"):
        with pytest.raises(ValueError) as caught:
            Queue("case", capacity=1, **{name: odd})
        says(caught.value, name)
    queue = Queue("case", capacity=1)
    declare(queue, None)
    with pytest.raises(ValueError) as caught:
        Worker(queue, grace=odd)
    says(caught.value, "grace")


@pytest.mark.parametrize("name", ["retention", "lease"])
@pytest.mark.parametrize("seconds", [1e15, 1e17, 1e300, 1.7e308, 10**30])
def test_times_of_a_queue_that_no_server_can_count_are_refused_where_they_are_given(name, seconds):
    """An expiry in ms would not fit, and a submit would be half stored."""
    with pytest.raises(ValueError) as caught:
        Queue("case", capacity=1, **{name: seconds})
    says(caught.value, name)


@pytest.mark.parametrize("lease", [1e-9, 0.001, 0.0999])
def test_a_lease_shorter_than_a_renewal_takes_is_refused(lease):
    with pytest.raises(ValueError) as caught:
        Queue("case", capacity=1, lease=lease)
    says(caught.value, "lease", "0.1 s")


@pytest.mark.parametrize("within", [10**30, 1e30, 1e9, 1.7e308], ids=str)
def test_a_within_past_all_reason_is_refused_and_nothing_is_stored(made, within):
    with nothing_stored(made.client), pytest.raises(ValueError) as caught:
        made.tasks.work.options(within=within).enqueue()
    says(caught.value, "ten years|horizon")


@pytest.mark.parametrize("within", [8 * 86_400, 1e30])
def test_a_budget_past_the_horizon_is_refused_where_it_is_given(made, within):
    """An HTTP handler answers 400 to what options() refuses; a submit's errors are another kind."""
    for give in (
        lambda: made.tasks.work.options(within=within),
        lambda: made.queue.task(name="far", within=within)(lambda: None),
        lambda: made.queue.replay("k", within=within),
    ):
        with pytest.raises(ValueError) as caught:
            give()
        says(caught.value, "within=.* horizon of 604800 s", "horizon=")


def test_a_deadline_past_the_horizon_is_refused_where_it_is_given(made):
    with pytest.raises(ValueError) as caught:
        made.tasks.work.options(deadline=Deadline.after(8 * 86_400))
    says(caught.value, "horizon", "horizon=")


@pytest.mark.parametrize("within", [Float64(1.5), Level.TWO, 1, 2.5, 5e-324 + 1.0], ids=repr)
def test_whatever_is_a_number_of_seconds_is_taken(made, within):
    handle = made.tasks.work.options(within=within).enqueue()
    assert float(within) - 1 < handle.deadline.remaining() <= float(within)
    stored = int(made.client.hget(made.key("job", handle.id), "deadline"))
    assert abs(stored - made.now_ms() - float(within) * 1000) < 1000


# Instants.


@by_name(NO_INSTANT)
def test_an_odd_deadline_is_refused_and_nothing_is_stored(made, odd):
    with nothing_stored(made.client), pytest.raises(ValueError) as caught:
        made.tasks.work.options(deadline=odd).enqueue()
    says(caught.value, "deadline")


@by_name(NO_INSTANT)
def test_an_odd_not_before_is_refused_and_nothing_is_stored(made, odd):
    with nothing_stored(made.client), pytest.raises(ValueError) as caught:
        made.tasks.work.options(not_before=odd).enqueue()
    says(caught.value, "not_before")


@by_name(NO_INSTANT)
def test_an_odd_instant_makes_no_deadline(odd):
    with pytest.raises(ValueError) as caught:
        Deadline.at(odd)
    says(caught.value, "deadline")


@by_name(NO_INSTANT)
def test_the_asyncio_face_refuses_alike(made, odd):
    with nothing_stored(made.client), pytest.raises(ValueError) as caught:
        asyncio.run(closing(made.queue, made.tasks.work.options(deadline=odd).aenqueue()))
    says(caught.value, "deadline")


def test_seconds_given_for_milliseconds_are_named_as_such():
    with pytest.raises(ValueError) as caught:
        Deadline.at(time.time() + 5)
    says(caught.value, "seconds given for milliseconds", r"Deadline\.after")


PAST = {
    "a millisecond ago": lambda: time.time() * 1000 - 1,
    "an hour ago": lambda: int(time.time() * 1000) - 3_600_000,
    "1974": lambda: datetime(1974, 1, 1, tzinfo=UTC),
    "1018": lambda: datetime(1018, 1, 1, tzinfo=UTC),
    "300": lambda: datetime(300, 1, 1, tzinfo=UTC),
    "the year 1": lambda: datetime.min.replace(tzinfo=UTC),
    "the year 1, east": lambda: datetime.min.replace(tzinfo=timezone(timedelta(hours=14))),
    "a Deadline of 1018": lambda: Deadline.at(datetime(1018, 1, 1, tzinfo=UTC)),
}


@pytest.mark.parametrize("instant", PAST.values(), ids=PAST)
def test_a_past_deadline_is_dead_on_arrival_and_nothing_is_stored(made, instant):
    work = made.tasks.work
    made.queue.connect()
    submits = [
        lambda bound: bound.enqueue(),
        lambda bound: bound.call(),
        lambda bound: asyncio.run(closing(made.queue, bound.aenqueue())),
        lambda bound: asyncio.run(closing(made.queue, bound.acall())),
    ]
    with nothing_stored(made.client, but=STATS):
        for submit in submits:
            with pytest.raises(DeadlineExpired) as caught:
                submit(work.options(deadline=instant()))
            says(caught.value, "deadline")
            assert caught.value.reason == "expired"
            assert caught.value.retry_after is None  # it is this caller's time that is over
        (outcome,) = work.options(deadline=instant()).enqueue_many([()])
        assert isinstance(outcome, DeadlineExpired)
        (outcome,) = made.queue.enqueue_many([work.options(deadline=instant()).bind()])
        assert isinstance(outcome, DeadlineExpired)


FAR = {
    "8 days": lambda: datetime.now(UTC) + timedelta(days=8),
    "300 years": lambda: datetime.now(UTC) + timedelta(days=300 * 365),
    "the year 9999": lambda: datetime.max.replace(tzinfo=UTC),
    "the year 9999, west": lambda: datetime.max.replace(tzinfo=timezone(timedelta(hours=-12))),
    "8 days in ms": lambda: time.time() * 1000 + 8 * 86_400_000,
    "a Deadline in a year": lambda: Deadline.after(366 * 86_400),
}


@pytest.mark.parametrize("instant", FAR.values(), ids=FAR)
def test_a_deadline_past_the_horizon_is_refused_and_nothing_is_stored(made, instant):
    with nothing_stored(made.client), pytest.raises(ValueError) as caught:
        made.tasks.work.options(deadline=instant()).enqueue()
    says(caught.value, "horizon", "raise horizon=|earlier")


def test_the_horizon_can_be_raised(scene):
    made = scene(declare, horizon=10 * 86_400.0)
    handle = made.tasks.work.options(deadline=datetime.now(UTC) + timedelta(days=9)).enqueue()
    assert handle.state() == State.READY


def test_no_deadline_at_all_is_refused_and_nothing_is_stored(made):
    with nothing_stored(made.client), pytest.raises(ValueError) as caught:
        made.tasks.timeless.enqueue()
    says(caught.value, "timeless", "no deadline", r"within")


def test_two_deadlines_are_refused_and_nothing_is_stored(made):
    with nothing_stored(made.client), pytest.raises(ValueError) as caught:
        made.tasks.work.options(within=1.0, deadline=Deadline.after(1))
    says(caught.value, "within or deadline", "not both")


def test_a_fraction_of_a_millisecond_never_makes_a_deadline_later(made):
    instant = datetime.now(UTC) + timedelta(minutes=1)
    for micros in (0, 1, 499, 500, 999):
        moment = instant.replace(microsecond=123_000 + micros)
        handle = made.tasks.work.options(deadline=moment).enqueue()
        stored = int(made.client.hget(made.key("job", handle.id), "deadline"))
        assert stored == moment.replace(microsecond=123_000).timestamp() * 1000


@pytest.mark.parametrize("kind", [int, float, Float64], ids=lambda kind: kind.__name__)
def test_an_instant_in_milliseconds_is_stored_to_the_millisecond(made, kind):
    instant = kind(made.now_ms() + 30_000)
    handle = made.tasks.work.options(deadline=instant).enqueue()
    assert int(made.client.hget(made.key("job", handle.id), "deadline")) == int(instant)


# The earliest start.


def test_a_not_before_in_the_past_means_at_once(made):
    for past in (datetime(1018, 1, 1, tzinfo=UTC), made.now_ms() - 1, Deadline.after(0)):
        assert made.tasks.work.options(not_before=past).enqueue().state() == State.READY


@pytest.mark.parametrize(
    "start",
    [
        lambda: datetime.now(UTC) + timedelta(seconds=6),
        lambda: datetime.max.replace(tzinfo=UTC),
        lambda: Deadline.after(6),
        lambda: time.time() * 1000 + 6000,
    ],
)
def test_a_start_after_the_deadline_cannot_be_met_and_nothing_is_stored(made, start):
    made.queue.connect()
    with nothing_stored(made.client, but=STATS), pytest.raises(Unmeetable) as caught:
        made.tasks.work.options(not_before=start()).enqueue()
    says(caught.value, "deadline|not_before")


def test_a_start_before_the_deadline_waits_for_it(made):
    start = datetime.now(UTC) + timedelta(seconds=3)
    handle = made.tasks.work.options(not_before=start).enqueue()
    assert handle.state() == State.LATER
    assert made.client.zscore(made.key("later"), handle.id) == start.timestamp() * 1000 // 1


# Other odd options.

ODD_OPTIONS = [
    ({"retries": -1}, ValueError, "retries"),
    ({"retries": 1001}, ValueError, "retries"),
    ({"retries": 10**5000}, ValueError, "retries"),
    ({"retries": 1.0}, TypeError, "retries"),
    ({"retries": True}, TypeError, "retries"),
    ({"retries": "3"}, TypeError, "retries"),
    ({"retries": math.nan}, TypeError, "retries"),
    ({"criticality": "high"}, ValueError, "criticality.*sheddable"),
    ({"criticality": ""}, ValueError, "criticality"),
    ({"criticality": 1}, ValueError, "criticality"),
    ({"criticality": "CRITICAL"}, ValueError, "criticality"),
    ({"criticality": "a\nb"}, ValueError, "criticality"),
]


@pytest.mark.parametrize(("options", "kind", "text"), ODD_OPTIONS, ids=range(len(ODD_OPTIONS)))
def test_other_odd_options_are_refused_and_nothing_is_stored(made, options, kind, text):
    with nothing_stored(made.client), pytest.raises(kind) as caught:
        made.tasks.work.options(**options).enqueue()
    says(caught.value, text)


def test_unknown_options_are_refused_and_nothing_is_stored(made):
    with nothing_stored(made.client), pytest.raises(TypeError, match="withn"):
        made.tasks.work.options(withn=3.0)


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [((1, 2), {}), ((), {"valu": 1}), ((1,), {"value": 1}), ((1, 2, 3), {"x": 4})],
)
def test_arguments_that_do_not_fit_the_handler_are_refused_and_nothing_is_stored(
    made, args, kwargs
):
    with nothing_stored(made.client):
        with pytest.raises(TypeError) as caught:
            made.tasks.work.enqueue(*args, **kwargs)
        says(caught.value)
        with pytest.raises(TypeError):
            made.tasks.work.enqueue_many([(1,), args, (2,)] if not kwargs else [(1, 2)])


def test_one_bad_call_among_many_submits_none(made):
    calls = [(1,), (2,), (object(),), (4,)]
    with nothing_stored(made.client), pytest.raises((TypeError, ValueError)) as caught:
        made.tasks.work.enqueue_many(calls)
    says(caught.value, "object")
    with nothing_stored(made.client), pytest.raises((TypeError, ValueError)):
        asyncio.run(closing(made.queue, made.tasks.work.aenqueue_many(calls)))


@pytest.mark.parametrize("calls", ["ab", ["ab"], [5], [None], [{"value": 1}], 5, None, b"ab"])
def test_calls_that_are_no_tuples_are_refused_and_nothing_is_stored(made, calls):
    """A text is a sequence too: ("ab",) was meant, and ("a", "b") would be sent."""
    with nothing_stored(made.client), pytest.raises(TypeError) as caught:
        made.tasks.work.enqueue_many(calls)
    says(caught.value)


@pytest.mark.parametrize("calls", [["x"], [5], [None], 5, None])
def test_a_batch_of_what_was_never_bound_is_refused_and_nothing_is_stored(made, calls):
    with nothing_stored(made.client), pytest.raises(TypeError) as caught:
        made.queue.enqueue_many(calls)
    says(caught.value)


async def closing(queue, work):
    try:
        return await work
    finally:
        await queue.aclose()
