"""One child of the process runner at work, against a real server."""

import contextlib
import contextvars
import decimal
import multiprocessing
import os
import signal
import threading
import time

import pytest

from deadq import DeadlineExceeded, JobFailed, Queue, Retry, State, current_job
from deadq.errors import Interrupt
from deadq.runtime.memory import resident_bytes
from deadq.store import keys
from deadq.store.loader import load
from deadq.testing.proxy import slow_proxy
from tests.marks import on_newest
from tests.nursery import Nurse
from tests.servers import Server, binaries

pytestmark = on_newest


@pytest.fixture
def queue(server):
    return made(server.url)


def made(url, **settings):
    settings = {"capacity": 200, "admission": "cap", "lease": 1.0, **settings}
    return Queue("sync", url=url, **settings)


@pytest.fixture
def nurse(queue):
    with Nurse(queue) as found:
        yield found


# What runs, and where.


def test_jobs_run_one_after_another_on_the_main_thread_of_one_process(queue, nurse):
    @queue.task(within=10.0)
    def where(number):
        job = current_job()
        main = threading.current_thread() is threading.main_thread()
        return [number, os.getpid(), main, job.attempt, job.deadline.remaining() > 5]

    jobs = [where.enqueue(number) for number in range(20)]
    nurse.begin()
    for number, job in enumerate(jobs):
        nurse.ended(job)
        assert job.result() == [number, nurse.pid, True, 1, True]
    assert nurse.stop() == 0


def test_an_idle_child_waits_for_a_word_and_starts_at_once(queue, nurse):
    @queue.task(within=10.0)
    def echo(value):
        return value

    nurse.begin()
    nurse.until(lambda: nurse.words, "the child to be parked")
    with nurse.client.monitor() as monitor:
        seen = 0
        until = time.monotonic() + 1.0
        while time.monotonic() < until:
            nurse.pump()
            while monitor.connection.can_read(timeout=0.01):
                seen += load("claim").sha in str(monitor.next_command())
        assert not any(c["cmd"] == "blpop" for c in nurse.client.client_list())
    assert seen == 0, "an idle child asks for nothing"
    begun = time.monotonic()
    job = echo.enqueue(7)
    nurse.ended(job)
    assert job.result() == 7
    assert time.monotonic() - begun < 2


def test_a_job_that_falls_due_later_is_started_on_time(queue, nurse):
    @queue.task(within=10.0)
    def at():
        nurse.note("at")

    nurse.begin()
    nurse.until(lambda: nurse.words, "the child to be parked")
    begun = time.monotonic()
    at.options(not_before=int(queue.clock.now_ms()) + 300).enqueue()
    assert 0.3 <= nurse.noted("at") - begun < 3


def test_failures_and_retries_are_those_of_the_handler(queue, nurse):
    @queue.task(within=10.0, retries=2, backoff=lambda _: 0.0)
    def again():
        if current_job().attempt < 3:
            raise Retry
        return current_job().attempt

    @queue.task(within=10.0)
    def broken():
        raise LookupError("not here")

    third, failed = again.enqueue(), broken.enqueue()
    nurse.begin()
    nurse.ended(third)
    assert third.result() == 3
    nurse.ended(failed)
    with pytest.raises(JobFailed, match="LookupError: not here"):
        failed.result()


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, GeneratorExit, Interrupt])
def test_whatever_a_handler_raises_by_itself_is_a_failure_of_its_job(queue, nurse, kind):
    @queue.task(within=10.0)
    def leaves():
        raise kind(3)

    @queue.task(within=10.0)
    def pid():
        return os.getpid()

    first, second = leaves.enqueue(), pid.enqueue()
    nurse.begin()
    assert nurse.ended(first) is State.FAILED
    nurse.ended(second)
    assert second.result() == nurse.pid


def test_the_page_tells_of_a_job_before_its_handler_starts_and_no_longer_than_its_report(
    queue, nurse
):
    @queue.task(within=10.0, timeout=5.0)
    def look():
        (held,) = nurse.page.read().held.items()
        job = current_job()
        assert held[0] == job.id
        assert held[1].fence == job.fence
        assert held[1].mark == "timeout"
        return held[1].until - time.monotonic()

    job = look.enqueue()
    nurse.begin()
    nurse.ended(job)
    assert 4.5 < job.result() <= 5.0
    nurse.until(lambda: not nurse.page.read().held, "the page to be empty")
    assert nurse.page.read().number >= 2


