"""The deadq command in processes of its own, for tests."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import typer

import deadq
from deadq.cli.app import app
from tests.forked import Program, forkable

ROOT = Path(deadq.__path__[0]).parent
COMMAND = (sys.executable, "-m", os.environ.get("DEADQ_TEST_COMMAND", "deadq.cli"))
"""The real one, unless a test is to show that it notices a wrong one."""


def environment(**settings: str) -> dict[str, str]:
    """That of the tests, in which deadq is found from any folder."""
    return {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "80", **settings}


def deadq_command(
    *args: str, cwd: Path, timeout: float = 30.0, **settings: str
) -> subprocess.CompletedProcess[str]:
    """Run ``deadq args`` to its end."""
    with started(*args, cwd=cwd, **settings) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(args, process.returncode, out, err)


def started(*args: str, cwd: Path, **settings: str) -> subprocess.Popen[str]:
    """Start ``deadq args`` in a session of its own; its output can be read as it comes."""
    given = {
        "cwd": cwd,
        "env": environment(**settings),
        "stdin": subprocess.DEVNULL,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
    }
    if forkable(settings):
        return Program(COMMAND[-1], *args, **given)
    return subprocess.Popen([*COMMAND, *args], text=True, start_new_session=True, **given)


def traces_of(folder: Path) -> list[str]:
    """Processes that work in ``folder`` or were told of it."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            told = (process / "environ").read_bytes() + (process / "cmdline").read_bytes()
            works_in = os.fsencode((process / "cwd").readlink())
        except OSError:
            continue  # it ended, or is not ours
        if os.fsencode(folder) in told + works_in and int(process.name) != os.getpid():
            found.append(f"{process.name}: {(process / 'cmdline').read_bytes()!r}")
    return found


def every_command() -> dict[str, Any]:
    """All commands of the parser's own making, by their names: ``server start``."""
    found = {}

    def walk(command: Any, *path: str) -> None:
        found[" ".join(path)] = command
        for name, inner in getattr(command, "commands", {}).items():
            walk(inner, *path, name)

    walk(typer.main.get_command(app))
    return found
