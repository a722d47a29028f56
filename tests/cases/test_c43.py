"""C43: server forgets the scripts."""

import asyncio
import threading

import pytest
import redis

from deadq import Cancelled, State
from deadq.store import scripts
from tests.marks import on_newest, scenes_on_servers
from tests.servers import Server, binaries, wait_until
from tests.shop import Shop
from tests.stages import FIRST_SCENES, SCENES, Stage, comparable, differences, held
from tests.workers import WorkerProcess, blocked

everywhere = scenes_on_servers(SCENES, ("admit: one job, fresh", "claim: some jobs"))


@pytest.fixture
def book(tmp_path):
    return tmp_path / "book"


def forget(client):
    client.script_flush()


def run_reference(client, title):
    reference = Stage(client, "reference")
    expected = comparable(reference.run(SCENES[title](reference)))
    return expected, held(client, "reference")


@everywhere
def test_a_call_works_the_first_time_and_acts_once(title, server):
    async def run(stage, call):
        async with server.aclient() as aclient:
            return await stage.aio(aclient).run(call)

    with server.client() as client:
        expected, kept = run_reference(client, title)

        blocking = Stage(client, "blocking")
        call = SCENES[title](blocking)
        forget(client)
        assert comparable(blocking.run(call)) == expected
        assert not differences(held(client, "blocking"), kept)

        concurrent = Stage(client, "asyncio")
        call = SCENES[title](concurrent)
        forget(client)
        assert comparable(asyncio.run(run(concurrent, call))) == expected
        assert not differences(held(client, "asyncio"), kept)


@everywhere
def test_a_call_in_a_pipeline_works_the_first_time_and_acts_once(title, server):
    """Between two others, each of another script; every answer comes to its own call."""

    async def run(stage, calls):
        async with server.aclient() as aclient:
            return await stage.aio(aclient).run_all(calls)

    with server.client() as client:
        expected, kept = run_reference(client, title)
        pipeline = [scripts.fetch(["nobody"]), None, scripts.fetch([]), scripts.stats()]
        shells = {
            "blocking": lambda stage, calls: stage.store.run_all(calls),
            "asyncio": lambda stage, calls: asyncio.run(run(stage, calls)),
        }
        for name, run_all in shells.items():
            stage = Stage(client, name)
            pipeline[1] = SCENES[title](stage)
            forget(client)
            answers = run_all(stage, pipeline)
            assert answers[0][0].state is State.GONE
            assert comparable(answers[1]) == expected
            assert answers[2] == []
            assert isinstance(answers[3], scripts.Stats)
            assert not differences(held(client, name), kept)


@on_newest
def test_batches_in_one_stream_work_the_first_time_and_act_once(server, book):
    shop = Shop(server.url, book)
    with server.client() as client:
        calls = [shop.echo.bind(n) for n in range(300)]
        forget(client)
        handles = shop.queue.enqueue_many(calls)
        assert len({handle.id for handle in handles}) == 300

        async def more():
            calls = [await shop.echo.abind(n) for n in range(300)]
            forget(client)
            several = await shop.queue.aenqueue_many(calls)
            forget(client)
            single = await asyncio.gather(*(shop.echo.aenqueue(n) for n in range(300)))
            await shop.queue.aclose()
            return {handle.id for handle in (*several, *single)}

        assert len(asyncio.run(more())) == 600
        stats = shop.queue.stats()
        assert (stats.live, stats.counters["admitted"]) == (900, 900)
    shop.close()


@pytest.fixture(scope="module", params=list(binaries()))
def restarting(request):
    """A server of this module's own, whose data outlives a restart."""
    with Server(binaries()[request.param], aof=True) as server:
        yield server


@pytest.mark.slow
@pytest.mark.parametrize("script", FIRST_SCENES)
def test_a_call_after_a_restart_works_the_first_time_and_acts_once(script, restarting):
    """The restart closes the connections as well."""
    title = FIRST_SCENES[script]

    async def run(stage, call, warm_up):
        async with restarting.aclient() as aclient:
            store = stage.aio(aclient)
            await store.run(warm_up)
            restarting.restart()
            return await store.run(call)

    with restarting.client() as client:
        client.flushall()
        expected, kept = run_reference(client, title)

        blocking = Stage(client, "blocking")
        call = SCENES[title](blocking)
        restarting.restart()
        assert comparable(blocking.run(call)) == expected
        assert not differences(held(client, "blocking"), kept)

        concurrent = Stage(client, "asyncio")
        call = SCENES[title](concurrent)
        assert comparable(asyncio.run(run(concurrent, call, scripts.stats()))) == expected
        assert not differences(held(client, "asyncio"), kept)


@pytest.mark.slow
@pytest.mark.race
@on_newest
def test_worker_and_callers_do_not_notice_that_scripts_are_flushed_all_the_time(server, book):
    stop = threading.Event()

    def flush():
        with server.client() as client:
            while not stop.is_set():
                forget(client)

    async def main():
        shop = Shop(server.url, book, lease=2.0)
        calls = [
            shop.flaky.options(key=f"k{n}", within=30.0).acall(2, 0.01 * (n % 3), n)
            for n in range(200)
        ]
        results = await asyncio.gather(*calls)
        cancelled = await shop.nap.aenqueue(5.0)
        left = await shop.nap.aenqueue(5.0)
        await cancelled.acancel()
        await left.aleave()
        for handle in (cancelled, left):
            with pytest.raises(Cancelled):
                await handle.aresult(timeout=5)
        live = (await shop.queue.astats()).live
        await shop.queue.aclose()
        starts = shop.book.starts()
        shop.close()
        return results, live, starts

    flusher = threading.Thread(target=flush)
    with WorkerProcess(server.url, book, lease=2.0, concurrency=20) as worker:
        flusher.start()
        try:
            results, live, starts = asyncio.run(asyncio.wait_for(main(), 30))
        finally:
            stop.set()
            flusher.join()
        assert worker.alive
        assert "NOSCRIPT" not in worker.errors
    assert results == list(range(200))
    assert live == 0
    assert {key: n for key, n in starts.items() if key.startswith("k")} == {
        f"k{n}": 3 for n in range(200)
    }


@on_newest
def test_a_worker_that_waits_takes_work_after_its_scripts_were_flushed(server, book):
    """What it will send, or has sent already, when the push comes names a script by its digest."""
    shop = Shop(server.url, book)
    with server.client() as client, WorkerProcess(server.url, book):
        for n in range(5):
            wait_until(lambda: blocked(client), "the worker to block")
            forget(client)
            handle = shop.echo.options(within=2.0).enqueue(n)
            assert handle.result() == n
            assert shop.book.starts()[handle.key] == 1
    shop.close()


@on_newest
def test_another_wording_of_the_error_is_understood(server, monkeypatch):
    """A proxy or a managed service may say it otherwise than Redis does."""
    with server.client() as client:
        stage = Stage(client, "wording")
        forget(client)
        words = [
            redis.exceptions.NoScriptError("gone"),
            redis.ResponseError("NOSCRIPT No matching script. Please use EVAL."),
            redis.ResponseError("No matching script. Please use EVAL."),
            redis.ResponseError("ERR NOSCRIPT unknown sha"),
        ]
        for n, word in enumerate(words):
            exchange = stage.store._exchange

            def reworded(commands, said=[word], exchange=exchange):  # noqa: B006  said once
                return [said.pop()] if said else exchange(commands)

            monkeypatch.setattr(stage.store, "_exchange", reworded)
            assert stage.run(stage.admit(stage.submission(f"k{n}")))[0].verdict == "admitted"
            monkeypatch.undo()
