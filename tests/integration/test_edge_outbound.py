"""The transports of httpx and requests: what a call says, and how it takes part in retries."""

import asyncio
import contextlib
import json
import ssl
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest
import requests
from prometheus_client import REGISTRY

from deadq import Deadline, DeadlineExceeded
from deadq.edge.httpx import AsyncDeadlineTransport, DeadlineTransport
from deadq.edge.requests import DeadlineAdapter
from deadq.resilience import Budget, BudgetRule, aretry, pass_on, retry
from tests.servers import wait_until
from tests.tls import TlsFiles

PLENTY = Budget(BudgetRule(ratio=10.0, floor=10.0))
TOLD = ("x-timeout-ms", "x-deadline-ms", "x-retry-budget")


class Mirror:
    """A server that answers with the headers it got; ``/slow`` takes a second, the first time."""

    def __init__(self, tls: TlsFiles | None = None) -> None:
        mirror = self
        self.slow = 1
        self.calls = 0

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                mirror.calls += 1
                if self.path == "/slow" and mirror.slow:
                    mirror.slow -= 1
                    time.sleep(1.0)
                body = json.dumps({name: self.headers.get(name) for name in TOLD}).encode()
                with contextlib.suppress(OSError):
                    self.send_response(200)
                    self.send_header("content-length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        if tls is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(tls.cert, tls.key)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
            self.url = self.url.replace("http:", "https:")
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def mirror() -> Iterator[Mirror]:
    made = Mirror()
    yield made
    made.close()


def blocking(url, **options):
    with httpx.Client(transport=DeadlineTransport(dependency="mirror", **options)) as client:
        return client.get(url)


def awaiting(url, **options):
    async def call():
        transport = AsyncDeadlineTransport(dependency="mirror", **options)
        async with httpx.AsyncClient(transport=transport) as client:
            return await client.get(url)

    return asyncio.run(call())


def by_requests(url, **options):
    with requests.Session() as session:
        session.mount("http://", DeadlineAdapter(dependency="mirror", **options))
        return session.get(url)


every_way = pytest.mark.parametrize("way", [blocking, awaiting, by_requests])


@every_way
def test_a_call_says_how_much_time_is_left_less_the_margin(mirror, way):
    with Deadline.after(5.0).scope():
        told = way(mirror.url, margin=2.0).json()
        wall_ms = time.time() * 1000
    assert 2000 <= int(told["x-timeout-ms"]) <= 3000
    assert 2000 <= int(told["x-deadline-ms"]) - wall_ms <= 3000
    assert told["x-retry-budget"] == "0"


@every_way
def test_the_margin_is_150_ms_unless_it_is_said(mirror, way):
    with Deadline.after(5.0).scope():
        assert 4000 <= int(way(mirror.url).json()["x-timeout-ms"]) <= 4850


@every_way
def test_retries_that_are_passed_on_are_said(mirror, way):
    with pass_on(3):
        assert way(mirror.url).json()["x-retry-budget"] == "3"


@every_way
def test_others_are_told_a_duration_and_nothing_else(mirror, way):
    with Deadline.after(5.0).scope(), pass_on(3):
        told = way(mirror.url, trusted=False).json()
    assert told.pop("x-timeout-ms") is not None
    assert set(told.values()) == {None}


@every_way
def test_without_a_deadline_nothing_is_said_of_one(mirror, way):
    told = way(mirror.url).json()
    assert told == {"x-timeout-ms": None, "x-deadline-ms": None, "x-retry-budget": "0"}


@every_way
def test_calls_are_counted_by_dependency(mirror, way):
    def counted():
        found = REGISTRY.get_sample_value("deadq_outbound_calls_total", {"dependency": "mirror"})
        return found or 0.0

    before = counted()
    way(mirror.url)
    assert counted() == before + 1
    with Deadline.after(0.1).scope(), pytest.raises(DeadlineExceeded):
        way(mirror.url)  # less than the margin: none was sent
    assert counted() == before + 1


@every_way
@pytest.mark.parametrize("margin", [-1.0, float("nan"), "1", None, True])
def test_an_odd_margin_is_refused(way, margin):
    with pytest.raises(ValueError, match="margin"):
        way("http://127.0.0.1:1/", margin=margin)


def test_a_transport_of_ones_own_is_used_and_takes_no_options(mirror):
    seen = []

    def answer(request):
        seen.append(request.headers["x-timeout-ms"])
        return httpx.Response(200)

    mine = httpx.MockTransport(answer)
    with Deadline.after(5.0).scope():
        assert blocking(mirror.url, transport=mine).status_code == 200
        assert awaiting(mirror.url, transport=mine).status_code == 200
    assert len(seen) == 2
    for way in (blocking, awaiting):
        with pytest.raises(ValueError, match="http2"):
            way(mirror.url, transport=mine, http2=False)


def test_an_attempt_that_took_too_long_is_tried_again(mirror):
    @retry(tries=2, within=5.0, timeout=0.4, budget=PLENTY)
    def call():
        return blocking(f"{mirror.url}/slow", margin=0.0)

    assert call().status_code == 200
    assert mirror.calls == 2


def test_so_is_one_by_requests(mirror):
    @retry(tries=2, within=5.0, timeout=0.4, budget=PLENTY)
    def call():
        return by_requests(f"{mirror.url}/slow", margin=0.0)

    assert call().status_code == 200
    assert mirror.calls == 2


def test_requests_own_retries_are_refused():
    with pytest.raises(ValueError, match="max_retries"):
        DeadlineAdapter(dependency="mirror", max_retries=3)


def test_over_tls_it_is_the_same(tls_files):
    """The sockets of both libraries are wrapped: they have to serve TLS all the same."""
    with contextlib.closing(Mirror(tls_files)) as mirror, Deadline.after(5.0).scope():
        with requests.Session() as session:
            session.mount("https://", DeadlineAdapter(dependency="mirror"))
            assert session.get(mirror.url, verify=str(tls_files.ca)).json()["x-timeout-ms"]
        context = ssl.create_default_context(cafile=str(tls_files.ca))
        assert blocking(mirror.url, verify=context).json()["x-timeout-ms"]
        assert awaiting(mirror.url, verify=context).json()["x-timeout-ms"]


def test_so_is_one_on_a_loop(mirror):
    async def main():
        transport = AsyncDeadlineTransport(dependency="mirror", margin=0.0)
        async with httpx.AsyncClient(transport=transport) as client:

            @aretry(tries=2, within=5.0, timeout=0.4, budget=PLENTY)
            async def call():
                return await client.get(f"{mirror.url}/slow")

            return await call()

    assert asyncio.run(main()).status_code == 200
    assert mirror.calls == 2


def test_a_call_that_is_cancelled_gives_its_place_in_the_pool_back(mirror):
    async def main():
        limits = httpx.Limits(max_connections=1)
        transport = AsyncDeadlineTransport(dependency="mirror", limits=limits)
        async with httpx.AsyncClient(transport=transport) as client:
            with Deadline.after(9.0).scope():
                call = asyncio.create_task(client.get(f"{mirror.url}/slow"))
                await asyncio.to_thread(wait_until, lambda: mirror.calls == 1, "the call to arrive")
                call.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await call
                return await client.get(mirror.url)

    assert asyncio.run(main()).status_code == 200
