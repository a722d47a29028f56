"""C31: a handler swallows the deadline signal.

The rule: a handler is told to leave at its deadline, again every 50 ms, and 300 ms later either it
is out or its job has ended without it and its process is being replaced. What it returns or raises
after its deadline comes too late, whatever it is. More ways of not leaving are in
tests/faults/test_stubborn.py.
"""

import asyncio
import contextlib
import time

import pytest

from deadq import Cancelled, DeadlineExceeded, JobFailed, State
from tests.patience import slack_s
from tests.servers import wait_until
from tests.shifts import Shift, async_daily, under_both_runners, under_both_slowly

BOUND_S = 0.3

CLEAN_UP_S = 1.0
"""A process that is replaced gives tasks that were left behind so much more to leave."""

BROAD = {"Exception": Exception, "BaseException": BaseException}


def declare_async(queue, book):
    @queue.task(within=20.0)
    async def loop(broad):
        book.note("start")
        until = time.monotonic() + 5.0
        while time.monotonic() < until:
            try:
                book.note("step")
                await asyncio.sleep(0.01)
            except BROAD[broad]:
                book.note("swallowed")
        return "good"

    @queue.task(within=20.0, timeout=0.4, retries=1, backoff=lambda _: 0.0)
    async def limited(broad):
        book.note("start")
        until = time.monotonic() + 5.0
        while time.monotonic() < until:
            with contextlib.suppress(BROAD[broad]):
                await asyncio.sleep(0.01)
        return "good"

    @queue.task(within=20.0)
    async def over(seconds):
        """Not interrupted in time: it has the loop to itself."""
        book.note("start")
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            pass
        return "late"


def declare_process(queue, book):
    @queue.task(within=20.0)
    def loop(broad):
        book.note("start")
        until = time.monotonic() + 5.0
        while time.monotonic() < until:
            try:
                book.note("step")
                time.sleep(0.01)
            except BROAD[broad]:
                book.note("swallowed")
        return "good"

    @queue.task(within=20.0, timeout=0.4, retries=1, backoff=lambda _: 0.0)
    def limited(broad):
        book.note("start")
        until = time.monotonic() + 5.0
        while time.monotonic() < until:
            with contextlib.suppress(BROAD[broad]):
                time.sleep(0.01)
        return "good"

    @queue.task(within=20.0)
    def over(seconds):
        """Not interrupted in time: it is in one long call into C."""
        book.note("start")
        until = time.monotonic() + seconds
        any(map(until.__lt__, iter(time.monotonic, None)))
        return "late"


TWINS = {"async": declare_async, "process": declare_process}


def exceeded(made, handle, within_s):
    """Wait until the job has ended as cut, within so long after its deadline."""
    with pytest.raises(DeadlineExceeded):
        handle.result()
    wait_until(lambda: handle.state().final, "the job to end", within_s)
    assert handle.state() == State.EXCEEDED
    assert handle.deadline.remaining() > -within_s - slack_s()


@under_both_runners
def test_a_catch_all_around_each_step(valkey_server, tmp_path, runner):
    """Each in a process of its own."""
    with Shift(valkey_server, tmp_path, TWINS, runner) as made:
        worker = made.worker(concurrency=2, children=2 if runner == "async" else None)
        before = set(worker.children)
        held = [made.tasks.loop.options(key=broad, within=0.5).enqueue(broad) for broad in BROAD]
        made.started(*BROAD)
        for handle in held:
            exceeded(made, handle, BOUND_S)
        left, stubborn = (made.book.notes("start", broad)[0].pid for broad in BROAD)
        wait_until(lambda: stubborn not in worker.children, "the process to be gone")
        assert left in worker.children
        assert before == {left, stubborn}
        # the signal is none of the user's family
        assert {note.key for note in made.book.notes("swallowed")} == {"BaseException"}
        for handle in held:
            last_s = made.book.notes("step", handle.key)[-1].at - handle.deadline.monotonic
            lingers = runner == "async" and handle.key == "BaseException"
            assert last_s < BOUND_S + slack_s() + CLEAN_UP_S * lingers
        assert made.tasks.over.options(key="next").call(0.0) == "late"
        assert made.book.starts() == {**dict.fromkeys(BROAD, 1), "next": 1}
        assert worker.stop() == 0
        made.rests()


@async_daily
def test_a_value_that_comes_after_the_deadline_is_no_success(valkey_server, tmp_path, runner):
    """The handler ends by itself, 300 ms too late, before anybody could interrupt it."""
    with Shift(valkey_server, tmp_path, TWINS, runner) as made:
        worker = made.worker(concurrency=1)
        handle = made.tasks.over.options(key="k", within=0.5).enqueue(0.8)
        exceeded(made, handle, 1.0)
        assert made.stat("finished:done") == 0
        again = made.tasks.over.options(key="k").enqueue(0.8)
        assert again.result() == "late"  # it was no success: the same key runs anew
        assert made.book.starts() == {"k": 2}
        assert worker.stop() == 0
        made.rests()


@pytest.mark.parametrize("broad", BROAD)
@under_both_slowly
def test_the_limit_of_an_attempt_is_held_alike(valkey_server, tmp_path, runner, broad):
    """Both attempts run into their limit; the second starts while the deadline is far away."""
    with Shift(valkey_server, tmp_path, TWINS, runner) as made:
        worker = made.worker(concurrency=1)
        handle = made.tasks.limited.options(key="k").enqueue(broad)
        with pytest.raises(JobFailed) as caught:
            handle.result(timeout=8.0)
        assert caught.value.type_name == "TimeoutError"
        assert handle.state() == State.EXHAUSTED
        first, second = made.book.notes("start")
        assert 0.39 <= second.at - first.at < 0.4 + BOUND_S + 3.0  # a new process, if need be
        assert worker.stop() == 0
        made.rests()


@pytest.mark.parametrize("broad", BROAD)
@under_both_slowly
def test_a_cancel_is_held_alike(valkey_server, tmp_path, runner, broad):
    with Shift(valkey_server, tmp_path, TWINS, runner) as made:
        worker = made.worker(concurrency=1)
        handle = made.tasks.loop.options(key="k").enqueue(broad)
        made.started("k")
        since = time.monotonic()
        handle.cancel()
        with pytest.raises(Cancelled):
            handle.result()
        assert time.monotonic() - since < BOUND_S + slack_s()
        assert handle.state() == State.CANCELLED
        assert worker.stop() == 0
        assert made.book.starts() == {"k": 1}
        made.rests()
