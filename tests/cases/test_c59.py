"""C59: a value changed without an error, through the whole queue.

The rule: what a handler gets equals what was submitted, in value and type, at every depth, and so
does what the caller gets back. What cannot travel so is refused on submit with its place named and
nothing stored; as a result it fails the job with that reason, and nothing is run again for it.
"""

import asyncio
import collections
import dataclasses
import enum
import fractions
import io
import math
import pathlib
import struct
import threading
import uuid
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from datetime import time as clock_time
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest

from deadq import JobFailed, PayloadTooLarge, State, current_job
from deadq.codec import encode
from tests.cases.support import nothing_stored, says
from tests.cases.test_c59_codec import same


class Color(enum.Enum):
    RED = 1


class Number(enum.IntEnum):
    ONE = 1


class Text(str):
    __slots__ = ()


class MyDict(dict):
    pass


class MyZone(tzinfo):
    def utcoffset(self, when):
        return timedelta(hours=1)

    def dst(self, when):
        return None

    def tzname(self, when):
        return "mine"


@dataclasses.dataclass
class Order:
    cents: int


Point = collections.namedtuple("Point", "x y")  # noqa: PYI024  the untyped kind is tested too


def nested(depth, wrap=lambda inner: [inner]):
    value = 0
    for _ in range(depth):
        value = wrap(value)
    return value


def circular():
    value = [1]
    value.append(value)
    return value


TRAVEL = {
    "none": lambda: None,
    "true": lambda: True,
    "false": lambda: False,
    "0": lambda: 0,
    "1": lambda: 1,
    "-0.0": lambda: -0.0,
    "2**63": lambda: 2**63,
    "2**64": lambda: 2**64,
    "-2**63-1": lambda: -(2**63) - 1,
    "10**400": lambda: 10**400,
    "a float near an int": lambda: 2.0**53,
    "the smallest float": lambda: 5e-324,
    "NaN": lambda: math.nan,
    "-NaN": lambda: struct.unpack(">d", b"\xff\xf8\0\0\0\0\0\1")[0],
    "inf": lambda: math.inf,
    "complex": lambda: complex(-0.0, math.inf),
    "Decimal 0.1": lambda: Decimal("0.1"),
    "Decimal 0.10": lambda: Decimal("0.10"),
    "Decimal NaN": lambda: Decimal("sNaN123"),
    "empty text": lambda: "",
    "text": lambda: "e\u0301 \u00e9 \U0001f600 \0 \u202e \n",
    "bytes": lambda: b"\xff\0",
    "empty bytes": lambda: b"",
    "list": list,
    "tuple": lambda: (1, (2, [3]), ()),
    "set": lambda: {1, "two", (3,), 4.5},
    "frozenset": lambda: frozenset({frozenset(), 1}),
    "dict with odd keys": lambda: {7: "seven", -1: 1, 2**64: 2, None: 3, (1, 2): 4, 1.5: 5},
    "dict in order": lambda: {"z": 1, "a": 2, "m": 3},
    "datetime 2038": lambda: datetime(2038, 1, 19, 3, 14, 8, 999_999, tzinfo=UTC),
    "datetime 2100": lambda: datetime(2100, 1, 1, tzinfo=ZoneInfo("Europe/Berlin")),
    "datetime 9999": lambda: datetime.max.replace(tzinfo=UTC),
    "datetime 1": lambda: datetime.min.replace(tzinfo=UTC),
    "datetime naive": lambda: datetime(2026, 1, 1, 12, 0, 0, 1),
    "datetime fold": lambda: datetime(
        2026, 11, 1, 1, 30, fold=1, tzinfo=ZoneInfo("America/New_York")
    ),
    "datetime odd offset": lambda: datetime(
        2026, 1, 1, tzinfo=timezone(timedelta(hours=5, minutes=45, seconds=1), "odd")
    ),
    "date": lambda: date(9999, 12, 31),
    "time": lambda: clock_time(23, 59, 59, 999_999, tzinfo=UTC),
    "timedelta": lambda: timedelta(days=-999_999_999, microseconds=1),
    "uuid": lambda: uuid.UUID(int=2**128 - 1),
    "128 levels": lambda: nested(126),
    "100 kB": lambda: "x" * 100_000,
    "many": lambda: [*range(20_000)],
    "looks like a call": lambda: {"args": [1], "kwargs": {"value": 2}},
    "looks like a failure": lambda: ["ValueError", "text", "traceback"],
}
TRAVEL_NOT = {
    "a lone surrogate": (lambda: "caf\udce9", "lone surrogate"),
    "2000 levels": (lambda: nested(2000), "nested"),
    "2000 levels of dict": (lambda: nested(2000, lambda inner: {"k": inner}), "nested"),
    "a circle": (circular, "itself"),
    "an object": (object, "object"),
    "a function": (lambda: nested, "function"),
    "a lambda": (lambda: lambda: 1, "function"),
    "a class": (lambda: Order, "type"),
    "a dataclass": (lambda: Order(5), "Order"),
    "a namedtuple": (lambda: Point(1, 2), "Point.*tuple"),
    "an enum": (lambda: Color.RED, "Color"),
    "an int enum": (lambda: Number.ONE, "Number.*int"),
    "a kind of str": (lambda: Text("x"), "Text.*str"),
    "a kind of dict": (lambda: MyDict(a=1), "MyDict.*dict"),
    "an OrderedDict": (lambda: collections.OrderedDict(a=1), "OrderedDict.*dict"),
    "a defaultdict": (lambda: collections.defaultdict(int), "defaultdict.*dict"),
    "a deque": (lambda: collections.deque([1]), "deque"),
    "bytearray": (lambda: bytearray(b"x"), "bytearray.*bytes"),
    "memoryview": (lambda: memoryview(b"x"), "memoryview.*bytes"),
    "a range": (lambda: range(3), "range"),
    "dict keys": (dict[str, int]().keys, "dict_keys"),
    "a generator": (lambda: (i for i in range(3)), "generator"),
    "an exception": (lambda: ValueError("x"), "ValueError"),
    "a lock": (threading.Lock, "lock"),
    "a file": (lambda: io.StringIO("x"), "StringIO"),
    "a path": (lambda: pathlib.PurePosixPath("/x"), "PurePosixPath"),
    "a fraction": (lambda: fractions.Fraction(1, 3), "Fraction"),
    "a zone of one's own": (lambda: datetime(2026, 1, 1, tzinfo=MyZone()), "MyZone|time zone"),
    "a set of objects": (lambda: {Color.RED}, "Color"),
    "an ellipsis": (lambda: ..., "ellipsis"),
    "not implemented": (lambda: NotImplemented, "NotImplementedType"),
}


