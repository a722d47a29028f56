"""The server is there, but refuses or forgets: a replica, one that loads, one that cuts lines."""

import asyncio
import threading

import pytest
import redis

from deadq import StoreUnavailable
from tests.faults.kinds import NEWEST, on_servers
from tests.faults.trouble import Load, Trouble, fences_grow, overlaps, passed
from tests.marks import THOROUGH
from tests.servers import wait_until

NOBODY = ("127.0.0.1", 1)
"""No primary is there: the replica keeps its data, and takes no writes."""


def become_replica(server):
    with server.client() as client:
        client.replicaof(*NOBODY)


def become_primary(server):
    with server.client() as client:
        client.replicaof("no", "one")


def every_submit_is_refused(trouble, words):
    """By callers that are connected, and by ones that have yet to connect."""
    fresh = trouble.another_shop()
    for shop in (trouble.shop, fresh):
        with pytest.raises(StoreUnavailable, match=words) as info:
            shop.echo.enqueue("refused")
        assert info.value.retry_after > 0

    async def concurrently():
        with pytest.raises(StoreUnavailable, match=words):
            await fresh.echo.aenqueue("refused")
        await fresh.queue.aclose()

    asyncio.run(concurrently())


@on_servers(NEWEST)
def test_a_server_turned_replica_in_mid_run_and_back(version, kind, tmp_path):
    with Trouble(version, tmp_path, kind) as trouble:
        workers = [trouble.worker() for _ in range(2)]

        async def main():
            async with Load(trouble) as load:
                await load.served(40)
                for _ in range(2):
                    become_replica(trouble.server)
                    await load.noticed()
                    become_primary(trouble.server)
                    await load.served(40)
                become_replica(trouble.server)
                await load.noticed()
                await asyncio.to_thread(
                    every_submit_is_refused, trouble, "the server is a read-only replica"
                )
                become_primary(trouble.server)
                await load.served(40)
            return load

        load = asyncio.run(main())
        assert load.outcomes == {key: load.wanted[key] for key in load.accepted}
        starts = trouble.book.starts()
        assert {key: starts[key] for key in load.accepted} == {
            key: load.runs[key] for key in load.accepted
        }
        assert fences_grow(trouble.book)
        trouble.calm()
        assert all(worker.alive for worker in workers)


@on_servers()
def test_a_server_that_is_a_replica_for_longer_than_a_lease(version, kind, tmp_path):
    """Handlers stop as they do when it is gone; nobody can take their jobs meanwhile either."""
    lease = 0.8
    with Trouble(version, tmp_path, kind, lease=lease) as trouble:
        shop, book = trouble.shop, trouble.book
        workers = [trouble.worker(concurrency=2) for _ in range(2)]
        handles = [shop.fenced.options(within=20.0).enqueue(1.2) for _ in range(4)]
        wait_until(lambda: len(book.starts()) == 4, "all to run")
        become_replica(trouble.server)
        wait_until(lambda: len(book.notes("interrupted")) == 4, "all to be called off")
        coming = trouble.coming_worker()
        passed(lease, book.notes("interrupted")[-1].at)
        assert not coming.done()
        become_primary(trouble.server)
        late = coming.result()
        for handle in handles:
            assert handle.result() == book.notes("start", handle.key)[-1].fence
        assert not overlaps(book)
        assert fences_grow(book)
        trouble.all_registered()
        trouble.calm()
        assert all(worker.alive for worker in (*workers, late))


@on_servers(kinds=["one_loop"])
def test_a_server_that_takes_its_time_to_load_its_data(version, kind, tmp_path):
    slowly = {"key-load-delay": "1"}  # us at least for each command, in fact some 60
    with Trouble(version, tmp_path, kind, aof=True, lease=20.0) as trouble:
        shop, server = trouble.shop, trouble.server
        worker = trouble.worker()
        assert shop.echo.enqueue("before").result() == "before"
        with server.client() as client:
            pipe = client.pipeline()
            for n in range(32 * 1024):  # between each 1024 it answers that it is loading
                pipe.set(f"other-{n % 100}", "x")
            pipe.execute()
        handle = shop.nap.options(within=30.0).enqueue(0.3, "value")
        wait_until(lambda: trouble.book.starts()[handle.key], "it to run")
        server.stop()
        server.config = slowly
        server.launch()
        with server.client(protocol=2) as client:
            wait_until(lambda: _is_loading(client), "the server to load")
            every_submit_is_refused(trouble, "still loading its data")
            coming = trouble.coming_worker()
            assert _is_loading(client)
            wait_until(lambda: not _is_loading(client), "the data to be loaded")
        late = coming.result()
        assert handle.result() == "value"
        assert trouble.book.starts()[handle.key] == 1
        assert shop.echo.enqueue("after").result() == "after"
        trouble.all_registered()
        trouble.calm()
        assert worker.alive
        assert late.alive


def _is_loading(client):
    try:
        return client.info("persistence")["loading"] == 1
    except redis.exceptions.BusyLoadingError:
        return True
    except redis.exceptions.ConnectionError:
        return False


def forget_scripts(client):
    client.script_flush()


def cut_all(client):
    """Every connection but this one, at whatever it is."""
    client.client_kill_filter(_type="normal", skipme=True)


def cut_subscribers(client):
    client.client_kill_filter(_type="pubsub", skipme=True)


@on_servers(NEWEST)
@pytest.mark.parametrize(
    ("nuisance", "pause_s"),
    [
        # again and again, so before every operation
        pytest.param(forget_scripts, 0.0, marks=pytest.mark.slow),
        (cut_all, 0.05),
        pytest.param(cut_all, 0.01, marks=THOROUGH),
        pytest.param(cut_subscribers, 0.02, marks=pytest.mark.slow),
    ],
)
def test_a_server_that_keeps_being_a_nuisance(nuisance, pause_s, version, kind, tmp_path):
    stop = threading.Event()

    def keep_on(server):
        with server.client() as client:
            while not stop.wait(pause_s):
                nuisance(client)

    with Trouble(version, tmp_path, kind) as trouble:
        workers = [trouble.worker() for _ in range(2)]
        thread = threading.Thread(target=keep_on, args=[trouble.server])

        async def main():
            async with Load(trouble) as load:
                await load.served(40)
                thread.start()
                try:
                    await load.served(400)
                finally:
                    stop.set()
                    await asyncio.to_thread(thread.join)
            return load

        load = asyncio.run(main())
        assert load.outcomes == {key: load.wanted[key] for key in load.accepted}
        assert trouble.book.starts() == {key: load.runs[key] for key in load.accepted}
        effects = [note.key for note in trouble.book.notes("effect")]
        assert len(effects) == len(set(effects))
        assert fences_grow(trouble.book)
        trouble.calm()
        assert all(worker.alive for worker in workers)
