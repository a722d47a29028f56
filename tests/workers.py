"""Other processes for tests: real workers on the handlers of ``tests.shop``, and whatever else.

``Process("tests.module:function", argument=...)`` runs that function as a program. It
talks to the test by JSON values, one a line: :func:`tell` and :func:`hear` there, methods of the
same names here.
"""

import asyncio
import contextlib
import importlib
import inspect
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import redis

import deadq
from tests.forked import Program
from tests.servers import wait_until

ROOT = Path(deadq.__path__[0]).parent
_PATIENCE_S = 60.0


class Process:
    """A function in a process of its own; killed, if need be, at the end of the with block.

    ``wall`` is a file that holds how many seconds the process's wall clock is wrong. It is read
    each time the clock is, so a test can step the clock in mid-run.
    """

    def __init__(self, target: str, *, wall: Path | None = None, **given: Any) -> None:
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  lives as long as the process
        self._heard: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._process = Program(
            *("tests.workers", target, json.dumps(given), str(wall or "")),
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    @property
    def errors(self) -> str:
        """What it has written to stderr so far."""
        return os.pread(self._errors.fileno(), 1_000_000, 0).decode(errors="replace")

    def tell(self, value: Any) -> None:
        """Send it a value."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(value) + "\n")
        self._process.stdin.flush()

    def hear(self, within_s: float = _PATIENCE_S) -> Any:
        """Its next value; fails with its stderr when there is none."""
        try:
            line = self._heard.get(timeout=within_s)
        except queue.Empty:
            line = ""
        ended = self._process.poll()
        assert line, f"the process said nothing (exit {ended}):\n{self.errors[-3000:]}"
        return json.loads(line)

    def ask(self, value: Any, within_s: float = _PATIENCE_S) -> Any:
        """Send it a value and return its answer."""
        self.tell(value)
        return self.hear(within_s)

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def freeze(self) -> None:
        """SIGSTOP, and return when the kernel has stopped it."""
        self.signal(signal.SIGSTOP)
        wait_until(lambda: _state(self.pid) == "T", "the process to stop")

    def thaw(self) -> None:
        self.signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL, and return when it is gone."""
        self._process.kill()
        self._process.wait()

    def stop(self, within_s: float = _PATIENCE_S) -> int:
        """SIGTERM; its exit code."""
        self.signal(signal.SIGTERM)
        return self._process.wait(within_s)

    def close(self) -> None:
        self.kill()
        self._reader.join()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.stdout.close()
        self._errors.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._heard.put(line)
        self._heard.put("")


class WorkerProcess(Process):
    """A worker on a :class:`tests.shop.Shop`, registered when the constructor returns.

    The keyword arguments are the shop's (``url``, ``book`` and the queue's settings);
    ``concurrency`` and ``grace`` are the worker's.
    """

    def __init__(
        self,
        url: str,
        book: Path,
        *,
        concurrency: int = 8,
        grace: float = 5.0,
        wall: Path | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(
            "tests.shop:serve",
            wall=wall,
            url=url,
            book=str(book),
            concurrency=concurrency,
            grace=grace,
            settings=settings,
        )
        try:
            assert self.hear() == "registered"
        except BaseException:
            self.close()
            raise


async def eventually(true: Callable[[], Any], what: str, within_s: float = _PATIENCE_S) -> Any:
    """``wait_until`` on an event loop; the condition may be awaitable."""
    until = time.monotonic() + within_s
    while True:
        found = true()
        if inspect.isawaitable(found):
            found = await found
        if found:
            return found
        if time.monotonic() > until:
            raise TimeoutError(f"still waiting after {within_s} s: {what}")
        await asyncio.sleep(0.001)


def blocked(client: redis.Redis) -> list[dict[str, str]]:
    """The connections of workers that wait for a push."""
    return [found for found in client.client_list() if found["cmd"].lower() == "blpop"]


def tell(value: Any) -> None:
    """In the other process: send the test a value."""
    print(json.dumps(value), flush=True)


def hear() -> Any:
    """In the other process: the test's next value; ends the process when there is no test."""
    line = sys.stdin.readline()
    if not line:
        sys.exit(3)
    return json.loads(line)


def _state(pid: int) -> str:
    stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    return stat.rpartition(")")[2].split()[0]


def pending(pid: int, number: signal.Signals) -> bool:
    """Whether a signal has been sent and not delivered: one more would be the same one."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    masks = [int(line.split()[1], 16) for line in status.splitlines() if "Pnd:" in line]
    return any(mask >> (number - 1) & 1 for mask in masks)


def _falsify(wall: Path) -> None:
    """Let this process's wall clock be wrong by the seconds that the file holds."""
    true_time, true_time_ns = time.time, time.time_ns

    def offset() -> float:
        return float(wall.read_text(encoding="ascii"))

    time.time = lambda: true_time() + offset()
    time.time_ns = lambda: true_time_ns() + int(offset() * 1e9)


def _main(target: str, given: str, wall: str) -> None:
    if wall:
        _falsify(Path(wall))
    module, _, name = target.partition(":")
    getattr(importlib.import_module(module), name)(**json.loads(given))


if __name__ == "__main__":
    _main(*sys.argv[1:])
