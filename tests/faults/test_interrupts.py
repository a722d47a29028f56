"""Interrupts that come at the worst moment: every claim is accounted for, every slot comes back."""

import asyncio
import contextlib
import logging
import threading

import pytest
import redis

from deadq import Cancelled, JobFailed, Retry, Worker, current_job
from deadq.runtime.lease.ledger import Ledger
from deadq.runtime.loop import async_runner
from deadq.runtime.loop.async_runner import AsyncRunner
from deadq.store import keys
from tests.marks import on_newest
from tests.shop import Shop
from tests.workers import WorkerProcess


@pytest.fixture
def shop(server, tmp_path):
    made = Shop(server.url, tmp_path / "book", lease=1.0)
    yield made
    made.close()


def with_worker(shop, test, **settings):
    """Run an async test beside a worker on the same loop."""

    async def main():
        worker = Worker(shop.queue, grace=0, **settings)
        working = asyncio.ensure_future(worker.arun())
        try:
            await worker.started.wait()
            await test()
        finally:
            worker.stop()
            await working
            await shop.queue.aclose()

    asyncio.run(asyncio.wait_for(main(), 20))


@on_newest
def test_what_cleans_up_has_its_time_when_the_worker_stops_meanwhile(shop, monkeypatch):
    monkeypatch.setattr(async_runner, "REPEAT_S", 5.0)
    cleaned = asyncio.Event()

    async def main():
        worker = Worker(shop.queue, grace=0)

        @shop.queue.task(within=0.2)
        async def cleans_up():
            try:
                await asyncio.sleep(20)
            finally:
                worker.stop()
                await asyncio.sleep(0.05)
                cleaned.set()

        working = asyncio.ensure_future(worker.arun())
        await worker.started.wait()
        await cleans_up.aenqueue()
        await working
        await shop.queue.aclose()

    asyncio.run(asyncio.wait_for(main(), 20))
    assert cleaned.is_set()


@on_newest
def test_a_job_cancelled_between_its_claim_and_its_first_step(shop, monkeypatch):
    start = AsyncRunner.start

    def started_and_cancelled(self, claim):
        start(self, claim)
        if claim.key == "cancelled":
            self.interrupt(claim.id, "cancelled", claim.fence)

    monkeypatch.setattr(AsyncRunner, "start", started_and_cancelled)

    async def test():
        with pytest.raises(Cancelled):
            await shop.nap.options(key="cancelled").acall(0.0)
        # the only slot is free again
        assert await shop.echo.acall("next") == "next"

    with_worker(shop, test, concurrency=1)
    # the canceller was told "too late": so it did start, and was interrupted
    assert len(shop.book.notes("start", "cancelled")) == 1


@on_newest
def test_a_job_given_back_between_its_claim_and_its_first_step(shop, monkeypatch):
    """The worker's stop comes in between: the job waits for the next worker, uncharged."""
    start = AsyncRunner.start
    worker = Worker(shop.queue, grace=0)

    def started_and_stopped(self, claim):
        start(self, claim)
        self.interrupt_all("stop")
        worker.stop()

    async def stopped():
        monkeypatch.setattr(AsyncRunner, "start", started_and_stopped)
        working = asyncio.ensure_future(worker.arun())
        handle = await shop.echo.options(key="k", within=20.0).aenqueue("value")
        await asyncio.wait_for(working, 10)
        monkeypatch.undo()
        return handle

    async def main():
        handle = await stopped()
        assert await handle.astate() == "ready"
        next_worker = Worker(shop.queue)
        working = asyncio.ensure_future(next_worker.arun())
        assert await handle.aresult() == "value"
        next_worker.stop()
        await working
        await shop.queue.aclose()

    asyncio.run(main())
    assert shop.book.starts() == {"k": 1}


