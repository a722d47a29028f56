"""``deadq work`` itself in tests: a supervisor, its children, and the tasks that a test declares.

Each case declares its tasks twice, as coroutine functions and as plain ones, and runs under both
runners::

    TWINS = {"async": declare_async, "process": declare_process}

    @under_both_runners
    def test_it(valkey_server, tmp_path, runner):
        with Shift(valkey_server, tmp_path, TWINS, runner) as made:
            worker = made.worker()
"""

import asyncio
import contextlib
import importlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import pytest

from deadq import JobHandle
from tests.cases.support import Declare, Scene
from tests.servers import Server, wait_until
from tests.settings import told
from tests.shop import Book
from tests.workers import Process

RUNNERS = ("async", "process")


def _under(*daily: str) -> pytest.MarkDecorator:
    runners = [
        pytest.param(runner, marks=() if runner in daily else pytest.mark.slow)
        for runner in RUNNERS
    ]
    return pytest.mark.parametrize("runner", runners)


under_both_runners = _under(*RUNNERS)
async_daily = _under("async")
process_daily = _under("process")
"""Under the other runner among the slow tests."""

under_both_slowly = _under()


class WorkProcess(Process):
    """``deadq work``. ``pid`` is the supervisor's; nothing of its group outlives the block."""

    @property
    def children(self) -> list[int]:
        """The process ids of its children, oldest first."""
        return children_of(self.pid)

    def said(self, *words: str) -> list[str]:
        """The lines of its log that hold all these words."""
        return [line for line in self.errors.splitlines() if all(word in line for word in words)]

    def signal_group(self, number: signal.Signals) -> None:
        """To the supervisor and all its children, as a terminal does."""
        os.killpg(self.pid, number)

    def freeze(self) -> None:
        """SIGSTOP to all of them; returns when the kernel has stopped each."""
        self.signal_group(signal.SIGSTOP)
        wait_until(
            lambda: all(state_of(pid) == "T" for pid in (self.pid, *self.children)),
            "the processes to stop",
        )

    def thaw(self) -> None:
        self.signal_group(signal.SIGCONT)

    def wait(self, within_s: float = 20.0) -> int:
        """Wait for its end; the exit code."""
        return self._process.wait(within_s)

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.signal_group(signal.SIGKILL)
        super().close()


class Shift(Scene):
    """A scene whose workers are supervised, under one of the runners, on an emptied server."""

    def __init__(
        self,
        server: Server,
        folder: Path,
        twins: Mapping[str, Declare],
        runner: str,
        **settings: Any,
    ) -> None:
        with server.client() as client:
            client.flushall()
            client.config_resetstat()
        super().__init__(server.url, folder, twins[runner], **settings)
        self.runner = runner
        self.folder = folder

    def worker(
        self,
        declare: Declare | None = None,
        *,
        prepare: Callable[[Book], None] | None = None,
        concurrency: int = 2,
        children: int | None = None,
        **given: Any,
    ) -> WorkProcess:
        """A worker whose children are all registered when this returns; see
        :meth:`coming_worker`."""
        process = self.coming_worker(
            declare, prepare=prepare, concurrency=concurrency, children=children, **given
        )
        count = concurrency if self.runner == "process" else children or 1
        wait_until(
            lambda: len(process.said("registered")) >= count or not process.alive,
            "the children to register",
        )
        assert process.alive, process.errors
        return process

    def coming_worker(
        self,
        declare: Declare | None = None,
        *,
        prepare: Callable[[Book], None] | None = None,
        supervisor: Callable[[], None] | None = None,
        url: str | None = None,
        grace: float = 5.0,
        **options: Any,
    ) -> WorkProcess:
        """A worker that is being started. ``declare`` names its tasks where they are other ones
        than the test's own; ``prepare`` is called in each child once they are declared,
        ``supervisor`` in the supervisor before it begins."""
        arguments = ["--runner", self.runner, "--grace", str(grace)]
        for name, value in options.items():
            if value is not None:
                arguments += [f"--{name.replace('_', '-')}", str(value)]
        process = WorkProcess(
            "tests.shifts:work",
            told={
                "declare": _name(declare or self._declare),
                "prepare": _name(prepare) if prepare else "",
                "book": str(self.book.path),
                "settings": told(self.queue) | {"url": url or self._url},
            },
            supervisor=_name(supervisor) if supervisor else "",
            arguments=arguments,
        )
        self._open.push(process)
        return process

    def started(self, *keys: str) -> None:
        """Wait until jobs with these keys have begun."""
        wait_until(lambda: set(keys) <= set(self.book.starts()), f"{keys} to start")

    def noted(self, what: str, key: str | None = None, count: int = 1) -> Any:
        """Wait for a note; the latest one."""
        wait_until(lambda: len(self.book.notes(what, key)) >= count, f"{what} to be noted")
        return self.book.notes(what, key)[-1]

    def ended(self, *handles: JobHandle[Any]) -> None:
        """Wait until these jobs have ended, whatever their callers still wait for."""
        wait_until(
            lambda: all(handle.state().final for handle in handles),
            "the jobs to end",
        )

    def rests(self) -> None:
        """Wait until nothing lives, waits, runs, or is held by a worker."""
        wait_until(lambda: not self.queue.stats().unfinished, "the queue to come to rest")
        self.calm()

    def let(self, name: str = "gate") -> None:
        """Open a gate: handlers that wait at it go on."""
        (self.folder / name).touch()

    def __enter__(self) -> Self:
        return self


