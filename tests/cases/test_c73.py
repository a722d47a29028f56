"""C73: the context of one job is seen in the next.

The rule: each job runs in a copy of the context in which its process began. What it sets there
(context variables, decimal arithmetic, what a log line is marked with) ends with it, and so do the
tasks that it has begun. What belongs to the thread or the process by nature is shared, and the
README says so.
"""

import asyncio
import contextvars
import decimal
import logging
import os
import threading
import time
from pathlib import Path

import pytest

import deadq
from deadq import Cancelled, DeadlineExceeded, JobFailed, Retry, current_job
from tests.servers import wait_until
from tests.shifts import Shift, under_both_runners

VARIABLE = contextvars.ContextVar("variable", default="unset")
USER = contextvars.ContextVar("user", default="nobody")
SHARED = threading.local()


class Marks(logging.Filter):
    """Marks each line with whom it is about, as error reporters do."""

    def filter(self, record):
        record.user = USER.get()
        return True


class Lines(logging.Handler):
    """Keeps the last line as it would be written."""

    last = ""

    def emit(self, record):
        Lines.last = self.format(record)


def log():
    logger = logging.getLogger("the user's own")
    if not logger.handlers:
        lines = Lines()
        lines.addFilter(Marks())
        lines.setFormatter(logging.Formatter("%(user)s: %(message)s"))
        logger.addHandler(lines)
        logger.propagate = False
    return logger


def soil(name):
    """Leave a mark in all that a job can reach."""
    VARIABLE.set(name)
    USER.set(name)
    decimal.getcontext().prec = 3
    decimal.getcontext().traps[decimal.Inexact] = True
    decimal.getcontext().rounding = decimal.ROUND_UP
    SHARED.name = name
    log().error("here")


def look():
    """What a job finds; the keys of a clean one are those of CLEAN."""
    job, context = current_job(), decimal.getcontext()
    log().error("here")
    ambient = deadq.Deadline.current()
    return {
        "variable": VARIABLE.get(),
        "line": Lines.last,
        "decimal": [context.prec, context.rounding, bool(context.traps[decimal.Inexact])],
        "sum": str(decimal.Decimal(1) / decimal.Decimal(7)),
        "key": job.key,
        "fence": job.fence,
        "attempt": job.attempt,
        "left": job.deadline.remaining(),
        "ambient": ambient.remaining() if ambient else None,
        "pid": os.getpid(),
    }


CLEAN = {
    "variable": "unset",
    "line": "nobody: here",
    "decimal": [28, decimal.ROUND_HALF_EVEN, False],
    "sum": "0.1428571428571428571428571429",
    "attempt": 1,
}


async def source(book):
    try:
        while True:
            yield 1
    finally:
        book.note("generator closed")


async def goes_on(book):
    try:
        await asyncio.sleep(60.0)
    except asyncio.CancelledError:
        book.note("task cancelled")
        raise


def declare_async(queue, book):
    async def end(how):
        if how == "raises":
            raise LookupError("mine")
        if how == "retries" and current_job().attempt == 1:
            raise Retry(after=0)
        if how in ("deadline", "cancel"):
            await asyncio.sleep(10.0)

    @queue.task(within=20.0, retries=1)
    async def dirty(how):
        book.note("start")
        before = look()
        soil("dirty")
        generator = source(book)
        await anext(generator)  # left open
        asyncio.create_task(goes_on(book), name="goes on")  # noqa: RUF006  left behind
        await asyncio.sleep(0.01)
        await end(how)
        return before

    @queue.task(within=20.0)
    def dirty_in_thread(how):
        book.note("start")
        soil("dirty")
        if how == "raises":
            raise LookupError("mine")

    @queue.task(within=20.0)
    async def clean():
        return look() | {"tasks": sorted(task.get_name() for task in asyncio.all_tasks())}

    @queue.task(within=20.0)
    def clean_in_thread():
        return look()

    @queue.task(within=20.0)
    async def nested(depth):
        """Tasks that begin tasks: all of them are the job's."""
        book.note("start")

        async def deeper(depth):
            if depth:
                asyncio.create_task(deeper(depth - 1))  # noqa: RUF006  left behind
            await goes_on(book)

        async with asyncio.timeout(None):
            asyncio.create_task(deeper(depth))  # noqa: RUF006  left behind
            await asyncio.sleep(0.05)

    @queue.task(within=20.0)
    async def interleaved(name, seconds):
        """Many at once: each finds its own marks again after each wait."""
        soil(name)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            await asyncio.sleep(0.005)
            found = [VARIABLE.get(), USER.get(), decimal.getcontext().prec, current_job().key]
            assert found == [name, name, 3, name], found
        return name


