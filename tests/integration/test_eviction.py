"""A server that may evict keys is refused, unless whoever uses it says that losing jobs is fine."""

import asyncio

import pytest

from deadq import Queue, StoreUnavailable, Worker
from deadq.store.connect import UnsafeServer

EVICTING = [
    "allkeys-lru",
    "allkeys-lfu",
    "allkeys-random",
    "volatile-lru",
    "volatile-lfu",
    "volatile-random",
    "volatile-ttl",
]
every_evicting_policy = pytest.mark.parametrize("policy", EVICTING)


@pytest.fixture
def evicting(server, policy):
    """The server while it may evict keys."""
    with server.client() as client:
        client.config_set("maxmemory-policy", policy)
        yield server
        client.config_set("maxmemory-policy", "noeviction")


@pytest.fixture
def queue(server_url):
    made = Queue("held", capacity=4, url=server_url)
    made.task(within=5.0)(add)
    yield made
    made.close()


def add(a: int, b: int) -> int:
    return a + b


def refused(policy):
    return pytest.raises(UnsafeServer, match=f"maxmemory-policy is {policy}.*allow_eviction=True")


@every_evicting_policy
def test_a_producer_refuses_it_and_stores_nothing(evicting, queue, policy):
    with refused(policy) as caught:
        queue.tasks["add"].enqueue(1, 2)
    assert isinstance(caught.value, StoreUnavailable)
    with refused(policy):
        queue.connect()
    with evicting.client() as client:
        assert client.dbsize() == 0


@every_evicting_policy
def test_so_does_one_on_a_loop(evicting, queue, policy):
    async def main():
        with refused(policy):
            await queue.tasks["add"].aenqueue(1, 2)
        await queue.aclose()

    asyncio.run(main())
    with evicting.client() as client:
        assert client.dbsize() == 0


@pytest.mark.parametrize("policy", EVICTING[:1])
def test_a_worker_ends_with_the_reason(evicting, queue, policy):
    with refused(policy):
        asyncio.run(asyncio.wait_for(Worker(queue).arun(), 10.0))


@every_evicting_policy
def test_it_is_used_when_that_is_allowed(evicting, policy):
    queue = Queue("held", capacity=4, url=evicting.url, allow_eviction=True)
    task = queue.task(within=5.0)(add)

    async def on_a_loop():
        await task.aenqueue(3, 4)
        await queue.aclose()

    task.enqueue(1, 2)
    asyncio.run(on_a_loop())
    assert queue.stats().ready == 2
    queue.close()


def test_one_that_never_evicts_needs_no_leave(queue):
    queue.tasks["add"].enqueue(1, 2)
    assert queue.stats().ready == 1
