"""What single parameters of queue and worker do, where a real server or process shows it."""

import asyncio
import contextlib
import os
import signal
import threading
import traceback

import pytest

from deadq import FleetBudget, Queue, State, Worker
from deadq.store import keys
from tests.servers import wait_until

NOBODY = "redis://127.0.0.1:1"
HELD: list[bytes] = []
"""What the handler of a process keeps."""


@pytest.fixture
def queue(valkey_server):
    made = made_on(valkey_server)
    yield made
    made.close()


def made_on(server, **settings):
    with server.client() as client:
        client.flushall()
    made = Queue("parameters", capacity=8, url=server.url, **settings)

    @made.task(within=20.0)
    def who(grow_by: int = 0) -> tuple[int, bool]:
        """The process that runs it, so many bytes larger; and whether on its main thread."""
        HELD.append(b"x" * grow_by)
        return os.getpid(), threading.current_thread() is threading.main_thread()

    return made


def test_a_queue_uses_the_client_that_it_is_given(valkey_server, monkeypatch):
    monkeypatch.setenv("DEADQ_URL", NOBODY)
    with valkey_server.client() as client:
        client.flushall()
        queue = Queue("own", capacity=8, client=client)
        queue.task(within=5.0, name="work")(print).enqueue()
        assert client.keys(keys.key("own", "job", "*"))
        queue.close()


@pytest.mark.parametrize("given", ["url", "client"])
def test_a_fleets_budget_is_where_it_is_said_to_be(given, valkey_server, monkeypatch):
    monkeypatch.setenv("DEADQ_URL", NOBODY)
    with valkey_server.client() as client:
        budget = FleetBudget("own", **{given: client if given == "client" else valkey_server.url})
        budget.first()
        wait_until(lambda: budget.shared, "the fleet's answer", 5.0)
        budget.close()


# On an event loop of one's own.


def beside(worker, scenario):
    """Run ``scenario`` while the worker works on the same loop."""

    async def main():
        working = asyncio.ensure_future(worker.arun())
        async with asyncio.timeout(20.0):
            await worker.started.wait()
            await scenario()
            worker.stop()
            await working
            await worker.queue.aclose()

    asyncio.run(main())


def test_a_worker_counts_as_gone_one_lease_after_its_last_word(valkey_server):
    queue = made_on(valkey_server, lease=60.0)

    async def look():
        with valkey_server.client() as client:
            ((_, until_ms),) = client.zrange(
                keys.key("parameters", "workers"), 0, -1, withscores=True
            )
            seconds, micros = client.time()
        assert 50.0 < until_ms / 1000 - seconds - micros / 1e6 <= 60.0

    beside(Worker(queue), look)
    queue.close()


def test_a_worker_runs_the_jobs_of_its_queue_on_as_many_slots_as_it_is_given(queue):
    async def look():
        stats = await queue.astats()
        assert (stats.workers, stats.slots) == (1, 3)
        assert (await queue.tasks["who"].acall())[0] == os.getpid()

    beside(Worker(queue, concurrency=3), look)


def test_handlers_are_interrupted_when_the_grace_of_a_stop_is_over(queue):
    begun = asyncio.Event()

    @queue.task(within=3.0)
    async def hang():
        begun.set()
        await asyncio.sleep(60.0)

    jobs = []

    async def begin():
        jobs.append(await hang.aenqueue())
        await begun.wait()

    beside(Worker(queue, grace=0.0), begin)
    assert [job.state() for job in jobs] == [State.READY]


# Supervisor and children.


@contextlib.contextmanager
def supervised(queue, **settings):
    """A supervisor in a process of its own, forked: it is of the same code as this one."""
    pid = os.fork()
    if not pid:
        try:
            Worker(queue, **settings).run()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGTERM)
        _, status = os.waitpid(pid, 0)
    assert status == 0


@pytest.mark.parametrize(("runner", "on_main_thread"), [("async", False), ("process", True)])
def test_plain_handlers_run_where_the_runner_says(queue, runner, on_main_thread):
    with supervised(queue, runner=runner, concurrency=1):
        assert queue.tasks["who"].call()[1] == on_main_thread


def test_children_share_the_slots_of_a_worker(queue):
    with supervised(queue, runner="async", concurrency=4, children=2):
        wait_until(lambda: queue.stats().slots == 4, "all slots")
        assert queue.stats().workers == 2


@pytest.mark.parametrize(
    ("settings", "pids"), [({}, 1), ({"max_jobs": 2}, 2), ({"max_memory": 50_000_000}, 4)]
)
def test_a_child_is_replaced_when_it_has_done_or_grown_enough(queue, settings, pids):
    with supervised(queue, runner="process", concurrency=1, **settings):
        assert len({queue.tasks["who"].call(60_000_000)[0] for _ in range(4)}) == pids