@on_newest
def test_a_unit_for_which_no_thread_could_be_started_does_not_run_later(shop, monkeypatch):
    """Its job has been told that it failed."""
    start = threading.Thread.start

    def refused(thread):
        if thread.name.startswith("deadq-unit"):
            raise RuntimeError("can't start new thread")
        start(thread)

    begun, may_end = threading.Event(), threading.Event()

    def occupy():
        begun.set()
        may_end.wait(10)

    @shop.queue.task(within=20.0)
    async def two_units():
        first = asyncio.ensure_future(current_job().unit("first", occupy))
        await asyncio.to_thread(begun.wait, 10)
        monkeypatch.setattr(threading.Thread, "start", refused)
        try:
            await current_job().unit("second", lambda: shop.book.note("effect"))
        finally:
            monkeypatch.undo()
            may_end.set()
            await first

    async def test():
        with pytest.raises(JobFailed, match="can't start new thread"):
            await two_units.options(key="k").acall()

    with_worker(shop, test)
    for thread in threading.enumerate():
        if thread.name.startswith("deadq-unit"):
            thread.join()
    assert not shop.book.notes("effect")


@on_newest
def test_a_unit_for_which_no_thread_could_be_started_holds_up_no_other_one(shop, monkeypatch):
    start, refuse = threading.Thread.start, [True]

    def refused_once(thread):
        if thread.name.startswith("deadq-unit") and refuse:
            refuse.clear()
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refused_once)

    @shop.queue.task(within=20.0)
    async def three_units():
        job, begun, may_end = current_job(), threading.Event(), threading.Event()

        def occupy():
            begun.set()
            assert may_end.wait(10)

        with pytest.raises(RuntimeError):
            await job.unit("refused", occupy)
        first = asyncio.ensure_future(job.unit("first", occupy))
        await asyncio.to_thread(begun.wait, 10)
        await job.unit("second", may_end.set, limit=1.0)
        await first

    async def test():
        await three_units.options(key="k").acall()

    with_worker(shop, test)


@on_newest
def test_a_unit_whose_thread_has_not_begun_by_its_limit_is_not_in_doubt_and_never_runs(
    shop, monkeypatch
):
    start, held_up = threading.Thread.start, []

    def not_yet(thread):
        if thread.name.startswith("deadq-unit"):
            held_up.append(thread)
        else:
            start(thread)

    monkeypatch.setattr(threading.Thread, "start", not_yet)

    @shop.queue.task(within=20.0)
    async def unit():
        await current_job().unit("late", lambda: shop.book.note("effect"), limit=0.2)

    async def test():
        handle = await unit.options(key="k").aenqueue()
        with pytest.raises(JobFailed, match="within its limit; it did not run"):
            await handle.aresult()
        record = await asyncio.to_thread(record_of, handle)
        assert record.startswith(b"raised ")

    def record_of(handle):
        with redis.Redis.from_url(shop.queue.backend.url) as client:
            return client.hget(keys.key(shop.queue.name, "job", handle.id), "u:late")

    with_worker(shop, test)
    (thread,) = held_up
    start(thread)
    thread.join()
    assert not shop.book.notes("effect")


@on_newest
def test_a_stop_waits_for_a_unit_of_a_run_that_was_lost(shop, monkeypatch):
    """Its lease lapsed, and the same child runs the same job once more."""
    monkeypatch.setattr("deadq.runtime.loop.ending._LEAVE_S", 0.1)
    worker = Worker(shop.queue, concurrency=2, grace=0)
    workers = keys.key(shop.queue.name, "workers")

    async def main():
        begun, may_end, again = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def effect():
            begun.set()
            await may_end.wait()
            shop.book.note("effect")

        @shop.queue.task(within=20.0)
        async def pay_once():
            if current_job().attempt == 1:
                await current_job().unit("pay", effect)
            again.set()
            await asyncio.sleep(20.0)

        working = asyncio.ensure_future(worker.arun())
        handle = await pay_once.options(key="k").aenqueue()
        await begun.wait()
        client.zadd(workers, dict.fromkeys(client.zrange(workers, 0, -1), 1))
        await again.wait()
        worker.stop()
        asyncio.get_running_loop().call_later(0.5, may_end.set)  # when all else has long left
        await working
        await shop.queue.aclose()
        return handle

    with redis.Redis.from_url(shop.queue.backend.url) as client:
        handle = asyncio.run(asyncio.wait_for(main(), 20))
        assert [note.attempt for note in shop.book.notes("effect")] == [1]
        unit = client.hget(keys.key(shop.queue.name, "job", handle.id), "u:pay")
    assert unit.startswith(b"done")
    assert handle.state() == "ready"


