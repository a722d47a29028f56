"""The ASGI middleware under uvicorn: what a request gets, and how its handler ends."""

import asyncio
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from prometheus_client import REGISTRY

from deadq.edge import inbound
from deadq.edge.asgi import DeadlineMiddleware
from deadq.edge.inbound import Terms
from tests.edge_served import WITHIN_S
from tests.served import Served
from tests.servers import wait_until


class Site:
    """A server process, a client, and what the app has noted."""

    def __init__(self, folder: Path, opened: ExitStack) -> None:
        self.notes_file = folder / "notes"
        self.log = folder / "log"
        served = opened.enter_context(
            Served("tests.edge_served:app", self.log, EDGE_NOTES=str(self.notes_file))
        )
        self.port = served.port
        self.client = opened.enter_context(
            httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=20.0)
        )

    def notes(self) -> list[str]:
        return self.notes_file.read_text().split("\n")[:-1] if self.notes_file.exists() else []

    def noted(self, what: str) -> None:
        wait_until(lambda: what in self.notes(), f"the note {what!r}")

    def hang_up(self, request: str, *, when: str) -> None:
        """Send a request, and close the connection once the app has noted something."""
        with socket.create_connection(("127.0.0.1", self.port)) as line:
            line.sendall(request.replace("\n", "\r\n").encode())
            self.noted(when)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with ExitStack() as opened:
        yield Site(tmp_path_factory.mktemp("site"), opened)


@pytest.fixture(autouse=True)
def _afresh(site: Site) -> None:
    site.notes_file.unlink(missing_ok=True)


def test_a_request_gets_its_deadline_key_and_retries(site):
    headers = {"x-timeout-ms": "2000", "idempotency-key": "k", "x-api-key": "a:b"}
    found = site.client.get("/show", headers={**headers, "x-retry-budget": "1"}).json()
    assert 1.5 < found["left"] <= 2.0
    assert found["key"] == "a%3Ab:k"
    assert found["retries"] == 1


def test_without_headers_it_gets_what_the_service_gives(site):
    found = site.client.get("/show").json()
    assert WITHIN_S - 0.5 < found["left"] <= WITHIN_S
    assert found["key"] is None
    assert found["retries"] == 2


def test_nothing_is_left_of_the_last_request_on_a_connection(site):
    """A server may call the app in the context in which it has answered."""
    with httpx.Client(base_url=f"http://127.0.0.1:{site.port}") as client:
        for _ in range(3):
            client.get("/show", headers={"x-timeout-ms": "500", "idempotency-key": "k"})
            found = client.get("/show").json()
            assert found["left"] > WITHIN_S - 0.5
            assert found["key"] is None


def test_a_middleware_further_in_only_lowers():
    seen = []

    async def app(_scope, _receive, _send):
        seen.append(inbound().deadline.remaining())

    scope = {"type": "http", "headers": []}
    for within in ((3.0, 20.0), (20.0, 3.0)):
        outer, inner = within
        both = DeadlineMiddleware(DeadlineMiddleware(app, within=inner), within=outer)
        asyncio.run(both(dict(scope), nothing_more, None))
    assert all(2.0 < left <= 3.0 for left in seen)
    assert len(seen) == 2


async def nothing_more():
    await asyncio.sleep(60.0)


def test_nobody_gets_more_than_the_service_gives(site):
    headers = {"x-timeout-ms": "60000", "x-retry-budget": "9"}
    found = site.client.get("/show", headers=headers).json()
    assert found["left"] <= WITHIN_S
    assert found["retries"] == 2


def test_at_the_deadline_the_handler_is_cancelled_and_the_answer_is_504(site):
    begun = time.monotonic()
    answer = site.client.get("/nap?seconds=20", headers={"x-timeout-ms": "400"})
    assert time.monotonic() - begun < 5.0
    assert (answer.status_code, answer.json()["error"]) == (504, "DeadlineExceeded")
    assert site.notes() == ["began", "cancelled"]


@pytest.mark.parametrize("left", ["0", "100", "150"])
def test_with_too_little_time_the_handler_is_not_called(site, left):
    answer = site.client.get("/nap?seconds=0", headers={"x-timeout-ms": left})
    assert (answer.status_code, answer.json()["error"]) == (504, "DeadlineExceeded")
    assert site.notes() == []


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("x-timeout-ms", "soon"),
        ("x-deadline-ms", "1"),
        ("grpc-timeout", "5"),
        *(("idempotency-key", key) for key in ("", "k" * 256, "a\tb")),
    ],
)
def test_what_cannot_be_meant_is_400(site, name, said):
    answer = site.client.get("/nap?seconds=0", headers={name: said})
    assert (answer.status_code, answer.json()["error"]) == (400, "malformed")
    assert answer.json()["detail"].startswith(name)
    assert site.notes() == []


