"""Interrupts: in the user's function and nowhere else, at whatever instant the signal comes.

Each test runs in a forked process: the signals of pytest's own are not touched.
"""

import contextlib
import functools
import itertools
import os
import random
import signal
import subprocess
import sys
import threading
import time
import traceback

import pytest

from deadq.config import TaskConfig
from deadq.deadline import Deadline
from deadq.errors import Interrupt
from deadq.job import Claim
from deadq.runtime.jobs.run import SyncRun
from deadq.runtime.process.hearing import Hearing
from deadq.runtime.process.interrupts import Interrupts
from deadq.runtime.ties.board import Page
from deadq.runtime.ties.channel import Channel
from tests.servers import wait_until

LEASE_S = 100.0


def forked(test):
    """Run the test's body in a child process; its traceback, if any, is the failure."""

    @functools.wraps(test)
    def wrapper(**given):
        told, tell = os.pipe()
        pid = os.fork()
        if not pid:
            os.close(told)
            try:
                test(**given)
            except BaseException:
                os.write(tell, traceback.format_exc().encode()[-8000:])
            finally:
                os._exit(0)
        os.close(tell)
        with os.fdopen(told, "rb") as pipe:
            fault = pipe.read().decode()
        _, status = os.waitpid(pid, 0)
        assert not fault, fault
        assert os.waitstatus_to_exitcode(status) == 0

    return wrapper


class Bench:
    """Interrupts with a supervisor that is this very process."""

    def __init__(self, grace=5.0):
        self.ours, theirs = Channel.pair()
        self.page = Page(1)
        self.page.good = time.monotonic()
        self.renewals = 0
        self.hearing = Hearing(theirs, grace)
        self.hearing.child = "post.child"
        self.interrupts = Interrupts(
            self.hearing, theirs, self.page, LEASE_S, renewal=lambda: self.renew
        )
        self.interrupts.start()

    def renew(self):
        self.renewals += 1
        return 0.02

    def make(self, within=10.0, timeout=None, job="j", fence=1):
        claim = Claim(job, "k", "t", 0, 1, fence, 0, b"")
        config = TaskConfig("t", None, 0, timeout, (), "critical", lambda n: 0.0, "rerun")
        return SyncRun(claim, Deadline.after(within), time.monotonic(), config)

    def run(self, run, fn, *args):
        self.interrupts.begin(run)
        ended = self.interrupts.run(run, fn, args, {})
        self.interrupts.end()
        self.interrupts.mend()
        return ended


@pytest.fixture(autouse=True)
def _no_forks_of_threads():
    idle = 1 if "PYTEST_XDIST_WORKER" in os.environ else 0  # it waits for the next test's name
    # one that another test has left behind is about to end
    wait_until(lambda: threading.active_count() <= 1 + idle, "these tests fork: no other thread")


@forked
def test_a_handler_that_sleeps_is_interrupted_at_its_deadline():
    bench = Bench()
    begun = time.monotonic()
    run = bench.make(within=0.05)
    good, error = bench.run(run, time.sleep, 5)
    assert not good
    assert isinstance(error, Interrupt)
    assert run.mark == "cut"
    assert 0.05 <= time.monotonic() - begun < 4


@forked
def test_the_limit_of_the_attempt_has_a_mark_of_its_own():
    bench = Bench()
    run = bench.make(within=5, timeout=0.05)
    bench.run(run, time.sleep, 5)
    assert run.mark == "timeout"


@forked
def test_an_interrupt_that_is_swallowed_comes_again_and_is_told_once():
    bench = Bench()
    run = bench.make(within=0.02)
    swallowed = []

    def stubborn():
        for _ in range(4):
            try:
                time.sleep(5)
            except Interrupt:
                swallowed.append(time.monotonic())
        return "late"

    assert bench.run(run, stubborn) == (True, "late")
    gaps = [b - a for a, b in itertools.pairwise(swallowed)]
    assert all(0.03 < gap < 4 for gap in gaps), gaps
    assert run.mark == "cut"
    assert bench.ours.receive() == ["stubborn j 1 cut"]


