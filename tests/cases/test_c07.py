"""C07: a sweeper takes a job that a worker is just starting.

The rule: a job is taken from a child only under a lapsed lease, and has one record that says who
owns it. There is no time between claim and start at which it looks abandoned.
"""

import asyncio
import threading
import time

from deadq.runtime.lease.renewer import Renewer
from deadq.store import scripts
from deadq.store.wire import Wire
from tests.shifts import Shift, handed_out, process_daily, stand_still


def declare_async(queue, book):
    @queue.task(within=60.0)
    async def job():
        book.note("start")
        await asyncio.sleep(0.005)


def declare_process(queue, book):
    @queue.task(within=60.0)
    def job():
        book.note("start")
        time.sleep(0.005)


TWINS = {"async": declare_async, "process": declare_process}


def slow_to_start(book):
    """In the child: 50 ms pass between each claim's reply and the first step of its jobs."""
    answered = Wire.answer

    def slowly(self, *args):
        answer = answered(self, *args)
        if handed_out(answer):
            (book.path.parent / "slowed").touch()
            stand_still(0.05)
        return answer

    Wire.answer = slowly


def renews_every_10_ms():
    """In the supervisor: each renewal compares what a child says it holds with the records."""
    init = Renewer.__init__

    def hurried(self, *args, **options):
        init(self, *args, **options)
        self.interval = 0.01

    Renewer.__init__ = hurried


class Sweeper(threading.Thread):
    """Sweeps every 10 ms, as the renewals and claims of other workers do."""

    def __init__(self, queue):
        super().__init__(daemon=True)
        self.swept = 0
        self._store = queue.backend.sync()
        self._done = threading.Event()

    def run(self):
        while not self._done.wait(0.01):
            self._store.run(scripts.renew([], lease_ms=1000, retention_ms=1000))
            self.swept += 1

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self._done.set()
        self.join()


@process_daily
def test_200_jobs_that_are_slow_to_start_under_a_hurried_sweeper(valkey_server, tmp_path, runner):
    with Shift(valkey_server, tmp_path, TWINS, runner, lease=2.0) as made:
        concurrency = 8 if runner == "async" else 4
        worker = made.worker(
            concurrency=concurrency,
            children=2 if runner == "async" else None,
            prepare=slow_to_start,
            supervisor=renews_every_10_ms,
        )
        with Sweeper(made.queue) as sweeper:
            held = [made.tasks.job.options(key=f"k{i}").enqueue() for i in range(200)]
            for handle in held:
                handle.result()
        assert sweeper.swept > 50
        assert (made.folder / "slowed").exists()
        assert made.book.starts() == {f"k{i}": 1 for i in range(200)}
        assert {note.attempt for note in made.book.notes()} == {1}
        assert made.stat("reclaimed") == made.stat("stale") == 0
        assert not worker.said("lost: ")
        made.rests()
