"""C59: a value changed without an error. C23: same key, other payload. What the codec owes them.

A value comes back equal in value and type, or is refused with the place named; and two requests
under one key are told apart by all that makes them different, and by nothing else.
"""

import math
import struct
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest

from deadq.codec import EncodeError, decode, encode, fingerprint

EXACT = [
    *(
        datetime(year, 1, 19, 3, 14, 8, 999_999, tzinfo=zone)
        for year in (2038, 2100, 9999)
        for zone in (UTC, ZoneInfo("Europe/Berlin"), timezone(timedelta(hours=5, minutes=45)), None)
    ),
    Decimal("0.1"),
    Decimal("0.10"),
    2**63,
    2**64,
    -(2**63) - 1,
    10**400,
    b"bytes",
    (1, (2, [3])),
    {1, "two", (3,)},
    frozenset({1}),
    {7: "seven", -1: "minus one", 2**64: "large"},
    {},
    -0.0,
]

# As the first argument, as a named one, deep inside, and as what a handler returns.
WRAPS = {
    "args[0]": lambda value: ((value,), {}),
    "kwargs['when']": lambda value: ((), {"when": value}),
    "args[0][1]['x'][0]": lambda value: (([0, {"x": (value,)}],), {}),
    "result": lambda value: value,
}


def what(place):
    return "result" if place == "result" else "call"


def same(one, other):
    """Equal in value and type, at every depth."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        pairs = zip(one.items(), other.items(), strict=True)
        return len(one) == len(other) and all(map(same_pair, pairs))
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, set | frozenset):
        return one == other and sorted(map(str, map(type, one))) == sorted(
            map(str, map(type, other))
        )
    if isinstance(one, datetime):
        return one == other and one.utcoffset() == other.utcoffset() and one.fold == other.fold
    if isinstance(one, Decimal):
        return one.as_tuple() == other.as_tuple()
    if isinstance(one, float):
        return struct.pack(">d", one) == struct.pack(">d", other)
    return one == other


def same_pair(pair):
    (key, value), (other_key, other_value) = pair
    return same(key, other_key) and same(value, other_value)


def _named(value):
    # a set shows itself in another order in each process
    shown = len(value) if isinstance(value, set | frozenset) else value
    return f"{type(value).__name__} {shown!s:.32}"


@pytest.mark.parametrize("place", WRAPS)
@pytest.mark.parametrize("value", EXACT, ids=_named)
def test_c59_comes_back_equal_in_value_and_type(value, place):
    wrapped = WRAPS[place](value)
    assert same(decode(encode(wrapped, what=what(place))), wrapped)


@pytest.mark.parametrize("place", WRAPS)
def test_c59_nan_comes_back_as_the_same_nan(place):
    for bits in (0x7FF8000000000000, 0xFFF8000000000000, 0x7FF8000000000123):
        nan = struct.unpack(">d", struct.pack(">Q", bits))[0]
        assert math.isnan(nan)
        wrapped = WRAPS[place](nan)
        assert same(decode(encode(wrapped)), wrapped)


@pytest.mark.parametrize("place", WRAPS)
def test_c59_a_lone_surrogate_is_refused_with_its_place(place):
    with pytest.raises(EncodeError) as caught:
        encode(WRAPS[place]("caf\udce9"), what=what(place))
    assert str(caught.value).startswith(
        rf"{place}: text with a lone surrogate ('\udce9' at 3) cannot travel"
    )


@pytest.mark.parametrize("place", WRAPS)
@pytest.mark.parametrize(
    "wrap", [lambda v: [v], lambda v: (v,), lambda v: {"k": v}, lambda v: frozenset({v})]
)
def test_c59_2000_levels_are_refused_with_their_place(place, wrap):
    value = 0
    for _ in range(2_000):
        value = wrap(value)
    with pytest.raises(EncodeError) as caught:
        encode(WRAPS[place](value), what=what(place))
    assert str(caught.value).startswith(place)
    assert "nested more than 128 levels deep" in str(caught.value)


def print_of(*args, task="charge", **kwargs):
    call = (args, kwargs)
    return fingerprint(task, call, encode(call, what="call"))


def test_c23_another_payload_or_task_is_another_request():
    base = print_of({"amount": 10, "currency": "EUR"})
    others = [
        print_of({"amount": 11, "currency": "EUR"}),
        print_of({"amount": 10.0, "currency": "EUR"}),
        print_of({"amount": "10", "currency": "EUR"}),
        print_of({"amount": Decimal(10), "currency": "EUR"}),
        print_of({"amount": True, "currency": "EUR"}),
        print_of({"amount": 10}),
        print_of({"amount": 10, "currency": "EUR", "note": None}),
        print_of({"amount": "EUR", "currency": 10}),
        print_of([{"amount": 10, "currency": "EUR"}]),
        print_of(amount=10, currency="EUR"),
        print_of({"amount": 10, "currency": "EUR"}, None),
        print_of({"amount": 10, "currency": "EUR"}, task="refund"),
    ]
    assert len({base, *others}) == len(others) + 1


def test_c23_fields_in_another_order_are_the_same_request():
    assert print_of({"amount": 10, "currency": "EUR"}) == print_of(
        {"currency": "EUR", "amount": 10}
    )
    assert print_of(amount=10, currency="EUR") == print_of(currency="EUR", amount=10)
    one = {"items": [{"sku": "a", "n": 1, 3: "x", None: {(1, 2): 0, (1,): {"p": 1, "q": 2}}}]}
    other = {"items": [{None: {(1,): {"q": 2, "p": 1}, (1, 2): 0}, 3: "x", "n": 1, "sku": "a"}]}
    assert one == other
    assert print_of(one) == print_of(other)
    assert print_of(one) != print_of({"items": [one["items"][0], 1]})


def test_c23_the_order_of_lists_matters():
    assert print_of([1, 2]) != print_of([2, 1])
    assert print_of({1, 2}) == print_of({2, 1})