@forked
@pytest.mark.parametrize("unit", [False, True])
def test_what_cleans_up_has_its_time_whatever_else_is_said(unit):
    bench = Bench()
    run = bench.make(within=5 if unit else 0.02)
    swallowed = []

    def cleans_up():
        with contextlib.suppress(Interrupt):
            time.sleep(5)
        swallowed.append(time.monotonic())
        with contextlib.suppress(Interrupt):
            while time.monotonic() < swallowed[0] + 4:
                bench.ours.send("token")
                time.sleep(0.001)
        swallowed.append(time.monotonic())

    def step():
        bench.interrupts.run_unit(run, time.monotonic() + 0.02, cleans_up)

    bench.run(run, step if unit else cleans_up)
    first, second = swallowed
    assert 0.03 < second - first < 4


@forked
def test_one_interrupt_that_is_obeyed_is_not_stubborn():
    bench = Bench()
    bench.run(bench.make(within=0.02), time.sleep, 5)
    assert bench.ours.receive() == []


@forked
def test_words_interrupt_blocking_calls():
    for word, mark in (
        ("cancel j 1", "cancelled"),
        ("lost j 1", "lost"),
        ("lapsed post.child", "lost"),
        ("hasten", "stop"),
    ):
        bench = Bench()
        run = bench.make()

        def say(word=word, bench=bench):
            threading.Timer(0.05, bench.ours.send, [word]).start()
            time.sleep(5)

        good, error = bench.run(run, say)
        assert (good, type(error), run.mark) == (False, Interrupt, mark), word
        bench.interrupts.close()


@forked
def test_a_job_that_is_cancelled_while_it_begins_does_begin():
    """Whoever cancels it is told that it has started; a cancel may come before its first line."""
    bench, begun = Bench(), []

    def nap():
        soon = time.monotonic() + 0.001  # a beginning on a busy machine
        while time.monotonic() < soon:
            pass
        begun.append(soon)
        time.sleep(5)

    for round_ in range(40):
        run = bench.make(job=str(round_))
        bench.interrupts.begin(run)
        bench.ours.send("cancel", round_, 1)
        good, error = bench.interrupts.run(run, nap, (), {})
        bench.interrupts.end()
        assert (good, type(error), run.mark) == (False, Interrupt, "cancelled")
        assert len(begun) == round_ + 1


@forked
def test_what_was_said_before_the_signals_were_taken_over_is_heard():
    for speak in (lambda ours: ours.send("stop"), lambda ours: ours.close()):
        bench = Bench.__new__(Bench)
        bench.ours, theirs = Channel.pair()
        bench.page = Page(1)
        bench.hearing = Hearing(theirs, 1.0)
        speak(bench.ours)
        interrupts = Interrupts(bench.hearing, theirs, bench.page, LEASE_S, renewal=dict)
        interrupts.start()
        assert bench.hearing.going
        interrupts.close()


@forked
def test_words_about_other_jobs_fences_and_children_are_not_heard():
    bench = Bench()
    run = bench.make()

    def hear():
        for word in ("cancel x 1", "cancel j 2", "lost j", "lapsed post.other", "unit j 2", "?"):
            bench.ours.send(word)
        time.sleep(0.1)

    assert bench.run(run, hear) == (True, None)
    assert run.mark is None
    assert not run.unit_recorded
    assert not bench.hearing.going


@forked
def test_the_end_of_the_supervisor_interrupts_at_once():
    bench = Bench()
    run = bench.make()

    def orphan():
        bench.ours.close()
        time.sleep(5)

    assert not bench.run(run, orphan)[0]
    assert run.mark == "stop"
    assert bench.hearing.alone


@forked
def test_sigterm_gives_the_grace_first_and_a_second_one_changes_nothing():
    bench = Bench(grace=1.0)
    run = bench.make()
    stops = []

    def terminated():
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGTERM)
            bench.ours.send("stop")
            time.sleep(0.05)
            stops.append(bench.hearing.stop_at)
        time.sleep(5)

    begun = time.monotonic()
    assert not bench.run(run, terminated)[0]
    assert run.mark == "stop"
    assert 1.0 <= time.monotonic() - begun < 4
    assert stops[0] == stops[1]


