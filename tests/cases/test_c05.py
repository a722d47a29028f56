"""C05: one failed heartbeat ends all heartbeats.

The rule: a renewal that fails is said aloud and tried again soon, for ever. Two failures in a row,
a reset and a timeout, are over before the safe part of the lease is, so nothing is stopped and
nothing is given to anybody else.
"""

import asyncio
import time

import pytest

from deadq.store.loader import load
from deadq.testing.proxy import slow_proxy
from tests.servers import wait_until
from tests.shifts import Shift, process_daily, under_both_slowly

RENEWALS = load("renew").sha.encode()


def declare_async(queue, book):
    @queue.task(within=20.0)
    async def long(seconds):
        book.note("start")
        await asyncio.sleep(seconds)
        book.note("effect")
        return "done"


def declare_process(queue, book):
    @queue.task(within=20.0)
    def long(seconds):
        book.note("start")
        time.sleep(seconds)
        book.note("effect")
        return "done"


TWINS = {"async": declare_async, "process": declare_process}


def failures(worker):
    return len(worker.said("renewal_failed"))


def children(made):
    """The children's ids, as the server knows them."""
    return [child.decode() for child in made.client.zrange(made.key("workers"), 0, -1)]


def lease_end(made, child):
    """When its lease ends, ms by the server's clock."""
    return made.client.zscore(made.key("workers"), child)


AS_WRITTEN = pytest.param(2.0, 6.0, marks=pytest.mark.slow, id="as written")


@pytest.mark.parametrize(("lease", "seconds"), [AS_WRITTEN, pytest.param(1.5, 3.5, id="short")])
@process_daily
def test_a_reset_and_a_timeout(valkey_server, tmp_path, runner, lease, seconds):
    with Shift(valkey_server, tmp_path, TWINS, runner, lease=lease) as made:
        with slow_proxy(valkey_server.url) as proxy:
            first = made.worker(concurrency=1, url=proxy.url)
            (child,) = children(made)
            handle = made.tasks.long.options(key="k").enqueue(seconds)
            made.started("k")
            made.worker(concurrency=1)  # idle all the time
            proxy.swallow_replies(1000, to=RENEWALS, cut=True)
            wait_until(lambda: failures(first) == 1, "a renewal to be reset")
            proxy.swallow_replies(1000, to=RENEWALS)
            wait_until(lambda: failures(first) == 2, "the next to time out")
            proxy.swallow_replies(0)
            before = lease_end(made, child)
            wait_until(lambda: lease_end(made, child) > before, "renewals to resume", lease)
            assert handle.result() == "done"
            assert failures(first) == 2
        assert made.book.starts() == {"k": 1}
        assert len(made.book.notes("effect")) == 1
        assert not first.said("lost: ")
        assert made.stat("reclaimed") == made.stat("stale") == 0
        made.rests()


@under_both_slowly
def test_failures_without_number_end_nothing(valkey_server, tmp_path, runner):
    """Away for three leases; back, the worker renews as before, and a long job keeps its lease."""
    with Shift(valkey_server, tmp_path, TWINS, runner, lease=0.6) as made:
        with slow_proxy(valkey_server.url) as proxy:
            first = made.worker(concurrency=1, url=proxy.url)
            proxy.refuse()
            proxy.cut()
            wait_until(lambda: failures(first) >= 20, "renewals to fail")
            loud = first.said(" WARNING renewal_failed")
            assert len(loud) == 1, "said aloud once in an outage"
            assert loud[0].endswith("; trying again")
            proxy.refuse(False)
            wait_until(lambda: first.said("store_back: renewed after"), "the end to be said")
            handle = made.tasks.long.options(key="k").enqueue(1.8)
            made.started("k")
            made.worker(concurrency=1)
            assert handle.result() == "done"
        assert made.book.starts() == {"k": 1}
        made.rests()
