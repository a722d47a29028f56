"""The supervisor is refused what it asks the system for, or cannot go on: its children, and what
they are in the midst of, are not the ones to suffer.
"""

import asyncio
import contextlib
import errno
import mmap
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from deadq import StoreUnavailable, current_job
from deadq.runtime.loop.child import Child
from deadq.runtime.settings import WorkerConfig
from deadq.runtime.supervisor import crew, renewals
from deadq.runtime.supervisor.charge import Charge
from deadq.runtime.supervisor.spawn import Birth
from deadq.runtime.ties.unit_lock import Locks
from deadq.store import keys
from tests.commands import environment
from tests.servers import wait_until
from tests.shifts import Shift, aat_gate, at_gate, process_daily, under_both_runners

_REFUSALS = 3


def _stay(book):
    """Not leave, whatever happens."""
    book.note("start")
    until = time.monotonic() + 25.0
    while time.monotonic() < until:
        with contextlib.suppress(BaseException):
            time.sleep(0.01)


def declare_async(queue, book):
    async def act():
        book.note("begun")
        await aat_gate(book)
        book.note("effect")

    @queue.task(within=30.0)
    async def unit():
        await current_job().unit("act", act, limit=20.0)

    @queue.task(within=30.0)
    async def stubborn():
        _stay(book)

    @queue.task(within=30.0)
    async def wait():
        book.note("start")
        await aat_gate(book)


def declare_process(queue, book):
    def act():
        book.note("begun")
        at_gate(book)
        book.note("effect")

    @queue.task(within=30.0)
    def unit():
        current_job().unit("act", act, limit=20.0)

    @queue.task(within=30.0)
    def stubborn():
        _stay(book)


TWINS = {"async": declare_async, "process": declare_process}


@pytest.fixture
def shift(valkey_server, tmp_path, runner):
    with Shift(valkey_server, tmp_path, TWINS, runner) as made:
        yield made


def in_a_unit(shift, worker):
    """A job in a unit that waits at the gate, and the child that runs it."""
    job = shift.tasks.unit.enqueue()
    child = shift.noted("begun").pid
    assert child in worker.children
    return job, child


def _both(shift):
    """Two slots are two children by themselves under the process runner."""
    return 2 if shift.runner == "async" else None


# The system refuses.


def _refused(owner, name):
    """In the supervisor: the third child is refused this a few times."""
    here, original, calls = os.getpid(), getattr(owner, name), []

    def refusing(*args, **options):
        if os.getpid() != here:
            return original(*args, **options)
        calls.append(args)
        if 2 < len(calls) <= 2 + _REFUSALS:
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return original(*args, **options)

    setattr(owner, name, refusing)


def no_processes():
    _refused(os, "fork")


def no_sockets():
    _refused(socket, "socketpair")


def no_memory():
    _refused(mmap, "mmap")


@pytest.mark.slow
@pytest.mark.parametrize("refused", [no_processes, no_sockets, no_memory])
@process_daily
def test_a_child_that_the_system_refuses_is_asked_for_again_and_its_neighbours_work_on(
    shift, refused
):
    worker = shift.worker(supervisor=refused, concurrency=2, children=_both(shift))
    job, busy = in_a_unit(shift, worker)
    (idle,) = set(worker.children) - {busy}
    os.kill(idle, signal.SIGKILL)
    wait_until(lambda: len(worker.said("child_missing")) == _REFUSALS, "the refusals", 20.0)
    assert "Resource temporarily unavailable; next try in " in worker.said("child_missing")[0]
    wait_until(lambda: len(worker.said("registered")) == 3, "its successor", 20.0)
    assert len(set(worker.children) - {idle}) == 2
    shift.let()
    assert job.result() is None
    assert [note.what for note in shift.book.notes()] == ["begun", "effect"]


def test_a_child_that_is_refused_leaves_nothing_open(monkeypatch):
    def refusing(*_):
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(os, "fork", refusing)
    birth = Birth(lambda: None, WorkerConfig(), "post", 0)
    with contextlib.closing(Locks()) as locks:
        before = _descriptors()
        with pytest.raises(BlockingIOError) as refused:
            Charge(birth, 1, locks, lambda: None)
        assert _descriptors() == before
    assert refused.traceback  # kept until here, and with it what was half made


def _descriptors():
    return sorted(Path("/proc/self/fd").iterdir())


# It cannot go on.


def breaks_at_the_gate():
    """In the supervisor: a bug, as soon as the test opens that gate."""
    gate, original = Path(os.environ["BREAKS"]), renewals.Renewals.beat

    def beat(self):
        if gate.exists():
            raise ZeroDivisionError("a bug")
        original(self)

    renewals.Renewals.beat = beat


