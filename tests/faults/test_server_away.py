"""The server is away for three leases: workers stop in time, come back, and nothing runs twice."""

import asyncio
import itertools
import signal
import time

import pytest

from deadq import StoreUnavailable, current_job
from deadq.runtime import insist
from deadq.runtime.loop import ending
from deadq.runtime.process import exchange, hearing
from tests.faults.kinds import NEWEST, on_servers
from tests.faults.trouble import DURABLE, Trouble, fences_grow, overlaps, passed
from tests.marks import THOROUGH
from tests.servers import Server, binaries, wait_until
from tests.shifts import Shift, aat_gate, at_gate, state_of, under_both_runners

LEASE_S = 0.8
LIMIT_S = 0.6
"""Of an attempt that ends before it, while the server stands still."""

WIDE = 500
"""Slots of one child: as many as it claims at once."""

LONG_S = 1.5
"""Longer than the lease lasts without a renewal, shorter than the outage."""


def declare_async(queue, book):
    @queue.task(within=20.0, timeout=LIMIT_S)
    async def brisk():
        book.note("start")
        await aat_gate(book)
        book.note("end")
        return "done"

    async def act():
        book.note("begun")
        await aat_gate(book)
        book.note("effect")

    @queue.task(within=20.0)
    async def unit():
        await current_job().unit("act", act, limit=15.0)


def declare_process(queue, book):
    @queue.task(within=20.0, timeout=LIMIT_S)
    def brisk():
        book.note("start")
        at_gate(book)
        book.note("end")
        return "done"

    def act():
        book.note("begun")
        at_gate(book)
        book.note("effect")

    @queue.task(within=20.0)
    def unit():
        current_job().unit("act", act, limit=15.0)


def declare_wide(queue, book):
    begun, all_leave = itertools.count(1), asyncio.Event()

    @queue.task(within=60.0)
    async def meet(n):
        if next(begun) == WIDE:
            book.note("full")
            await aat_gate(book)
            all_leave.set()
            book.note("end")
        await all_leave.wait()
        return n


TWINS = {"async": declare_async, "process": declare_process}

OUTAGES = {
    "standstill": ("freeze", "thaw"),  # connections stay open, and nothing answers
    "restart": ("stop", "start"),
    "crash": ("kill", "start"),
}


def away(trouble, outage):
    """Take the server away for three leases; when it went, and when it was back (monotonic s)."""
    go, come_back = (getattr(trouble.server, name) for name in OUTAGES[outage])
    gone = time.monotonic()
    go()
    passed(3 * LEASE_S, gone)
    come_back()
    return gone, time.monotonic()


def through_three_leases(trouble, outage):
    shop, book = trouble.shop, trouble.book
    workers = [trouble.worker(concurrency=3) for _ in range(2)]
    long = [shop.fenced.options(key=f"long-{n}", within=30.0).enqueue(LONG_S) for n in range(4)]
    short = shop.nap.options(key="short", within=30.0).enqueue(0.15, "short")
    wait_until(lambda: len(book.starts()) == 5, "all to run")
    waiting = [shop.echo.options(key=f"w-{n}", within=30.0).enqueue(n) for n in range(20)]
    gone, back = away(trouble, outage)

    # whoever was running could have gone on until the lease ended: it was stopped before that
    early = [note for note in book.notes("interrupted") if note.at < back]
    assert {note.key for note in early} == {handle.key for handle in long}
    assert all(note.at - gone < LEASE_S for note in early)

    assert [handle.result() for handle in waiting] == list(range(20))
    assert short.result() == "short"
    for handle in long:
        # once more, under a new fence, and that run's result counts
        fence = handle.result()
        first, second = book.notes("start", handle.key)
        assert first.fence < second.fence == fence
        assert first.at < back < second.at
    assert not overlaps(book)
    assert fences_grow(book)
    assert shop.echo.options(within=5.0).enqueue("after").result() == "after"
    trouble.all_registered()
    trouble.calm()
    assert all(worker.alive for worker in workers)


@on_servers(NEWEST)
def test_workers_outlast_a_standstill_of_three_leases(version, kind, tmp_path):
    with Trouble(version, tmp_path, kind, lease=LEASE_S) as trouble:
        through_three_leases(trouble, "standstill")


@on_servers()
@pytest.mark.parametrize("outage", ["restart", pytest.param("crash", marks=THOROUGH)])
def test_workers_outlast_a_restart_that_takes_three_leases(outage, version, kind, tmp_path):
    with Trouble(version, tmp_path, kind, aof=True, config=DURABLE, lease=LEASE_S) as trouble:
        through_three_leases(trouble, outage)


@on_servers()
def test_a_worker_that_stood_still_with_its_server_leaves_the_job_alone(version, kind, tmp_path):
    """When it wakes up the lease is over, and somebody else has the job."""
    with Trouble(version, tmp_path, kind, lease=LEASE_S) as trouble:
        shop, book = trouble.shop, trouble.book
        first = trouble.worker(concurrency=1)
        handle = shop.fenced.options(key="k", within=30.0).enqueue(0.3)
        wait_until(book.starts, "it to run")
        first.freeze()
        away(trouble, "standstill")
        trouble.worker(concurrency=1)
        wait_until(lambda: len(book.notes("start", "k")) == 2, "it to run once more")
        first.thaw()
        assert handle.result() == book.notes("start", "k")[-1].fence
        assert fences_grow(book)
        trouble.all_registered()  # the first one has come back, too
        assert shop.queue.stats().counters.get("finished:done") == 1
        trouble.calm()


