"""Workers are told to stop, or their supervisor or server is gone: all processes end in time, and
every job ends with its result, here or elsewhere.
"""

import asyncio
import contextlib
import os
import signal
import sys
import time

import pytest

from deadq import DeadlineExceeded, Queue, State, Worker, current_job
from tests.cases.support import pause
from tests.servers import Server, binaries, wait_until
from tests.shifts import Shift
from tests.supervised import LEASE_S, Yard, every_runner, mostly, passed

GRACE_S = 1.0
SLACK_S = 2.0
"""What a busy machine may add to the end of a process."""
ALONE_S = 10.0
"""So long a child may go on without a supervisor, outside of its units."""


def at_work(yard, **settings):
    """A worker of three slots, ready."""
    worker = yard.worker(slots=3, **{"grace": GRACE_S, **settings})
    yard.ready(worker, children=3 if yard.runner == "process" else 1)
    return worker


def started(yard, task, *args, key, **options):
    """A job that has been started."""
    job = getattr(yard.tasks, task).options(key=key, **options).enqueue(*args)
    return noted(yard, job, "start")


def noted(yard, job, what):
    wait_until(lambda: yard.book.notes(what, job.key), f"{job.key} to note {what}")
    return job


def ended(yard, worker, within_s):
    """Its exit code; nothing of it is left anywhere."""
    code = worker.wait(within_s)
    worker.gone(SLACK_S)
    yard.unmanned()
    return code


def uncharged(yard, *jobs):
    """They wait as if they had never been started."""
    for job in jobs:
        assert job.state() is State.READY
        assert not yard.marks(job)


def finished(yard, **results):
    """Another worker ends what was left: the jobs by their keys, with what they must give."""
    heir = at_work(yard)
    for job, value in results.values():
        assert job.result() == value
    yard.calm()
    heir.send(signal.SIGTERM)
    assert ended(yard, heir, GRACE_S + SLACK_S) == 0


@mostly("process")
def test_sigterm_lets_handlers_run_to_their_deadline_or_the_grace_and_gives_the_rest_back(yard):
    worker = at_work(yard)
    short = started(yard, "nap", 0.4, "short", key="short")
    cut = started(yard, "nap", 9.0, key="cut", within=0.6)
    long = started(yard, "nap", 2.5, "long", key="long")
    told = time.monotonic()
    worker.send(signal.SIGTERM)
    waiting = yard.tasks.echo.options(key="waiting").enqueue("waiting")
    assert short.result() == "short"
    with pytest.raises(DeadlineExceeded):
        cut.result()
    assert ended(yard, worker, GRACE_S + SLACK_S) == 0
    assert time.monotonic() - told >= GRACE_S
    assert yard.book.notes("interrupted", "long")[0].at - told >= GRACE_S
    assert not yard.book.notes(key="waiting")  # nothing is claimed any more
    uncharged(yard, long, waiting)
    finished(yard, long=(long, "long"), waiting=(waiting, "waiting"))


@every_runner
def test_a_worker_with_nothing_left_to_do_does_not_wait_for_the_grace(yard):
    worker = at_work(yard, grace=30.0)
    last = started(yard, "nap", 0.3, "last", key="last")
    worker.send(signal.SIGTERM)
    assert last.result() == "last"
    assert ended(yard, worker, SLACK_S) == 0


@mostly("async")
def test_a_second_sigterm_hastens_but_never_inside_a_unit(yard):
    worker = at_work(yard, grace=30.0)
    tally = yard.tasks.tally.options(key="tally").enqueue(1.2)
    noted(yard, tally, "begun")
    nap = started(yard, "nap", 9.0, "napped", key="nap")
    worker.send(signal.SIGTERM)
    assert not yard.book.notes("interrupted")
    worker.send(signal.SIGTERM)
    noted(yard, nap, "interrupted")
    nap.cancel()
    assert ended(yard, worker, 1.2 + SLACK_S) == 0
    begun, effect = yard.book.notes("begun")[0], yard.book.notes("effect")[0]
    assert effect.at - begun.at >= 1.2
    uncharged(yard, tally)
    finished(yard, tally=(tally, "counted"))
    assert len(yard.book.notes("effect")) == 1


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@mostly("process")
def test_a_signal_to_the_whole_group_is_one_signal(yard, number):
    """Children hear it from the system and from their supervisor: that does not hasten."""
    worker = at_work(yard)
    short = started(yard, "nap", 0.4, "short", key="short")
    long = started(yard, "nap", 2.5, "long", key="long")
    told = time.monotonic()
    worker.send_all(number)
    assert short.result() == "short"
    assert ended(yard, worker, GRACE_S + SLACK_S) == 0
    assert yard.book.notes("interrupted", "long")[0].at - told >= GRACE_S
    uncharged(yard, long)
    finished(yard, long=(long, "long"))