async def leftover():
    return None


def declare(queue, book):
    @queue.task(within=10.0)
    async def echo(value):
        return value

    @queue.task(within=10.0)
    async def echo_all(*args, **kwargs):
        return [list(args), kwargs]

    @queue.task(within=10.0)
    async def is_what(name, value):
        """Whether the handler sees the very value."""
        return same(value, TRAVEL[name]())

    @queue.task(within=10.0)
    def in_thread(value):
        return value

    @queue.task(within=10.0, retries=3)
    async def make(name):
        """The result is what cannot travel."""
        book.note("start")
        book.note("effect")
        return (TRAVEL_NOT[name][0])()

    @queue.task(within=10.0, retries=3, retry_on=(Exception,))
    def make_in_thread(name):
        book.note("start")
        return {"deep": [TRAVEL_NOT[name][0]()]}

    @queue.task(within=10.0, retries=3)
    async def make_after_a_unit(name):
        book.note("start")
        await current_job().unit("charge", book.note, "effect")
        return (TRAVEL_NOT[name][0])()

    @queue.task(within=10.0, retries=3)
    async def odd_unit(name):
        book.note("start")

        def charge():
            book.note("effect")
            return (TRAVEL_NOT[name][0])()

        return await current_job().unit("charge", charge)

    @queue.task(within=10.0)
    async def return_coroutine():
        book.note("start")
        pending = leftover()
        try:
            return [pending]
        finally:
            pending.close()

    @queue.task(within=10.0)
    async def large(size):
        return "x" * size


@pytest.fixture
def served(scene):
    made = scene(declare)
    made.worker(concurrency=4)
    return made


def test_every_value_comes_back_equal_in_value_and_type(served):
    for name, make in TRAVEL.items():
        for task in ("echo", "in_thread"):
            given = make()
            assert same(getattr(served.tasks, task).call(given), given), (task, name)


def test_the_handler_sees_the_very_value(served):
    for name, make in TRAVEL.items():
        assert served.tasks.is_what.call(name, make()), name
        assert served.tasks.is_what.call(name, value=make()), name


def test_arguments_by_place_and_by_name_and_deep_inside(served):
    for name, make in TRAVEL.items():
        if name in ("128 levels", "100 kB"):
            continue  # four of them in one call are too deep, or too much
        args, kwargs = [make(), [make()]], {"value": make(), "deep": {"a": [{"b": make()}]}}
        assert same(served.tasks.echo_all.call(*args, **kwargs), [args, kwargs]), name


