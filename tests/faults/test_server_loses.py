"""The server comes back without the newest of what it had acknowledged: power loss, failover."""

import asyncio
import os
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from deadq import Deadline, JobGone, JobHandle, StoreUnavailable
from tests.faults.kinds import NEWEST, OLDEST, on_servers
from tests.faults.trouble import Trouble, fences_grow, overlaps
from tests.servers import Server, binaries, wait_until

LEASE_S = 1.5


def finished(shop, count, prefix):
    """Jobs that have ended, by their handles."""
    calls = [shop.echo.options(key=f"{prefix}-{n}", within=20.0).bind(n) for n in range(count)]
    handles = shop.queue.enqueue_many(calls)
    assert all(isinstance(handle, JobHandle) for handle in handles)
    assert [handle.result() for handle in handles] == list(range(count))
    return handles


def power_loss(server, kept_bytes):
    """The machine goes down, and what was written after so many bytes never reached the disk."""
    server.kill()
    os.truncate(server.journal, kept_bytes)
    server.start()


def put_off(task, *args):
    """A job that is stored now, and claimed only after the loss is prepared."""
    return task.options(key="k", not_before=Deadline.after(0.4), within=20.0).enqueue(*args)


@on_servers(NEWEST, OLDEST)
def test_what_was_acknowledged_after_the_last_sync_is_gone_and_says_so(version, kind, tmp_path):
    with Trouble(version, tmp_path, kind, aof=True, lease=LEASE_S) as trouble:
        worker, shop, server = trouble.worker(), trouble.shop, trouble.server
        early = finished(shop, 5, "early")
        running = shop.fenced.options(key="running", within=20.0).enqueue(0.8)
        wait_until(lambda: trouble.book.notes("start", "running"), "it to run")
        kept = server.journalled()
        late = finished(shop, 5, "late")
        waiting = [
            shop.echo.options(not_before=Deadline.after(5.0), within=20.0).enqueue(n)
            for n in range(3)
        ]

        async def outcome_of_a_wait():
            wait = asyncio.ensure_future(waiting[0].aresult())
            await asyncio.sleep(0)
            await asyncio.to_thread(power_loss, server, kept)
            back = time.monotonic()
            with pytest.raises(JobGone):
                await wait
            await shop.queue.aclose()
            return time.monotonic() - back

        # the reconnect makes those who wait look again: they need not wait to their deadline
        assert asyncio.run(outcome_of_a_wait()) < 3.0
        for handle in (*late, *waiting):
            assert handle.state() == "gone"
            with pytest.raises(JobGone, match=f"no record of job {handle.id}"):
                handle.result()
        assert [handle.result() for handle in early] == list(range(5))
        # its claim was known: the worker's report is taken
        (start,) = trouble.book.notes("start", "running")
        assert running.result() == start.fence
        # a key of a lost job is free again
        assert shop.echo.options(key="late-0", within=20.0).enqueue(0).result() == 0
        assert fences_grow(trouble.book)
        trouble.calm()
        assert worker.alive


@on_servers(NEWEST)
def test_a_job_whose_claim_was_lost_runs_once_more_and_the_first_run_is_called_off(
    version, kind, tmp_path
):
    with Trouble(version, tmp_path, kind, aof=True, lease=LEASE_S) as trouble:
        shop, server = trouble.shop, trouble.server
        workers = [trouble.worker(concurrency=1) for _ in range(2)]
        handle = put_off(shop.fenced, 1.5)
        kept = server.journalled()
        wait_until(lambda: trouble.book.notes("start", "k"), "it to run")
        power_loss(server, kept)
        back = time.monotonic()
        wait_until(lambda: len(trouble.book.notes("start", "k")) == 2, "it to run once more")
        wait_until(lambda: trouble.book.notes("interrupted", "k"), "the first run to end")
        first, second = trouble.book.notes("start", "k")
        (interrupted,) = trouble.book.notes("interrupted", "k")
        assert interrupted.fence == first.fence
        # the next renewal says that the job is somebody else's; it may have to be sent twice
        assert interrupted.at - back < LEASE_S
        assert handle.result() == second.fence > first.fence
        trouble.calm()
        assert all(worker.alive for worker in workers)


@on_servers(NEWEST)
def test_a_worker_whose_registration_was_lost_calls_its_runs_off_first(version, kind, tmp_path):
    """Under its new name it is given the same job, which it is still running."""
    with Trouble(version, tmp_path, kind, aof=True, lease=20.0) as trouble:
        shop, server = trouble.shop, trouble.server
        handle = shop.fenced.options(key="k", within=20.0).enqueue(1.0)
        kept = server.journalled()
        # one child: a second would be given the job before the first has been called off
        worker = trouble.worker(concurrency=1 if kind == "process" else 2)
        wait_until(lambda: trouble.book.notes("start", "k"), "it to run")
        power_loss(server, kept)
        wait_until(lambda: len(trouble.book.notes("start", "k")) == 2, "it to run once more")
        assert not overlaps(trouble.book)
        assert handle.result() == trouble.book.notes("start", "k")[-1].fence
        trouble.calm()
        assert worker.alive


