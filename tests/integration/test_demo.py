"""``deadq demo`` as a user runs it: what it shows, and what it leaves behind."""

import asyncio
import contextlib
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import httpx
import pytest

from deadq.demo import load, main
from deadq.demo.scenes import SCENES
from deadq.demo.signals import signals_interrupt
from deadq.demo.stage import Stage, staged
from tests.commands import COMMAND, ROOT, deadq_command, environment, started, traces_of
from tests.forked import Program

NAMES = [scene.name for scene in SCENES]


@pytest.fixture
def stage(short_folder):
    """A folder to run the demo in, and one for its temporary files, to be left empty."""
    (short_folder / "here").mkdir()
    temporary = short_folder / "tmp"
    temporary.mkdir()
    yield short_folder / "here", temporary
    assert traces_of(temporary) == []
    assert list(temporary.iterdir()) == []
    assert list((short_folder / "here").iterdir()) == []


def demo(stage, *args, **settings):
    here, temporary = stage
    # a project's own server is none of the demo's business
    settings = {"TMPDIR": str(temporary), "DEADQ_URL": "redis://127.0.0.1:1", **settings}
    return deadq_command("demo", *args, cwd=here, timeout=120, **settings)


def unhurried(stage, *args, well=lambda _: True):
    """One run in which the promises held, and all went ``well`` besides; other programs' work may
    spoil a run or two."""
    for _ in range(3):
        done = demo(stage, *args)
        assert done.stderr == ""
        if done.returncode == 0 and well(done.stdout):
            return done.stdout
    pytest.fail(done.stdout)


def overloaded(said):
    """The orders came as fast as they were meant to, and so were more than could be served."""
    phase = json.loads(said)["phases"]["overload"]
    return sum(phase["refused"].values()) >= 0.1 * phase["offered"]


def test_the_demo_shows_what_it_promises(stage):
    shown = json.loads(unhurried(stage, "--json", "--seconds=8", well=overloaded))
    assert shown["good"]
    assert list(shown["phases"]) == NAMES
    for phase in shown["phases"].values():
        refused = sum(phase["refused"].values())
        assert phase["offered"] >= phase["accepted"] + refused
        assert phase["accepted"] == phase["on_time"] + phase["late"]
        assert phase["duplicate_effects"] == 0
        assert phase["orphans"] == phase["runs"] - phase["on_time"] >= 0
    overload = shown["phases"]["overload"]
    assert overload["seen_s"] >= 1.0
    assert shown["phases"]["calm"]["recovered_s"] is None
    assert "address" not in shown["about"]


@pytest.mark.slow
@pytest.mark.thorough
def test_the_whole_demo_speaks_to_people(stage):
    began = time.monotonic()
    said = unhurried(stage)
    assert time.monotonic() - began < 3 * 90
    for row in ("offered", "accepted", "refused: ", "booked on time", "orphans", "recovered"):
        assert f"\n  {row}" in said
    assert re.search(r"\n  duplicate effects( +0){5} *\n", said)
    for told in (
        "worker 1 is killed with -9",
        "the machine of worker 2 stands still",
        "worker 1 is started again",
        "worker 2 goes on",
        "the bank takes 5 times as long",
        "the bank is as fast as ever",
    ):
        assert f"\n  {told}" in said
    assert said.count("\n  yes  ") == 8
    _, table = said.split("recovery: ")
    assert all(len(line) <= 80 for line in table.split("\n")[1:])