class PlainScene(Shift):
    """A scene of a case that was written for a worker on a loop, under the process runner.

    ``plain`` gives for each of its declarations the one that declares the same tasks as plain
    functions.
    """

    def __init__(
        self,
        server: Server,
        folder: Path,
        declare: Declare,
        plain: Mapping[Declare, Declare],
        **settings: Any,
    ) -> None:
        super().__init__(server, folder, {"process": plain[declare]}, "process", **settings)
        self._plain = plain

    def worker(self, declare: Declare | None = None, **given: Any) -> WorkProcess:
        return super().worker(self._plain[declare] if declare else None, **given)


@contextlib.contextmanager
def plain_scenes(
    server: Server, folder: Path, plain: Mapping[Declare, Declare]
) -> Iterator[Callable[..., PlainScene]]:
    """A factory of them, as the fixture ``scene`` is one of scenes."""
    with contextlib.ExitStack() as stack:

        def make(declare: Declare, **settings: Any) -> PlainScene:
            return stack.enter_context(PlainScene(server, folder, declare, plain, **settings))

        yield make


in_processes_too = pytest.mark.parametrize("scene", ["loop", "process"], indirect=True)
in_processes_slowly = pytest.mark.parametrize(
    "scene", ["loop", pytest.param("process", marks=pytest.mark.slow)], indirect=True
)


def _name(function: Callable[..., Any]) -> str:
    return f"{function.__module__}:{function.__qualname__}"


def work(told: dict[str, Any], supervisor: str, arguments: list[str]) -> None:
    """In the other process: be ``deadq work``."""
    from deadq.cli import main

    if supervisor:
        module, _, name = supervisor.partition(":")
        getattr(importlib.import_module(module), name)()
    os.environ["DEADQ_TEST_AT_WORK"] = json.dumps(told)
    sys.argv = ["deadq", "work", "tests.at_work:queue", "-vv", *arguments]
    main()


# In handlers.


def at_gate(book: Book, name: str = "gate") -> None:
    """Wait until the test opens the gate, a minute at most."""
    wait_until((book.path.parent / name).exists, f"the gate {name}", within_s=60.0)


async def aat_gate(book: Book, name: str = "gate") -> None:
    """:func:`at_gate` on a loop."""
    gate, until = book.path.parent / name, time.monotonic() + 60.0
    while not gate.exists():
        assert time.monotonic() < until, f"the gate {name} stays shut"
        await asyncio.sleep(0.003)


# In the runtime, between two of its steps.


def handed_out(answer: Any) -> bool:
    """Whether an answer of the server's hands out a job."""
    if isinstance(answer, tuple | list) and not hasattr(answer, "claims"):
        return any(handed_out(part) for part in answer)
    return bool(getattr(answer, "claims", ()))


def stand_still(seconds: float) -> None:
    """Nothing else happens in this thread meanwhile, though a signal may come."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        time.sleep(left)


# Processes.


def children_of(pid: int) -> list[int]:
    """The processes that ``pid`` has started and not yet buried."""
    try:
        return [int(n) for n in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


def state_of(pid: int) -> str:
    """The letter by which the kernel tells how the process is; none when it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except FileNotFoundError:
        return ""
    return stat.rpartition(")")[2].split()[0]
