"""The cap holds under any concurrency, and nobody ever sees it exceeded.

What is live is counted here from the records themselves, by a script of the test's own that an
observer runs without a pause.
"""

import contextlib
import random
import threading
import time
from collections import Counter

import pytest

from deadq.store import keys
from tests.marks import on_newest
from tests.servers import wait_until
from tests.shop import Shop
from tests.workers import Process, WorkerProcess

CAPACITY = 5
PROCESSES = 8
SUBMITS = 200
ROUNDS = 20

_LIVE = """
local open = { ready = 1, suspect = 1, later = 1, running = 1, strange = 1 }
local live, t = 0, redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
for _, name in ipairs(redis.call('KEYS', ARGV[1] .. 'job:*')) do
  local state = redis.call('HGET', name, 'state')
  if open[state or ''] then
    local id = string.sub(name, #ARGV[2] + 5)
    if tonumber(redis.call('ZSCORE', ARGV[2] .. 'due', id) or 0) > now then
      live = live + 1
    end
  end
end
return live
"""


class Observer:
    """Counts the live jobs of a queue again and again, from a thread and connection of its own."""

    def __init__(self, server, queue):
        self.seen = Counter()
        prefix = keys.prefix(queue)
        self._args = (prefix, prefix)
        self._server = server
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()

    def _look(self):
        with self._server.client() as client:
            count = client.register_script(_LIVE)
            while not self._stop.is_set():
                self.seen[count(args=self._args)] += 1


@pytest.mark.race
@on_newest
def test_eight_processes_with_200_submits_each_get_exactly_the_capacity(server, tmp_path):
    given = {"url": server.url, "book": str(tmp_path / "book"), "capacity": CAPACITY}
    with contextlib.ExitStack() as stack:
        submitters = [
            stack.enter_context(
                # some share one connection and gather their submits, some have many
                Process("tests.faults.submitter:in_rounds", lines=1 + n, each=SUBMITS, **given)
            )
            for n in range(PROCESSES)
        ]
        for process in submitters:
            assert process.hear() == "ready"
        with Observer(server, "shop") as observer:
            for _ in range(ROUNDS):
                outcomes = Counter()
                for process in submitters:
                    process.tell("submit")
                for process in submitters:
                    outcomes.update(process.hear())
                assert outcomes == {
                    "JobHandle": CAPACITY,
                    "QueueFull": PROCESSES * SUBMITS - CAPACITY,
                }
                cancelled = [c for process in submitters for c in process.ask("clear")]
                assert cancelled == [True] * CAPACITY
    assert max(observer.seen) == CAPACITY
    assert sum(observer.seen.values()) > 100


@pytest.mark.race
@on_newest
def test_no_observer_sees_more_than_the_capacity_whatever_happens_to_workers(server, tmp_path):
    """Retries, SIGKILLed workers, frozen ones that outlive their lease, callers that leave."""
    book, chance = tmp_path / "book", random.Random(1)
    settings = {"capacity": CAPACITY, "lease": 0.3, "retention": 0.2, "name": "stormy"}
    given = {"url": server.url, "book": str(book), "capacity": CAPACITY, "name": "stormy"}
    with contextlib.ExitStack() as stack:
        submitters = [
            stack.enter_context(
                Process("tests.faults.submitter:for_a_while", seconds=2.0, seed=n, **given)
            )
            for n in range(3)
        ]
        for process in submitters:
            assert process.hear() == "ready"
        with Observer(server, "stormy") as observer:
            workers = [WorkerProcess(server.url, book, concurrency=3, **settings)]
            stack.callback(lambda: [worker.close() for worker in workers])
            for process in submitters:
                process.tell("go")
            until = time.monotonic() + 1.6
            while time.monotonic() < until:
                workers.append(WorkerProcess(server.url, book, concurrency=3, **settings))
                victim = workers.pop(0)
                if chance.random() < 0.5:
                    victim.freeze()
                    lapse = time.monotonic() + 0.45
                    wait_until(lambda at=lapse: time.monotonic() > at, "its lease to lapse")
                    victim.thaw()
                    workers.append(victim)
                else:
                    victim.close()
            became = Counter()
            for process in submitters:
                became.update(process.hear())
        assert max(observer.seen) == CAPACITY
        assert set(became) <= {
            "done",
            "full",
            "Cancelled",
            "DeadlineExceeded",
            "DeadlineExpired",
            "JobFailed",
            "JobGone",  # the retention of what it had attached to was over
            "TimeoutError",
        }, became
        assert became["done"] > 50
        assert became["full"] > 50
        shop = Shop(server.url, book, "stormy", capacity=CAPACITY)
        # the last jobs have at most 1.5 s, dead workers' children 0.3 s
        wait_until(lambda: not shop.queue.stats().unfinished, "the last job to end")
        shop.close()