FENCES_OFF = {
    "bank": ("demo/bank.py", r"if fence < self\._highest\.get\(payment, 0\):", "if False:"),
    "queue": (
        "store/lua/lib/finishing.lua",
        r"elseif (r\.fence ~= fence and r\.fence2 ~= fence|not run_of\(r, child, fence\)) then",
        "elseif false then",
    ),
}
"""Who no longer looks at fences: file, what is looked for there, and what it becomes."""


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.parametrize("who", FENCES_OFF)
def test_without_fences_a_worker_that_comes_back_does_harm_and_the_demo_says_so(
    who, stage, tmp_path
):
    name, pattern, stead = FENCES_OFF[who]
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "deadq", tmp_path / "deadq", ignore=ignored)
    file = tmp_path / "deadq" / name
    planted, count = re.subn(pattern, stead, file.read_text())
    assert count == 2
    file.write_text(planted)

    done = demo(stage, "--json", "--seconds=6", PYTHONPATH=str(tmp_path))
    shown = json.loads(done.stdout)
    assert done.returncode == 1
    assert not shown["good"]
    broken = {promise for promise, held in shown["checks"].items() if not held}
    if who == "bank":
        assert "every order was paid once at most" in broken
        assert shown["phases"]["killed"]["duplicate_effects"] > 0
    else:
        assert "every accepted order had exactly one outcome" in broken


# What stays, and what does not.


def read_until(process, beginning):
    """Read lines until one begins so; a demo that ends before says why."""
    while not (line := process.stdout.readline()).startswith(beginning):
        assert line, process.communicate(timeout=5)
    return line


@pytest.mark.slow
@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("moment", ["deadq demo: ", "calm: "])
def test_an_interrupted_demo_leaves_nothing_behind(sign, moment, stage):
    here, temporary = stage
    with started("demo", cwd=here, TMPDIR=str(temporary)) as process:
        try:
            read_until(process, moment)
            process.send_signal(sign)
            _, said = process.communicate(timeout=20)
        finally:
            process.kill()
    # Python itself turns an interrupt that fell into an exec() into the signal's own exit
    assert process.returncode in {130, -signal.SIGINT}
    assert said.strip() == "deadq: interrupted"


def test_modules_of_the_folder_it_is_run_in_are_not_taken_for_pythons_own(stage):
    here, temporary = stage
    own = here / "queue.py"
    own.write_text("raise SystemExit('not this one')")
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "deadq.cli", "demo"],
        cwd=here,
        env=environment(TMPDIR=str(temporary)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        read_until(process, "calm: ")
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
    finally:
        process.kill()
    own.unlink()
    assert said.strip() == "deadq: interrupted"


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["  worker 1 is killed", "  the machine of worker 2"])
def test_a_demo_interrupted_in_the_midst_of_trouble_leaves_nothing_behind(moment, stage):
    here, temporary = stage
    with started("demo", "--seconds=2", cwd=here, TMPDIR=str(temporary)) as process:
        try:
            read_until(process, moment)
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=20)
        finally:
            process.kill()
    assert process.returncode == 130
    assert said.strip() == "deadq: interrupted"


@contextlib.contextmanager
def in_terminal(stage, *args):
    """The demo on a terminal of its own; gives the process, and its end of the terminal."""
    here, temporary = stage
    ours, its = pty.openpty()
    settings = environment(TMPDIR=str(temporary), TERM="xterm-256color", COLUMNS="80", LINES="24")
    process = Program(
        *(COMMAND[-1], "demo", *args),
        cwd=here,
        env=settings,
        stdin=its,
        stdout=its,
        stderr=its,
        on_terminal=True,
    )
    os.close(its)
    try:
        yield process, ours
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def seen(terminal, what=None):
    """All that is written to a terminal, until it says so; None: to its end."""
    said = b""
    with contextlib.suppress(OSError):  # it was closed at the other end
        while what is None or what.encode() not in said:
            said += os.read(terminal, 1 << 16)
    return said.decode(errors="replace")


@pytest.mark.parametrize("moment", ["queue      starting", " slots alive"])
def test_in_a_terminal_it_is_drawn_and_an_interrupt_gives_the_terminal_back(moment, stage):
    with in_terminal(stage) as (process, terminal):
        drawn = seen(terminal, moment)
        process.send_signal(signal.SIGINT)
        rest = seen(terminal)
        assert process.wait(20) in {130, -signal.SIGINT}
    assert "\x1b[?1049h" in drawn  # the other screen
    assert "\x1b[?1049l" in rest
    assert "\x1b[?25h" in rest  # the cursor
    assert rest.rstrip().endswith("deadq: interrupted")