@on_servers(NEWEST, kinds=["one_loop"])
def test_a_unit_whose_record_was_lost_runs_once_more_under_the_same_key(version, kind, tmp_path):
    with Trouble(version, tmp_path, kind, aof=True, lease=LEASE_S) as trouble:
        shop, server = trouble.shop, trouble.server
        trouble.worker()
        handle = put_off(shop.pay, 0.0, 4)
        kept = server.journalled()
        assert handle.result() == "rrrr"
        power_loss(server, kept)
        wait_until(lambda: len(trouble.book.notes("end", "k")) == 2, "it to run once more")
        assert handle.result() == "rrrr"
        assert len(trouble.book.notes("effect", "k")) == 2
        assert fences_grow(trouble.book)
        trouble.calm()


@on_servers(kinds=["one_loop"])
def test_a_unit_of_which_only_the_beginning_is_left_is_in_doubt_to_its_limit(
    version, kind, tmp_path
):
    """The next attempt cannot know that nobody is in it any more."""
    with Trouble(version, tmp_path, kind, aof=True, lease=LEASE_S) as trouble:
        shop, server, book = trouble.shop, trouble.server, trouble.book
        trouble.worker()
        handle = shop.pay.options(key="k", within=20.0).enqueue(0.2, 4)
        wait_until(lambda: book.notes("effect", "k"), "the unit to be begun")
        kept = server.journalled()
        assert handle.result() == "rrrr"
        power_loss(server, kept)
        wait_until(lambda: len(book.notes("effect", "k")) == 2, "it to run once more")
        first, second = book.notes("effect", "k")
        assert second.at - first.at > 2.9  # its limit is 3 s
        assert handle.result() == "rrrr"
        trouble.calm()


@on_servers(kinds=["one_loop"])
def test_what_a_promoted_replica_has_not_received_is_gone_and_says_so(version, kind, tmp_path):
    """The address stays, the server behind it is another one: as with a virtual address."""
    at_once = {"repl-diskless-sync-delay": "0"}
    with Trouble(version, tmp_path, kind, port=0, config=at_once, lease=LEASE_S) as trouble:
        primary = trouble.server
        with Server(binaries()[version]) as replica, replica.client() as client:
            client.replicaof("127.0.0.1", primary.port)
            worker, shop = trouble.worker(), trouble.shop
            early = finished(shop, 5, "early")
            wait_until(lambda: _received(client, primary), "the replica to have it all")
            client.replicaof("no", "one")
            late = finished(shop, 5, "late")
            primary.kill()
            primary.socket.unlink(missing_ok=True)
            primary.socket.symlink_to(replica.socket)
            assert [handle.result() for handle in early] == list(range(5))
            for handle in late:
                with pytest.raises(JobGone):
                    handle.result()
            again = shop.echo.options(key="late-0", within=20.0).enqueue("again")
            assert again.result() == "again"
            assert fences_grow(trouble.book)
            trouble.calm()
            assert worker.alive


def _received(client, primary):
    with primary.client() as to_primary:
        sent = to_primary.info("replication")["master_repl_offset"]
    told = client.info("replication")
    return told["master_link_status"] == "up" and told["slave_repl_offset"] >= sent


@on_servers(NEWEST, kinds=["one_loop"])
def test_with_too_few_replicas_submits_are_refused_and_workers_wait(version, kind, tmp_path):
    with Trouble(version, tmp_path, kind, lease=20.0) as trouble:
        shop = trouble.shop
        worker = trouble.worker()
        handle = shop.nap.options(key="k", within=20.0).enqueue(0.2, "value")
        wait_until(lambda: trouble.book.notes("start", "k"), "it to run")
        with trouble.server.client() as client:
            client.config_set("min-replicas-to-write", 1)
            with pytest.raises(StoreUnavailable, match="too few replicas are connected"):
                shop.echo.enqueue(1)
            wait_until(lambda: trouble.book.notes("end", "k"), "it to end")
            assert handle.state() == "running"  # the report is refused, and repeated
            client.config_set("min-replicas-to-write", 0)
        assert handle.result() == "value"
        assert shop.echo.enqueue(1).result() == 1
        assert trouble.book.starts()["k"] == 1
        trouble.calm()
        assert worker.alive


@on_servers(NEWEST, kinds=["one_loop"])
def test_a_wait_that_begins_while_the_server_is_away_waits_for_it(version, kind, tmp_path):
    """Also where this loop, or this process, has never been connected before."""
    with Trouble(version, tmp_path, kind, aof=True) as trouble:
        handle = trouble.shop.echo.options(within=20.0).enqueue("value")
        trouble.server.stop()

        async def main():
            wait = asyncio.ensure_future(handle.aresult())
            with pytest.raises(StoreUnavailable, match="cannot be reached"):
                await handle.aresult(timeout=0.1)  # it is still away
            await asyncio.to_thread(trouble.server.start)
            await asyncio.to_thread(trouble.worker)
            assert await wait == "value"
            await trouble.shop.queue.aclose()

        asyncio.run(main())

        unconnected = trouble.another_shop().queue.producer
        trouble.server.stop()
        with ThreadPoolExecutor() as pool:
            looking = pool.submit(unconnected.wait, handle.id, time.monotonic() + 20.0)
            with pytest.raises(StoreUnavailable, match="cannot be reached"):
                unconnected.wait(handle.id, time.monotonic() + 0.1)
            trouble.server.start()
            assert looking.result().state == "done"
