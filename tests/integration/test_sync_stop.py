"""How a child of the process runner ends: told to, or without its supervisor."""

import contextlib
import os
import signal
import time

import pytest

from deadq import Queue, State, current_job
from deadq.errors import Interrupt
from deadq.runtime.process import interrupts
from deadq.store.loader import load
from deadq.testing.proxy import slow_proxy
from tests.marks import on_newest
from tests.nursery import Nurse
from tests.servers import Server, binaries

pytestmark = on_newest


def made(url, **settings):
    settings = {"capacity": 200, "admission": "cap", "lease": 1.0, **settings}
    return Queue("sync", url=url, **settings)


def with_tasks(nurse):
    queue = nurse.queue

    @queue.task(within=30.0)
    def nap(seconds, name="nap"):
        nurse.note(f"{name} begun")
        try:
            time.sleep(seconds)
        except Interrupt:
            nurse.note(f"{name} interrupted")
            raise
        nurse.note(f"{name} ended")

    @queue.task(within=30.0)
    def step(seconds):
        def act():
            nurse.note("unit begun")
            time.sleep(seconds)
            nurse.note("unit ended")
            return "effect"

        try:
            value = current_job().unit("act", act)
        except Interrupt:
            nurse.note("interrupted")
            raise
        nurse.note("after the unit")
        return value

    return nap, step


@pytest.fixture
def nurse(server):
    with Nurse(made(server.url), grace=0.6) as found:
        yield found


def tell_stop(nurse):
    nurse.channel.send("stop")


def terminate(nurse):
    os.kill(nurse.pid, signal.SIGTERM)


def both(nurse):
    for _ in range(3):
        tell_stop(nurse)
        terminate(nurse)


ways = pytest.mark.parametrize("stop", [tell_stop, terminate, both])


@ways
def test_an_idle_child_goes_at_once(server, stop):
    with Nurse(made(server.url), grace=30.0) as nurse:
        with_tasks(nurse)
        nurse.begin()
        begun = time.monotonic()
        stop(nurse)
        assert nurse.exit() == 0
        assert time.monotonic() - begun < 4
    assert nurse.queue.stats().slots == 0


@ways
def test_a_handler_may_end_within_the_grace_and_nothing_new_starts(nurse, stop):
    nap, _ = with_tasks(nurse)
    job, waiting = nap.enqueue(0.3), nap.enqueue(0.0, "next")
    nurse.begin()
    nurse.noted("nap begun")
    stop(nurse)
    assert nurse.exit() == 0
    assert job.state() is State.DONE
    assert waiting.state() is State.READY
    assert "next begun" not in nurse.notes


@ways
def test_after_the_grace_the_handler_is_interrupted_and_its_job_goes_back_uncharged(nurse, stop):
    nap, _ = with_tasks(nurse)
    job = nap.enqueue(20)
    nurse.begin()
    nurse.noted("nap begun")
    begun = time.monotonic()
    stop(nurse)
    assert nurse.noted("nap interrupted") - begun >= 0.6
    assert nurse.exit() == 0
    assert time.monotonic() - begun < 4
    assert job.state() is State.READY
    counters = nurse.queue.stats().counters
    assert "reclaimed" not in counters


def test_hasten_interrupts_at_once(server):
    with Nurse(made(server.url), grace=30.0) as nurse:
        nap, _ = with_tasks(nurse)
        job = nap.enqueue(20)
        nurse.begin()
        nurse.noted("nap begun")
        nurse.channel.send("stop")
        nurse.channel.send("hasten")
        begun = time.monotonic()
        assert nurse.exit() == 0
        assert time.monotonic() - begun < 4
        assert job.state() is State.READY


def test_leave_lets_the_job_in_hand_end_however_long_it_takes(nurse):
    nap, _ = with_tasks(nurse)
    job, waiting = nap.enqueue(1.0), nap.enqueue(0.0, "next")
    nurse.begin()
    nurse.noted("nap begun")
    nurse.channel.send("leave")
    assert nurse.exit() == 0
    assert job.state() is State.DONE
    assert waiting.state() is State.READY


@pytest.mark.parametrize("word", ["stop", "hasten"])
def test_a_unit_is_never_interrupted_by_a_stop(server, word):
    with Nurse(made(server.url), grace=0.3) as nurse:
        _, step = with_tasks(nurse)
        job = step.enqueue(1.2)
        nurse.begin()
        nurse.noted("unit begun")
        nurse.channel.send(word)
        assert nurse.exit() == 0
        assert nurse.notes[-2:] == ["unit ended", "interrupted"]
        assert job.state() is State.READY
    with Nurse(made(server.url)) as another:
        with_tasks(another)
        another.begin()
        another.ended(job)
        assert job.result() == "effect"
        assert "unit begun" not in another.notes, "its result was on record"
        assert another.stop() == 0