def stays_up(process):
    """Wait for a served demo to say where it is: the address of its app, and its server's URL."""
    order = read_until(process, "  curl")
    stats = read_until(process, "  deadq stats demo --url ")
    return re.search(r"http://[\d.:]+", order)[0], stats.split()[-1]


def stays_up_for_programs(process):
    """The same, of one that prints JSON."""
    shown = "".join(iter(process.stdout.readline, "}\n")) + "}"
    about = json.loads(shown)["about"]
    return about["address"], about["url"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("option", "found"), [((), stays_up), (("--json",), stays_up_for_programs)]
)
def test_served_it_stays_up_until_it_is_interrupted(option, found, stage):
    here, temporary = stage
    with started("demo", "--serve", "--seconds=2", *option, cwd=here, TMPDIR=str(temporary)) as run:
        try:
            address, url = found(run)
            answer = httpx.post(
                f"{address}/orders",
                json={"order": "1", "cents": 999},
                headers={"idempotency-key": "order-1", "x-timeout-ms": "3900"},
            )
            shown = deadq_command("stats", "demo", "--url", url, "--json", cwd=here)
            assert run.poll() is None
            run.send_signal(signal.SIGINT)
            rest, said = run.communicate(timeout=20)
        finally:
            run.kill()
    assert (answer.status_code, answer.json()["order"]) == (200, "1")
    # one more while a child for suspects is up: on a busy machine its short leases lapse
    assert json.loads(shown.stdout)["slots"] >= main.WORKERS * main.SLOTS
    assert (rest.strip(), said) == ("", "")
    assert run.returncode == 0


@pytest.mark.slow
def test_a_demo_whose_worker_dies_by_itself_says_so(stage):
    here, temporary = stage
    settings = {"TMPDIR": str(temporary), "PYTHONUNBUFFERED": "1"}
    with started("demo", "--seconds=30", cwd=here, **settings) as process:
        try:
            read_until(process, "calm: ")
            (worker, *_) = [t for t in traces_of(temporary) if "deadq.demo.jobs:queue" in t]
            os.kill(int(worker.partition(":")[0]), signal.SIGKILL)
            _, said = process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == 1
    assert "deadq: the demo's worker" in said
    assert "ended by itself (exit code -9)" in said


def test_a_terminal_that_is_closed_ends_it_all(stage):
    with in_terminal(stage) as (process, terminal):
        seen(terminal, "▶ calm")
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, terminal)  # that was the last of our end
        os.close(nothing)
        process.wait(20)
    assert process.returncode != 0


def test_what_fails_in_the_midst_of_it_is_told_as_itself(tmp_path):
    async def fail():
        raise LookupError("as itself")

    async def play():
        tasks = [asyncio.ensure_future(each) for each in (asyncio.sleep(60), fail())]
        await main._all_or_none(tasks, Stage(tmp_path))

    with pytest.raises(LookupError, match="as itself"):
        asyncio.run(play())


@pytest.mark.slow
def test_an_order_on_an_idle_connection_is_answered(monkeypatch, tmp_path):
    # the moment at which uvicorn, left to itself, and httpx would close it both
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)

    async def ask_twice(client):
        for idle in (load.KEEP_OPEN_S - 0.015, 0):
            assert (await client.get("/health")).status_code == 200
            await asyncio.sleep(idle)

    async def ask_often(address):
        async with load.senders(address) as clients, asyncio.TaskGroup() as group:
            for client in clients * 4:
                group.create_task(ask_twice(client))

    with signals_interrupt(), staged(main.WORKERS, main.SLOTS) as running:
        asyncio.run(main.ready(running))
        asyncio.run(ask_often(running.address))
