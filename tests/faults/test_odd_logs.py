"""A log whose handlers or filters raise, and one whose stream is closed.

The rule: what becomes of a line is the log's own matter. No job and no child ends for it.
"""

import asyncio
import contextvars
import logging
import sys
import threading
import time

import pytest

from deadq.events import Log
from tests.shifts import Shift, under_both_runners

REQUEST = contextvars.ContextVar("request")


class Fails(logging.Handler):
    def emit(self, record):
        raise RuntimeError("the log server is away")


def takes_in(record):
    """A filter that works in a request alone."""
    record.request = REQUEST.get()
    return True


def failing_log(_book):
    """In each child."""
    logging.getLogger("deadq").addHandler(Fails())


def declare_async(queue, book):
    @queue.task(within=20.0)
    async def leaves_something(value):
        book.note("start")
        asyncio.create_task(asyncio.sleep(60.0))  # noqa: RUF006  left behind, so that it is logged
        return value

    @queue.task(within=20.0)
    async def closes_the_stream(value):
        book.note("start")
        sys.stderr.close()
        sys.stdout.close()
        return value


def declare_process(queue, book):
    @queue.task(within=20.0)
    def leaves_something(value):
        book.note("start")
        threading.Thread(target=time.sleep, args=(0.1,)).start()
        return value

    @queue.task(within=20.0)
    def closes_the_stream(value):
        book.note("start")
        sys.stderr.close()
        sys.stdout.close()
        return value


TWINS = {"async": declare_async, "process": declare_process}


def same_child_runs_all(made, worker, tasks):
    before = worker.children
    for number, name in enumerate(tasks):
        handle = getattr(made.tasks, name).options(key=f"k{number}").enqueue(number)
        assert handle.result(timeout=5) == number, name
    assert worker.children == before
    assert made.book.starts() == {f"k{number}": 1 for number in range(len(tasks))}
    assert worker.stop() == 0
    made.rests()


@under_both_runners
def test_a_log_that_raises_costs_nobody_anything(valkey_server, tmp_path, runner):
    with Shift(valkey_server, tmp_path, TWINS, runner) as made:
        worker = made.worker(prepare=failing_log, concurrency=1)
        same_child_runs_all(made, worker, ["leaves_something"] * 3)
        assert worker.said("the log server is away")
        assert worker.said("left_behind")


@under_both_runners
def test_a_stream_that_a_handler_closed_costs_nobody_anything(valkey_server, tmp_path, runner):
    with Shift(valkey_server, tmp_path, TWINS, runner) as made:
        worker = made.worker(concurrency=1)
        same_child_runs_all(made, worker, ["closes_the_stream", *["leaves_something"] * 3])


@pytest.mark.parametrize("how", ["line", "info", "warning", "error", "exception"])
def test_a_line_names_the_place_it_was_written_at(caplog, how):
    log = Log(logging.getLogger("deadq.place"), {})
    caplog.set_level(logging.INFO, "deadq.place")
    if how == "line":
        log.log(logging.INFO, "said %d", 1)
    else:
        getattr(log, how)("said %d", 1)
    record = caplog.records[-1]
    assert (record.getMessage(), record.filename) == ("said 1", "test_odd_logs.py")


def test_a_filter_of_the_logger_that_raises_is_shown(capsys):
    logger = logging.getLogger("deadq.filtered")
    logger.addFilter(takes_in)
    Log(logger, {}).warning("a line")
    assert "LookupError" in capsys.readouterr().err