@on_servers()
def test_a_report_that_the_outage_kept_back_is_refused(version, kind, tmp_path):
    """The job ended in time, but the server was gone, and then somebody else was quicker."""
    with Trouble(version, tmp_path, kind, aof=True, config=DURABLE, lease=LEASE_S) as trouble:
        shop, book, server = trouble.shop, trouble.book, trouble.server
        first = trouble.worker(concurrency=1)
        handle = shop.fenced.options(key="k", within=30.0).enqueue(0.2)
        wait_until(book.starts, "it to run")
        gone = time.monotonic()
        server.stop()
        wait_until(lambda: book.notes("end", "k"), "it to end")
        first.freeze()
        passed(3 * LEASE_S, gone)
        server.start()
        trouble.worker(concurrency=1)
        wait_until(lambda: len(book.notes("end", "k")) == 2, "it to run once more")
        first.thaw()
        counters = shop.queue.stats
        wait_until(lambda: counters().counters.get("stale") == 1, "the report to be refused")
        assert handle.result() == book.notes("start", "k")[-1].fence
        assert counters().counters.get("finished:done") == 1
        trouble.all_registered()
        trouble.calm()


@pytest.mark.slow
@under_both_runners
def test_a_job_that_ended_in_time_is_not_overdue_while_its_report_waits(tmp_path, runner):
    """Longer than its attempt might have taken, but not the lease: nobody is killed for that."""
    lease = 10.0  # nor is it renewed meanwhile: the supervisor looks at its children all the time
    with (
        Server(binaries()[NEWEST]) as server,
        Shift(server, tmp_path, TWINS, runner, lease=lease) as made,
    ):
        worker = made.worker(concurrency=1)
        children = worker.children
        handle = made.tasks.brisk.options(key="k").enqueue()
        made.started("k")
        server.freeze()
        made.let()
        passed(LIMIT_S + 1.5, made.noted("end").at)
        server.thaw()
        assert handle.result() == "done"
        assert made.book.starts() == {"k": 1}
        assert worker.children == children
        assert not worker.said("child_killed")


def test_a_wide_child_whose_jobs_all_end_while_the_server_is_away(tmp_path):
    """What waits to be reported and what is claimed meanwhile are both held."""
    wide = {"async": declare_wide}
    with Server(binaries()[NEWEST]) as server, Shift(server, tmp_path, wide, "async") as made:
        worker = made.worker(concurrency=WIDE)
        handles = made.tasks.meet.enqueue_many([(n,) for n in range(2 * WIDE)])
        made.noted("full")
        server.freeze()
        made.let()
        made.noted("end")
        server.thaw()
        assert [handle.result() for handle in handles] == list(range(2 * WIDE))
        assert not worker.said("ERROR")
        assert len(worker.said("registered")) == 1


@on_servers(kinds=["one_loop"])
def test_callers_hear_soon_that_the_server_stands_still(version, kind, tmp_path):
    with Trouble(version, tmp_path, kind) as trouble:
        handle = trouble.shop.echo.options(within=30.0).enqueue(1)
        trouble.server.freeze()
        since = time.monotonic()
        with pytest.raises(StoreUnavailable, match="cannot be reached"):
            trouble.shop.echo.enqueue(2)
        assert time.monotonic() - since < 6.0  # two tries, two seconds each
        trouble.server.thaw()
        trouble.worker()
        assert handle.result() == 1


def no_patience(book):
    """In a child: as if its unit ended long after the stop. It tells of that, and of a record that
    has failed, by files."""
    ending._LEAVE_S = exchange._AWAY_S = -1.0
    for owner in (ending.Ending, hearing.Hearing):
        for name in ("stop", "hasten"):
            _touches(book, "told", owner, name)
    _touches(book, "failed", insist._Outage, "pause", lambda outage: outage._worth != insist.always)


def _touches(book, file, owner, name, true=lambda _: True):
    original = getattr(owner, name)

    def touching(self, *args):
        try:
            return original(self, *args)
        finally:
            if true(self):
                (book.path.parent / file).touch()

    setattr(owner, name, touching)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["stopped", "orphaned"])
@under_both_runners
def test_a_unit_that_ends_long_after_a_stop_waits_for_its_record_all_the_same(
    tmp_path, runner, how
):
    """Within its limit, for a server that fails over just then."""
    with (
        Server(binaries()["valkey9"], aof=True, config=DURABLE) as server,
        Shift(server, tmp_path, TWINS, runner, lease=30.0) as shift,
    ):
        worker = shift.worker(concurrency=1, grace=0.0, prepare=no_patience)
        job = shift.tasks.unit.enqueue()
        child = shift.noted("begun").pid
        worker.signal(signal.SIGTERM if how == "stopped" else signal.SIGKILL)
        wait_until((tmp_path / "told").exists, "the child to be told")
        server.kill()
        shift.let()
        wait_until((tmp_path / "failed").exists, "the record to fail")
        server.start()
        wait_until(lambda: state_of(child) in ("", "Z"), "the child to leave")
        assert shift.client.hget(shift.key("job", job.id), "u:act").startswith(b"done ")
        assert not worker.said("end not recorded")
        assert len(shift.book.notes("effect")) == 1