def test_a_claim_is_answered_once_although_its_reply_is_lost(server):
    with slow_proxy(server.url, listen="unix") as line:
        queue = made(line.url)
        with Nurse(queue) as nurse:

            @queue.task(within=10.0)
            def note(name):
                nurse.note(name)

            nurse.begin()
            for number, script in enumerate(("claim", "exchange") * 2):
                line.swallow_replies(to=load(script).sha.encode(), cut=True)
                for job in [note.enqueue(f"job {number} {half}") for half in "ab"]:
                    assert nurse.ended(job) is State.DONE
                nurse.until(lambda n=number: line.swallowed == n + 1, "a reply to be lost")
            assert sorted(n for n in nurse.notes if n.startswith("job")) == [
                f"job {number} {half}" for number in range(4) for half in "ab"
            ]
            assert nurse.stop() == 0


# Interruptions.


@pytest.mark.parametrize("swallows", [False, True])
def test_a_handler_is_interrupted_at_its_deadline_even_in_blocking_calls(queue, nurse, swallows):
    @queue.task(within=0.5)
    def blocked():
        nurse.note("begun")
        for _ in range(3):
            try:
                time.sleep(10)
            except BaseException:
                nurse.note("interrupted")
                if not swallows:
                    raise
        return "late"

    job = blocked.enqueue()
    nurse.begin()
    nurse.noted("interrupted")
    assert job.deadline.remaining() > -0.3
    assert nurse.ended(job) is State.EXCEEDED
    with pytest.raises(DeadlineExceeded):
        job.result()
    assert bool(nurse.said("stubborn")) is swallows
    assert nurse.stop() == 0


def test_the_limit_of_one_attempt_leads_to_a_retry(queue, nurse):
    @queue.task(within=10.0, timeout=0.1, retries=1, backoff=lambda _: 0.0)
    def slow():
        if current_job().attempt == 1:
            time.sleep(5)
        return current_job().attempt

    job = slow.enqueue()
    nurse.begin()
    nurse.ended(job)
    assert job.result() == 2


def test_a_cancelled_job_is_interrupted_at_once(queue, nurse):
    @queue.task(within=10.0)
    def long():
        nurse.note("begun")
        with contextlib.suppress(Interrupt):
            time.sleep(10)
        nurse.note("interrupted")

    job = long.enqueue()
    nurse.begin()
    nurse.noted("begun")
    begun = time.monotonic()
    job.cancel()
    assert nurse.noted("interrupted") - begun < 4
    assert nurse.ended(job) is State.CANCELLED


def test_check_raises_when_the_time_is_over(queue, nurse):
    @queue.task(within=0.2)
    def checks():
        with contextlib.suppress(Interrupt):
            time.sleep(5)
        try:
            current_job().check()
        except DeadlineExceeded:
            nurse.note("exceeded")
            raise

    job = checks.enqueue()
    nurse.begin()
    nurse.noted("exceeded")
    assert nurse.ended(job) is State.EXCEEDED


@pytest.mark.slow
def test_a_job_whose_time_is_over_when_the_claim_is_answered_is_not_started(server):
    with slow_proxy(server.url, listen="unix") as line:
        with Nurse(made(line.url, lease=5.0)) as nurse, Nurse(made(server.url)) as producer:
            for queue in (nurse.queue, producer.queue):

                @queue.task(within=1.2)
                def late():
                    nurse.note("late")

            nurse.begin()
            nurse.until(lambda: nurse.words, "the child to be parked")
            nurse.renewing = False
            line.delay = 1.6
            job = late.enqueue()
            nurse.channel.send("token")
            assert nurse.ended(job) is State.EXPIRED
            line.delay = 0.0
            assert "late" not in nurse.notes
            assert producer.queue.stats().counters["started"] == 1


def test_the_outcome_follows_the_mark_and_not_what_the_handler_did_then(queue, nurse):
    @queue.task(within=10.0, timeout=0.2, retries=1, backoff=lambda _: 0.0)
    def swallows():
        if current_job().attempt == 2:
            return "second"
        try:
            time.sleep(5)
        except Interrupt:
            return "a value all the same"

    @queue.task(within=0.4)
    def fails():
        try:
            time.sleep(5)
        except Interrupt:
            raise ValueError("of its own") from None

    first, second = swallows.enqueue(), fails.options(within=2.0).enqueue()
    nurse.begin()
    nurse.ended(first)
    assert first.result() == "second"
    assert nurse.ended(second) is State.EXCEEDED


# Leases.


def test_without_renewals_the_handler_stops_in_time_and_the_child_waits_for_its_supervisor(
    queue, nurse
):
    @queue.task(within=20.0)
    def long():
        nurse.note("begun")
        try:
            time.sleep(0.5 if current_job().attempt > 1 else 10)
        except Interrupt:
            nurse.note("interrupted")
            raise

    job = long.enqueue()
    nurse.begin()
    begun = nurse.noted("begun")
    nurse.renewing = False
    good = nurse.page.good
    assert nurse.noted("interrupted") - good < 1.0, "before anybody else can have it"
    nurse.until(lambda: len(nurse.said("registered")) == 2, "a new id")
    assert nurse.noted("interrupted") - begun < 2
    until = time.monotonic() + 0.5
    nurse.until(lambda: time.monotonic() > until, "half a lease")
    assert nurse.notes.count("begun") == 1, "nothing is claimed while nobody renews"
    nurse.renewing = True
    assert nurse.ended(job) is State.DONE
    assert nurse.notes.count("begun") == 2
    assert nurse.stop() == 0


