"""The deadq command in processes of its own, for tests."""

import os
import subprocess
import sys
from pathlib import Path

import deadq

ROOT = Path(deadq.__path__[0]).parent
COMMAND = (sys.executable, "-m", "deadq.cli")


def environment(**settings: str) -> dict[str, str]:
    """That of the tests, in which deadq is found from any folder."""
    return {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "80", **settings}


def deadq_command(
    *args: str, cwd: Path, timeout: float = 30.0, **settings: str
) -> subprocess.CompletedProcess[str]:
    """Run ``deadq args`` to its end."""
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
