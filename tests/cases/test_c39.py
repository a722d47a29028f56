"""C39: SIGTERM before the child has its own handlers.

A terminate signal that came between fork and the child's set-up must not run the handler that the
child inherited: whenever the signal comes, every process is gone in time and no job is lost.
"""

import asyncio
import signal
import time

import pytest

from tests.marks import THOROUGH
from tests.servers import wait_until
from tests.shifts import Shift, stand_still, under_both_runners
from tests.supervised import Yard, passed

PAUSES_MS = (0, 1, 5, 20, 50)
GRACE_S = 1.0
SLACK_S = 2.0


def stopped(yard, worker):
    """It ends in time, with the exit code of a graceful stop, and leaves nothing behind."""
    assert worker.wait(GRACE_S + SLACK_S) == 0, worker.log
    worker.gone(SLACK_S)
    yard.unmanned()
    assert "Traceback" not in worker.log


STOPS = [
    ("process", "parent", signal.SIGTERM),
    ("async", "group", signal.SIGINT),
    pytest.param("process", "group", signal.SIGTERM, marks=THOROUGH),
    pytest.param("async", "parent", signal.SIGTERM, marks=THOROUGH),
    pytest.param("process", "group", signal.SIGINT, marks=THOROUGH),
    pytest.param("async", "group", signal.SIGTERM, marks=THOROUGH),
]


@pytest.mark.race
@pytest.mark.parametrize(("runner", "to", "number"), STOPS)
def test_a_stop_at_any_instant_after_the_spawn_ends_everything(
    runner, to, number, valkey_server, tmp_path
):
    with Yard(valkey_server, tmp_path, runner, lease=0.5) as yard:
        jobs = [yard.tasks.nap.options(within=60.0).enqueue(0.05, n) for n in range(20)]
        for pause_ms in PAUSES_MS:
            worker = yard.worker(slots=2, children=2, grace=GRACE_S)
            wait_until(worker.children, "a child to be spawned")
            passed(pause_ms / 1000, time.monotonic())
            worker.send(number) if to == "parent" else worker.send_all(number)
            stopped(yard, worker)
        heir = yard.worker(slots=2, children=2, grace=GRACE_S)
        assert [job.result() for job in jobs] == list(range(20))
        yard.calm()
        heir.send(number)
        stopped(yard, heir)


def declare_async(queue, book):
    @queue.task(within=20.0)
    async def keeps_threads(seconds):
        """All those that the loop lends."""
        for _ in range(64):
            asyncio.get_running_loop().run_in_executor(None, stand_still, seconds)


def declare_process(queue, book):
    @queue.task(within=20.0)
    def nothing():
        pass


TWINS = {"async": declare_async, "process": declare_process}


def takes_long(book):
    """In the child: the module that it loads does not come to its end."""
    (book.path.parent / "loading").touch()
    stand_still(60.0)


@under_both_runners
def test_a_stop_while_the_module_is_being_loaded(valkey_server, tmp_path, runner):
    with Shift(valkey_server, tmp_path, TWINS, runner) as made:
        worker = made.coming_worker(prepare=takes_long, grace=20.0)
        wait_until((tmp_path / "loading").exists, "the module to be loaded")
        asked = time.monotonic()
        assert worker.stop() == 0
        assert time.monotonic() - asked < 15.0
        assert not worker.said("Traceback")


def test_a_stop_while_handlers_keep_all_threads_busy(valkey_server, tmp_path):
    with Shift(valkey_server, tmp_path, TWINS, "async") as made:
        worker = made.worker(grace=1.0)
        made.tasks.keeps_threads.enqueue(60.0).result()
        assert worker.stop() == 0
        assert not worker.said("child_killed")
        made.rests()
