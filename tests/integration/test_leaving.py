"""Callers that leave: the others get their result, and with nobody left the job is cancelled."""

import asyncio
import random
import threading
import time

import pytest

from deadq import Cancelled, DeadlineExceeded, State
from deadq.testing.proxy import slow_proxy
from tests.marks import on_newest, on_newest_and_oldest
from tests.servers import Server, binaries, wait_until
from tests.shop import Shop
from tests.stages import LEASE_MS, Stage, nothing_left, settled
from tests.workers import WorkerProcess, eventually

ROUNDS = 500
AT_A_TIME = 25


@pytest.fixture
def book(tmp_path):
    return tmp_path / "book"


@pytest.fixture
def shop(server, book):
    made = Shop(server.url, book)
    yield made
    made.close()


async def _gone_by_timeout(call, pause):
    try:
        async with asyncio.timeout(pause):
            await call.acall(0.008, "result")
    except TimeoutError:
        pass


async def _gone_by_cancel(call, pause):
    waiting = asyncio.ensure_future(call.acall(0.008, "result"))
    await asyncio.sleep(pause)
    waiting.cancel()
    await asyncio.wait({waiting})


async def _gone_by_leave(call, pause):
    handle = await call.aenqueue(0.008, "result")
    await asyncio.sleep(pause)
    await handle.aleave()


LEAVINGS = [_gone_by_timeout, _gone_by_cancel, _gone_by_leave]


@pytest.mark.race
@on_newest
def test_the_second_caller_gets_the_result_whenever_the_first_one_leaves(server, book):
    """The first leaves before, while or after the second submits; then its connection closes."""
    chance = random.Random(5)

    async def one_round(n, second):
        key, leave = f"round-{n}", LEAVINGS[n % len(LEAVINGS)]
        first = Shop(server.url, book)
        leaving = asyncio.ensure_future(leave(first.nap.options(key=key), chance.uniform(0, 0.015)))
        if n % 2:
            await leaving
        else:
            await asyncio.sleep(chance.uniform(0, 0.01))
        result = asyncio.ensure_future(second.nap.options(key=key).acall(0.008, "result"))
        await leaving
        await first.queue.aclose()
        first.close()
        await asyncio.wait({result}, timeout=5)
        if not result.done():
            handle = await second.nap.options(key=key).aenqueue(0.008, "result")
            pytest.fail(f"{key} hangs, {await handle.astate()}: {second.book.notes(key=key)}")
        assert result.result() == "result", key

    async def main():
        second = Shop(server.url, book)
        for batch in range(0, ROUNDS, AT_A_TIME):
            rounds = range(batch, batch + AT_A_TIME)
            await asyncio.gather(*(one_round(n, second) for n in rounds))
        live = (await second.queue.astats()).live
        await second.queue.aclose()
        second.close()
        assert live == 0

    with WorkerProcess(server.url, book, concurrency=2 * AT_A_TIME):
        asyncio.run(main())


async def _wait_times_out(handle):
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.005):
            await handle.aresult()


async def _wait_is_cancelled(handle):
    waiting = asyncio.ensure_future(handle.aresult())
    await asyncio.sleep(0)  # it begins
    waiting.cancel()
    await asyncio.wait({waiting})
    assert waiting.cancelled()


async def _leaves(handle):
    await handle.aleave()


@pytest.mark.parametrize("leave", [_wait_times_out, _wait_is_cancelled, _leaves])
@on_newest
def test_a_waiting_job_that_nobody_waits_for_is_cancelled_at_once(shop, leave):
    async def main():
        for _ in range(20):
            handle = await shop.nap.aenqueue(1.0)
            await leave(handle)
            assert await handle.astate() is State.CANCELLED
            assert (await shop.queue.astats()).live == 0
        await shop.queue.aclose()

    asyncio.run(main())


@on_newest
def test_a_caller_cancelled_while_its_submit_is_under_way_leaves_nothing(server, book):
    async def main():
        with slow_proxy(server.url, listen="unix") as proxy:
            shop = Shop(proxy.url, book)
            await shop.queue.aconnect()
            proxy.delay = 0.06
            for n in range(5):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.01 * n):
                        await shop.nap.options(key=f"k{n}").acall(5.0)
            await shop.queue.aclose()  # what is under way is carried out
            shop.close()

    asyncio.run(main())
    observer = Shop(server.url, book)
    stats = observer.queue.stats()
    observer.close()
    assert stats.live == 0
    assert stats.counters.get("admitted", 0) == stats.counters.get("finished:cancelled", 0)


@on_newest
def test_a_caller_cancelled_just_as_its_submit_is_answered_leaves_nothing(shop, monkeypatch):
    """The answer has come in, and the cancellation reaches the caller before it does."""

    async def main():
        admits = shop.queue.producer._desk().admits
        put = admits.put

        def answered_and_cancelled(submission):
            answer = put(submission)
            answer.add_done_callback(lambda _: caller.cancel())
            return answer

        monkeypatch.setattr(admits, "put", answered_and_cancelled)
        caller = asyncio.ensure_future(shop.nap.acall(5.0))
        await asyncio.wait({caller})
        assert caller.cancelled()
        await shop.queue.aclose()

    asyncio.run(main())
    stats = shop.queue.stats()
    assert stats.counters["admitted"] == 1
    assert stats.live == 0


