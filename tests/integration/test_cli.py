"""The deadq command as a user meets it: real processes, their output and exit codes."""

import json
import signal
import subprocess
import sys

import pytest

import deadq
from deadq import Queue
from tests.commands import deadq_command, environment, started

JOBS = """
import asyncio
from deadq import Queue

checkout = Queue("checkout", capacity=5)
empty = Queue("empty", capacity=5)
number = 3

@checkout.task(within=5.0)
async def add(a: int, b: int) -> int:
    return a + b

@checkout.task(within=5.0)
async def slow(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "done"
"""


@pytest.fixture
def shop(short_folder):
    """A folder with a package ``shop``, and some modules that cannot be used."""
    folder = short_folder / "code"
    (folder / "shop").mkdir(parents=True)
    (folder / "shop" / "__init__.py").write_text("")
    (folder / "shop" / "jobs.py").write_text(JOBS)
    (folder / "needs.py").write_text("import json\nimport nowhere_to_be_found\n")
    (folder / "odd.py").write_text("def f(:\n")
    (folder / "fails.py").write_text("x = 1\n1 / 0\n")
    return folder


def here():
    """The test's own view of the same queue."""
    queue = Queue("checkout", capacity=5)

    @queue.task(within=5.0)
    async def add(a: int, b: int) -> int: ...

    @queue.task(within=5.0)
    async def slow(seconds: float) -> str: ...

    return queue, add, slow


# Help, versions, wrong requests.


def test_help_lists_the_commands(shop):
    done = deadq_command("--help", cwd=shop)
    assert done.returncode == 0
    listed = done.stdout.partition("Commands:")[2].split("\n")
    assert [line.split()[0] for line in listed if line.strip()] == [
        "work",
        "health",
        "demo",
        "completion",
        "server",
        "stats",
        "check",
        "jobs",
        "show",
        "cancel",
        "dead",
        "requeue",
        "pause",
        "resume",
        "drain",
    ]
    assert not any(line.endswith("...") for line in listed)


@pytest.mark.parametrize("command", [[], ["server"]])
def test_no_command_shows_the_help_and_fails(command, shop):
    done = deadq_command(*command, cwd=shop)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Commands:" in done.stderr


