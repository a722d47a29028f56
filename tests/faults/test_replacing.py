"""Children are replaced: worn out, dead, or by force; and what becomes of the jobs they held."""

import os
import signal
from collections import Counter
from pathlib import Path

import pytest

from deadq import DeadlineExceeded, JobFailed, Queue, State
from tests.servers import wait_until
from tests.supervised import every_runner, mostly


def at_work(yard, *options, slots=1):
    """A worker with one child on a loop, or a child for each slot; ready."""
    worker = yard.worker(*options, slots=slots)
    yard.ready(worker, children=slots if yard.runner == "process" else 1)
    return worker


def started(yard, task, *args, key, **options):
    job = getattr(yard.tasks, task).options(key=key, **options).enqueue(*args)
    wait_until(lambda: yard.book.notes("start", key), f"{key} to start")
    return job


def attempts(yard, job):
    return [note.attempt for note in yard.book.notes("start", job.key)]


# Worn out.


@mostly("process")
def test_a_child_runs_as_many_jobs_as_it_may_and_is_replaced(yard):
    worker = at_work(yard, "--max-jobs", "5")
    pids = [job.result() for job in [yard.tasks.whoami.enqueue() for _ in range(17)]]
    assert sorted(Counter(pids).values()) == [2, 5, 5, 5]
    wait_until(lambda: len(worker.children()) == 1, "the old ones to have left")
    assert worker.children() == {pids[-1]}
    assert "child_ended" not in worker.log
    yard.calm()


@mostly("async")
def test_the_jobs_of_a_child_that_is_replaced_end_in_peace(yard):
    """It does not claim any more, while its successor already does."""
    worker = at_work(yard, "--max-jobs", "3", slots=3)
    naps = [yard.tasks.nap.options(key=f"nap-{n}").enqueue(0.5, n) for n in range(9)]
    assert [nap.result() for nap in naps] == list(range(9))
    assert [attempts(yard, nap) for nap in naps] == [[1]] * 9
    assert not yard.book.notes("interrupted")
    assert "child_ended" not in worker.log


@mostly("process")
def test_a_child_that_has_grown_too_large_is_replaced(yard):
    worker = at_work(yard, "--max-memory", "130MB")
    (child,) = worker.children()
    assert yard.tasks.hog.call(10_000_000) == child
    grown = yard.tasks.hog.call(120_000_000)
    wait_until(lambda: grown not in worker.children(), "it to have left")
    fresh = yard.tasks.whoami.call()
    assert fresh != grown
    wait_until(lambda: worker.children() == {fresh}, "one to be left")
    assert "child_ended" not in worker.log


# Dead.


@every_runner
def test_a_child_that_is_killed_while_idle_is_replaced_and_nobody_is_a_suspect(yard):
    worker = at_work(yard)
    (child,) = worker.children()
    os.kill(child, signal.SIGKILL)
    # until then it is parked, and may still be given a job
    wait_until(lambda: not Path(f"/proc/{child}").exists(), "all its threads to be dead")
    for _ in range(2):  # the first may be answered before what came with it has been looked at
        yard.client.ping()
    assert yard.tasks.whoami.call() not in {child, worker.pid}
    wait_until(lambda: len(worker.children()) == 1, "one child")
    yard.ready(worker)
    stats = yard.queue.stats()
    assert (stats.workers, stats.slots, stats.suspects) == (1, 1, 0)
    assert yard.counted("reclaimed") == 0


@mostly("async")
def test_a_job_that_kills_its_child_three_times_is_given_up_and_its_neighbours_are_not(yard):
    worker = at_work(yard, slots=4)
    neighbours = [started(yard, "nap", 0.4, n, key=f"nap-{n}") for n in range(3)]
    poison = yard.tasks.lethal.options(key="lethal-1").enqueue(99)
    killed_by = yard.depot.reached("lethal", poison.key).pid
    yard.depot.go(poison.key)
    with pytest.raises(JobFailed, match="3 workers died"):
        poison.result()
    assert poison.state() is State.CRASHED
    assert attempts(yard, poison) == [1, 2, 3]
    assert len({note.pid for note in yard.book.notes("start", poison.key)}) == 3
    assert [job.result() for job in neighbours] == [0, 1, 2]
    # those that were in the first of its children come once more, alone; never in another one
    together = [n.key for n in yard.book.notes("start") if n.attempt == 1 and n.pid == killed_by]
    for job in neighbours:
        assert attempts(yard, job) == ([1, 2] if job.key in together else [1])
    assert worker.alive
    yard.calm()
    assert yard.queue.stats().dead == 1


@pytest.mark.parametrize("deaths", [1, 2])
@mostly("process")
def test_a_job_that_kills_its_child_less_often_gets_its_result(yard, deaths):
    at_work(yard, slots=2)
    assert yard.tasks.lethal.call(deaths) == "survived"
    assert [note.attempt for note in yard.book.notes("start")] == list(range(1, deaths + 2))


@every_runner
def test_a_job_that_must_not_run_twice_fails_when_its_child_dies(yard):
    at_work(yard, slots=2)
    job = yard.tasks.frail.options(key="frail").enqueue(99)
    with pytest.raises(JobFailed, match="1 worker died"):
        job.result()
    assert attempts(yard, job) == [1]
    assert yard.tasks.frail.call(0) == "survived"


