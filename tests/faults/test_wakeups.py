"""A job that is submitted while children wait is taken up at once, whenever exactly it comes."""

import os
import random
import signal
import time

import pytest

from deadq.testing.proxy import slow_proxy
from tests.servers import wait_until
from tests.supervised import Yard, mostly, passed

CALLS = 400


@pytest.mark.race
@pytest.mark.parametrize("slots", [1, 2])
@mostly("process")
def test_no_wakeup_is_lost(runner, slots, valkey_server, tmp_path):
    """The next job comes while the child is just being parked, after the one before it."""
    chance = random.Random(slots)
    with Yard(valkey_server, tmp_path, runner, lease=5.0) as yard:
        worker = yard.worker(slots=slots, children=slots)
        yard.ready(worker, children=slots)
        took = []
        for number in range(CALLS):
            begun = time.monotonic()
            assert yard.tasks.echo.options(within=60.0).call(number) == number
            took.append(time.monotonic() - begun)
            passed(chance.uniform(0.0, 0.0015), time.monotonic())
        assert max(took) < 1.5, sorted(took)[-3:]
        yard.calm()


@mostly("async")
def test_a_child_that_was_killed_while_parked_takes_no_wakeup_with_it(
    runner, valkey_server, tmp_path
):
    """Renewals are ten seconds apart here: none comes to the rescue."""
    with Yard(valkey_server, tmp_path, runner, lease=30.0) as yard:
        worker = yard.worker()
        yard.ready(worker)
        for _ in range(3):
            (killed,) = worker.children()
            os.kill(killed, signal.SIGKILL)
            wait_until(lambda old=killed: worker.children() - {old}, "its successor")
            yard.ready(worker)
            begun = time.monotonic()
            assert yard.tasks.whoami.call() in worker.children()
            assert time.monotonic() - begun < 1.0
            yard.ready(worker)


@pytest.mark.slow
@pytest.mark.parametrize("lost", ["that it is parked", "that work has come"])
@mostly("process")
def test_on_a_line_that_is_half_dead_no_wakeup_is_lost_for_long(
    runner, lost, valkey_server, tmp_path
):
    """What should have woken somebody vanishes, and the connection stays open."""
    with (
        Yard(valkey_server, tmp_path, runner, lease=1.5) as yard,
        slow_proxy(valkey_server.url, listen="unix") as line,
    ):
        if lost == "that it is parked":
            line.swallow_replies(to=b"BLPOP")
        worker = yard.worker(DEADQ_URL=line.url)
        yard.ready(worker)
        if lost == "that work has come":
            assert yard.tasks.echo.call("warm") == "warm"
            yard.ready(worker)
            line.swallow_replies(to=b"BLPOP")
        call = yard.tasks.echo.options(within=30.0).enqueue("value")
        line.wait_until(lambda: line.swallowed == 1)
        swallowed = time.monotonic()
        assert call.result() == "value"
        assert time.monotonic() - swallowed < 3.0
        yard.calm()
        assert worker.alive


def test_a_token_that_nobody_is_free_to_take_costs_a_busy_worker_no_connection(
    valkey_server, tmp_path
):
    """Another worker's, that has died: no child of this one is parked, and nobody listens."""
    with Yard(valkey_server, tmp_path, "process", lease=1.5) as yard:
        worker = yard.worker()
        yard.ready(worker)
        job = yard.tasks.nap.enqueue(20.0)
        wait_until(lambda: yard.book.notes("start", job.key), "the only child to be busy")
        wait_until(lambda: len(_waiting(yard)) == 1, "its supervisor to wait for messages")
        waiting = _waiting(yard)
        yard.client.rpush(yard.key("wake"), "1")
        for _ in range(4):
            lease = yard.client.zrange(yard.key("workers"), 0, -1, withscores=True)
            wait_until(
                lambda old=lease: (
                    yard.client.zrange(yard.key("workers"), 0, -1, withscores=True) != old
                ),
                "a renewal",
            )
        assert _waiting(yard) == waiting
        job.cancel()
        wait_until(lambda: not yard.client.llen(yard.key("wake")), "the token to be taken")
        yard.calm()


def _waiting(yard):
    """The connections on which somebody waits for a push."""
    return {each["id"] for each in yard.client.client_list() if each["cmd"] == "blpop"}
