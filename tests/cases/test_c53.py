"""C53: an odd Retry-After is trusted."""

import asyncio
import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import httpx
import pytest

from deadq import RetryDenied
from deadq.resilience import Backoff, BudgetRule, aretry, retry

BASE_S = 0.2
BACKOFF = Backoff("exponential", base=BASE_S, cap=0.5)
ORDINARY_S = 2 * BASE_S  # after one failure
PLENTY = BudgetRule(1000, 1000)


def header(value):
    """A value as it is, or the date so far ahead."""
    if isinstance(value, timedelta):
        return format_datetime(datetime.now(UTC) + value, usegmt=True)
    return value


class Busy:
    """A server that answers the first request with a status and some headers, and then 200."""

    def __init__(self):
        busy = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                busy.requests += 1
                first = busy.requests == 1
                self.send_response(busy.status if first else 200)
                for value in busy.values if first else ():
                    self.send_header("Retry-After", value)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *args):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        self.thread.start()

    def close(self):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def busy():
    found = Busy()
    yield found
    found.close()


@pytest.fixture
def slept(monkeypatch):
    """The pauses, which are not waited for."""
    found = []
    module = sys.modules["deadq.resilience.retry"]
    monkeypatch.setattr(module, "time", SimpleNamespace(sleep=found.append))
    return found


def get(url, **settings):
    @retry(tries=2, backoff=BACKOFF, budget=PLENTY, **settings)
    def call():
        return httpx.get(url, timeout=5.0).raise_for_status()

    return call()


def answered(busy, status, values, **settings):
    busy.status, busy.requests = status, 0
    busy.values = [header(value) for value in values]
    return get(busy.url, **settings)


STATUSES = pytest.mark.parametrize("status", [429, 503])


@STATUSES
@pytest.mark.parametrize(
    "values", [["-1"], ["abc"], ["1e3"], ["nan"], ["-0.5"], [""], ["x", "y"], []], ids=str
)
def test_garbage_and_negatives_make_the_ordinary_backoff(busy, slept, status, values):
    assert answered(busy, status, values, within=60.0).status_code == 200
    assert slept == [ORDINARY_S]


@STATUSES
@pytest.mark.parametrize("values", [["0"], [timedelta(hours=-1)], [timedelta(days=-9999)]], ids=str)
def test_what_is_past_makes_no_hot_loop(busy, slept, status, values):
    assert answered(busy, status, values, within=60.0).status_code == 200
    (pause,) = slept
    assert BASE_S <= pause <= 2 * ORDINARY_S


@STATUSES
@pytest.mark.parametrize(
    "values",
    [["99999999"], [timedelta(hours=2)], ["9", "99999999"], ["999999999999999999"]],
    ids=str,
)
@pytest.mark.parametrize("settings", [{"within": 10.0}, {}], ids=str)
def test_what_goes_beyond_the_deadline_ends_it_at_once(busy, slept, status, values, settings):
    """And where there is no deadline, what nobody would wait for."""
    began = time.monotonic()
    with pytest.raises(RetryDenied, match="asked to wait") as found:
        answered(busy, status, values, **settings)
    assert found.value.reason == "deadline"
    assert time.monotonic() - began < 5
    assert (busy.requests, slept) == (1, [])


@STATUSES
@pytest.mark.parametrize(
    ("values", "least", "most"),
    [
        (["3"], 3, 3),
        (["1.5"], 1.5, 1.5),
        (["2", "3"], 3, 3),
        (["x", "3"], 3, 3),
        ([timedelta(seconds=3)], 1.5, 3),
    ],
    ids=str,
)
def test_what_is_sensible_is_obeyed_at_least_that_long(busy, slept, status, values, least, most):
    assert answered(busy, status, values, within=60.0).status_code == 200
    (pause,) = slept
    assert least <= pause <= most * 1.5 + ORDINARY_S


def test_it_is_really_waited_for(busy):
    busy.status, busy.values, busy.requests = 503, ["0.3"], 0
    began = time.monotonic()
    assert get(busy.url, within=60.0).status_code == 200
    assert time.monotonic() - began >= 0.3


def test_on_a_loop_too(busy):
    busy.status, busy.values, busy.requests = 429, ["0.3"], 0
    began = time.monotonic()

    @aretry(tries=2, backoff=BACKOFF, within=60.0)
    async def call():
        async with httpx.AsyncClient() as client:
            return (await client.get(busy.url)).raise_for_status()

    assert asyncio.run(call()).status_code == 200
    assert time.monotonic() - began >= 0.3


@pytest.mark.parametrize("status", [400, 404, 409, 422])
def test_what_is_wrong_with_the_request_is_not_tried_again_whatever_is_asked(busy, slept, status):
    with pytest.raises(RetryDenied) as found:
        answered(busy, status, ["1"])
    assert (found.value.reason, busy.requests) == ("permanent", 1)