@pytest.mark.slow
@pytest.mark.parametrize("runner", ["async"])  # every child of the process runner is alone anyway
def test_the_suspects_run_one_after_the_other_while_other_jobs_go_on(yard):
    worker = at_work(yard, slots=8)
    (child,) = worker.children()
    suspects = [started(yard, "nap", 0.3, n, key=f"nap-{n}") for n in range(4)]
    os.kill(child, signal.SIGKILL)
    # until then it is parked, and may still be given a job
    wait_until(lambda: child not in yard.registered(), "its death to be known")
    innocent = started(yard, "nap", 0.3, "innocent", key="innocent")
    assert innocent.result() == "innocent"
    assert [job.result() for job in suspects] == [0, 1, 2, 3]
    second = [note for note in yard.book.notes() if note.attempt == 2]
    assert len({note.pid for note in second}) == 1
    assert [note.what for note in second] == ["start", "end"] * 4
    assert {note.key for note in second} == {job.key for job in suspects}
    alone = second[0].pid
    assert alone not in {note.pid for note in yard.book.notes(key="innocent")}
    wait_until(lambda: alone not in worker.children(), "the child for suspects to leave", 15.0)
    yard.calm()


# By force.


@mostly("async")
def test_a_handler_that_never_leaves_costs_its_child_and_nobody_else_anything(yard):
    worker = at_work(yard, slots=3)
    tally = yard.tasks.tally.options(key="tally").enqueue(1.5)
    wait_until(lambda: yard.book.notes("begun"), "the unit to begin")
    nap = started(yard, "nap", 2.5, "napped", key="nap")
    stubborn = started(yard, "stubborn", 30.0, key="stubborn", within=0.3)
    with pytest.raises(DeadlineExceeded):
        stubborn.result()
    bad = yard.book.notes("start", "stubborn")[0].pid
    wait_until(lambda: bad not in worker.children(), "its child to be killed", 15.0)
    assert tally.result() == "counted"
    assert len(yard.book.notes("begun")) == 1  # the unit beside it was let end
    assert nap.result() == "napped"
    assert len(yard.book.notes("effect")) == 1
    assert stubborn.state() is State.EXCEEDED
    for job in (tally, nap):  # it was their worker's fault, not theirs
        assert not yard.marks(job)
    assert yard.counted("reclaimed") == 0
    yard.calm()


@mostly("process")
def test_nobody_is_killed_in_a_unit_that_outlasts_the_jobs_deadline(yard):
    worker = at_work(yard)
    children = worker.children()
    job = yard.tasks.tally.options(key="tally", within=0.4).enqueue(2.0)
    with pytest.raises(DeadlineExceeded):
        job.result()
    wait_until(lambda: job.state() is State.EXCEEDED, "the unit to end")
    assert len(yard.book.notes("begun")) == len(yard.book.notes("effect")) == 1
    assert worker.children() == children
    yard.calm()


# One worker, more than one queue; and the user's own logging.

MODULE = """
import logging
import os

from deadq import Queue

logging.basicConfig(filename="app.log", level=logging.INFO)
first = Queue("first", capacity=100, lease=0.5)
second = Queue("second", capacity=100, lease=0.5)


@first.task(within=10.0)
async def whoami():
    logging.getLogger("app").info("at work")
    root = logging.getLogger()
    return [os.getpid(), root.level, [type(handler).__name__ for handler in root.handlers]]

second.task(within=10.0)(whoami.fn)
"""


@pytest.fixture
def two_queues(yard, valkey_server, tmp_path):
    plain = yard.runner == "process"
    (tmp_path / "app.py").write_text(MODULE.replace("async def", "def") if plain else MODULE)
    queues = [Queue(name, capacity=100, url=valkey_server.url) for name in ("first", "second")]
    for queue in queues:
        queue.task(within=10.0, name="whoami")(lambda: None)
    yield queues
    for queue in queues:
        queue.close()


@mostly("async")
def test_several_queues_share_a_worker_by_weight(yard, two_queues):
    options = ["--runner", yard.runner, "--concurrency", "8", "-v"]
    worker = yard.command("app:first=3", "app:second=1", *options)
    first, second = two_queues
    wait_until(lambda: first.stats().slots == 6, "six slots", 20.0)
    wait_until(lambda: second.stats().slots == 2, "two slots", 20.0)
    pids = [
        {job.result()[0] for job in [q.tasks["whoami"].enqueue() for _ in range(30)]}
        for q in two_queues
    ]
    assert not pids[0] & pids[1]
    assert len(worker.children()) == (8 if yard.runner == "process" else 2)
    worker.send(signal.SIGTERM)
    assert worker.wait(10.0) == 0
    worker.gone(2.0)
    for queue in two_queues:
        stats = queue.stats()
        assert (stats.workers, stats.slots, stats.unfinished) == (0, 0, 0), worker.log


@every_runner
def test_the_root_logger_is_the_users_own(yard, two_queues, tmp_path):
    worker = yard.command("app:first", "--runner", yard.runner, "--concurrency", "1", "-v")
    _, level, handlers = two_queues[0].tasks["whoami"].call()
    assert (level, handlers) == (20, ["FileHandler"])
    worker.send(signal.SIGTERM)
    assert worker.wait(10.0) == 0
    assert (tmp_path / "app.log").read_text().splitlines() == ["INFO:app:at work"]
    assert "registered" in worker.log
    assert "at work" not in worker.log