@forked
def test_a_renewal_puts_the_end_of_the_lease_off_and_without_one_the_job_is_lost():
    bench = Bench()
    run = bench.make()
    bench.page.good = time.monotonic() - 0.8 * LEASE_S + 0.05

    def renewed():
        bench.page.good += 0.15
        time.sleep(5)

    begun = time.monotonic()
    assert not bench.run(run, renewed)[0]
    assert run.mark == "lost"
    assert time.monotonic() - begun >= 0.19


@forked
def test_after_a_stop_of_the_process_the_lease_is_looked_at_before_all_else():
    bench = Bench()
    run = bench.make(within=0.05)
    bench.page.good = time.monotonic() - 0.8 * LEASE_S + 0.02
    pid = os.getpid()

    def stopped():
        go_on = f"sleep 0.2; kill -CONT {pid}"
        with subprocess.Popen(["sh", "-c", go_on]):
            os.kill(pid, signal.SIGSTOP)
            time.sleep(5)

    bench.run(run, stopped)
    assert run.mark == "lost"


@forked
def test_nothing_is_raised_in_a_unit_before_its_limit():
    bench = Bench()
    run = bench.make(within=0.02)
    seen = []

    def handler():
        before = bench.interrupts.pause()
        try:
            until = time.monotonic() + 5
            seen.append(bench.interrupts.run_unit(run, until, time.sleep, 0.2))
            seen.append(run.mark)
        finally:
            bench.interrupts.resume(run, before)
        seen.append("not reached")

    good, error = bench.run(run, handler)
    assert seen == [(True, None, False), "cut"]
    assert (good, type(error)) == (False, Interrupt)


@forked
def test_a_unit_is_interrupted_at_its_limit_and_one_that_stays_is_told():
    bench = Bench()
    run = bench.make()
    swallowed = []

    def stays():
        until = time.monotonic() + 0.5
        while time.monotonic() < until:
            with contextlib.suppress(Interrupt):
                time.sleep(5)
            swallowed.append(1)
        return "at last"

    def handler():
        before = bench.interrupts.pause()
        try:
            limit = time.monotonic() + 0.05
            first = bench.interrupts.run_unit(run, limit, time.sleep, 5)
            told = bench.ours.receive()
            limit = time.monotonic() + 0.05
            second = bench.interrupts.run_unit(run, limit, stays)
        finally:
            bench.interrupts.resume(run, before)
        return first, told, second

    good, value = bench.run(run, handler)
    assert good, value
    (ok, error, late), told, second = value
    assert (ok, type(error), late, told) == (False, Interrupt, True, [])
    assert second == (True, "at last", True)
    assert bench.ours.receive() == ["stubborn j 1 unit"]
    assert len(swallowed) > 3
    assert run.mark is None


@forked
def test_a_unit_that_outlives_the_supervisor_renews_the_lease_and_ends():
    bench = Bench()
    run = bench.make()

    def handler():
        before = bench.interrupts.pause()
        try:
            bench.ours.close()
            until = time.monotonic() + 5
            assert bench.interrupts.run_unit(run, until, time.sleep, 0.2)[0]
        finally:
            bench.interrupts.resume(run, before)

    assert not bench.run(run, handler)[0]
    assert run.mark == "stop"
    assert bench.renewals >= 3


@forked
def test_a_handler_in_c_and_one_that_raises_anything_are_ended_like_others():
    bench = Bench()
    assert bench.run(bench.make(), divmod, 7, 2) == (True, (3, 1))
    for error in (SystemExit(3), KeyboardInterrupt(), GeneratorExit(), StopIteration(4)):

        def fail(error=error):
            raise error

        assert bench.run(bench.make(), fail) == (False, error)


@forked
def test_a_signal_between_the_handler_and_the_runtime_raises_nothing():
    """The frame that calls the user's function is where it ends: only below it may be raised."""
    bench = Bench()
    run = bench.make()

    def work():
        run.interrupt("cut")
        guard = sys._getframe(2)
        assert guard.f_code.co_name == "_call"
        bench.interrupts._signalled(signal.SIGIO, guard)
        with contextlib.suppress(Interrupt):
            bench.interrupts._signalled(signal.SIGIO, sys._getframe())
            return "nothing was raised in the handler"
        return "well"

    assert bench.run(run, work) == (True, "well")