def test_a_job_handed_out_while_the_child_is_told_to_stop_goes_back(server):
    """The replies to the claim are lost, and the stop comes before it is asked for again."""
    with slow_proxy(server.url, listen="unix") as line:
        with Nurse(made(line.url), grace=0.5) as nurse, Nurse(made(server.url)) as producer:
            with_tasks(nurse)
            nap, _ = with_tasks(producer)
            nurse.begin()
            nurse.until(lambda: nurse.words, "the child to be parked")
            line.swallow_replies(12, to=load("claim").sha.encode(), cut=True)
            job = nap.enqueue(0.0)
            nurse.until(lambda: line.swallowed >= 2, "the claim to be carried out")
            assert job.state() is State.RUNNING
            nurse.channel.send("stop")
            assert nurse.exit() == 0
            assert job.state() is State.READY
            assert "nap begun" not in nurse.notes
            assert "reclaimed" not in producer.queue.stats().counters


@pytest.mark.slow
def test_a_child_leaves_although_the_server_is_away(server):
    with Server(binaries()["valkey9"]) as own:
        with Nurse(made(own.url), grace=0.3) as nurse:
            nap, _ = with_tasks(nurse)
            nap.enqueue(0.1)
            nurse.begin()
            nurse.noted("nap begun")
            own.stop()
            nurse.noted("nap ended")
            begun = time.monotonic()
            nurse.channel.send("stop")
            assert nurse.exit() == 0
            assert 4.5 < time.monotonic() - begun < 8.0
            assert nurse.logged("its last job comes back")


def test_a_child_that_never_reached_the_server_leaves_at_once(server):
    with Server(binaries()["valkey9"]) as own:
        with Nurse(made(own.url)) as nurse:
            with_tasks(nurse)
            own.stop()
            nurse.fork()
            nurse.until(lambda: nurse.logged("store_away"), "the outage to be noticed")
            nurse.channel.send("stop")
            assert nurse.exit(2.0) == 0
            assert not nurse.said("registered")


def test_an_id_that_could_not_be_given_up_stays_where_the_supervisor_sees_it(server):
    with Server(binaries()["valkey9"]) as own:
        with Nurse(made(own.url)) as nurse:
            with_tasks(nurse)
            nurse.begin()
            own.stop()
            nurse.channel.send("stop")
            assert nurse.exit() == 0
            assert nurse.said("registered") == [f"registered {nurse.page.read().child}"]


# Without a supervisor.


def test_when_the_supervisor_dies_the_handler_is_interrupted_and_its_job_goes_back(nurse):
    nap, _ = with_tasks(nurse)
    job = nap.enqueue(20)
    nurse.begin()
    nurse.noted("nap begun")
    begun = time.monotonic()
    nurse.die()
    assert nurse.exit() == 0
    assert time.monotonic() - begun < 4
    assert job.state() is State.READY


def test_when_the_supervisor_dies_a_unit_ends_under_the_childs_own_lease(nurse):
    _, step = with_tasks(nurse)
    job = step.enqueue(2.5)
    nurse.begin()
    nurse.noted("unit begun")
    nurse.die()
    assert nurse.exit() == 0
    assert nurse.notes[-2:] == ["unit ended", "interrupted"]
    assert job.state() is State.READY
    counters = nurse.queue.stats().counters
    assert "reclaimed" not in counters, "the lease has lasted longer than the supervisor"


def test_after_a_long_unit_a_handler_without_a_supervisor_has_time_to_leave(nurse, monkeypatch):
    monkeypatch.setattr(interrupts, "_ALONE_S", 0.5)
    _, step = with_tasks(nurse)
    job = step.enqueue(1.0)
    nurse.begin()
    nurse.noted("unit begun")
    nurse.die()
    assert nurse.exit() == 0
    assert nurse.notes[-2:] == ["unit ended", "interrupted"]
    assert job.state() is State.READY  # given back


def test_a_handler_that_does_not_leave_does_not_outlive_the_supervisor(nurse):
    queue = nurse.queue

    @queue.task(within=60.0)
    def stays():
        nurse.note("begun")
        while True:
            with contextlib.suppress(Interrupt):
                time.sleep(60)

    stays.enqueue()
    nurse.begin()
    nurse.noted("begun")
    nurse.die()
    assert nurse.exit(8.0) == 1
