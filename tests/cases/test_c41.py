"""C41: Redis out of memory.

The server holds ballast, and its limit is then set below what it uses; memory is freed by
throwing the ballast away.
"""

import time

import pytest

from deadq import DeadlineExceeded, QueueFull, StoreUnavailable
from tests.faults.kinds import NEWEST, OLDEST, on_servers
from tests.faults.trouble import LIMITED, Trouble
from tests.servers import wait_until

BIG = 300_000
"""Bytes of a result that does not fit any more."""


@pytest.fixture
def trouble(version, kind, tmp_path):
    with Trouble(version, tmp_path, kind, config=LIMITED, capacity=50) as made:
        made.ballast()
        yield made


def full(trouble):
    """The capacity was never reached, so nobody may be told that it was."""
    return trouble.shop.queue.stats().counters.get("rejected:full", 0)


def refused(shop):
    since = time.monotonic()
    with pytest.raises(StoreUnavailable, match="out of memory") as info:
        shop.echo.enqueue("new")
    assert time.monotonic() - since < 1.0
    assert not isinstance(info.value, QueueFull)
    assert info.value.retry_after > 0


@on_servers(NEWEST, OLDEST)
def test_three_queued_and_one_running_when_the_memory_is_full(trouble):
    shop, book = trouble.shop, trouble.book
    worker = trouble.worker(concurrency=1)
    running = shop.nap.options(key="running", within=20.0).enqueue(0.4, "ran")
    wait_until(book.starts, "it to run")
    queued = [shop.echo.options(key=f"q{n}", within=20.0).enqueue(n) for n in range(2)]
    dying = shop.echo.options(key="dying", within=0.2).enqueue("too late")
    with trouble.memory_full():
        refused(shop)
        assert shop.queue.stats().live == 4
        wait_until(lambda: dying.state() == "expired", "the short one to expire")
        with pytest.raises(DeadlineExceeded):
            dying.result()
        assert running.result() == "ran"
        assert [handle.result() for handle in queued] == [0, 1]
        refused(shop)
    assert shop.echo.enqueue("new").result() == "new"
    assert full(trouble) == 0
    starts = book.starts()
    assert [starts[handle.key] for handle in (running, *queued, dying)] == [1, 1, 1, 0]
    trouble.calm()
    assert worker.alive


@on_servers(NEWEST, OLDEST)
def test_a_worker_that_comes_while_the_memory_is_full_drains_the_queue(trouble):
    """The limit stands before it registers, claims and finishes."""
    shop, book = trouble.shop, trouble.book
    handles = [shop.echo.options(key=f"q{n}", within=20.0).enqueue(n) for n in range(20)]
    cancelled = shop.echo.options(key="cancelled", within=20.0).enqueue("never")
    with trouble.memory_full():
        assert cancelled.cancel()
        trouble.worker()
        assert [handle.result() for handle in handles] == list(range(20))
        refused(shop)
    assert book.starts() == {handle.key: 1 for handle in handles}
    trouble.calm()


@on_servers(NEWEST)
def test_results_and_units_that_need_memory_are_kept_all_the_same(trouble):
    """The limit comes between the claim and what is then to be written: a large result, the
    beginning of a unit, its large record."""
    shop, book = trouble.shop, trouble.book
    trouble.worker()
    large = shop.bulk.options(key="large", within=20.0).enqueue(0.3, BIG)
    in_unit = shop.pay.options(key="in_unit", within=20.0).enqueue(0.3, BIG // 2)
    again = shop.flaky.options(key="again", within=20.0).enqueue(2, 0.15, "third")
    wait_until(lambda: len(book.starts()) == 3 and book.notes("effect", "in_unit"), "all to run")
    waiting = shop.pay.options(key="waiting", within=20.0).enqueue(0.0, BIG // 2)
    with trouble.memory_full():
        assert len(large.result()) == BIG
        assert len(in_unit.result()) == len(waiting.result()) == BIG // 2
        assert again.result() == "third"
    assert book.starts() == {"large": 1, "in_unit": 1, "again": 3, "waiting": 1}
    assert [note.key for note in book.notes("effect")] == ["in_unit", "waiting"]
    trouble.calm()


@on_servers()
def test_leases_are_renewed_while_the_memory_is_full(version, kind, tmp_path):
    with Trouble(version, tmp_path, kind, config=LIMITED, lease=1.0) as trouble:
        trouble.ballast()
        shop, book = trouble.shop, trouble.book
        worker = trouble.worker(concurrency=2)
        handle = shop.fenced.options(key="k", within=20.0).enqueue(3.0)
        wait_until(book.starts, "it to run")
        with trouble.memory_full():
            assert handle.result() == book.notes("start", "k")[0].fence
            trouble.all_registered()
        assert "renewal_failed" not in worker.errors
        trouble.calm()
