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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ..errors import DeadqError
from ..store import embedded
from . import jobs
from .signals import ignore_signals, signals_held_back

BANK: Final = "bank"
LINE: Final = "line"
"""The network between the second worker and everything else."""
WORKER: Final = "worker"
FAR: Final = f"{WORKER} 2"
"""The worker behind it."""

_PACKAGES: Final = Path(__file__).parents[2]
"""Where deadq itself is found, installed or not."""
_LEAVE_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Program:
    """``python -m`` with what stands in ``command``, and environment variables of its own."""

    command: tuple[str, ...]
    settings: Mapping[str, str] = field(default_factory=dict)
    sockets: tuple[socket.socket, ...] = ()
    """What it inherits."""


class Stage:
    """What runs, and where it can be reached."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = ""
        self.address = ""
        self.bank = ""
        self.ledger = folder / "ledger.sqlite"
        self._programs: dict[str, Program] = {}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, program: Program) -> None:
        """Start it in a session of its own, that Ctrl-C reaches the demo alone; and away from the
        folder of whoever looks on, whose ``queue.py`` is not to stand in for Python's own."""
        paths = (str(_PACKAGES), os.environ.get("PYTHONPATH", ""))
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "DEADQ_URL": self.url,
            jobs.BANK_VARIABLE: self.bank,
            jobs.NAME_VARIABLE: name,
            **program.settings,
        }
        with signals_held_back(), self.log(name).open("ab") as log:
            self._processes[name] = subprocess.Popen(
                [sys.executable, "-m", *program.command],
                cwd=self.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                pass_fds=[inherited.fileno() for inherited in program.sockets],
            )
        self._programs[name] = program

    def kill(self, name: str) -> None:
        """SIGKILL to a process and all that came of it, as when its machine dies."""
        process = self._processes.pop(name)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def start_again(self, name: str) -> None:
        """Start what was killed, as a service manager does."""
        self.start(name, self._programs[name])

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

    @property
    def worker_logs(self) -> list[Path]:
        """Those of all workers."""
        return [self.log(name) for name in self._programs if name.startswith(WORKER)]

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

    To be used within :func:`.signals.signals_interrupt`.

    Raises:
        StoreUnavailable: there is no server to be started.
    """
    with ExitStack() as last:
        try:
            with signals_held_back():
                folder = Path(tempfile.mkdtemp(prefix="deadq-demo-"))
                last.callback(shutil.rmtree, folder, ignore_errors=True)
            stage = Stage(folder)
            last.callback(embedded.stop, data_dir=folder / "data")
            stage.url = embedded.ensure(data_dir=folder / "data", announce=None)
            last.callback(stage.end)
            _start_all(stage, workers, slots)
            yield stage
        finally:
            ignore_signals()  # nothing cuts the clean-up short


def _start_all(stage: Stage, workers: int, slots: int) -> None:
    with ExitStack() as opened:
        bank, app, far_bank, far_server = (
            opened.enter_context(socket.create_server(("127.0.0.1", 0), backlog=1_024))
            for _ in range(4)
        )
        stage.bank = _address(bank)
        stage.address = f"http://{_address(app)}"
        command = ("deadq.demo.bank", str(bank.fileno()), str(stage.ledger))
        stage.start(BANK, Program(command, sockets=(bank,)))
        stage.start("web app", Program(("deadq.demo.app", str(app.fileno())), sockets=(app,)))
        server = stage.url.removeprefix("unix://")
        ways = (f"{far_bank.fileno()}={stage.bank}", f"{far_server.fileno()}={server}")
        stage.start(LINE, Program(("deadq.demo.line", *ways), sockets=(far_bank, far_server)))
        far = {
            "DEADQ_URL": f"redis://{_address(far_server)}",
            jobs.BANK_VARIABLE: _address(far_bank),
        }
    settings = (f"--concurrency={slots}", "--grace=1", "-v")
    work = ("deadq.cli", "work", "deadq.demo.jobs:queue", *settings)
    for number in range(1, workers + 1):
        name = f"{WORKER} {number}"
        stage.start(name, Program(work, far if name == FAR else {}))


def _address(listener: socket.socket) -> str:
    return "{}:{}".format(*listener.getsockname())
