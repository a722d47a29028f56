"""The processes of the demo: a server, a web app and workers, all gone at the end."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from ..errors import DeadqError
from ..store import embedded
from .jobs import LEDGER_VARIABLE

_LEAVE_S: Final = 5.0
_AGAIN_S: Final = 1.0
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stage:
    """What runs, and where it can be reached."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = ""
        self.ledger = folder / "ledger.sqlite"
        self.address = ""
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, *command: str, fds: tuple[int, ...] = ()) -> None:
        """Start ``python -m command`` in a session of its own: Ctrl-C reaches the demo alone."""
        with _signals_held_back(), (self.folder / f"{name}.log").open("wb") as log:
            self._processes[name] = subprocess.Popen(
                [sys.executable, "-m", *command],
                env={**os.environ, "DEADQ_URL": self.url, LEDGER_VARIABLE: str(self.ledger)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                pass_fds=fds,
            )

    def check(self) -> None:
        """Return if everything that was started still runs.

        Raises:
            DeadqError: something ended, with its last words.
        """
        for name, process in self._processes.items():
            code = process.poll()
            if code is not None:
                said = self.last_words(name)
                msg = f"the demo's {name} ended by itself (exit code {code}): {said}"
                raise DeadqError(msg)

    def last_words(self, name: str) -> str:
        """The end of what a process has written."""
        return (self.folder / f"{name}.log").read_text(errors="replace").strip()[-500:]

    def end(self) -> None:
        """Let every process end in order; those that do not are killed."""
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_LEAVE_S)
            process.kill()
            process.wait()


@contextmanager
def staged(workers: int, slots: int) -> Iterator[Stage]:
    """A server on data of its own, a web app and ``workers``; everything is gone afterwards.

    To be used within :func:`signals_interrupt`.

    Raises:
        StoreUnavailable: there is no server to be started.
    """
    with ExitStack() as last:
        try:
            with _signals_held_back():
                folder = Path(tempfile.mkdtemp(prefix="deadq-demo-"))
                last.callback(shutil.rmtree, folder, ignore_errors=True)
            stage = Stage(folder)
            last.callback(embedded.stop, data_dir=folder / "data")
            stage.url = embedded.ensure(data_dir=folder / "data", announce=None)
            last.callback(stage.end)
            _start_all(stage, workers, slots)
            yield stage
        finally:
            for number in (*_SIGNALS, signal.SIGALRM):  # nothing cuts the clean-up short
                signal.signal(number, signal.SIG_IGN)


def _start_all(stage: Stage, workers: int, slots: int) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=1_024) as listener:
        stage.address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        door = listener.fileno()
        stage.start("web app", "deadq.demo.app", str(door), fds=(door,))
    settings = (f"--concurrency={slots}", "--grace=1", "-v")
    for number in range(1, workers + 1):
        stage.start(f"worker {number}", "deadq.cli", "work", "deadq.demo.jobs:queue", *settings)


@contextmanager
def signals_interrupt() -> Iterator[None]:
    """SIGTERM and a closed terminal end the demo as Ctrl-C does, clean-up included."""

    def interrupt(*_: object) -> None:
        # and once more if need be: Python swallows what is raised within a __del__
        signal.setitimer(signal.ITIMER_REAL, _AGAIN_S)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (*_SIGNALS, signal.SIGALRM)}
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _signals_held_back() -> Iterator[None]:
    """No interruption between a thing's beginning and the note of it; afterwards it comes."""
    came: list[int] = []
    before = {
        number: signal.signal(number, lambda number, _: came.append(number)) for number in _SIGNALS
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if came:
        signal.raise_signal(came[0])
