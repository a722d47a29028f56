"""The processes of the demo: a server, a bank, a web app and workers, all gone at the end."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from ..errors import DeadqError
from ..store import embedded
from . import jobs

BANK: Final = "bank"
LINE: Final = "line"
"""The network between the second worker and everything else."""
FAR: Final = "worker 2"
"""The worker behind it."""

_LEAVE_S: Final = 5.0
_AGAIN_S: Final = 1.0
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stage:
    """What runs, and where it can be reached.

    Raises, from each of its methods:
        OSError: a process cannot be started.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = ""
        self.address = ""
        self.bank = ""
        self.ledger = folder / "ledger.sqlite"
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._commands: dict[str, Callable[[], None]] = {}

    def start(
        self, name: str, *command: str, fds: tuple[int, ...] = (), **settings: str
    ) -> None:
        """Start ``python -m command`` in a session of its own: Ctrl-C reaches the demo alone."""
        environment = {
            **os.environ,
            "DEADQ_URL": self.url,
            jobs.BANK_VARIABLE: self.bank,
            jobs.NAME_VARIABLE: name,
            **settings,
        }
        with _signals_held_back(), self.log(name).open("ab") as log:
            self._processes[name] = subprocess.Popen(
                [sys.executable, "-m", *command],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                pass_fds=fds,
            )
        if not fds:  # whose sockets are closed here, it cannot be started once more
            self._commands[name] = lambda: self.start(name, *command, **settings)

    def kill(self, name: str) -> None:
        """SIGKILL to a process and all that came of it, as when its machine dies."""
        process = self._processes.pop(name)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def start_again(self, name: str) -> None:
        """Start what was killed, as a service manager does."""
        self._commands[name]()

    def freeze(self, name: str) -> None:
        """A process and all that came of it stands still, and does not know it."""
        os.killpg(self._processes[name].pid, signal.SIGSTOP)

    def thaw(self, name: str) -> None:
        """It goes on where it stood."""
        os.killpg(self._processes[name].pid, signal.SIGCONT)

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

    def log(self, name: str) -> Path:
        """The file that a process writes to, whenever it was started."""
        return self.folder / f"{name}.log"

    def last_words(self, name: str) -> str:
        """The end of what a process has written."""
        return self.log(name).read_text(errors="replace").strip()[-500:]

    def end(self) -> None:
        """Let every process end in order; those that do not are killed."""
        needed = {BANK, LINE}  # by the others, to the last
        self._end([p for name, p in self._processes.items() if name not in needed])
        self._end([p for name, p in self._processes.items() if name in needed])

    def _end(self, processes: Sequence[subprocess.Popen[bytes]]) -> None:
        for process in processes:
            process.terminate()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGCONT)
        for process in processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_LEAVE_S)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@contextmanager
def staged(workers: int, slots: int) -> Iterator[Stage]:
    """A server on data of its own, a bank, a web app and ``workers``, of which the second goes
    through a line; everything is gone afterwards.

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
    with ExitStack() as started:
        bank, app, far_bank, far_server = (
            started.enter_context(socket.create_server(("127.0.0.1", 0), backlog=1_024))
            for _ in range(4)
        )
        stage.bank = _address(bank)
        stage.address = f"http://{_address(app)}"
        stage.start(
            BANK, "deadq.demo.bank", str(bank.fileno()), str(stage.ledger), fds=(bank.fileno(),)
        )
        stage.start("web app", "deadq.demo.app", str(app.fileno()), fds=(app.fileno(),))
        ways = {far_bank.fileno(): stage.bank, far_server.fileno(): stage.url.removeprefix("unix://")}
        given = [f"{number}={target}" for number, target in ways.items()]
        stage.start(LINE, "deadq.demo.line", *given, fds=tuple(ways))
        far = {"DEADQ_URL": f"redis://{_address(far_server)}", jobs.BANK_VARIABLE: _address(far_bank)}
    settings = (f"--concurrency={slots}", "--grace=1", "-v")
    for number in range(1, workers + 1):
        name = f"worker {number}"
        command = ("deadq.cli", "work", "deadq.demo.jobs:queue", *settings)
        stage.start(name, *command, **(far if name == FAR else {}))


def _address(listener: socket.socket) -> str:
    return "{}:{}".format(*listener.getsockname())


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
