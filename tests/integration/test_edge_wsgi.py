"""The WSGI middleware under a threaded server: what a request gets, and how it is answered."""

import time
from collections.abc import Iterator

import httpx
import pytest

from deadq.edge.wsgi import DeadlineMiddleware
from tests.edge_served import WITHIN_S
from tests.workers import Process


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with (
        Process("tests.edge_served:serve_blocking") as process,
        httpx.Client(base_url=f"http://127.0.0.1:{process.hear()}", timeout=20.0) as client,
    ):
        yield client


def test_a_request_gets_its_deadline_key_and_retries(client):
    headers = {"x-timeout-ms": "2000", "idempotency-key": "k", "x-api-key": "a:b"}
    left, key, retries = client.get("/", headers={**headers, "x-retry-budget": "1"}).text.split()
    assert 1.5 < float(left) <= 2.0
    assert (key, retries) == ("a%3Ab:k", "1")


def test_without_headers_it_gets_what_the_service_gives(client):
    left, key, retries = client.get("/").text.split()
    assert WITHIN_S - 0.5 < float(left) <= WITHIN_S
    assert (key, retries) == ("None", "2")


def test_nobody_gets_more_than_the_service_gives(client):
    headers = {"grpc-timeout": "1M", "x-retry-budget": "9"}
    left, _, retries = client.get("/", headers=headers).text.split()
    assert float(left) <= WITHIN_S
    assert retries == "2"


def test_an_answer_in_pieces_is_made_in_the_requests_context(client):
    assert client.get("/streams", headers={"idempotency-key": "k"}).text.split()[1::2] == [
        ":k",
        ":k",
    ]


def test_a_handler_that_checks_ends_at_the_deadline(client):
    begun = time.monotonic()
    answer = client.get("/checks", headers={"x-timeout-ms": "400"})
    assert 0.3 < time.monotonic() - begun < WITHIN_S
    assert (answer.status_code, answer.json()["error"]) == (504, "DeadlineExceeded")


@pytest.mark.parametrize("left", ["0", "150"])
def test_with_too_little_time_the_handler_is_not_called(client, left):
    answer = client.get("/checks", headers={"x-timeout-ms": left})
    assert answer.status_code == 504


@pytest.mark.parametrize(
    ("name", "said"), [("x-timeout-ms", "soon"), ("x-deadline-ms", "1"), ("idempotency-key", "")]
)
def test_what_cannot_be_meant_is_400(client, name, said):
    answer = client.get("/", headers={name: said})
    assert (answer.status_code, answer.json()["error"]) == (400, "malformed")
    assert answer.json()["detail"].startswith(name)


def test_an_error_of_deadqs_is_answered(client):
    answer = client.get("/full")
    assert (answer.status_code, answer.json()) == (429, {"error": "full", "detail": "no room"})
    assert answer.headers["retry-after"] == "2"


def test_a_repeat_is_marked(client):
    assert client.get("/replay").headers["idempotency-replayed"] == "true"
    assert "idempotency-replayed" not in client.get("/").headers


def test_the_app_is_told_when_its_answer_is_not_wanted_any_more():
    closed = []

    class Pieces:
        def __iter__(self):
            return iter((b"a", b"b"))

        def close(self):
            closed.append(True)

    wrapped = DeadlineMiddleware(lambda *_: Pieces())
    pieces = wrapped({}, lambda *_: None)
    assert next(iter(pieces)) == b"a"
    pieces.close()
    assert closed == [True]
