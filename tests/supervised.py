"""Supervised workers for tests: ``deadq work`` in a session of its own, and whatever it starts."""

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, Self

import pytest

from deadq import JobHandle
from deadq.store import keys
from tests.commands import COMMAND, environment
from tests.depot import SERVED, Depot
from tests.forked import Program
from tests.marks import THOROUGH
from tests.servers import Server, wait_until
from tests.workers import pending

RUNNERS = ("async", "process")

LEASE_S = 1.5
"""Of the queues on which processes are killed."""

every_runner = pytest.mark.parametrize("runner", RUNNERS)


def mostly(runner: str) -> pytest.MarkDecorator:
    """Where a test takes many seconds: under this runner; by the thorough tests under each."""
    others = [pytest.param(name, marks=THOROUGH) for name in RUNNERS if name != runner]
    return pytest.mark.parametrize("runner", [runner, *others])


def passed(seconds: float, since: float) -> None:
    """Let time pass, to an instant: where its passing is what is tested."""
    wait_until(lambda: time.monotonic() >= since + seconds, "time to pass", seconds + 10.0)


class SupervisedWorker:
    """``deadq work`` and all processes that come of it: those of its session.

    ``terminal``, a file descriptor, is to be the one that the session is on, with all output.
    """

    def __init__(
        self, *options: str, cwd: Path, terminal: int | None = None, **settings: str
    ) -> None:
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  lives as long as the worker
        shown = terminal is not None
        self._process = Program(
            *(COMMAND[-1], "work", *options),
            cwd=cwd,
            env=environment(**settings),
            stdin=terminal if shown else subprocess.DEVNULL,
            stdout=terminal if shown else subprocess.DEVNULL,
            stderr=terminal if shown else self._errors,
            on_terminal=shown,
        )

    @property
    def pid(self) -> int:
        """The supervisor's."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether there is a supervisor."""
        return self._process.poll() is None

    @property
    def log(self) -> str:
        return os.pread(self._errors.fileno(), 1_000_000, 0).decode(errors="replace")

    def members(self) -> set[int]:
        """Every process of its session that has not ended."""
        return {pid for pid, state, session in _processes() if session == self.pid and state != "Z"}

    def children(self) -> set[int]:
        """All of them but the supervisor."""
        return self.members() - {self.pid}

    def send(self, number: signal.Signals) -> None:
        """To the supervisor alone; returns when it has been delivered, for a second one that came
        before would be the same one."""
        os.kill(self.pid, number)
        wait_until(lambda: not pending(self.pid, number), "the signal to be delivered")

    def send_all(self, number: signal.Signals) -> None:
        """To supervisor and children alike, as a terminal sends it."""
        os.killpg(self.pid, number)

    def kill(self) -> None:
        """SIGKILL to the supervisor, and return when it is gone; its children may live on."""
        self._process.kill()
        self._process.wait()

    def wait(self, within_s: float) -> int:
        """The supervisor's exit code."""
        try:
            return self._process.wait(within_s)
        except subprocess.TimeoutExpired:
            pytest.fail(f"it did not end within {within_s} s:\n{self.log[-3000:]}")

    def gone(self, within_s: float) -> None:
        """Wait until nothing of it is left."""
        wait_until(lambda: not self.members(), "every process to be gone", within_s)

    def close(self) -> None:
        while members := self.members():
            for pid in members:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._process.poll()
        self._process.wait()
        self._errors.close()


class Yard:
    """A depot on an emptied server, and supervised workers on it; all gone at the end.

    The settings are the queue's.
    """

    def __init__(self, server: Server, folder: Path, runner: str, **settings: Any) -> None:
        self.runner = runner
        self.client = server.client(decode_responses=True)
        self.client.flushall()
        self.depot = Depot(server.url, folder, plain=runner == "process", **settings)
        self.book, self.queue, self.tasks = self.depot.book, self.depot.queue, self.depot.tasks
        self._folder = folder
        self._url = server.url
        described = {"folder": str(folder), "plain": self.depot.plain, **settings}
        self.described = json.dumps(described)
        self._open = contextlib.ExitStack()

    def worker(
        self, *more: str, slots: int = 1, children: int = 1, grace: float = 2.0, **given: Any
    ) -> SupervisedWorker:
        """A worker that is just starting; under the process runner each slot is a child."""
        options = ["--runner", self.runner, "--grace", str(grace), "-v", *more]
        options += ["--concurrency", str(slots)]
        if self.runner == "async":
            options += ["--children", str(children)]
        return self.command("tests.depot_served:queue", *options, **given)

    def command(self, *options: str, **given: Any) -> SupervisedWorker:
        """``deadq work`` with just these options."""
        given = {"cwd": self._folder, "DEADQ_URL": self._url, SERVED: self.described, **given}
        made = SupervisedWorker(*options, **given)
        self._open.callback(made.close)
        return made

    def ready(self, *workers: SupervisedWorker, children: int = 1) -> None:
        """Wait until each worker has so many children or more, and all of them wait for work."""
        for worker in workers:
            until = time.monotonic() + 20.0
            while len(found := worker.children()) < children or not found <= self.parked():
                if time.monotonic() > until or not worker.alive:
                    rest = found - self.parked()
                    pytest.fail(f"{len(found)} children, {rest} do not wait:\n{worker.log}")
                time.sleep(0.003)

    def registered(self) -> dict[int, str]:
        """The children that the server knows, by process id."""
        found = {}
        for child in self.client.zrange(self.key("workers"), 0, -1):
            who = self.client.hget(self.key("worker", child), "who")
            if who is not None:
                found[int(who.rpartition(":")[2])] = child
        return found

    def parked(self) -> set[int]:
        """Processes that wait for work."""
        children = set(self.client.zrange(self.key("parked"), 0, -1))
        return {pid for pid, child in self.registered().items() if child in children}

    def key(self, kind: str, ident: str | None = None) -> str:
        return keys.key(self.queue.name, kind, ident)

    def order(self, key: str, *args: Any, within: float = 20.0) -> JobHandle[Any]:
        """Submit the job that halts at the point that its key names."""
        handle: JobHandle[Any] = self.tasks.order.options(key=key, within=within).enqueue(*args)
        return handle

    def counted(self, name: str) -> int:
        """One of the queue's counters."""
        return self.queue.stats().counters.get(name, 0)

    def marks(self, job: JobHandle[Any]) -> set[str]:
        """What its record holds against the job, or of anybody who has it in hand."""
        names = ("fails", "crashes", "alone", "owner")
        values = self.client.hmget(self.key("job", job.id), names)
        return {name for name, value in zip(names, values, strict=True) if value is not None}

    def unmanned(self) -> None:
        """No child is left on the server, nor a slot, nor a job in anybody's hands."""
        stats = self.queue.stats()
        held = self.client.keys(self.key("run", "*"))
        assert (stats.workers, stats.slots, held) == (0, 0, [])

    def calm(self) -> None:
        """Wait until nothing lives, waits or runs, and no child holds anything."""

        def at_rest() -> bool:
            stats = self.queue.stats()
            held = self.client.keys(self.key("run", "*"))
            return not (stats.live or stats.ready or stats.later or stats.unfinished or held)

        wait_until(at_rest, "the queue to come to rest")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()
        self.depot.close()
        self.client.close()


def _processes() -> list[tuple[int, str, int]]:
    """Id, state and session of every process."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            stat = (folder / "stat").read_text(encoding="ascii", errors="replace")
            state, _, _, session = stat.rpartition(")")[2].split()[:4]
            found.append((int(folder.name), state, int(session)))
    return found