GET = "GET /nap?seconds=20 HTTP/1.1\nHost: h\n\n"
POST = "POST /echo?seconds=20 HTTP/1.1\nHost: h\nContent-Length: 3\n\nabc"
CHUNKED = "POST /echo?seconds=20 HTTP/1.1\nHost: h\nTransfer-Encoding: chunked\n\n3\nabc\n0\n\n"


@pytest.mark.parametrize(
    ("request_", "when"), [(GET, "began"), (POST, "read 3"), (CHUNKED, "read 3")]
)
def test_when_the_caller_hangs_up_the_handler_is_cancelled(site, request_, when):
    site.hang_up(request_, when=when)
    begun = time.monotonic()
    site.noted("cancelled")
    assert time.monotonic() - begun < WITHIN_S / 2  # not by the deadline


def test_a_stream_ends_at_the_deadline_and_is_not_taken_for_whole(site):
    with site.client.stream("GET", "/drip", headers={"x-timeout-ms": "500"}) as answer:
        assert answer.status_code == 200
        with pytest.raises(httpx.RemoteProtocolError):
            answer.read()
    site.noted("ended")


def test_a_stream_ends_when_the_caller_hangs_up(site):
    with site.client.stream("GET", "/drip") as answer:
        next(answer.iter_raw())
    begun = time.monotonic()
    site.noted("ended")
    assert time.monotonic() - begun < WITHIN_S / 2


def test_what_goes_on_after_the_answer_is_left_alone(site):
    headers = {"x-timeout-ms": "400", "connection": "close"}
    answer = site.client.get("/later?seconds=1", headers=headers)
    assert answer.text == "sent"
    site.noted("went on")


def test_a_large_body_arrives_whole(site):
    body = b"x" * 3_000_000
    assert site.client.post("/echo?seconds=0", content=body).text == str(len(body))


def test_a_large_body_that_nobody_reads_is_not_kept_in_memory(site):
    taken, until = [], time.monotonic() + 0.3

    def body() -> Iterator[bytes]:
        while time.monotonic() < until:
            taken.append(0.1)
            yield b"x" * 100_000

    # only once it has answered the server takes the rest, and throws it away
    answer = site.client.post("/nap?seconds=20", content=body(), headers={"x-timeout-ms": "600"})
    assert answer.status_code == 504
    assert sum(taken) < 30.0, "megabytes; the buffers of two sockets are a few"


def test_an_error_of_deadqs_is_answered(site):
    answer = site.client.get("/full")
    assert (answer.status_code, answer.json()) == (429, {"error": "full", "detail": "no room"})
    assert answer.headers["retry-after"] == "2"


def test_a_timeout_of_the_handlers_own_is_its_own(site):
    assert site.client.get("/times_out").text == "its own"


def test_a_repeat_is_marked(site):
    assert site.client.get("/replay").headers["idempotency-replayed"] == "true"
    assert "idempotency-replayed" not in site.client.get("/show").headers


def test_nothing_of_this_is_an_error_in_the_servers_log(site):
    site.client.get("/nap?seconds=20", headers={"x-timeout-ms": "300"})
    site.hang_up(GET, when="began")
    site.noted("cancelled")
    assert "Traceback" not in site.log.read_text()


def test_other_kinds_of_connections_pass():
    called = []

    async def app(scope, _receive, _send):
        called.append(scope["type"])

    for kind in ("lifespan", "websocket"):
        asyncio.run(DeadlineMiddleware(app)({"type": kind}, None, None))
    assert called == ["lifespan", "websocket"]


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        *(("within", value) for value in (0, "3", float("nan"))),
        *(("reserve", value) for value in (-1, 30.0)),
        *(("retries", value) for value in (-1, 1.5)),
    ],
)
def test_an_odd_setting_is_named(setting, value):
    with pytest.raises((ValueError, TypeError), match=setting):
        DeadlineMiddleware(lambda *_: None, **{setting: value})


def test_requests_are_counted():
    terms = Terms(service="counted")
    for _ in range(3):
        terms.read({}.get, {})
    name = "deadq_inbound_requests_total"
    assert REGISTRY.get_sample_value(name, {"service": "counted"}) == 3.0