@pytest.mark.slow
@pytest.mark.parametrize("how", ["hangup", "closed terminal", "ctrl-c"])
@mostly("async")
def test_a_terminal_that_goes_away_stops_the_worker_gracefully(yard, how):
    outer, inner = os.openpty()
    with contextlib.ExitStack() as ends:
        ends.callback(os.close, inner)
        closing = ends.enter_context(contextlib.ExitStack())
        closing.callback(os.close, outer)
        worker = at_work(yard, terminal=inner)
        short = started(yard, "nap", 0.4, "short", key="short")
        long = started(yard, "nap", 2.5, "long", key="long")
        told = time.monotonic()
        if how == "hangup":
            worker.send(signal.SIGHUP)
        elif how == "ctrl-c":
            os.write(outer, b"\x03")
        else:
            closing.close()
        assert short.result() == "short"
        assert ended(yard, worker, GRACE_S + SLACK_S) == 0
        assert yard.book.notes("interrupted", "long")[0].at - told >= GRACE_S
    uncharged(yard, long)
    finished(yard, long=(long, "long"))


# The supervisor dies.


@pytest.mark.slow
@mostly("process")
def test_when_the_supervisor_dies_its_children_end_their_units_and_go(yard):
    worker = at_work(yard, grace=30.0)
    nap = started(yard, "nap", 2.0, "napped", key="nap")
    tally = yard.tasks.tally.options(key="tally").enqueue(3 * LEASE_S)
    noted(yard, tally, "begun")
    worker.kill()
    died = time.monotonic()
    noted(yard, nap, "interrupted")
    noted(yard, tally, "effect")
    worker.gone(LEASE_S + 2.0)
    assert yard.book.notes("interrupted", "nap")[0].at - died < LEASE_S + 1.0
    uncharged(yard, nap, tally)  # they gave them back themselves
    yard.unmanned()
    finished(yard, nap=(nap, "napped"), tally=(tally, "counted"))
    assert len(yard.book.notes("effect")) == 1


@every_runner
def test_idle_children_of_a_dead_supervisor_leave_at_once(yard):
    worker = at_work(yard, grace=30.0)
    worker.kill()
    worker.gone(SLACK_S)
    yard.unmanned()


@pytest.mark.slow
@mostly("async")
def test_a_handler_that_hears_nothing_does_not_outlive_its_supervisor(yard):
    worker = at_work(yard)
    hold = yard.tasks.hold.options(key="hold").enqueue(120.0, False)
    noted(yard, hold, "holds")
    worker.kill()
    worker.gone(ALONE_S + SLACK_S)
    assert not yard.book.notes("effect")


@pytest.mark.slow
@mostly("process")
def test_a_unit_that_holds_everything_up_ends_all_the_same(yard):
    worker = at_work(yard)
    hold = yard.tasks.hold.options(key="hold", within=60.0).enqueue(ALONE_S + 2.0, True)
    noted(yard, hold, "holds")
    worker.kill()
    worker.gone(ALONE_S + 2.0 + SLACK_S)
    assert [note.what for note in yard.book.notes(key="hold")] == ["start", "holds", "effect"]


@pytest.mark.parametrize("pause_ms", [0, 5, 20, 50, 100, 200])
@mostly("process")
def test_no_child_outlives_a_supervisor_that_dies_while_it_starts(yard, pause_ms):
    worker = yard.worker(slots=3)
    wait_until(worker.children, "its first child")
    passed(pause_ms / 1000, time.monotonic())
    worker.kill()
    worker.gone(LEASE_S + 2.0 + SLACK_S)


# The server is away.