def test_the_asyncio_face_gives_the_same(served):
    async def all_of_them():
        try:
            return [await served.tasks.echo.acall(make()) for make in TRAVEL.values()]
        finally:
            await served.queue.aclose()

    for got, make in zip(asyncio.run(all_of_them()), TRAVEL.values(), strict=True):
        assert same(got, make())


@pytest.mark.parametrize("name", TRAVEL_NOT)
def test_what_cannot_travel_is_refused_on_submit_with_its_place_and_nothing_is_stored(scene, name):
    made = scene(declare)
    make, reason = TRAVEL_NOT[name]
    echo, echo_all = made.tasks.echo, made.tasks.echo_all
    tries = [
        (r"args\[0\]", lambda: echo.enqueue(make())),
        (r"args\[0\]\['a'\]\[1\]", lambda: echo.enqueue({"a": [0, make()]})),
        (r"kwargs'?\]?\['k'\]", lambda: echo_all.enqueue(1, k=make())),
        (r"args\[0\]", lambda: echo.enqueue_many([(1,), (make(),)])),
        (r"args\[0\]", lambda: echo.bind(make())),
        (r"args\[0\]", lambda: asyncio.run(closing(made.queue, echo.aenqueue(make())))),
        (r"args\[0\]", lambda: asyncio.run(closing(made.queue, echo.acall(make())))),
    ]
    for place, attempt in tries:
        with nothing_stored(made.client), pytest.raises((TypeError, ValueError)) as caught:
            attempt()
        says(caught.value, place, reason)


def test_a_result_that_cannot_travel_fails_the_job_and_nothing_is_run_again(served):
    for name, (_, reason) in TRAVEL_NOT.items():
        for task in ("make", "make_in_thread", "make_after_a_unit"):
            key = f"{task} {name}"
            handle = getattr(served.tasks, task).options(key=key).enqueue(name)
            with pytest.raises(JobFailed) as caught:
                handle.result(timeout=5)
            assert caught.value.type_name == "deadq.codec.EncodeError"
            says(ValueError(caught.value.message), "result", reason)
            assert handle.state() == State.FAILED
            assert served.book.starts()[key] == 1
    effects = [note.key for note in served.book.notes("effect")]
    assert len(effects) == len(set(effects)) == 2 * len(TRAVEL_NOT)
    served.calm()


def test_a_units_result_that_cannot_travel_fails_the_job_and_the_unit_is_not_redone(served):
    for name, (_, reason) in TRAVEL_NOT.items():
        key = f"unit {name}"
        with pytest.raises(JobFailed) as caught:
            served.tasks.odd_unit.options(key=key).call(name)
        assert caught.value.type_name == "deadq.codec.EncodeError"
        says(ValueError(caught.value.message), "charge", reason)
    effects = [note.key for note in served.book.notes("effect")]
    assert len(effects) == len(set(effects)) == len(TRAVEL_NOT)


def test_a_result_that_is_a_coroutine_fails_the_job(served):
    with pytest.raises(JobFailed, match="coroutine"):
        served.tasks.return_coroutine.call()


# Sizes.


def sized(made, size):
    """A text whose encoded argument list has that many bytes."""
    text = "x" * size
    while (over := len(encode([text])) - size) > 0:
        text = text[over:]
    return text


@pytest.mark.parametrize("limit", [40, 64, 200, 262_144])
def test_the_limit_of_arguments_is_exact(scene, limit):
    made = scene(declare, max_payload=limit)
    made.worker()
    fits = sized(made, limit)
    assert made.tasks.echo.call(fits) == fits
    over = fits + "x"
    echo = made.tasks.echo
    for attempt in (
        lambda: echo.enqueue(over),
        lambda: echo.bind(over),
        lambda: asyncio.run(closing(made.queue, echo.aenqueue(over))),
    ):
        before = made.stat("offered")
        with pytest.raises(PayloadTooLarge) as caught:
            attempt()
        says(caught.value, f"{limit + 1} bytes", f"{limit}", "reference|max_payload")
        assert caught.value.reason == "too_large"
        assert made.stat("offered") == before
    outcomes = echo.enqueue_many([(fits,), (over,)])
    assert type(outcomes[1]) is PayloadTooLarge
    assert outcomes[0].result() == fits


@pytest.mark.parametrize("around", [64, 128, 192, 256])
def test_every_size_around_where_the_storage_changes_comes_back_whole(served, around):
    for size in range(around - 10, around + 10):
        for value in ("x" * size, b"y" * size, ["z"] * size, {"k": "v" * size}):
            assert served.tasks.echo.call(value) == value


@pytest.mark.parametrize("size", [300_000, 3_000_000])
def test_a_large_result_comes_back_whole(served, size):
    assert served.tasks.large.call(size) == "x" * size


async def closing(queue, work):
    try:
        return await work
    finally:
        await queue.aclose()