def test_version(shop):
    done = deadq_command("--version", cwd=shop)
    assert (done.returncode, done.stdout) == (0, f"deadq {deadq.__version__}\n")


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["frobnicate"], "No such command 'frobnicate'. (see deadq --help)"),
        (["--frobnicate"], "No such option: --frobnicate (see deadq --help)"),
        (["work"], "Missing argument 'MODULE:QUEUE'. (see deadq work --help)"),
        (["work", "nope:x"], "no module `nope` in {cwd} or on the Python path; "),
        (["work", "shop.nope:x"], "no module `shop.nope` in {cwd} or on the Python path; "),
        (
            ["work", "shop.jobs:shop"],
            "no queue `shop` in module shop.jobs; it has: shop.jobs:checkout, shop.jobs:empty",
        ),
        (["work", "shop:shop"], "no queue `shop` in module shop; it has none; "),
        (["work", "shop.jobs:number"], "`number` in module shop.jobs is no queue but a int; "),
        (
            ["work", "shop.jobs"],
            "no queue was named in module shop.jobs; it has: shop.jobs:checkout, ",
        ),
        (["work", "checkout"], "no module `checkout` in {cwd} or on the Python path; a queue is "),
        (["work", "shop/jobs.py:checkout"], "give the module's name: shop.jobs:checkout"),
        (["work", ":checkout"], "no module was named; write MODULE:QUEUE"),
        (["work", "shop.jobs:empty"], "queue 'empty' has no tasks; "),
        (["work", "shop.jobs:checkout", "--concurrency", "0"], "concurrency must lie between 1 "),
        (["work", "shop.jobs:checkout", "--grace", "nan"], "grace must be finite, not nan"),
        (["work", "shop.jobs:checkout", "--url", "http://x"], "cannot read the server's URL"),
        (
            ["stats", "shop.jobs:nix"],
            "no queue `nix` in module shop.jobs; it has: shop.jobs:checkout, ",
        ),
        (["stats", ""], "queue name must not be empty"),
        (["health"], "Missing argument 'FILE|[HOST:]PORT'. (see deadq health --help)"),
        (["health", "x", "--max-age", "0"], "max-age must be more than 0 seconds, not 0.0"),
        (["demo", "--seconds", "0"], "Invalid value for '--seconds': "),
        (["server", "start", "x"], "(see deadq server start --help)"),
        (["server", "begin"], "No such command 'begin'. (see deadq server --help)"),
        (["demo", "--seconds", "inf"], "Invalid value for '--seconds': "),
        (["demo", "--seconds", "nan"], "Invalid value for '--seconds': "),
    ],
)
def test_a_wrong_request_is_one_line_and_exit_2(args, says, shop):
    done = deadq_command(*args, cwd=shop)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("deadq: ")
    assert says.format(cwd=shop) in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_module_that_one_of_pythons_own_hides_is_told_of(shop):
    (shop / "queue.py").write_text(JOBS)
    done = deadq_command("work", "queue:checkout", cwd=shop, PYTHONSAFEPATH="1")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("deadq: no queue `checkout` in module queue; it has none; ")
    assert f"so give the one in {shop} another name" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("module", "says"),
    [
        ("needs", "No module named 'nowhere_to_be_found' (needs.py, line 2)"),
        ("odd", "SyntaxError: invalid syntax (odd.py, line 1)"),
        ("fails", "ZeroDivisionError: division by zero (fails.py, line 2)"),
    ],
)
def test_a_module_that_breaks_is_one_line_and_exit_1(module, says, shop):
    done = deadq_command("work", f"{module}:queue", cwd=shop)
    assert done.returncode == 1
    assert done.stderr.startswith(f"deadq: importing {module} failed: ")
    assert says in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_server_out_of_reach_is_one_line_and_exit_1(shop):
    done = deadq_command("stats", "checkout", "--url", "redis://127.0.0.1:1", cwd=shop)
    assert done.returncode == 1
    assert done.stderr.startswith("deadq: the server cannot be reached")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("missing", "args", "remedy"),
    [
        ("typer", ["--version"], "pip install 'deadq[cli]'"),
        ("rich", ["stats", "x"], "pip install 'deadq[cli]'"),
        ("starlette", ["demo"], "pip install 'deadq[server,cli,web]'"),
        ("uvicorn", ["demo"], "pip install 'deadq[server,cli,web]'"),
        ("httpx", ["demo"], "pip install 'deadq[server,cli,web]'"),
    ],
)
def test_a_missing_extra_is_named(missing, args, remedy, shop):
    code = f"import sys; sys.modules[{missing!r}] = None; from deadq.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, *args],
        cwd=shop,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 2
    assert f"needs {missing}: {remedy}" in done.stderr
    assert done.stderr.count("\n") == 1


# Ctrl-C while the command is being loaded.

INTERRUPTED_AT = """
import os, signal, sys

class AtImport:
    def find_spec(self, name, *_):
        if name == "{module}":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, AtImport())
signal.signal(signal.SIGINT, {handler})
from deadq_command import main
main()
"""


@pytest.mark.parametrize(
    ("module", "code", "says"),
    [
        ("deadq", -signal.SIGINT, ""),
        ("redis", -signal.SIGINT, ""),
        ("deadq.cli", -signal.SIGINT, ""),
        ("typer", -signal.SIGINT, ""),
        ("deadq.cli.jobs", 130, "deadq: interrupted\n"),
    ],
)
def test_an_interrupt_before_the_command_has_begun_is_quiet(module, code, says, shop):
    done = loading(shop, module, "signal.default_int_handler")
    assert (done.returncode, done.stdout, done.stderr) == (code, "", says)


def test_an_interrupt_that_is_ignored_stays_so(shop):
    done = loading(shop, "redis", "signal.SIG_IGN")
    assert done.returncode == 1
    assert done.stderr.startswith("deadq: the server cannot be reached")


