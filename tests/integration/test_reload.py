"""A worker that is started anew when its source changes: real processes, real edits."""

import contextlib
import os
import pty
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from deadq import Queue
from deadq.cli.faults import Fault
from deadq.cli.reload import _is_source, run_reloading
from tests.commands import COMMAND, environment, traces_of
from tests.servers import wait_until

JOBS = """
import asyncio
from deadq import Queue
from shop.prices import price

queue = Queue("reloaded", capacity=5)

@queue.task(within=30.0)
async def ask() -> int:
    return price()

@queue.task(within=30.0)
async def slow(seconds: float) -> int:
    await asyncio.sleep(seconds)
    return price()

@queue.task(within=30.0)
async def reach(least: int) -> int:
    while price() < least:
        await asyncio.sleep(0.05)
    return price()
"""
PRICES = "def price():\n    return {}\n"
RELOADING = """
    import sys
    from pathlib import Path
    from deadq.cli import reload
    reload._LEAVE_S = {leave}
    command = ["work", "shop.jobs:queue", "--grace", "{grace}", "-v"]
    sys.exit(reload.run_reloading(command, Path("."), {grace}))
"""
SERVING = " INFO registered: "
"""From then on a worker does not simply die of a signal."""
STOPPING = " INFO stopping: "


class Reloading:
    """The reloading process, in a folder of sources that the test edits."""

    def __init__(self, folder, url):
        self.folder = folder
        self.url = url
        (folder / "shop").mkdir(parents=True)
        self.edit("shop/__init__.py", "")
        self.edit("shop/jobs.py", JOBS)
        self.edit("shop/prices.py", PRICES.format(1))
        self.process = None
        self.said = []

    def edit(self, name, content):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)

    def program(self, grace, leave):
        return [sys.executable, "-c", textwrap.dedent(RELOADING.format(grace=grace, leave=leave))]

    def start(self, *command, grace=10.0, leave=10.0, until=SERVING):
        self.process = subprocess.Popen(
            command or self.program(grace, leave),
            cwd=self.folder,
            env=environment(DEADQ_URL=self.url),
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.hear(until)

    def hear(self, text):
        """Its next line that holds ``text``."""
        for line in self.process.stderr:
            self.said.append(line)
            if text in line:
                return line
        raise AssertionError(f"it ended without {text!r}:\n{''.join(self.said)}")

    def worker(self):
        (pid,) = children_of(self.process.pid)
        return pid

    def ends(self, *numbers):
        """Send it signals; its exit code, when neither it nor a worker is left."""
        for number in numbers:
            self.process.send_signal(number)
        code = self.process.wait(30)
        assert traces_of(self.folder) == []
        self.said += self.process.stderr.readlines()
        return code

    def close(self):
        if self.process is not None:
            for pid in [*children_of(self.process.pid), self.process.pid]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.process.wait()
            self.process.stderr.close()


def children_of(pid):
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, parent = stat.read_text(errors="replace").rpartition(")")[2].split()[:2]
            if int(parent) == pid and state != "Z":
                found.append(int(stat.parent.name))
    return found


@pytest.fixture
def reloading(short_folder, valkey_server):
    with valkey_server.client() as client:
        client.flushall()
    made = Reloading(short_folder / "code", valkey_server.url)
    yield made
    made.close()


@pytest.fixture
def tasks(valkey_server):
    """The test's own view of the same queue."""
    queue = Queue("reloaded", capacity=5, url=valkey_server.url)

    @queue.task(within=30.0)
    async def ask() -> int: ...

    @queue.task(within=30.0)
    async def slow(seconds: float) -> int: ...

    @queue.task(within=30.0)
    async def reach(least: int) -> int: ...

    yield queue.tasks
    queue.close()


def running(task, *args):
    job = task.enqueue(*args)
    wait_until(lambda: job.state() == "running", "the job to run")
    return job


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_edit_is_seen_and_a_signal_leaves_nothing_behind(number, reloading, tasks):
    reloading.start()
    assert tasks["ask"].call() == 1
    first = reloading.worker()
    for price in (2, 3):  # the same size, and perhaps within the same second
        reloading.edit("shop/prices.py", PRICES.format(price))
        reloading.hear("deadq: shop/prices.py has changed; starting the worker anew")
        reloading.hear(SERVING)
        assert tasks["ask"].call() == price
    assert reloading.worker() != first
    assert reloading.ends(number) == 0
    assert "Traceback" not in "".join(reloading.said)
    assert not list(reloading.folder.rglob("*.pyc"))


def test_the_option_reloads_a_worker_with_all_its_other_options(reloading, tasks):
    options = ("--grace=10", "--reload", "--concurrency", "3", "-v")
    reloading.start(*COMMAND, "work", "shop.jobs:queue", *options)
    reloading.edit("shop/prices.py", PRICES.format(2))
    reloading.hear("deadq: shop/prices.py has changed; starting the worker anew")
    line = f"working on queue reloaded (ask, reach, slow) on {reloading.url}, 3 at a time"
    reloading.hear(line)
    assert tasks["ask"].call() == 2
    assert reloading.ends(signal.SIGINT) == 0


def test_what_runs_at_an_edit_may_end(reloading, tasks):
    reloading.start()
    job = running(tasks["slow"], 0.7)
    reloading.edit("shop/prices.py", PRICES.format(2))
    reloading.hear(SERVING)
    assert job.result() == 1  # in the worker that began it
    assert tasks["ask"].call() == 2
    assert reloading.ends(signal.SIGINT) == 0


def test_what_runs_longer_than_the_grace_is_done_by_the_next_worker(reloading, tasks):
    reloading.start(grace=0.1)
    job = running(tasks["reach"], 2)  # never, in the worker that begins it
    reloading.edit("shop/prices.py", PRICES.format(2))
    assert job.result() == 2
    assert reloading.ends(signal.SIGINT) == 0


def test_a_broken_edit_is_said_and_a_good_one_repairs_it(reloading, tasks):
    reloading.start()
    reloading.edit("shop/prices.py", "def price(:\n")
    reloading.hear("deadq: importing shop.jobs failed: SyntaxError: invalid syntax")
    line = reloading.hear("the worker has failed (exit code 1); waiting for a Python file in ")
    assert line.count("\n") == 1
    assert children_of(reloading.process.pid) == []
    reloading.edit("shop/prices.py", PRICES.format(2))
    reloading.hear(SERVING)
    assert tasks["ask"].call() == 2
    reloading.edit("shop/prices.py", "1 / 0\n")
    reloading.hear("the worker has failed (exit code 1)")
    assert reloading.ends(signal.SIGINT) == 1


def test_a_worker_that_is_killed_is_waited_for_too(reloading, tasks):
    reloading.start()
    os.kill(reloading.worker(), signal.SIGKILL)
    reloading.hear("the worker has failed (exit code 137)")
    reloading.edit("shop/prices.py", PRICES.format(2))
    reloading.hear(SERVING)
    assert tasks["ask"].call() == 2
    assert reloading.ends(signal.SIGTERM) == 0


def test_a_worker_that_somebody_stops_ends_it_all(reloading):
    reloading.start()
    os.kill(reloading.worker(), signal.SIGTERM)
    assert reloading.ends() == 0


def test_also_one_that_has_not_come_up_yet(reloading):
    reloading.edit(
        "shop/prices.py", "import sys, time\nsys.stderr.write('there\\n')\ntime.sleep(60)"
    )
    reloading.start(until="there")
    os.kill(reloading.worker(), signal.SIGTERM)
    assert reloading.ends() in {0, 143}


def test_one_that_has_not_come_up_yet_is_stopped_at_once(reloading):
    reloading.edit(
        "shop/prices.py", "import sys, time\nsys.stderr.write('there\\n')\ntime.sleep(60)"
    )
    reloading.start(until="there")
    assert reloading.ends(signal.SIGINT) in {0, 143}


def test_a_worker_that_does_not_leave_is_killed(reloading):
    reloading.start(grace=0.1, leave=0.2)
    first = reloading.worker()
    os.kill(first, signal.SIGSTOP)
    reloading.edit("shop/prices.py", PRICES.format(2))
    reloading.hear(SERVING)
    assert first != reloading.worker()
    os.kill(reloading.worker(), signal.SIGSTOP)
    assert reloading.ends(signal.SIGINT) == 137


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells children")
def test_even_sigkill_leaves_no_worker_behind(reloading):
    reloading.start()
    reloading.process.kill()
    wait_until(lambda: traces_of(reloading.folder) == [], "the worker to leave")


def test_a_second_signal_is_passed_on(reloading, tasks):
    """It hastens the worker, whose grace would be longer than the test."""
    reloading.start(grace=1000.0)
    job = running(tasks["slow"], 25.0)
    reloading.process.send_signal(signal.SIGTERM)
    reloading.hear(STOPPING)
    assert job.state() == "running"
    assert reloading.ends(signal.SIGTERM) == 0
    assert job.state() == "ready"
    job.cancel()


def test_what_is_not_the_user_s_source_does_not_count(reloading):
    reloading.start()
    reloading.edit("env/pyvenv.cfg", "home = /usr/bin")
    for name in ("a.txt", ".git/a.py", "__pycache__/a.py", "env/lib/a.py", "shop/a.pyc"):
        reloading.edit(name, "x")
    reloading.edit("shop/prices.py", PRICES.format(2))
    reloading.hear("has changed")
    reloading.hear(SERVING)
    assert reloading.ends(signal.SIGINT) == 0
    changed = [line for line in reloading.said if "has changed" in line]
    assert changed == ["deadq: shop/prices.py has changed; starting the worker anew\n"]


@pytest.mark.parametrize("hurry", [False, True])
def test_ctrl_c_in_a_terminal_reaches_the_worker_once(hurry, reloading, tasks):
    """The terminal sends it to both: passed on, it would be the second one, which hastens."""
    command = reloading.program(1000.0, 10.0)
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(reloading.folder)
        os.execve(command[0], command, environment(DEADQ_URL=reloading.url))
    try:
        with os.fdopen(terminal, "rb", buffering=0) as screen:
            read_until(screen, SERVING.encode())
            job = running(tasks["slow"], 25.0 if hurry else 1.0)
            os.write(terminal, b"\x03")
            if hurry:
                read_until(screen, STOPPING.encode())
                os.write(terminal, b"\x03")
            _, status = os.waitpid(pid, 0)
            pid = 0
    finally:
        if pid:
            os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert traces_of(reloading.folder) == []
    if hurry:
        assert job.state() == "ready"
        job.cancel()
    else:
        assert job.result() == 1


def read_until(screen, text):
    said = b""
    while text not in said:
        more = screen.read(65_536)
        assert more, said
        said += more


# What cannot be.


def test_without_watchfiles_it_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    with pytest.raises(Fault, match=r"--reload needs watchfiles: pip install 'deadq\[cli\]'"):
        run_reloading(["work", "x:y"], tmp_path, 1.0)


@pytest.mark.parametrize("place", ["nowhere", "file"])
def test_a_folder_that_is_none_is_refused(place, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(Fault, match=f"there is no folder .*{place} to watch"):
        run_reloading(["work", "x:y"], tmp_path / place, 1.0)


def test_an_odd_grace_is_refused(tmp_path):
    with pytest.raises(Fault, match="grace must be finite"):
        run_reloading(["work", "x:y"], tmp_path, float("nan"))


def test_signals_are_as_before_afterwards(tmp_path):
    before = [signal.getsignal(number) for number in (2, 15, 1)]
    with pytest.raises(Fault):
        run_reloading(["work", "x:y"], tmp_path / "nowhere", 1.0)
    assert [signal.getsignal(number) for number in (2, 15, 1)] == before


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("a.py", True),
        ("shop/deep/a.py", True),
        (".a.py", True),
        ("a.pyc", False),
        ("a.py.swp", False),
        ("py", False),
        ("../a.py", False),
        (".tox/a.py", False),
        ("shop/.hidden/deep/a.py", False),
        ("shop/__pycache__/a.py", False),
        ("env/lib/python3/a.py", False),
        ("environment/a.py", True),
    ],
)
def test_what_counts_as_source(name, counts, tmp_path):
    top = tmp_path / ".work"  # what is above the folder does not matter
    (top / "env").mkdir(parents=True)
    (top / "env" / "pyvenv.cfg").write_text("")
    assert _is_source(Path(os.path.normpath(top / name)), top) is counts
