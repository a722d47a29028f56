"""The deadq command in processes of its own, for tests."""

import os
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

import deadq
from deadq.cli.app import app
from tests.forked import run_forked

ROOT = Path(deadq.__path__[0]).parent
_REAL = "deadq.cli"
COMMAND = (sys.executable, "-m", os.environ.get("DEADQ_TEST_COMMAND", _REAL))
"""The real one, unless a test is to show that it notices a wrong one."""

_OF_THE_INTERPRETER = ("PYTHON", "LC_", "LANG", "TZ")
"""Settings that are read when it starts, and by no process that is forked."""


def environment(**settings: str) -> dict[str, str]:
    """That of the tests, in which deadq is found from any folder."""
    return {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "80", **settings}


def deadq_command(
    *args: str, cwd: Path, timeout: float = 30.0, **settings: str
) -> subprocess.CompletedProcess[str]:
    """Run ``deadq args`` to its end."""
    if COMMAND[-1] != _REAL or any(name.startswith(_OF_THE_INTERPRETER) for name in settings):
        return subprocess.run(
            [*COMMAND, *args],
            cwd=cwd,
            env=environment(**settings),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
    with tempfile.TemporaryDirectory(prefix="dq-") as folder:
        out, err = Path(folder) / "out", Path(folder) / "err"
        code = run_forked(_become, args, cwd, environment(**settings), out, err, timeout=timeout)
        return subprocess.CompletedProcess(args, code, out.read_text(), err.read_text())


def _become(args: Sequence[str], cwd: Path, env: Mapping[str, str], out: Path, err: Path) -> None:
    """Make this process one of ``python -m``, called there and with these arguments."""
    for path, stream in ((out, sys.stdout), (err, sys.stderr)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), stream.fileno())
    os.environ.clear()
    os.environ.update(env)
    tempfile.tempdir = None
    os.chdir(cwd)
    sys.path.insert(0, str(cwd))
    sys.argv = [COMMAND[-1], *args]
    runpy.run_module(COMMAND[-1], run_name="__main__", alter_sys=True)


def started(*args: str, cwd: Path, **settings: str) -> subprocess.Popen[str]:
    """Start ``deadq args`` in a session of its own; its output can be read as it comes."""
    return subprocess.Popen(
        [*COMMAND, *args],
        cwd=cwd,
        env=environment(**settings),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


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