def loading(folder, module, handler):
    """A command that hears a Ctrl-C when that module is about to be imported."""
    source = INTERRUPTED_AT.format(module=module, handler=handler)
    return subprocess.run(
        [sys.executable, "-c", source, "jobs", "checkout", "--url", "redis://127.0.0.1:1"],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


# Working.


def test_a_worker_works_and_stops_gracefully(shop, valkey_server, monkeypatch):
    monkeypatch.setenv("DEADQ_URL", valkey_server.url)
    queue, add, slow = here()
    with started("work", "shop.jobs:checkout", "--concurrency=2", "-v", cwd=shop) as worker:
        try:
            assert worker.stderr.readline() == (
                f"deadq: working on queue checkout (add, slow) on {valkey_server.url}, "
                "2 at a time; Ctrl-C stops\n"
            )
            assert add.options(key="one").call(1, 2) == 3
            running = slow.enqueue(0.5)
            while running.state() != "running":
                pass
            worker.send_signal(signal.SIGTERM)
            assert running.result() == "done"
            _, said = worker.communicate(timeout=10)
        finally:
            worker.kill()
            queue.close()
    assert worker.returncode == 0
    for word in ("registered", "stopping", "stopped"):
        assert f" INFO {word}: child " in said
    assert "Traceback" not in said


def test_a_worker_ends_at_once_when_its_grace_is_none(shop, valkey_server, monkeypatch):
    monkeypatch.setenv("DEADQ_URL", valkey_server.url)
    queue, _, slow = here()
    with started("work", "shop.jobs:checkout", "--grace=0", cwd=shop) as worker:
        try:
            assert worker.stderr.readline().startswith("deadq: working on queue checkout")
            running = slow.enqueue(60.0)
            while running.state() != "running":
                pass
            worker.send_signal(signal.SIGINT)
            _, said = worker.communicate(timeout=10)
            assert running.state() == "ready"
        finally:
            worker.kill()
            running.cancel()
            queue.close()
    assert (worker.returncode, said) == (0, "")


def test_the_url_on_the_command_line_wins(shop, valkey_server):
    queue = Queue("checkout", capacity=5, url=valkey_server.url)

    @queue.task(within=5.0)
    async def add(a: int, b: int) -> int: ...

    command = ("work", "shop.jobs:checkout", "--url", valkey_server.url)
    with started(*command, cwd=shop, DEADQ_URL="redis://127.0.0.1:1") as worker:
        try:
            assert worker.stderr.readline().startswith("deadq: working on queue checkout")
            assert add.call(2, 2) == 4
        finally:
            worker.terminate()
            assert worker.wait(10) == 0
            queue.close()


# Looking.


@pytest.mark.parametrize("target", ["checkout", "shop.jobs:checkout"])
def test_stats_are_printed(target, shop, valkey_server, monkeypatch):
    with valkey_server.client() as client:
        client.flushall()
    monkeypatch.setenv("DEADQ_URL", valkey_server.url)
    queue, add, _ = here()
    add.enqueue_many([(1, 1), (2, 2)])
    queue.close()

    for_people = deadq_command("stats", target, cwd=shop)
    assert (for_people.returncode, for_people.stderr) == (0, "")
    title, *lines = for_people.stdout.splitlines()
    rows = dict(line.split() for line in lines)
    assert title == f"queue checkout on {valkey_server.url}"
    assert (rows["ready"], rows["admitted"]) == ("2", "2")

    for_programs = deadq_command("stats", target, "--json", cwd=shop)
    counted = json.loads(for_programs.stdout)
    assert (counted["queue"], counted["ready"]) == ("checkout", 2)
    assert counted["counters"]["admitted"] == 2


def test_the_embedded_server_is_started_looked_at_and_stopped(project):
    def server(*args: str) -> subprocess.CompletedProcess[str]:
        return deadq_command("server", *args, cwd=project.folder, DEADQ_DATA_DIR=str(project.data))

    none = server("status")
    assert none.returncode == 1
    assert f"no server runs for {project.data}; 'deadq server start' does it" in none.stdout
    assert json.loads(server("status", "--json").stdout)["running"] is False

    assert "started a private" in server("start").stdout
    assert "runs at unix://" in server("start").stdout
    assert json.loads(server("start", "--json").stdout) == {
        "url": project.status().url,
        "started": False,
    }
    there = server("status")
    assert there.returncode == 0
    assert f"(pid {project.pid()}) serves {project.data} at unix://" in there.stdout
    assert json.loads(server("status", "--json").stdout)["pid"] == project.pid()

    assert server("stop").stdout == "deadq: stopped\n"
    assert not project.status().running
    again = server("stop")
    assert (again.returncode, again.stdout) == (0, "deadq: no server was running\n")
    assert json.loads(server("stop", "--json").stdout) == {"stopped": False}


def test_without_any_url_the_embedded_server_serves(shop, project):
    settings = {"DEADQ_DATA_DIR": str(project.data)}
    with started("work", "shop.jobs:checkout", cwd=shop, **settings) as worker:
        try:
            assert "deadq: started a private" in worker.stderr.readline()
            assert f" on the private server in {project.data}, " in worker.stderr.readline()
            done = deadq_command("stats", "checkout", "--json", cwd=shop, **settings)
            assert json.loads(done.stdout)["queue"] == "checkout"
        finally:
            worker.terminate()
            assert worker.wait(10) == 0
    assert project.status().running