@on_newest
def test_a_stop_waits_for_the_handler_whose_unit_was_the_last(shop, monkeypatch):
    """It cleans up; its job is given back after that, and what lifespans have opened stays open."""
    monkeypatch.setattr("deadq.runtime.loop.ending._LEAVE_S", 0.1)
    worker = Worker(shop.queue, grace=0)
    done = []

    async def main():
        begun, may_end = asyncio.Event(), asyncio.Event()

        async def effect():
            begun.set()
            await may_end.wait()

        @shop.queue.task(within=20.0)
        async def pay_and_clean_up():
            try:
                await current_job().unit("pay", effect)
            except asyncio.CancelledError:
                closing = asyncio.ensure_future(asyncio.sleep(0.12))
                while not closing.done():  # interrupted again and again
                    with contextlib.suppress(asyncio.CancelledError):
                        await asyncio.shield(closing)
                done.append("cleaned up")
                raise

        working = asyncio.ensure_future(worker.arun())
        handle = await pay_and_clean_up.options(key="k").aenqueue()
        await begun.wait()
        worker.stop()
        asyncio.get_running_loop().call_later(0.5, may_end.set)  # when all else has long left
        await working
        assert done == ["cleaned up"]
        assert await handle.astate() == "ready"
        await shop.queue.aclose()

    asyncio.run(asyncio.wait_for(main(), 20))


@on_newest
def test_a_renewal_that_speaks_of_an_earlier_run_spares_the_present_one(shop, monkeypatch):
    """It left with the fence of the run before; the job has been claimed again meanwhile."""
    snapshot, first_fence = Ledger.snapshot, {}

    def outdated(ledger):
        renewal = snapshot(ledger)
        held = {job: first_fence.setdefault(job, fence) for job, fence in renewal.held.items()}
        return renewal._replace(held=held)

    monkeypatch.setattr(Ledger, "snapshot", outdated)

    @shop.queue.task(within=10.0, retries=1)
    async def twice(seconds):
        shop.book.note("start")
        await asyncio.sleep(seconds)
        if current_job().attempt == 1:
            raise Retry(after=0)
        return "second"

    async def test():
        # each run lasts over a renewal, and the second one begins at once
        assert await twice.options(key="k").acall(0.5) == "second"

    with_worker(shop, test, concurrency=1)
    assert [note.attempt for note in shop.book.notes("start", "k")] == [1, 2]


@pytest.mark.race
@on_newest
def test_renewals_beside_retries_at_once_lose_no_job(server, tmp_path):
    """Every job is claimed ten times in a row by the same child, which renews all the time."""
    shop = Shop(server.url, tmp_path / "book", lease=0.6)

    async def main():
        await shop.queue.aconnect()
        keys = [f"k{n}" for n in range(300)]
        calls = [shop.flaky.options(key=key).acall(9, 0.0, key) for key in keys]
        assert await asyncio.gather(*calls) == keys
        assert (await shop.queue.astats()).live == 0
        await shop.queue.aclose()
        return dict.fromkeys(keys, 10)

    with WorkerProcess(server.url, tmp_path / "book", lease=0.6, concurrency=20):
        expected = asyncio.run(asyncio.wait_for(main(), 30))
    assert shop.book.starts() == expected
    shop.close()


@pytest.mark.race
@on_newest
def test_cancels_that_race_with_the_start_settle_every_job(shop, caplog):
    """Each is cancelled about when it starts: it ends as cancelled or done, and is gone."""
    caplog.set_level(logging.ERROR)

    async def one(n):
        handle = await shop.echo.options(key=f"k{n}").aenqueue(n)
        await asyncio.sleep(0.0002 * (n % 10))
        await handle.acancel()
        with contextlib.suppress(Cancelled):
            assert await handle.aresult(timeout=3) == n

    async def test():
        for batch in range(0, 500, 25):
            await asyncio.gather(*(one(n) for n in range(batch, batch + 25)))
        assert (await shop.queue.astats()).live == 0

    with_worker(shop, test, concurrency=10)
    assert max(shop.book.starts().values()) == 1
    assert not caplog.records
