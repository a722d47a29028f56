"""What a child leaves behind when it ends in order: nothing that the end of an interpreter would
not have left either."""

import asyncio
import atexit
import functools
import multiprocessing
import os
import time
from concurrent.futures import ProcessPoolExecutor

from tests.servers import wait_until
from tests.shifts import Shift, state_of, under_both_runners, under_both_slowly

FORKING = multiprocessing.get_context("fork")


@functools.cache
def pool():
    """One for all jobs of a process, as it often stands at the top of a module."""
    return ProcessPoolExecutor(1, mp_context=FORKING)


def begin_daemon():
    process = FORKING.Process(target=time.sleep, args=(60.0,), daemon=True)
    process.start()
    return process.pid


def declare_async(queue, book):
    @queue.task(within=20.0)
    async def begins():
        book.note("start")
        found = await asyncio.get_running_loop().run_in_executor(pool(), os.getpid)
        return [os.getpid(), found, begin_daemon()]


def declare_process(queue, book):
    @queue.task(within=20.0)
    def begins():
        book.note("start")
        return [os.getpid(), pool().submit(os.getpid).result(), begin_daemon()]


TWINS = {"async": declare_async, "process": declare_process}


def asks_to_be_called(book):
    """In each child."""
    atexit.register((book.path.parent / "called").touch)


def never_ends(book):
    asks_to_be_called(book)
    atexit.register(time.sleep, 60.0)  # called first


@under_both_runners
def test_a_child_that_stops_ends_what_it_has_begun(valkey_server, tmp_path, runner):
    with Shift(valkey_server, tmp_path, TWINS, runner) as made:
        worker = made.worker(prepare=asks_to_be_called, concurrency=1)
        begun = made.tasks.begins.enqueue().result(timeout=10)
        assert worker.stop() == 0
        assert (tmp_path / "called").exists()
        wait_until(lambda: not any(map(state_of, begun)), "the processes to be gone")
        made.rests()


@under_both_runners
def test_so_does_one_that_is_replaced(valkey_server, tmp_path, runner):
    with Shift(valkey_server, tmp_path, TWINS, runner) as made:
        worker = made.worker(prepare=asks_to_be_called, concurrency=1, max_jobs=1)
        begun = made.tasks.begins.enqueue().result(timeout=10)
        wait_until(lambda: not any(map(state_of, begun)), "the processes to be gone")
        assert (tmp_path / "called").exists()
        assert worker.stop() == 0
        made.rests()


@under_both_slowly
def test_a_farewell_without_end_is_cut_short(valkey_server, tmp_path, runner):
    with Shift(valkey_server, tmp_path, TWINS, runner) as made:
        worker = made.worker(prepare=never_ends, concurrency=1)
        asked = time.monotonic()
        assert worker.stop() == 0
        assert time.monotonic() - asked < 20.0
        made.rests()
