"""Which failures may pass, whoever raised them; and how long the other side asks to wait."""

import errno
import socket
import ssl
import urllib.error
from datetime import UTC, datetime
from email.message import Message

import httpx
import psycopg
import pytest
import redis.exceptions
import requests

from deadq import (
    DeadlineExceeded,
    DeadlineExpired,
    KeyReused,
    Paused,
    PayloadTooLarge,
    QueueFull,
    RetryDenied,
    StoreUnavailable,
    Unmeetable,
)
from deadq.resilience import hint_of, is_transient, parse
from deadq.resilience.transient import is_outage, is_throttled, status_of

REQUEST = httpx.Request("GET", "http://x/")


def by_httpx(status, headers=()):
    response = httpx.Response(status, headers=list(headers))
    return httpx.HTTPStatusError("", request=REQUEST, response=response)


def by_requests(status, headers=()):
    response = requests.Response()
    response.status_code = status
    response.headers.update(dict(headers))
    return requests.HTTPError("", response=response)


def by_urllib(status, headers=()):
    message = Message()
    for name, value in headers:
        message[name] = value
    return urllib.error.HTTPError("http://x/", status, "", message, None)


ANSWERS = pytest.mark.parametrize("answer", [by_httpx, by_requests, by_urllib])


@ANSWERS
@pytest.mark.parametrize("status", [408, 429, 502, 503, 504])
def test_these_statuses_pass(answer, status):
    error = answer(status)
    assert status_of(error) == status
    assert is_transient(error)
    assert is_throttled(error) == (status in (429, 503))


@ANSWERS
@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 413, 422, 500, 501])
def test_these_do_not(answer, status):
    assert not is_transient(answer(status))


@pytest.mark.parametrize(
    "error",
    [
        ConnectionResetError(),
        ConnectionRefusedError(),
        BrokenPipeError(),
        TimeoutError(),
        OSError(errno.EHOSTUNREACH, "no route"),
        OSError(errno.ENETUNREACH, "no network"),
        socket.gaierror(socket.EAI_AGAIN, "try again"),
        httpx.ConnectTimeout(""),
        httpx.ReadError(""),
        httpx.RemoteProtocolError(""),
        httpx.PoolTimeout(""),
        requests.ConnectionError(),
        requests.Timeout(),
        redis.exceptions.ConnectionError(),
        redis.exceptions.TimeoutError(),
        psycopg.OperationalError(),
        QueueFull("", retry_after=1.0),
        Unmeetable(""),
        Paused(""),
        StoreUnavailable(""),
    ],
    ids=repr,
)
def test_connections_timeouts_and_refusals_that_pass(error):
    assert is_transient(error)


@pytest.mark.parametrize(
    "error",
    [
        ValueError(),
        KeyError(),
        OSError(errno.ENOENT, "no file"),
        PermissionError(),
        socket.gaierror(socket.EAI_NONAME, "no such name"),
        ssl.SSLCertVerificationError("bad"),
        httpx.UnsupportedProtocol(""),
        httpx.InvalidURL(""),
        psycopg.ProgrammingError(),
        DeadlineExceeded(),
        DeadlineExpired(""),
        KeyReused(""),
        PayloadTooLarge(""),
        RetryDenied("", reason="budget"),
        RetryDenied("", reason="layer"),
    ],
    ids=repr,
)
def test_what_does_not_pass_by_itself(error):
    assert not is_transient(error)


def test_what_came_from_a_certificate_does_not_pass():
    error = httpx.ConnectError("bad")
    assert is_transient(error)
    error.__cause__ = ssl.SSLCertVerificationError("bad")
    assert not is_transient(error)


@pytest.mark.parametrize(
    ("cause", "transient"), [(ConnectionResetError(), True), (KeyError(), False)]
)
def test_what_was_left_to_this_layer_is_judged_by_its_cause(cause, transient):
    error = RetryDenied("", reason="layer")
    error.__cause__ = cause
    assert is_transient(error) is transient


def test_an_error_whose_causes_go_round_is_judged_all_the_same():
    error = ConnectionResetError()
    error.__context__ = other = KeyError()
    other.__context__ = error
    assert is_transient(error)


@ANSWERS
@pytest.mark.parametrize(
    ("status", "outage"), [(500, True), (501, True), (429, True), (404, False)]
)
def test_an_outage_is_the_other_sides_own_fault(answer, status, outage):
    assert is_outage(answer(status)) is outage


@pytest.mark.parametrize(("error", "outage"), [(TimeoutError(), True), (ValueError(), False)])
def test_an_error_of_ones_own_is_none(error, outage):
    assert is_outage(error) is outage