@pytest.mark.slow
@pytest.mark.parametrize("how", ["killed", "frozen"])
@pytest.mark.parametrize("busy", [False, True])
@mostly("async")
def test_a_stop_while_the_server_is_away_ends_in_bounded_time(runner, how, busy, tmp_path):
    """The jobs are not lost: with the server back, their lease lapses and they run elsewhere."""
    with (
        Server(binaries()["valkey9"], aof=True, config={"appendfsync": "always"}) as server,
        Yard(server, tmp_path, runner, lease=LEASE_S) as yard,
    ):
        worker = at_work(yard)
        jobs = {}
        if busy:
            jobs = {"nap": (started(yard, "nap", 1.5, "napped", key="nap"), "napped")}
        server.kill() if how == "killed" else server.freeze()
        worker.send(signal.SIGTERM)
        # 1: a child could not take its leave, and was killed
        assert worker.wait(GRACE_S + 8.0) in (0, 1)
        worker.gone(SLACK_S)
        server.start() if how == "killed" else server.thaw()
        wait_until(yard.queue.stats, "the server to be back")
        heir = at_work(yard)
        for job, value in jobs.values():
            assert job.result() == value
        yard.calm()
        wait_until(lambda: set(yard.registered()) == heir.children(), "the dead to lapse")
        heir.send(signal.SIGTERM)
        assert ended(yard, heir, GRACE_S + SLACK_S) == 0


@contextlib.contextmanager
def own_yard(runner, folder, **settings):
    """On a server of its own, which may go away."""
    with (
        Server(binaries()["valkey9"]) as server,
        Yard(server, folder, runner, **settings) as yard,
    ):
        yield server, yard


@pytest.mark.parametrize("how", ["killed", pytest.param("frozen", marks=pytest.mark.slow)])
@mostly("async")
def test_with_nothing_in_hand_a_worker_does_not_wait_for_a_server_that_is_away(
    runner, how, tmp_path
):
    with own_yard(runner, tmp_path, lease=30.0) as (server, yard):
        worker = at_work(yard, grace=30.0)
        server.kill() if how == "killed" else server.freeze()
        worker.send(signal.SIGTERM)
        worker.wait(2.0 + SLACK_S if how == "killed" else 6.0 + SLACK_S)
        worker.gone(SLACK_S)


@pytest.mark.slow
@mostly("process")
def test_without_supervisor_and_server_a_child_waits_for_its_record_a_few_seconds(runner, tmp_path):
    """The unit completes; that it did cannot be recorded."""
    with own_yard(runner, tmp_path, lease=30.0) as (server, yard):
        worker = at_work(yard, grace=30.0)
        tally = yard.tasks.tally.options(key="tally").enqueue(1.0, 2.0)
        noted(yard, tally, "begun")
        server.kill()
        worker.kill()
        noted(yard, tally, "effect")
        assert worker.children()
        worker.gone(5.0 + 2.0 + SLACK_S)
        assert "end not recorded: the server is away" in worker.log


@pytest.mark.slow
def test_on_a_loop_of_ones_own_a_stop_waits_for_the_record_a_few_seconds(caplog):
    with Server(binaries()["valkey9"]) as server:
        queue = Queue("own", capacity=10, url=server.url, lease=30.0)
        inside = asyncio.Event()

        async def act():
            inside.set()
            await asyncio.sleep(0.3)

        @queue.task(within=20.0)
        async def job():
            await current_job().unit("act", act, limit=1.0)

        async def main():
            worker = Worker(queue, grace=0.5)
            working = asyncio.ensure_future(worker.arun())
            await worker.started.wait()
            await job.aenqueue()
            await inside.wait()
            server.kill()
            worker.stop()
            worker.stop()
            async with asyncio.timeout(5.0 + 2.0 + SLACK_S):
                await working
            await queue.aclose()

        asyncio.run(main())
    assert "end not recorded: the server is away" in caplog.text


# How it was started.


def declare(queue, book):
    @queue.task(within=20.0)
    async def echo(value):
        return value


def ignores_hangups():
    """As under nohup."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def blocks_all_signals():
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())


def closes_all_streams():
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        os.close(number)
        setattr(sys, name, None)


def test_under_nohup_a_terminal_that_goes_away_stops_nobody(valkey_server, tmp_path):
    with Shift(valkey_server, tmp_path, {"async": declare}, "async") as made:
        worker = made.worker(supervisor=ignores_hangups)
        worker.signal_group(signal.SIGHUP)
        pause(0.5)  # nothing comes of it
        assert made.tasks.echo.enqueue(1).result(timeout=10) == 1
        assert not worker.said("stopping")
        assert worker.stop() == 0


@pytest.mark.parametrize("how", [blocks_all_signals, closes_all_streams])
def test_however_it_was_started_it_works_and_hears_a_stop(valkey_server, tmp_path, how):
    with Shift(valkey_server, tmp_path, {"async": declare}, "async") as made:
        worker = made.coming_worker(supervisor=how)
        assert made.tasks.echo.enqueue(1).result(timeout=10) == 1
        assert worker.stop() == 0
        made.rests()