@pytest.mark.slow
@under_both_runners
def test_a_bug_of_the_supervisors_ends_nobody_inside_a_unit(shift, monkeypatch):
    monkeypatch.setenv("BREAKS", str(shift.folder / "bug"))
    worker = shift.worker(supervisor=breaks_at_the_gate, concurrency=2, children=_both(shift))
    job, busy = in_a_unit(shift, worker)
    assert len(worker.children) == 2
    shift.let("bug")
    wait_until(lambda: worker.said("the supervisor cannot go on", "a bug"), "the bug")
    wait_until(lambda: worker.children == [busy], "the idle child to leave")
    assert worker.alive
    assert not shift.book.notes("effect")
    shift.let()
    assert worker.wait(10.0) == 1
    assert [note.what for note in shift.book.notes()] == ["begun", "effect"]
    assert not worker.said("child_killed")
    assert "ZeroDivisionError: a bug" in worker.errors
    assert job.state() == "ready"
    assert shift.queue.stats().workers == 0


def hasty():
    """In the supervisor: what stops is killed soon, if it may be."""
    crew._LEAVE_S = 0.2


def breaks_hastily():
    hasty()
    breaks_at_the_gate()


@pytest.mark.slow
@under_both_runners
def test_a_child_that_does_not_leave_is_killed_all_the_same(shift, monkeypatch):
    monkeypatch.setenv("BREAKS", str(shift.folder / "bug"))
    worker = shift.worker(supervisor=breaks_hastily, concurrency=1)
    job = shift.tasks.stubborn.enqueue()
    shift.noted("start")
    shift.queue.pause()
    shift.let("bug")
    assert worker.wait(10.0) == 1
    assert worker.said("child_killed")
    assert job.state() == "ready"  # its lease has not lapsed: it was given back


# A child cannot go on, and says so.


def cannot_go_on(book):
    """In a child: what it needs is away for good, once the test opens that gate."""
    original = Child.run

    async def run(self):
        task = asyncio.create_task(original(self))
        await aat_gate(book, "fault")
        assert not task.done()
        raise StoreUnavailable("a fault")

    Child.run = run


@pytest.mark.parametrize("runner", ["async"])
def test_what_a_child_holds_that_cannot_go_on_is_given_back_at_once(shift, valkey_server):
    """Its lease is not waited for, and it is no crash."""
    worker = shift.worker(prepare=cannot_go_on, concurrency=1)
    job = shift.tasks.wait.enqueue()
    shift.noted("start")
    shift.queue.pause()
    shift.let("fault")
    wait_until(lambda: worker.said("child_ended", "a fault"), "the fault to be heard")
    wait_until(lambda: job.state() == "ready", "the job to be given back")
    with valkey_server.client() as client:
        assert client.hget(keys.key(shift.queue.name, "job", job.id), "crashes") is None
    assert shift.queue.stats().suspects == 0


# It has nothing to do but wait.


def _worked_s(pid):
    """The processor's time that a process has had (s)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@process_daily
def test_it_sleeps_while_a_unit_outlasts_the_stop(shift):
    worker = shift.worker(supervisor=hasty, concurrency=1, grace=0.0)
    in_a_unit(shift, worker)
    told = time.monotonic()
    worker.signal_group(signal.SIGTERM)
    wait_until(lambda: time.monotonic() > told + 0.5, "the time to leave to be over")
    before, since = _worked_s(worker.pid), time.monotonic()
    wait_until(lambda: time.monotonic() > since + 1.0, "a second of waiting")
    assert _worked_s(worker.pid) - before < 0.3
    shift.let()
    assert worker.wait(10.0) == 0
    assert shift.book.notes("effect")


# It does not begin, and leaves nothing open.

REFUSED = """
import os, sys, threading
from concurrent.futures import ThreadPoolExecutor
from deadq import DeadqError, Queue, Worker
from deadq.runtime.settings import WorkerConfig
from deadq.runtime.supervisor.spawn import LoadFailed
from deadq.runtime.supervisor.supervisor import Supervisor

queue = Queue("refused", capacity=1)

@queue.task(within=1.0)
def task() -> None: ...

def load():
    raise LoadFailed("half written")

def in_a_thread():
    with ThreadPoolExecutor(1) as pool:
        pool.submit(Worker(queue).run).result()

def broken():
    Supervisor([(load, WorkerConfig())]).run()

before = len(os.listdir("/proc/self/fd"))
try:
    {"thread": in_a_thread, "load": broken}[sys.argv[1]]()
except DeadqError as error:
    print(type(error).__name__, len(os.listdir("/proc/self/fd")) - before)
"""


@pytest.mark.parametrize(
    ("how", "said"), [("thread", "DeadqError 0\n"), ("load", "LoadFailed 0\n")]
)
def test_a_worker_that_is_refused_leaves_nothing_open(how, said, tmp_path):
    done = subprocess.run(
        [sys.executable, "-W", "always::ResourceWarning", "-c", REFUSED, how],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.stdout == said
    assert "ResourceWarning" not in done.stderr