@pytest.mark.parametrize("reason", ["tries", "permanent", "layer"])
def test_a_retry_that_gave_up_does_not_hide_an_outage(reason):
    for cause, outage in [(TimeoutError(), True), (by_httpx(500), True), (by_httpx(404), False)]:
        inner = RetryDenied("", reason="layer")
        inner.__cause__ = cause
        outer = RetryDenied("", reason=reason)
        outer.__cause__ = inner
        assert is_outage(inner) is is_outage(outer) is outage
    assert not is_outage(RetryDenied("", reason=reason))


# Retry-After.

NOON = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0.0),
        ("5", 5.0),
        (" 5 ", 5.0),
        ("1.5", 1.5),
        ("99999999", 99_999_999.0),
        ("Sun, 01 Mar 2026 12:00:30 GMT", 30.0),
        ("Sun, 01 Mar 2026 14:00:00 GMT", 7_200.0),
        ("Sun, 01 Mar 2026 11:00:00 GMT", 0.0),
        ("Sun, 01 Mar 2026 13:00:30 +0100", 1_830.0 - 1_800.0),
        ("-1", None),
        ("-0", None),
        ("abc", None),
        ("", None),
        ("1e3", None),
        ("nan", None),
        ("inf", None),
        ("0x10", None),
        ("5, 7", None),
        ("\u0665", None),
        ("9" * 400, None),
        ("Sun, 99 Mar 2026 12:00:30 GMT", None),
    ],
)
def test_seconds_or_a_date_or_nothing(value, seconds):
    assert parse(value, NOON) == seconds


@ANSWERS
def test_the_header_is_found_whatever_its_letters(answer):
    assert hint_of(answer(503, [("Retry-AFTER", "7")])) == 7.0
    assert hint_of(answer(503)) is None
    assert hint_of(answer(503, [("Retry-After", "-3")])) is None


@pytest.mark.parametrize("answer", [by_httpx, by_urllib])
@pytest.mark.parametrize(
    ("values", "hint"), [(["3", "9"], 9.0), (["x", "4"], 4.0), (["x", "y"], None)]
)
def test_of_several_headers_the_longest_that_makes_sense(answer, values, hint):
    assert hint_of(answer(429, [("Retry-After", value) for value in values])) == hint


def test_our_own_refusals_carry_it_as_seconds():
    assert hint_of(QueueFull("", retry_after=2.5)) == 2.5
    assert hint_of(Unmeetable("")) is None


@pytest.mark.parametrize("odd", [-1, float("nan"), float("inf"), True, "5"])
def test_an_attribute_of_that_name_has_to_make_sense(odd):
    error = ConnectionResetError()
    error.retry_after = odd
    assert hint_of(error) is None


@ANSWERS
def test_what_was_left_to_this_layer_still_says_how_long_to_wait_and_why(answer):
    error = RetryDenied("", reason="layer")
    error.__cause__ = answer(429, [("Retry-After", "7")])
    assert (hint_of(error), is_throttled(error)) == (7.0, True)


def raising(name):
    """A connection error of which nothing but its kind can be learnt: the rest raises."""

    def odd(_):
        raise RuntimeError(name)

    return type("Odd", (ConnectionError,), {name: property(odd)})()


@pytest.mark.parametrize(
    "name",
    ["retry_after", "response", "headers", "status_code", "status", "code", "__cause__",
     "__context__"],
)  # fmt: skip
def test_an_attribute_that_raises_is_none(name):
    error = raising(name)
    assert is_transient(error)
    assert is_outage(error)
    assert not is_throttled(error)
    assert status_of(error) is None
    assert hint_of(error) is None


class Raises:
    def __str__(self):
        raise RuntimeError("str")

    def get_list(self, _):
        raise RuntimeError("get_list")


@pytest.mark.parametrize(
    "headers",
    [Raises(), {"Retry-After": Raises()}, {Raises(): "1"},
     type("Ints", (), {"get_list": lambda _, name: 5})()],
)  # fmt: skip
def test_headers_that_raise_carry_no_hint(headers):
    error = ConnectionError()
    error.headers = headers
    assert hint_of(error) is None


@pytest.mark.parametrize("value", [10**400, -(10**400), float("inf"), float("nan"), True, "5"])
def test_a_hint_that_is_no_number_of_seconds_is_none(value):
    error = ConnectionError()
    error.retry_after = value
    assert hint_of(error) is None


def test_an_error_that_counts_as_false_is_a_cause_all_the_same():
    hollow = type("Hollow", (ssl.SSLCertVerificationError,), {"__len__": lambda _: 0})
    error = ConnectionError()
    error.__cause__ = hollow()
    assert not is_transient(error)


@pytest.mark.parametrize("value", [b"5", 5, None, ["5"]])
def test_a_value_that_is_no_text_is_refused(value):
    with pytest.raises(TypeError, match="Retry-After must be a str"):
        parse(value)


def test_a_naive_now_is_refused():
    with pytest.raises(ValueError, match="now must be an aware datetime"):
        parse("Sun, 29 Mar 2026 12:00:30 GMT", NOON.replace(tzinfo=None))
