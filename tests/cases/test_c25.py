"""C25: cancelled read shifts all later replies by one."""

import asyncio
import contextlib
import random

import pytest
from redis import asyncio as aredis

from deadq import State
from deadq.testing.proxy import slow_proxy
from tests.shop import Shop
from tests.workers import Process, WorkerProcess

ROUNDS = 200
SOME = 60
DELAY_S = 0.02
AT_A_TIME = 20


@pytest.fixture
def server(valkey_server):
    """One kind is enough: the fault would be the client's."""
    with valkey_server.client() as client:
        client.flushall()
    return valkey_server


@pytest.fixture
def book(tmp_path):
    return tmp_path / "book"


def one_connection(line, protocol):
    """The user's own client; a second connection is what notices come by."""
    pool = aredis.BlockingConnectionPool.from_url(
        line.url, max_connections=2, timeout=5, protocol=protocol
    )
    return aredis.Redis.from_pool(pool)


async def _by_cancel(handle, pause):
    waiting = asyncio.ensure_future(handle.aresult())
    await asyncio.sleep(pause)
    waiting.cancel()
    await asyncio.wait({waiting})
    return None if waiting.cancelled() else waiting.result()


async def _by_timeout(handle, pause):
    try:
        async with asyncio.timeout(pause):
            return await handle.aresult()
    except TimeoutError:
        return None


async def _by_own_timeout(handle, pause):
    try:
        return await handle.aresult(timeout=pause)
    except TimeoutError:
        return None


@pytest.mark.race
@pytest.mark.parametrize(
    ("end", "protocol", "rounds"),
    [
        (_by_cancel, 3, SOME),
        *(
            pytest.param(end, protocol, ROUNDS, marks=pytest.mark.slow)
            for end in (_by_cancel, _by_timeout, _by_own_timeout)
            for protocol in (2, 3)
        ),
    ],
)
def test_everybody_gets_the_own_answer_after_a_wait_was_broken_off(
    server, book, end, protocol, rounds
):
    async def one_round(n, shop, chance):
        call_a, call_b = (shop.nap.options(key=f"{job}-{n}") for job in "AB")
        a, b = await asyncio.gather(call_a.aenqueue(0.03, f"a{n}"), call_b.aenqueue(0.01, f"b{n}"))
        broken = await end(a, chance.uniform(0, 2 * DELAY_S))
        assert broken in (None, f"a{n}")
        others = []
        if n % 5 == 0:  # each takes the only connection for a whole round trip
            others = [shop.queue.astats(), shop.queue.backend.async_client().echo(f"ping-{n}")]
        result, *answers = await asyncio.gather(b.aresult(), *others)
        assert result == f"b{n}"
        if answers:
            assert answers[0].workers == 1
            assert answers[1] == f"ping-{n}".encode()
        assert await a.astate() in (State.READY, State.RUNNING, State.DONE, State.CANCELLED)

    async def main(line):
        client = one_connection(line, protocol)
        shop = Shop(None, book, client=client)
        chance = random.Random(25)
        for batch in range(0, rounds, AT_A_TIME):
            numbers = range(batch, batch + AT_A_TIME)
            await asyncio.gather(*(one_round(n, shop, chance) for n in numbers))
        await shop.queue.aclose()
        shop.close()
        await client.aclose()

    with (
        slow_proxy(server.url, delay=DELAY_S, listen="unix") as line,
        WorkerProcess(server.url, book, concurrency=2 * AT_A_TIME),
    ):
        asyncio.run(asyncio.wait_for(main(line), 60))


@pytest.mark.race
@pytest.mark.parametrize("rounds", [SOME // 2, pytest.param(ROUNDS, marks=pytest.mark.slow)])
def test_everybody_gets_the_own_answer_after_ctrl_c(server, book, rounds):
    """The blocking client, interrupted in mid-call by SIGINT, in a process of its own."""
    with (
        slow_proxy(server.url, delay=DELAY_S / 4, listen="unix") as line,
        WorkerProcess(server.url, book, concurrency=8),
        Process(
            "tests.cases.c25:interrupted",
            url=line.url,
            book=str(book),
            rounds=rounds,
            within=DELAY_S / 2,
        ) as other,
    ):
        outcome = other.hear(60)
    assert outcome["wrong"] == []
    assert outcome["interrupted"] > rounds // 2


@pytest.mark.slow
@pytest.mark.race
def test_a_call_cancelled_at_any_moment_leaves_no_reply_behind(server, book):
    """Submits, looks, cancels and statistics, each broken off; the next ones get their own."""

    async def broken_off(call, pause):
        task = asyncio.ensure_future(call)
        await asyncio.sleep(pause)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    async def main(line):
        client = one_connection(line, 3)
        shop = Shop(None, book, client=client)
        chance = random.Random(26)
        kept = await shop.nap.options(key="kept").aenqueue(1.0)
        for n in range(SOME):
            call = chance.choice(
                (
                    lambda n=n: shop.nap.options(key=f"k{n}").aenqueue(1.0),
                    kept.astate,
                    shop.queue.astats,
                    lambda n=n: shop.queue.aenqueue_many([]),
                )
            )
            await broken_off(call(), chance.uniform(0, 2 * DELAY_S))
            handle, stats = await asyncio.gather(
                shop.nap.options(key="kept").aenqueue(1.0), shop.queue.astats()
            )
            assert (handle.id, handle.duplicate) == (kept.id, True)
            assert stats.workers == 0
            assert await handle.astate() is State.READY
        await shop.queue.aclose()
        shop.close()
        await client.aclose()

    with slow_proxy(server.url, delay=DELAY_S, listen="unix") as line:
        asyncio.run(asyncio.wait_for(main(line), 60))
