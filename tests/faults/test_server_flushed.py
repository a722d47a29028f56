"""The server loses everything in mid-work: FLUSHALL, or a restart without persistence."""

import asyncio
import time

import pytest

from deadq import DeadlineExceeded, JobGone
from tests.faults.kinds import NEWEST, on_servers
from tests.faults.trouble import Trouble, fences_grow
from tests.servers import wait_until
from tests.workers import eventually

LEASE_S = 0.9


def flush(server):
    with server.client() as client:
        client.flushall()


def restart(server):
    server.kill()
    server.start()


@on_servers(NEWEST)
@pytest.mark.parametrize("lose_all", [flush, restart])
def test_workers_register_anew_and_waiters_hear_of_it(lose_all, version, kind, tmp_path):
    with Trouble(version, tmp_path, kind, lease=LEASE_S) as trouble:
        shop, book, server = trouble.shop, trouble.book, trouble.server
        workers = [trouble.worker(concurrency=2) for _ in range(2)]
        running = [shop.fenced.options(key=f"r{n}", within=8.0).enqueue(4.0) for n in range(4)]
        wait_until(lambda: len(book.starts()) == 4, "all slots to be busy")
        waiting = [shop.nap.options(key=f"w{n}", within=3.0).enqueue(0.0, n) for n in range(3)]

        async def all_attached():
            return (await shop.queue.astats()).counters.get("duplicate") == 3

        async def awaited():
            calls = [shop.nap.options(key=f"w{n}", within=3.0).acall(0.0, n) for n in range(3)]
            calls = [asyncio.ensure_future(call) for call in calls]
            await eventually(all_attached, "the callers to have attached")
            await asyncio.to_thread(lose_all, server)
            lost = time.monotonic()
            outcomes = await asyncio.gather(*calls, return_exceptions=True)
            await shop.queue.aclose()
            return lost, outcomes, time.monotonic()

        lost, outcomes, told = asyncio.run(awaited())
        # at the deadline at the latest; a lost connection makes them look before that
        assert [type(o) for o in outcomes] in ([JobGone] * 3, [DeadlineExceeded] * 3)
        assert told - lost < 3.0 + 1.0
        for handle in waiting:
            assert handle.state() == "gone"
            with pytest.raises((JobGone, DeadlineExceeded)):
                handle.result()

        # the handlers are called off at the next renewal, and the workers come back
        wait_until(lambda: len(book.notes("interrupted")) == 4, "the handlers to be called off")
        assert all(note.at - lost < LEASE_S for note in book.notes("interrupted"))
        trouble.all_registered()
        since = time.monotonic()
        assert shop.echo.enqueue("new").result() == "new"
        assert time.monotonic() - since < LEASE_S

        # the keys are free again; fences go on from where they were
        again = shop.fenced.options(key="r0", within=5.0).enqueue(0.0)
        fence = again.result()
        assert fence > max(note.fence for note in book.notes("start")[:4])
        assert fences_grow(book)
        for handle in running[1:]:
            with pytest.raises(JobGone):
                handle.result()
        trouble.calm()
        assert all(worker.alive for worker in workers)


@on_servers(NEWEST)
def test_a_handler_that_ends_before_its_worker_knows_reports_to_nobody(version, kind, tmp_path):
    with Trouble(version, tmp_path, kind, lease=3.0) as trouble:
        worker = trouble.worker()
        handle = trouble.shop.nap.options(key="k", within=10.0).enqueue(0.2)
        wait_until(trouble.book.starts, "it to run")
        flush(trouble.server)
        wait_until(lambda: f"job {handle.id} fence" in worker.errors, "the report")
        assert "reported done: gone" in worker.errors
        with pytest.raises(JobGone):
            handle.result(timeout=0)
        assert trouble.shop.echo.enqueue("new").result() == "new"
        trouble.calm()
