"""C35: an exception that cannot be rebuilt.

The rule: no object of the user's crosses a process border. What a handler raises becomes three
bounded texts in the process where it was raised, what it returns becomes bytes there, and what
cannot is an ordinary failure of that job. The exceptions that C33 lists are all tried here, too.
"""

import io
import itertools
import sys
import threading
import time

import pytest

from deadq import DeadlineExceeded, JobFailed, State
from deadq.job import job_id
from tests.cases.test_c33 import ALL, boom
from tests.servers import wait_until
from tests.shifts import Shift, under_both_runners, under_both_slowly

MOST_TEXT = 10_000


class SlowText(Exception):
    def __str__(self):
        time.sleep(30.0)
        return "at last"


class EndlessChain(Exception):
    """Its cause is always another one."""

    def __getattribute__(self, name):
        if name in ("__cause__", "__context__"):
            return EndlessChain()
        return super().__getattribute__(name)


class Pickled(Exception):
    """Whoever rebuilds it ends its own process."""

    def __reduce__(self):
        return (sys.exit, (7,))


class Text(str):
    __slots__ = ()

    def encode(self, *_):
        raise SystemExit(8)


class Number(int):
    def __index__(self):
        raise KeyboardInterrupt


class Items(dict):
    def items(self):
        raise SystemExit(9)

    __iter__ = keys = values = items


def circular():
    value = []
    value.append(value)
    return value


def circular_dict():
    value = {}
    value["self"] = value
    return value


def deep(levels):
    value = []
    for _ in range(levels):
        value = [value]
    return value


def wide_open():
    """Of many frames."""

    def down(n):
        return down(n - 1) if n else 1 / 0

    return down(900)


def endless():
    raise EndlessChain


def slow_text():
    raise SlowText


def pickled():
    raise Pickled


async def never():
    pass


async def counting():
    yield 1


RETURNS = {
    "a generator": lambda: (number for number in range(3)),
    "an async generator": counting,
    "a coroutine": never,
    "a lock": threading.Lock,
    "a circular list": circular,
    "a circular dict": circular_dict,
    "a nest of 100,000": lambda: deep(100_000),
    "a function": lambda: boom,
    "a class": lambda: Pickled,
    "an exception": lambda: Pickled("x"),
    "an object": object,
    "a module": lambda: sys,
    "a file": lambda: io.BytesIO(b"x"),
    "an iterator": itertools.count,
    "a memory view": lambda: memoryview(b"x"),
    "a thread": threading.current_thread,
    "a text of one's own": lambda: Text("x"),
    "a number of one's own": lambda: Number(3),
    "a dict of one's own": lambda: Items(a=1),
    "an instance deep inside": lambda: {"a": [{"b": (1, {object()})}]},
    "a lone surrogate": lambda: "\udce9",
    "Ellipsis": lambda: ...,
    "NotImplemented": lambda: NotImplemented,
}
MORE = {"an endless chain": endless, "900 frames": wide_open, "a trap for pickle": pickled}


def declare_async(queue, book):
    @queue.task(within=20.0)
    async def gives(which):
        book.note("start")
        return RETURNS[which]()

    @queue.task(within=20.0)
    async def raises(which):
        book.note("start")
        MORE[which]() if which in MORE else boom(which)

    @queue.task(within=20.0)
    async def in_a_unit(which):
        from deadq import current_job

        book.note("start")
        return await current_job().unit("u", RETURNS[which])

    @queue.task(within=20.0)
    async def slowly():
        book.note("start")
        raise SlowText

    @queue.task(within=20.0)
    async def echo(value):
        return value


def declare_process(queue, book):
    @queue.task(within=20.0)
    def gives(which):
        book.note("start")
        return RETURNS[which]()

    @queue.task(within=20.0)
    def raises(which):
        book.note("start")
        MORE[which]() if which in MORE else boom(which)

    @queue.task(within=20.0)
    def in_a_unit(which):
        from deadq import current_job

        book.note("start")
        return current_job().unit("u", RETURNS[which])

    @queue.task(within=20.0)
    def slowly():
        book.note("start")
        raise SlowText

    @queue.task(within=20.0)
    def echo(value):
        return value


TWINS = {"async": declare_async, "process": declare_process}


@pytest.fixture
def one_process(valkey_server, tmp_path, runner):
    """One process that all jobs of a test have to share, and to leave as it was."""
    with Shift(valkey_server, tmp_path, TWINS, runner) as made:
        worker = made.worker(concurrency=1)
        before = worker.children
        yield made
        assert worker.children == before
        assert worker.stop() == 0
        assert set(made.book.starts().values()) == {1}
        assert not worker.said("Traceback"), worker.errors
        made.rests()


def fails(made, task, which):
    """It fails, with bounded texts, and the next job in the same process runs."""
    with pytest.raises(JobFailed) as caught:
        getattr(made.tasks, task).options(key=f"{task} {which}").enqueue(which).result(timeout=5)
    error = caught.value
    assert error.type_name, which
    assert len(str(error)) + len(error.traceback) < MOST_TEXT, which
    assert made.tasks.echo.enqueue(which).result(timeout=5) == which
    return error


@under_both_runners
def test_whatever_is_raised_or_returned(one_process):
    for which in (*ALL, *MORE):
        fails(one_process, "raises", which)
    for which in RETURNS:
        error = fails(one_process, "gives", which)
        assert "result" in str(error), which
    for which in ("a generator", "a lock", "a circular list", "a dict of one's own"):
        error = fails(one_process, "in_a_unit", which)
        assert "result of unit" in str(error), which
        # it took effect, and is on record as that: no later attempt runs it again
        ident = job_id(f"in_a_unit {which}")
        unit = one_process.client.hget(one_process.key("job", ident), "u:u")
        assert unit.startswith(b"done "), which


@under_both_slowly
def test_a_text_that_takes_its_time_costs_the_process(valkey_server, tmp_path, runner):
    """What is the user's own may hang even while its error is described."""
    with Shift(valkey_server, tmp_path, TWINS, runner) as made:
        worker = made.worker(concurrency=1)
        (before,) = worker.children
        handle = made.tasks.slowly.options(key="k", within=0.6).enqueue()
        with pytest.raises(DeadlineExceeded):
            handle.result()
        wait_until(lambda: handle.state() == State.EXCEEDED, "the job to end")
        assert made.tasks.echo.enqueue("next").result(timeout=5) == "next"
        assert before not in worker.children
        assert made.book.starts() == {"k": 1}
        assert worker.stop() == 0
        made.rests()
