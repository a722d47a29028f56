"""Processes forked from one that has everything imported: for tests that need many of them.

A process of its own is what these tests are about; the half second of processor time in which
an interpreter starts and imports is not.
"""

import fcntl
import multiprocessing
import multiprocessing.forkserver
import os
import pkgutil
import runpy
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from multiprocessing.context import ForkServerContext
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import Any

import deadq

_IMPORTED = [
    *("pytest", "_hypothesis_pytestplugin", "hypothesis.strategies", "pytest_timeout"),
    *("xdist.plugin", "deadq.testing.pytest_plugin", "fakeredis", "lupa", "trustme"),
    *("rich.console", "rich.table", "rich.live", "typer._adapters"),
    *(
        module.name
        for module in pkgutil.walk_packages(deadq.__path__, "deadq.")
        if not module.name.endswith("__main__")
    ),
]
"""What a run of tests or of the command needs, and takes the most time, as far as it is there."""

_SETTINGS = dict(os.environ)
"""Those that no test has changed yet."""

_OF_THE_INTERPRETER = ("PYTHON", "LC_", "LANG")
"""Settings that are read when it starts, and by no process that is forked."""


def forkable(settings: Mapping[str, str]) -> bool:
    """Whether a program to which these settings are given may be forked."""
    return not any(name.startswith(_OF_THE_INTERPRETER) for name in settings)


def run_forked(target: Callable[..., None], *args: Any, timeout: float | None = None) -> int:
    """Call a function in a process of its own, to its end; returns the exit code.

    Raises ``TimeoutError`` when that takes longer than ``timeout`` s; the process is killed.
    """
    process = _context().Process(target=target, args=args)
    process.start()
    process.join(timeout)
    if process.exitcode is None:
        process.kill()
        process.join()
        raise TimeoutError(f"{target.__name__}{args} took longer than {timeout} s")
    return process.exitcode


class Program(subprocess.Popen[str]):
    """``python -m module args`` in a session of its own, with all that a ``Popen`` can do.

    With ``on_terminal`` its standard input is the terminal that the session is on.
    """

    def __init__(self, module: str, *args: str, on_terminal: bool = False, **given: Any) -> None:
        self._on_terminal = on_terminal
        super().__init__([module, *args], text=True, start_new_session=True, **given)

    # the three places where a Popen makes, looks at and waits for its process

    def _execute_child(
        self,
        args: Sequence[str],
        _executable: Any,
        _preexec_fn: Any,
        _close_fds: Any,
        pass_fds: Sequence[int],
        cwd: Path,
        env: Mapping[str, str],
        _startupinfo: Any,
        _creationflags: Any,
        _shell: Any,
        p2cread: int,
        _p2cwrite: int,
        _c2pread: int,
        c2pwrite: int,
        _errread: int,
        errwrite: int,
        *_more: Any,
    ) -> None:
        ends = {0: p2cread, 1: c2pwrite, 2: errwrite, **{fd: fd for fd in pass_fds}}
        passed = [(fd, _Passed(end)) for fd, end in ends.items() if end >= 0]
        given = (args, cwd, env, passed, self._on_terminal)
        self._child = _context().Process(target=_become, args=given)
        self._child.start()
        self._child_created = True
        assert self._child.pid is not None
        self.pid = self._child.pid
        self._close_pipe_fds(p2cread, _p2cwrite, _c2pread, c2pwrite, _errread, errwrite)

    def _internal_poll(self, *_: Any, **_more: Any) -> int | None:
        if self.returncode is None:
            self.returncode = self._child.exitcode
        return self.returncode

    def _wait(self, timeout: float | None) -> int:
        self._child.join(timeout)
        code = self._internal_poll()
        if code is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(self.args, timeout)
        return code


class _Passed:
    """A descriptor that goes to the new process."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __reduce__(self) -> tuple[Any, ...]:
        return _arrived, (DupFd(self.fd),)


def _arrived(passed: Any) -> int:
    fd: int = passed.detach()
    return fd


def _context() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    _start_server(context)
    return context


@cache
def _start_server(context: ForkServerContext) -> None:
    """Once: it lives as long as this process. It is to have none of a test's own settings."""
    context.set_forkserver_preload(_IMPORTED)
    now = dict(os.environ)
    try:
        _set_environment(_SETTINGS)
        multiprocessing.forkserver.ensure_running()
    finally:
        _set_environment(now)


def _set_environment(env: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(env)


def _become(
    args: Sequence[str],
    cwd: Path,
    env: Mapping[str, str],
    descriptors: Sequence[tuple[int, int]],
    on_terminal: bool,
) -> None:
    """Make this process one of ``python -m``, called there and with these arguments."""
    os.setsid()
    for fd, end in descriptors:
        os.dup2(end, fd, inheritable=True)
        os.close(end)
    if on_terminal:
        take_terminal()
    streams = {
        "stdin": open(0, closefd=False),  # noqa: SIM115  as long as the process
        "stdout": open(1, "w", buffering=os.isatty(1) or -1, closefd=False),  # noqa: SIM115
        "stderr": open(2, "w", buffering=1, errors="backslashreplace", closefd=False),  # noqa: SIM115
    }
    for name, stream in streams.items():
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    _set_environment(env)
    time.tzset()
    tempfile.tempdir = None
    os.chdir(cwd)
    sys.path.insert(0, str(cwd))
    sys.argv = list(args)
    runpy.run_module(args[0], run_name="__main__", alter_sys=True)


def take_terminal() -> None:
    """In a new process: have its standard input as the terminal that its session is on."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