def test_an_idle_child_whose_supervisor_is_stopped_claims_nothing_that_it_would_lose(queue, nurse):
    @queue.task(within=20.0)
    def attempt():
        return current_job().attempt

    nurse.begin()
    nurse.until(lambda: nurse.words, "the child to be parked")
    nurse.renewing = False
    until = time.monotonic() + 1.2
    nurse.until(lambda: time.monotonic() > until, "the lease to lapse")
    job = attempt.enqueue()
    nurse.channel.send("token")
    nurse.until(lambda: len(nurse.said("registered")) == 2, "a new id")
    until = time.monotonic() + 0.4
    nurse.until(lambda: time.monotonic() > until, "some time to pass")
    assert job.state() is State.READY
    nurse.renewing = True
    nurse.ended(job)
    assert job.result() == 1
    assert "reclaimed" not in queue.stats().counters


def test_a_child_that_was_stopped_for_longer_than_its_lease_reports_nothing(queue, nurse):
    @queue.task(within=20.0)
    def long():
        nurse.note(f"begun {current_job().attempt}")
        time.sleep(0.3 if current_job().attempt > 1 else 1.5)
        nurse.note(f"ended {current_job().attempt}")

    job = long.enqueue()
    nurse.begin()
    nurse.noted("begun 1")
    nurse.renewing = False
    os.kill(nurse.pid, signal.SIGSTOP)
    until = time.monotonic() + 1.3
    nurse.until(lambda: time.monotonic() > until, "the lease to lapse")
    os.kill(nurse.pid, signal.SIGCONT)
    nurse.until(lambda: nurse.logged("lost"), "the run to be given up")
    nurse.renewing = True
    assert nurse.ended(job) is State.DONE
    assert "ended 1" not in nurse.notes
    assert "ended 2" in nurse.notes


def test_a_child_that_the_server_has_forgotten_takes_a_new_id_and_works_on(queue, nurse):
    @queue.task(within=10.0)
    def echo(value):
        return value

    nurse.begin()
    nurse.ended(echo.enqueue(1))
    nurse.client.flushall()
    job = echo.enqueue(2)
    nurse.ended(job)
    assert job.result() == 2
    nurse.until(lambda: len(nurse.said("registered")) == 2, "a new id")
    first, second = (line.split()[1] for line in nurse.said("registered"))
    assert first != second
    assert first.startswith(f"{nurse.post}.")
    assert second.startswith(f"{nurse.post}.")


def test_what_has_ended_while_the_server_was_away_is_reported_when_it_is_back(server):
    with Server(binaries()["valkey9"], aof=True) as own:
        queue = made(own.url, lease=5.0)
        with Nurse(queue) as nurse:

            @queue.task(within=20.0)
            def waits():
                nurse.note("begun")
                time.sleep(0.3)
                nurse.note("ended")
                return "kept"

            job = waits.enqueue()
            nurse.begin()
            nurse.noted("begun")
            own.stop()
            nurse.noted("ended")
            nurse.until(lambda: nurse.logged("store_away"), "the outage to be noticed")
            own.start()
            nurse.ended(job)
            assert job.result() == "kept"
            assert nurse.notes.count("begun") == 1
            nurse.until(lambda: nurse.logged("store_back"), "the end of the outage to be told")


# Nothing gets from one job to the next.

_variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="clean")


def test_no_context_gets_from_one_job_to_the_next(queue, nurse):
    @queue.task(within=10.0)
    def spoil():
        _variable.set("spoilt")
        decimal.getcontext().prec = 3

    @queue.task(within=10.0)
    def look():
        return [_variable.get(), decimal.getcontext().prec, current_job().key]

    first, second = spoil.enqueue(), look.options(key="mine").enqueue()
    nurse.begin()
    nurse.ended(first)
    nurse.ended(second)
    assert second.result() == ["clean", 28, "mine"]


def test_a_thread_that_a_job_leaves_behind_is_named_once(queue, nurse):
    over = multiprocessing.get_context("fork").Event()

    @queue.task(within=10.0)
    def leaves():
        threading.Thread(target=over.wait, name="straggler", daemon=True).start()

    @queue.task(within=10.0)
    def nothing():
        pass

    job = leaves.enqueue()
    nurse.begin()
    nurse.ended(job)
    nurse.ended(nothing.enqueue())
    assert nurse.stop() == 0
    assert nurse.logged("left_behind") == [f"log left_behind: job {job.id}, threads straggler"]


