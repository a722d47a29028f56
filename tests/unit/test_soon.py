"""Doing something in a moment: in order, on time, whatever the others do, and after a fork."""

import os
import queue
import threading
import time

from deadq.soon import apart, soon
from tests.servers import wait_until


def test_what_comes_first_is_done_first_by_one_thread():
    done = queue.SimpleQueue()
    began = time.monotonic()
    for pause in (0.05, 0.02, 0.0):
        soon(pause, lambda pause=pause: done.put((pause, threading.current_thread())))
    found = [done.get(timeout=5.0) for _ in range(3)]
    assert [pause for pause, _ in found] == [0.0, 0.02, 0.05]
    assert len({thread for _, thread in found}) == 1
    assert time.monotonic() - began >= 0.05


def test_one_that_fails_holds_up_no_other(caplog):
    done = threading.Event()
    soon(0.0, lambda: 1 / 0)
    soon(0.001, done.set)
    assert done.wait(5.0)
    assert "ZeroDivisionError" in caplog.text


def test_what_is_done_apart_holds_up_nobody_and_may_fail(caplog):
    gate, done = threading.Event(), threading.Event()
    soon(0.0, lambda: apart(gate.wait))
    soon(0.001, done.set)
    assert done.wait(5.0)
    gate.set()

    def fails():
        try:
            1 / 0  # noqa: B018
        finally:
            failing.append(threading.current_thread())

    failing: list[threading.Thread] = []
    apart(fails)
    wait_until(lambda: failing, "it to run")
    failing[0].join()
    assert "ZeroDivisionError" in caplog.text


def test_a_forked_child_has_a_thread_of_its_own():
    done = threading.Event()
    soon(0.0, done.set)
    assert done.wait(5.0)
    pid = os.fork()
    if pid == 0:
        there = threading.Event()
        soon(0.0, there.set)
        os._exit(0 if there.wait(5.0) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
