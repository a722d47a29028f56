"""C27: result published before the waiter listens."""

import asyncio
import random
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from deadq.testing.proxy import slow_proxy
from tests.marks import on_newest, on_newest_and_oldest
from tests.servers import Server, binaries, wait_until
from tests.shop import Shop
from tests.workers import WorkerProcess

ROUNDS = 100
CUTS = 20
PAUSE_S = 0.05
BOUND_S = 2.0


@pytest.fixture
def book(tmp_path):
    return tmp_path / "book"


@pytest.fixture
def worker(server, book):
    with WorkerProcess(server.url, book, concurrency=50):
        yield


@pytest.mark.race
@pytest.mark.parametrize("pause", [PAUSE_S, 0.0])
@on_newest_and_oldest
def test_a_waiter_that_subscribes_after_the_end_gets_the_result(server, book, worker, pause):
    """Each round subscribes anew: a queue of its own, and a body of 0 ms."""

    async def one_round(n):
        shop = Shop(server.url, book)
        handle = await shop.echo.aenqueue(n)
        await asyncio.sleep(pause)
        began = time.monotonic()
        assert await handle.aresult() == n
        took = time.monotonic() - began
        await shop.queue.aclose()
        shop.close()
        return took

    async def main():
        took = []
        for batch in range(0, ROUNDS, 20):
            took += await asyncio.gather(*(one_round(n) for n in range(batch, batch + 20)))
        return took

    assert max(asyncio.run(asyncio.wait_for(main(), 30))) < BOUND_S


@pytest.mark.race
@on_newest
def test_a_notice_that_comes_while_the_waiter_is_subscribing_is_not_missed(server, book, worker):
    """The job ends between the first look and the subscription, which is slow to arrive."""

    async def one_round(n):
        shop = Shop(line.url, book)
        handle = await shop.nap.aenqueue(0.0004 * n, n)  # 0 to 40 ms
        began = time.monotonic()
        assert await handle.aresult() == n
        took = time.monotonic() - began
        await shop.queue.aclose()
        shop.close()
        return took

    async def main():
        took = []
        for batch in range(0, ROUNDS, 20):
            took += await asyncio.gather(*(one_round(n) for n in range(batch, batch + 20)))
        return took

    with slow_proxy(server.url, delay=0.02, jitter=0.02, listen="unix") as line:
        assert max(asyncio.run(asyncio.wait_for(main(), 30))) < BOUND_S


@pytest.mark.race
@on_newest
def test_a_waiter_whose_connections_are_cut_gets_the_result(server, book, worker):
    """The cut comes before, while or after the job ends."""
    chance = random.Random(27)

    async def main():
        shop = Shop(line.url, book)
        for n in range(CUTS):
            handle = await shop.nap.aenqueue(0.03, n)
            ends = time.monotonic() + 0.03
            waiting = asyncio.ensure_future(handle.aresult())
            await asyncio.sleep(chance.uniform(0, 0.05))
            await asyncio.to_thread(line.cut)
            assert await waiting == n
            assert time.monotonic() - ends < BOUND_S
        await shop.queue.aclose()
        shop.close()

    with slow_proxy(server.url, listen="unix") as line:
        asyncio.run(asyncio.wait_for(main(), 30))


@pytest.mark.race
@on_newest
def test_a_blocking_waiter_whose_connections_are_cut_gets_the_result(server, book, worker):
    with slow_proxy(server.url, listen="unix") as line:
        shop = Shop(line.url, book)
        for n in range(CUTS):
            handle = shop.nap.options(key=f"k{n}").enqueue(0.03, n)
            wait_until(lambda n=n: shop.book.notes("start", f"k{n}"), "the start")
            line.cut()
            began = time.monotonic()
            assert handle.result() == n
            assert time.monotonic() - began < BOUND_S
        shop.close()


@pytest.mark.parametrize("shell", ["blocking", "asyncio"])
def test_a_wait_outlives_a_restart_of_the_server(book, shell):
    """The job is accepted and its deadline is far: an outage is no reason to give up."""
    with Server(binaries()["valkey9"], aof=True) as own, WorkerProcess(own.url, book):
        shop = Shop(own.url, book)
        handle = shop.nap.options(key="k").enqueue(0.5, "result")
        wait_until(lambda: shop.book.notes("start", "k"), "the start")
        with ThreadPoolExecutor(1) as threads:
            if shell == "blocking":
                waiting = threads.submit(handle.result)
            else:
                waiting = threads.submit(lambda: asyncio.run(_wait_anew(own.url, book)))
            with own.client() as client:
                wait_until(lambda: _listening(client), "the waiter to listen")
            own.stop()
            outage = time.monotonic() + 0.3
            wait_until(lambda: time.monotonic() > outage, "the outage to end")
            own.start()
            assert waiting.result(5) == "result"
        shop.close()


@pytest.mark.parametrize("shell", [pytest.param("blocking", marks=pytest.mark.slow), "asyncio"])
def test_a_subscription_that_gets_no_answer_is_tried_again(valkey_server, book, shell):
    """The listener's connection is accepted, and then nothing comes: a half-dead server."""
    url = valkey_server.url
    with slow_proxy(url, listen="unix") as line, WorkerProcess(url, book, name="mute"):
        shop = Shop(line.url, book, "mute")

        async def concurrently():
            handle = await shop.nap.aenqueue(0.1, "result")
            line.swallow_replies(to=b"HELLO")
            result = await handle.aresult()
            await shop.queue.aclose()
            return result

        def blockingly():
            handle = shop.nap.enqueue(0.1, "result")
            line.swallow_replies(to=b"HELLO")
            return handle.result()

        began = time.monotonic()
        result = blockingly() if shell == "blocking" else asyncio.run(concurrently())
        took = time.monotonic() - began
        assert line.swallowed == 1
        shop.close()
    assert result == "result"
    assert took < 5  # the deadline is 10 s away


async def _wait_anew(url, book):
    shop = Shop(url, book)
    result = await shop.nap.options(key="k").acall(0.5, "result")
    await shop.queue.aclose()
    shop.close()
    return result


def _listening(client):
    return any(int(c["sub"]) or int(c.get("ssub", 0)) for c in client.client_list())


@pytest.mark.race
@on_newest
def test_many_waiters_on_one_connection_that_is_cut_get_their_results(server, book, worker):
    async def main():
        shop = Shop(line.url, book)
        handles = [await shop.nap.aenqueue(0.2, n) for n in range(50)]
        waiting = [asyncio.ensure_future(handle.aresult()) for handle in handles * 2]
        for _ in range(10):
            await asyncio.sleep(0.02)
            await asyncio.to_thread(line.cut)
        results = await asyncio.gather(*waiting)
        await shop.queue.aclose()
        shop.close()
        return results

    with slow_proxy(server.url, listen="unix") as line:
        began = time.monotonic()
        results = asyncio.run(asyncio.wait_for(main(), 30))
    assert Counter(results) == dict.fromkeys(range(50), 2)
    assert time.monotonic() - began < 0.2 + 10 * 0.02 + 2 * BOUND_S
