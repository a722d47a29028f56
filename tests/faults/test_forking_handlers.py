"""Handlers beside an event loop that fork, by themselves or through multiprocessing.

The rule: a new process is none of the worker's. SIGTERM ends it as it ends any other, and when it
comes back from the handler or the unit in which it was forked, it ends there. The process runner
holds to the same: tests/integration/test_sync_child.py.
"""

import asyncio
import multiprocessing
import os
import signal
import threading
import time

import pytest

from deadq import JobFailed, current_job
from deadq.errors import UnitError
from tests.servers import wait_until
from tests.shifts import Shift, children_of

FORKING = multiprocessing.get_context("fork")


def ended(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def declare(queue, book):
    def terminated():
        process = FORKING.Process(target=time.sleep, args=(60.0,))
        process.start()
        process.terminate()
        process.join()
        return process.exitcode

    @queue.task(within=20.0)
    async def terminates():
        return terminated()

    @queue.task(within=20.0)
    def terminates_in_thread():
        return terminated()

    @queue.task(within=20.0)
    def pool_in_thread():
        """Its end is a terminate."""
        with FORKING.Pool(2) as pool:
            return pool.map(abs, [-1, 2])

    @queue.task(within=20.0)
    def pools_in_threads():
        """Threads that fork at the same time."""
        made = []
        threads = [
            threading.Thread(target=lambda: made.append(pool_in_thread.fn())) for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return made

    def comes_back(how):
        book.note("start")
        pid = os.fork()
        if pid:
            return ended(pid)
        if how == "returns":
            return "the fork's own"
        raise {"exits": SystemExit(5), "fails": RuntimeError}[how]

    @queue.task(within=20.0)
    async def forks(how):
        return comes_back(how)

    @queue.task(within=20.0)
    def forks_in_thread(how):
        return comes_back(how)

    @queue.task(within=20.0)
    async def forks_in_unit(how):
        async def unit():
            return comes_back(how)

        return await current_job().unit("u", unit)

    @queue.task(within=20.0)
    def unit_in_a_fork():
        pid = os.fork()
        if pid:
            return ended(pid)
        try:
            current_job().unit("u", os.getpid)
        except UnitError:
            raise SystemExit(7) from None
        return "the fork's own"

    @queue.task(within=20.0)
    async def unit_in_another_loop():
        def other():
            return asyncio.run(current_job().unit("u", asyncio.sleep, 0.0))

        return await asyncio.to_thread(other)

    @queue.task(within=20.0)
    async def echo(value):
        return value


@pytest.fixture
def made(valkey_server, tmp_path):
    """All jobs of a test share one process, and leave it as it was."""
    with Shift(valkey_server, tmp_path, {"async": declare}, "async") as made:
        made.working = made.worker(concurrency=4)
        before = made.working.children
        yield made
        assert made.tasks.echo.enqueue("x").result(timeout=5) == "x"
        assert made.working.children == before
        wait_until(lambda: not children_of(before[0]), "the forked processes to be gone")
        assert made.working.stop() == 0
        made.rests()


@pytest.mark.parametrize("task", ["terminates", "terminates_in_thread"])
def test_a_forked_process_is_ended_by_sigterm(made, task):
    assert getattr(made.tasks, task).enqueue().result(timeout=10) == -signal.SIGTERM


def test_a_pool_of_processes_comes_to_its_end(made):
    assert made.tasks.pool_in_thread.enqueue().result(timeout=10) == [1, 2]
    assert made.tasks.pools_in_threads.enqueue().result(timeout=10) == [[1, 2]] * 4


@pytest.mark.parametrize("task", ["forks", "forks_in_thread", "forks_in_unit"])
def test_a_forked_process_that_comes_back_ends(made, task):
    for how, code in {"returns": 0, "exits": 5, "fails": 1}.items():
        job = getattr(made.tasks, task).options(key=how).enqueue(how)
        assert job.result(timeout=10) == code
    assert set(made.book.starts().values()) == {1}


def test_a_unit_on_another_loop_or_in_a_forked_process_is_refused(made):
    assert made.tasks.unit_in_a_fork.enqueue().result(timeout=10) == 7
    with pytest.raises(JobFailed, match="another event loop") as caught:
        made.tasks.unit_in_another_loop.enqueue().result(timeout=10)
    assert caught.value.type_name.endswith("UnitError")