@forked
def test_what_a_handler_did_to_the_signals_is_put_right_for_the_next():
    bench = Bench()

    def spoil():
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGIO, signal.SIG_IGN)
        signal.setitimer(signal.ITIMER_REAL, 0)

    assert bench.run(bench.make(within=0.2), spoil)[0]
    run = bench.make(within=0.05)
    assert not bench.run(run, time.sleep, 5)[0]
    assert run.mark == "cut"
    assert not bench.run(cancelled := bench.make(), saying(bench, "cancel j 1"))[0]
    assert cancelled.mark == "cancelled"


def saying(bench, word):
    def say():
        bench.ours.send(word)
        time.sleep(5)

    return say


@forked
def test_a_timer_that_a_handler_left_behind_does_not_meet_the_next():
    bench = Bench()
    assert bench.run(bench.make(), lambda: signal.alarm(100))[0]
    assert bench.run(bench.make(within=5), time.sleep, 0.01)[0]
    left, interval = signal.getitimer(signal.ITIMER_REAL)
    assert left <= LEASE_S
    assert interval > 0


@forked
def test_in_a_fork_of_the_handler_signals_mean_what_they_always_mean():
    bench = Bench()

    def fork():
        pid = os.fork()
        if not pid:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(10)
            os._exit(0)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    run = bench.make()
    assert bench.run(run, fork) == (True, -signal.SIGTERM)
    assert not bench.hearing.going
    assert run.mark is None


@forked
def test_a_wait_is_woken_by_words_and_signals_that_come_at_any_instant():
    bench = Bench()
    rounds = 300

    def speak():
        for _ in range(rounds):
            time.sleep(random.random() * 0.002)
            bench.ours.send("token")
            if not heard.wait(10):
                return
            heard.clear()

    heard = threading.Event()
    speaker = threading.Thread(target=speak)
    speaker.start()
    begun = time.monotonic()
    for _ in range(rounds):
        while not bench.hearing.token:
            bench.hearing.wait(20)
        bench.hearing.token = False
        heard.set()
    speaker.join()
    assert time.monotonic() - begun < 10 + rounds * 0.02, "a wait was slept through"


@pytest.mark.race
@forked
def test_no_interrupt_gets_out_whatever_the_instant_at_which_it_comes():
    """Brute force: the timer goes off at a random instant around the end of a short handler."""
    bench = Bench()
    random.seed(7)
    ended = {True: 0, False: 0}
    marked = 0
    for turn in range(6000):
        span = random.random() * 0.0004
        run = bench.make(within=10)
        run.until = time.monotonic() + random.random() * 0.0006

        def work(span=span):
            until = time.monotonic() + span
            while time.monotonic() < until:
                pass
            return "value"

        good, value = bench.run(run, work)
        assert value == "value" if good else type(value) is Interrupt, (turn, value)
        assert good or run.mark == "cut"
        ended[good] += 1
        marked += run.mark is not None
        assert bench.hearing.run is None
    assert min(ended.values()) > 500, f"both ends of the race must have been met: {ended}"
    assert marked >= ended[False]


@pytest.mark.race
@forked
def test_units_and_interrupts_at_random_instants_never_meet():
    """A flood of signals: none is raised between pause and resume, each is delivered after it."""
    bench = Bench()
    random.seed(11)
    pid = os.getpid()
    flood = f"import os,signal,time\nwhile True:\n os.kill({pid}, signal.SIGIO)\n time.sleep(5e-5)"
    broken, delivered = [], 0
    with subprocess.Popen([sys.executable, "-c", flood]) as sender:
        for _ in range(3000):
            run = bench.make(within=10)
            run.until = time.monotonic() + random.random() * 0.0005

            def work(run=run):
                for _ in range(20):
                    before = bench.interrupts.pause()
                    try:
                        inside = 0
                        try:
                            for _ in range(30):
                                inside += 1
                            bench.interrupts.run_unit(run, time.monotonic() + 9, sum, range(30))
                        except Interrupt:
                            broken.append(inside)
                    finally:
                        bench.interrupts.resume(run, before)

            good, value = bench.run(run, work)
            assert good or type(value) is Interrupt, value
            delivered += not good
        sender.kill()
    assert broken == []
    assert delivered > 100