def declare_process(queue, book):
    def end(how):
        if how == "raises":
            raise LookupError("mine")
        if how == "retries" and current_job().attempt == 1:
            raise Retry(after=0)
        if how in ("deadline", "cancel"):
            time.sleep(10.0)

    @queue.task(within=20.0, retries=1)
    def dirty(how):
        book.note("start")
        before = look()
        soil("dirty")
        end(how)
        return before

    @queue.task(within=20.0)
    def clean():
        return look()

    @queue.task(within=20.0)
    def leaves_a_thread():
        book.note("start")
        book.leave = threading.Event()
        threading.Thread(target=book.leave.wait, name="mine alone", daemon=True).start()

    @queue.task(within=20.0)
    def ends_the_thread():
        book.leave.set()

    @queue.task(within=20.0)
    def on_a_loop():
        """A loop of the handler's own, with a task left behind in it."""
        book.note("start")

        async def main():
            soil("dirty")
            asyncio.create_task(goes_on(book))  # noqa: RUF006  left behind
            await asyncio.sleep(0.01)

        asyncio.run(main())
        return VARIABLE.get()


TWINS = {"async": declare_async, "process": declare_process}
ENDS = ("returns", "raises", "retries", "deadline", "cancel")


@pytest.fixture
def made(valkey_server, tmp_path, runner):
    with Shift(valkey_server, tmp_path, TWINS, runner) as made:
        made.working = made.worker(concurrency=1)
        yield made
        assert made.working.stop() == 0
        made.rests()


def run_dirty(made, task, how):
    within = 0.3 if how == "deadline" else 20.0
    handle = getattr(made.tasks, task).options(key=f"{task} {how}", within=within).enqueue(how)
    if how == "cancel":
        made.started(handle.key)
        handle.cancel()
    expected = {"raises": JobFailed, "deadline": DeadlineExceeded, "cancel": Cancelled}.get(how)
    if expected is None:
        return handle.result()
    with pytest.raises(expected):
        handle.result()
    return None


def finds_nothing(found, key, fence_of_the_last):
    assert {name: found[name] for name in CLEAN} == CLEAN
    assert found["key"] == key
    assert found["fence"] > fence_of_the_last
    for left in (found["left"], found["ambient"]):
        assert 6.0 < left <= 7.1  # two hosts' ideas of the server's clock


@under_both_runners
def test_the_next_job_in_the_process_finds_nothing_of_the_last(made):
    for how in ENDS:
        before = run_dirty(made, "dirty", how)
        if before is not None:  # of a retried one, in the same process again
            assert before["variable"] == "unset"
            assert before["decimal"] == CLEAN["decimal"]
        last = made.book.notes("start")[-1]
        found = made.tasks.clean.options(key=f"after {how}", within=7.0).call()
        assert found["pid"] == last.pid
        finds_nothing(found, f"after {how}", last.fence)
        if made.runner == "async":
            assert "goes on" not in found["tasks"]
            made.noted("task cancelled", f"dirty {how}")
            made.noted("generator closed", f"dirty {how}")
            assert made.working.said("left_behind", "goes on")
    assert len(made.book.notes("task cancelled")) == (6 if made.runner == "async" else 0)


@pytest.mark.parametrize("runner", ["async"])
def test_handlers_in_threads_and_tasks_of_tasks_leave_nothing_either(made):
    for how in ("returns", "raises"):
        run_dirty(made, "dirty_in_thread", how)
        last = made.book.notes("start")[-1]
        for task in ("clean_in_thread", "clean"):
            key = f"{task} after {how}"
            found = getattr(made.tasks, task).options(key=key, within=7.0).call()
            finds_nothing(found, key, last.fence)
    made.tasks.nested.options(key="k").call(5)
    wait_until(lambda: len(made.book.notes("task cancelled", "k")) == 6, "all to be cancelled")
    assert len(made.working.said("left_behind")) == 6
    assert made.tasks.clean.options(within=7.0).call()["variable"] == "unset"


@pytest.mark.slow
def test_jobs_that_run_side_by_side_on_one_loop(valkey_server, tmp_path):
    with Shift(valkey_server, tmp_path, TWINS, "async") as made:
        worker = made.worker(concurrency=20)
        names = [f"k{i}" for i in range(20)]
        held = [made.tasks.interleaved.options(key=name).enqueue(name, 0.3) for name in names]
        assert [handle.result() for handle in held] == names
        assert worker.stop() == 0


@pytest.mark.parametrize("runner", ["process"])
def test_what_a_plain_handler_begins_is_named_or_ends_with_it(made):
    """A thread cannot be ended, and is named, once; a loop of its own ends with its tasks."""
    made.tasks.leaves_a_thread.options(key="k").call()
    for _ in range(3):
        made.tasks.clean.call()
    (line,) = made.working.said("left_behind")
    assert "mine alone" in line
    assert made.book.notes("start", "k")
    made.tasks.ends_the_thread.call()
    assert made.tasks.on_a_loop.options(key="loop").call() == "unset"
    assert len(made.book.notes("task cancelled", "loop")) == 1
    found = made.tasks.clean.options(key="next", within=7.0).call()
    finds_nothing(found, "next", made.book.notes("start", "loop")[0].fence)
    assert made.working.said("left_behind") == [line]


def test_what_is_shared_by_nature_is_named_where_users_read():
    readme = (Path(deadq.__file__).parents[1] / "README.md").read_text()
    assert "Thread-locals" in readme
