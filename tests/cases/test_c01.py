"""C01: a stop signal in the gap between claim and start.

The rule: what a worker was handed is either run before it leaves, or given back, uncharged. The
stop looks at what has been claimed, answered or not, never only at what has begun.
"""

import os
import random
import signal
import time

import pytest

from deadq import State
from deadq.store.wire import Wire
from deadq.testing.proxy import slow_proxy
from tests.cases.support import pause
from tests.servers import wait_until
from tests.shifts import (
    Shift,
    handed_out,
    stand_still,
    under_both_runners,
    under_both_slowly,
)


def declare_async(queue, book):
    @queue.task(within=10.0)
    async def job(value):
        book.note("start")
        return value


def declare_process(queue, book):
    @queue.task(within=10.0)
    def job(value):
        book.note("start")
        return value


TWINS = {"async": declare_async, "process": declare_process}


def slow_to_believe(book):
    """In the child: 200 ms pass between the arrival of a claim's reply and its first look."""
    answered = Wire.answer

    def slowly(self, *args):
        answer = answered(self, *args)
        if handed_out(answer):
            with (book.path.parent / "claimed").open("a") as file:
                file.write(f"{os.getpid()}\n")
            stand_still(0.2)
        return answer

    Wire.answer = slowly


def claimed_by(made):
    """The process that has been handed a job, and has not yet looked at it."""
    path = made.folder / "claimed"
    return wait_until(lambda: path.exists() and path.read_text().split(), "a claim")[0]


@pytest.mark.parametrize(
    "to", ["supervisor", *(pytest.param(to, marks=pytest.mark.slow) for to in ("group", "child"))]
)
@under_both_runners
def test_a_stop_between_the_claims_reply_and_the_start(valkey_server, tmp_path, runner, to):
    with Shift(valkey_server, tmp_path, TWINS, runner, lease=1.0) as made:
        first = made.worker(prepare=slow_to_believe, concurrency=1)
        handle = made.tasks.job.options(key="k", within=10.0).enqueue("value")
        child = int(claimed_by(made))
        if to == "group":
            first.signal_group(signal.SIGTERM)
        else:
            os.kill(first.pid if to == "supervisor" else child, signal.SIGTERM)
        pause(0.3)
        second = made.worker(concurrency=1)
        assert handle.result() == "value"
        assert made.book.starts() == {"k": 1}
        if to == "child":  # a child that is told to stop is replaced, its supervisor goes on
            assert first.alive
            first.signal(signal.SIGTERM)
        assert first.wait() == 0
        assert second.stop() == 0
        made.rests()
        stats = made.queue.stats()
        assert (stats.workers, stats.counters.get("reclaimed", 0)) == (0, 0)
        assert made.book.starts() == {"k": 1}


@under_both_slowly
def test_a_stop_while_the_claims_reply_is_on_its_way(valkey_server, tmp_path, runner):
    """The server has handed the jobs out; the worker hears of it after the signal."""
    with Shift(valkey_server, tmp_path, TWINS, runner) as made:
        with slow_proxy(valkey_server.url) as proxy:
            first = made.worker(concurrency=2, url=proxy.url)
            proxy.delay = 0.6
            held = [made.tasks.job.options(key=f"k{i}").enqueue(i) for i in range(6)]
            wait_until(
                lambda: any(handle.state() == State.RUNNING for handle in held),
                "a job to be handed out",
            )
            first.signal(signal.SIGTERM)
            pause(0.1)  # the signal is there before the reply is
            proxy.delay = 0.0
            second = made.worker(concurrency=2)
            assert [handle.result() for handle in held] == list(range(6))
            assert first.wait() == 0
        assert second.stop() == 0
        assert made.book.starts() == {f"k{i}": 1 for i in range(6)}
        assert made.stat("reclaimed") == 0
        made.rests()


@pytest.mark.race
@under_both_slowly
def test_workers_that_come_and_go_at_any_moment(valkey_server, tmp_path, runner):
    """Rolling restarts under load: each job begins once, none is reclaimed."""
    chance = random.Random(1)
    with Shift(valkey_server, tmp_path, TWINS, runner) as made:
        worker, held = made.worker(), []
        for _ in range(15):
            until = time.monotonic() + chance.uniform(0.05, 0.25)
            while time.monotonic() < until:
                held.append(made.tasks.job.options(key=f"k{len(held)}").enqueue(len(held)))
                pause(0.001)  # about as fast as they are run
            worker.signal(chance.choice((signal.SIGTERM, signal.SIGINT, signal.SIGHUP)))
            worker, leaving = made.worker(), worker
            assert leaving.wait() == 0
        assert [handle.result() for handle in held] == list(range(len(held)))
        assert made.book.starts() == {f"k{i}": 1 for i in range(len(held))}
        assert worker.stop() == 0
        assert made.stat("reclaimed") == 0
        made.rests()