@pytest.mark.race
@on_newest
def test_a_running_job_that_nobody_waits_for_is_interrupted_within_100_ms(server, book, shop):
    took = []

    async def main():
        for n in range(60):
            key = f"k{n}"
            waiting = asyncio.ensure_future(shop.nap.options(key=key).acall(8.0))
            await eventually(lambda key=key: shop.book.notes("start", key), "the start")
            left = time.monotonic()
            waiting.cancel()
            await asyncio.wait({waiting})
            (note,) = await eventually(
                lambda key=key: shop.book.notes("interrupted", key), "the interruption"
            )
            took.append(note.at - left)
        assert (await shop.queue.astats()).live <= 1  # the last one may not be reported yet
        await shop.queue.aclose()

    with WorkerProcess(server.url, book):
        asyncio.run(asyncio.wait_for(main(), 60))
    took.sort()
    assert took[len(took) * 95 // 100] < 0.1, took[-5:]


@on_newest_and_oldest
def test_the_last_of_several_callers_to_leave_takes_the_job_along(server, book, shop):
    async def main():
        handles = [await shop.nap.options(key="k").aenqueue(8.0) for _ in range(5)]
        await eventually(lambda: shop.book.notes("start", "k"), "the start")
        for handle in handles[:-1]:
            await handle.aleave()
            await handle.aleave()  # a second time does nothing
            assert await handle.astate() is State.RUNNING
        assert not shop.book.notes("interrupted", "k")
        await handles[-1].aleave()
        with pytest.raises(Cancelled):
            await handles[0].aresult(timeout=2)
        await shop.queue.aclose()

    with WorkerProcess(server.url, book):
        asyncio.run(asyncio.wait_for(main(), 20))
    assert len(shop.book.notes("interrupted", "k")) == 1


@on_newest
def test_a_wait_that_merely_runs_out_keeps_the_job(shop):
    handle = shop.nap.options(key="k").enqueue(1.0)
    with pytest.raises(TimeoutError):
        handle.result(timeout=0.02)
    with pytest.raises(TimeoutError):
        handle.result(timeout=0)
    assert handle.state() is State.READY


@on_newest
def test_callers_in_threads_leave_as_well(server, book, shop):
    """One thread leaves while another submits the same key; the other gets its result."""
    results = {}

    def first(key):
        handle = shop.nap.options(key=key).enqueue(0.01, key)
        handle.leave()

    def second(key):
        results[key] = shop.nap.options(key=key).call(0.01, key)

    with WorkerProcess(server.url, book):
        for n in range(50):
            key = f"k{n}"
            threads = [threading.Thread(target=fn, args=(key,)) for fn in (first, second)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(10)
    assert results == {f"k{n}": f"k{n}" for n in range(50)}


@on_newest
def test_a_caller_that_comes_back_and_leaves_again_takes_the_job_along(server):
    """Cancelled while running, asked for anew, and left by that caller too: it must not go on."""
    with server.client() as client:
        stage = Stage(client, "back")
        stage.run(stage.register("c1"))
        first = stage.submitted("a")
        (claim,) = stage.run(stage.claim("c1", 1)).claims
        assert stage.run(stage.leave(first)) == ["running"]
        second = stage.submitted("a")
        assert stage.run(stage.leave(second)) == ["running"]
        report = settled("a", claim.fence, "cancelled", cut=True)
        assert stage.run(stage.finish("c1", report)) == ["cancelled"]
        nothing_left(stage)


@on_newest
def test_a_job_given_back_after_everybody_left_is_not_run_again(server):
    """The worker dies between the leave and its own interruption."""
    with server.client() as client:
        stage = Stage(client, "died")
        stage.run(stage.register("c1"))
        first = stage.submitted("a")
        stage.run(stage.claim("c1", 1))
        stage.run(stage.leave(first))
        second = stage.submitted("a")
        stage.run(stage.leave(second))
        stage.now_ms += LEASE_MS + 1
        stage.run(stage.register("c2"))
        assert stage.run(stage.claim("c2", 1)).claims == []
        nothing_left(stage)


def test_leaving_a_server_that_does_not_answer_takes_no_time(book):
    """A timeout around a call ends the call on time, also when nobody can be told."""

    async def main(server):
        shop = Shop(server.url, book)
        handle = await shop.nap.aenqueue(5.0)
        server.freeze()
        began = time.monotonic()
        try:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await handle.aresult()
            took = time.monotonic() - began
        finally:
            server.thaw()
        await shop.queue.aclose()
        shop.close()
        return took

    with Server(binaries()["valkey9"]) as server:
        assert asyncio.run(main(server)) < 1.0


@on_newest
def test_each_caller_waits_to_the_own_deadline(server, book, shop):
    """A later caller of the same key does not prolong an earlier one's wait."""
    late = {}

    def wait(name, within):
        handle = shop.nap.options(key="k", within=within).enqueue(0.6, "result")
        began = time.monotonic()
        try:
            late[name] = handle.result()
        except DeadlineExceeded:
            late[name] = time.monotonic() - began

    with WorkerProcess(server.url, book):
        early = threading.Thread(target=wait, args=("early", 0.3))
        early.start()
        wait_until(lambda: shop.book.notes("start", "k"), "the start")
        wait("later", 5.0)
        early.join(10)
    assert 0.2 < late["early"] < 0.5
    assert late["later"] == "result"


@on_newest
def test_many_first_callers_share_one_connection(server, shop):
    async def main():
        handles = await asyncio.gather(*(shop.echo.aenqueue(n) for n in range(100)))
        connections = len(await shop.queue.backend.async_client().client_list())
        await shop.queue.aclose()
        return handles, connections

    with server.client() as client:
        before = len(client.client_list())
        handles, connections = asyncio.run(main())
    assert len({handle.id for handle in handles}) == 100
    assert connections - before < 5