def test_signals_that_a_handler_has_taken_are_put_back_with_a_warning(queue, nurse):
    @queue.task(within=10.0)
    def takes():
        signal.signal(signal.SIGALRM, signal.SIG_IGN)

    @queue.task(within=0.3)
    def slow():
        time.sleep(5)

    first, second = takes.enqueue(), slow.options(within=0.5).enqueue()
    nurse.begin()
    nurse.ended(first)
    assert nurse.ended(second) is State.EXCEEDED
    assert nurse.logged("SIGALRM")


def test_a_handler_that_blocks_the_signals_spares_the_next_one(queue, nurse):
    @queue.task(within=10.0)
    def blocks():
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM, signal.SIGIO, signal.SIGTERM})

    @queue.task(within=0.3)
    def slow():
        time.sleep(5)

    first, second = blocks.enqueue(), slow.options(within=0.5).enqueue()
    nurse.begin()
    nurse.ended(first)
    assert nurse.ended(second) is State.EXCEEDED
    assert nurse.logged("SIGALRM blocked")


def test_a_process_that_a_handler_forks_does_no_harm(queue, nurse):
    @queue.task(within=10.0)
    def forks():
        """The new process comes back from the handler as if it were the old one."""
        pid = os.fork()
        if pid:
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        return "the fork's own"

    @queue.task(within=10.0)
    def exits():
        pid = os.fork()
        if pid:
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        raise SystemExit(5)

    @queue.task(within=10.0)
    def fails():
        pid = os.fork()
        if pid:
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        raise RuntimeError

    @queue.task(within=10.0)
    def terminates():
        process = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
        process.start()
        process.terminate()
        process.join()
        return process.exitcode

    jobs = [task.enqueue() for task in (forks, exits, fails, terminates)]
    nurse.begin()
    for job, code in zip(jobs, (0, 5, 1, -signal.SIGTERM), strict=True):
        nurse.ended(job)
        assert job.result() == code
    assert nurse.stop() == 0
    assert len(nurse.said("registered")) == 1


# What lasts from the first job to the last.


def test_lifespans_of_both_kinds_are_open_around_all_jobs(queue, nurse):
    @queue.lifespan
    def plain():
        _variable.set("set by a lifespan")
        nurse.note("open plain")
        yield
        nurse.note("close plain")

    asynchronous: contextvars.ContextVar[str] = contextvars.ContextVar("asynchronous")

    @queue.lifespan
    async def looping():
        asynchronous.set("set on a loop")
        nurse.note("open looping")
        yield
        nurse.note("close looping")

    @queue.task(within=10.0)
    def look():
        nurse.note("job")
        return [_variable.get(), asynchronous.get()]

    job = look.enqueue()
    nurse.begin()
    nurse.ended(job)
    assert job.result() == ["set by a lifespan", "set on a loop"]
    assert nurse.stop() == 0
    notes = [note for note in nurse.notes if note != "started"]
    assert notes == ["open plain", "open looping", "job", "close looping", "close plain"]


def test_a_child_leaves_after_so_many_jobs(queue):
    with Nurse(queue, max_jobs=3) as nurse:

        @queue.task(within=10.0)
        def pid():
            return os.getpid()

        jobs = [pid.enqueue() for _ in range(5)]
        nurse.begin()
        assert nurse.exit() == 0
        assert nurse.said("leaving") == ["leaving"]
        states = [job.state() for job in jobs]
        assert states == [State.DONE] * 3 + [State.READY] * 2


def test_a_child_leaves_when_it_has_grown_too_large(queue):
    with Nurse(queue, max_memory=resident_bytes() + 60_000_000) as nurse:
        kept = []

        @queue.task(within=10.0)
        def grow(size):
            kept.append(bytearray(os.urandom(1000)) * (size // 1000))

        nurse.begin()
        nurse.ended(grow.enqueue(1000))
        nurse.ended(grow.enqueue(1000))
        assert not nurse.said("leaving")
        grow.enqueue(200_000_000)
        until = time.monotonic() + 0.11
        nurse.until(lambda: nurse.code is not None or time.monotonic() > until, "a look")
        if nurse.code is None:
            grow.enqueue(1000)
        assert nurse.exit() == 0
        assert nurse.said("leaving") == ["leaving"]


def test_a_child_that_has_gone_is_not_known_any_more(queue, nurse):
    @queue.task(within=10.0)
    def nothing():
        pass

    nurse.begin()
    assert queue.stats().slots == 1
    assert nurse.stop() == 0
    assert queue.stats().slots == 0
    assert nurse.client.zcard(keys.key("sync", "parked")) == 0
