"""C19: submit re-sent after a lost reply."""

import asyncio

import pytest
import redis
from redis import asyncio as aredis

from deadq import QueueFull, StoreUnavailable
from deadq.store import loader
from deadq.testing.proxy import slow_proxy
from tests.marks import on_newest, on_newest_and_oldest
from tests.shop import Shop
from tests.workers import Process, WorkerProcess, tell

ADMIT = loader.load("admit").sha.encode()
PATIENCE_S = 0.2
"""How long the clients here wait for a reply."""

KEYS = pytest.mark.parametrize("key", ["K", None], ids=["with a key", "without"])
LOSSES = pytest.mark.parametrize("cut", [False, True], ids=["silence", "reset"])


@pytest.fixture
def book(tmp_path):
    return tmp_path / "book"


@pytest.fixture
def line(server):
    with server.client() as client:
        client.script_load(loader.load("admit").source)  # so that the first call is carried out
    with slow_proxy(server.url, listen="unix") as proxy:
        yield proxy


@pytest.fixture
def shop(server, book):
    """What another, healthy process sees."""
    made = Shop(server.url, book, capacity=1)
    yield made
    made.close()


def over(line, book, kind=redis):
    """A queue of capacity 1 whose user has a client of the own, with retries of its own."""
    client = kind.Redis.from_url(line.url, socket_timeout=PATIENCE_S)
    return Shop(None, book, capacity=1, client=client), client


def only_job(shop):
    """The one job there is."""
    stats = shop.queue.stats()
    assert (stats.live, stats.ready, stats.counters["admitted"]) == (1, 1, 1)
    with pytest.raises(QueueFull):
        shop.echo.enqueue("another")
    return shop.queue.backend.sync().client.zrange("deadq:{shop}:due", 0, -1)[0].decode()


@KEYS
@LOSSES
@on_newest
def test_the_retry_of_a_blocking_submit_is_the_same_job(line, book, shop, key, cut):
    lossy, client = over(line, book)
    lossy.queue.connect()
    line.swallow_replies(to=ADMIT, cut=cut)
    handle = lossy.echo.options(key=key).enqueue("value")
    assert line.swallowed == 1
    assert not handle.duplicate
    assert handle.id == only_job(shop)
    client.close()


@KEYS
@LOSSES
@on_newest_and_oldest
def test_the_retry_of_an_asyncio_submit_is_the_same_job(line, book, shop, key, cut):
    async def main():
        lossy, client = over(line, book, aredis)
        await lossy.queue.aconnect()
        line.swallow_replies(to=ADMIT, cut=cut)
        handle = await lossy.echo.options(key=key).aenqueue("value")
        await lossy.queue.aclose()
        await client.aclose()
        return handle

    handle = asyncio.run(main())
    assert line.swallowed == 1
    assert not handle.duplicate
    assert handle.id == only_job(shop)


@KEYS
@on_newest
def test_the_retry_of_a_batch_is_the_same_jobs(line, book, server, key):
    client = redis.Redis.from_url(line.url, socket_timeout=PATIENCE_S)
    lossy = Shop(None, book, capacity=100, client=client)
    lossy.queue.connect()
    line.swallow_replies(to=ADMIT, cut=True)
    calls = [lossy.echo.options(key=key and f"{key}-{n}").bind(n) for n in range(100)]
    handles = lossy.queue.enqueue_many(calls)
    assert line.swallowed == 1
    assert not any(handle.duplicate for handle in handles)
    stats = lossy.queue.stats()
    assert (stats.live, stats.counters["admitted"]) == (100, 100)
    client.close()


@LOSSES
@on_newest
def test_a_caller_who_submits_again_gets_the_first_job(line, book, shop, cut):
    """Every try of the client's was in vain, the caller learns so, and tries the same key."""
    lossy, client = over(line, book)
    lossy.queue.connect()
    line.swallow_replies(2, to=ADMIT, cut=cut)
    call = lossy.echo.options(key="K")
    with pytest.raises(StoreUnavailable) as refused:
        call.enqueue("value")
    assert refused.value.reason == "unavailable"
    assert line.swallowed == 2
    handle = call.enqueue("value")
    assert handle.duplicate
    assert handle.id == only_job(shop)
    client.close()


def submit_once(url, book):
    """In a process of its own: submit K, and wait for an answer that does not come."""
    shop = Shop(url, book, capacity=1)
    shop.queue.connect()
    tell("ready")
    shop.echo.options(key="K").enqueue("value")


@on_newest
def test_a_client_killed_between_its_tries_leaves_one_job(line, book, shop, server):
    line.swallow_replies(2, to=ADMIT)
    with Process("tests.cases.test_c19:submit_once", url=line.url, book=str(book)) as client:
        assert client.hear() == "ready"
        line.wait_until(lambda: line.swallowed == 1)
        client.kill()
    only_job(shop)
    handle = shop.echo.options(key="K").enqueue("value")
    assert handle.duplicate
    with WorkerProcess(server.url, book, capacity=1):
        assert handle.result() == "value"
    assert shop.book.starts() == {"K": 1}
    assert shop.queue.stats().live == 0
