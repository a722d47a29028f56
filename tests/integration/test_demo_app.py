"""The demo's web tier alone, on a fake server."""

import asyncio

import httpx
import pytest

from deadq import testing
from deadq.demo import app, jobs


@pytest.fixture
def post(monkeypatch):
    """Sends one request to the web app; nobody works but the test, and every payment is made."""
    monkeypatch.setattr(jobs, "REVIEW_S", 0.0)
    monkeypatch.setattr(jobs, "PRINT_S", 0.0)
    monkeypatch.setattr(jobs, "pay", lambda: "a-number")

    async def send(body, **headers):
        transport = httpx.ASGITransport(app.app)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        async with httpx.AsyncClient(transport=transport, base_url="http://demo") as client:
            return await client.post("/orders", json=body, headers=named)

    with testing.faked(jobs.queue) as queue:
        yield queue, lambda body, **headers: asyncio.run(send(body, **headers))


ORDER = {"order": "17", "cents": 999}


def test_an_order_is_booked(post):
    answer = post[1](ORDER, idempotency_key="order-17", x_timeout_ms="2000")
    assert answer.status_code == 200
    receipt = answer.json()
    assert receipt == {"order": "17", "cents": 999, "number": "a-number"}
    assert "x-duplicate" not in answer.headers

    again = post[1](ORDER, idempotency_key="order-17", x_timeout_ms="2000")
    assert (again.status_code, again.json()) == (200, receipt)
    assert again.headers["x-job"] == answer.headers["x-job"]
    assert again.headers["x-duplicate"] == "1"


def test_a_key_is_not_used_for_two_orders(post):
    post[1](ORDER, idempotency_key="k")
    other = post[1]({"order": "18", "cents": 1}, idempotency_key="k")
    assert (other.status_code, other.json()["error"]) == (422, "key_reused")


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        ({}, {}),
        ([], {}),
        ({"order": "17"}, {}),
        ({"order": "17", "cents": "many"}, {}),
        (ORDER, {"x_timeout_ms": "soon"}),
        (ORDER, {"x_timeout_ms": "nan"}),
        (ORDER, {"x_timeout_ms": "-1"}),
        (ORDER, {"x_timeout_ms": "1e300"}),
        (ORDER, {"idempotency_key": ""}),
        (ORDER, {"idempotency_key": "k" * 1025}),
    ],
)
def test_what_cannot_be_read_is_400(post, body, headers):
    answer = post[1](body, **headers)
    assert (answer.status_code, answer.json()["error"]) == (400, "malformed")


def test_a_caller_without_time_gets_504(post):
    answer = post[1](ORDER, x_timeout_ms="0")
    assert (answer.status_code, answer.json()["error"]) == (504, "expired")


def test_a_full_queue_says_when_to_come_back(post):
    queue, send = post
    for number in range(queue.config.capacity):
        jobs.book.enqueue(str(number), 1)
    answer = send(ORDER)
    assert (answer.status_code, answer.json()["error"]) == (503, "full")
    assert int(answer.headers["retry-after"]) >= 1
    assert "x-job" not in answer.headers


def test_a_paused_queue_is_503(post):
    post[0].pause()
    answer = post[1](ORDER)
    assert (answer.status_code, answer.json()["error"]) == (503, "paused")


def test_a_failed_booking_is_500(post, monkeypatch):
    monkeypatch.setattr(jobs, "pay", lambda: 1 / 0)
    answer = post[1](ORDER)
    assert (answer.status_code, answer.json()["error"]) == (500, "JobFailed")
    assert "x-job" in answer.headers
