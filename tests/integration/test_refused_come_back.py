"""Callers that were refused and obey ``retry_after`` do not come back as one wave."""

import bisect

import pytest

from deadq import Queue, QueueFull, Rejected, Unmeetable
from tests.marks import on_newest

pytestmark = on_newest

CALLERS = 1_000


def busiest_share(hints):
    """Of all that come back, those that do so within the worst 100 ms."""
    hints = sorted(hints)
    most = max(bisect.bisect_left(hints, at + 0.1) - i for i, at in enumerate(hints))
    return most / len(hints)


@pytest.mark.parametrize(
    ("kind", "service_ms"),
    [
        (QueueFull, None),  # nothing was measured yet
        (QueueFull, 1),
        (QueueFull, 50),
        (QueueFull, 2_000),
        (Unmeetable, 1),
        (Unmeetable, 50),
        (Unmeetable, 2_000),
    ],
)
def test_a_thousand_refused_do_not_return_within_a_tenth_of_a_second(server, kind, service_ms):
    full = kind is QueueFull
    queue = Queue("shop", capacity=5 if full else 10**6, url=server.url)

    @queue.task(within=600.0 if full else 30.0)
    async def pay(): ...

    if service_ms is not None:
        with server.client() as client:
            key = "deadq:{shop}:service"
            now = int(client.time()[0]) * 1000
            p95 = service_ms * (1 if full else 1_000)
            client.hset(key, "s:pay", f"{p95} {p95} {p95} {now}")
            client.hset(key, "all", f"1000 {p95 * 1000} {p95 * p95 * 1000} {now}")
            client.hset("deadq:{shop}:fleet", mapping={"slots": 1, "lapse": now + 10**9})
            client.zadd("deadq:{shop}:workers", {"c": now + 10**9})
            client.hset("deadq:{shop}:worker:c", mapping={"slots": 1, "tasks": "pay", "version": 1})
    outcomes = pay.enqueue_many([()] * (CALLERS + 5))
    refused = [outcome for outcome in outcomes if isinstance(outcome, Rejected)]
    hints = [outcome.retry_after for outcome in refused if isinstance(outcome, kind)]
    queue.close()
    assert len(hints) >= 900
    assert min(hints) >= 0.25
    assert busiest_share(hints) <= 0.3
