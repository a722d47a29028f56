"""Functions in processes of their own: one result each, and no life beyond their parent's."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar

R = TypeVar("R")

# forked from a process that has imported what the program has and done nothing else: a child
# inherits no loops, threads and connections of its parent, and costs no half second to start
_FORKED: Final = multiprocessing.get_context("forkserver")
_PATIENCE_S: Final = 30.0


class ChildFailed(Exception):
    """A child's function raised, or its process died; the text says how."""


class Child(Generic[R]):
    """``body(*args)`` in a process of its own; ``with`` ends the process in any case.

    The child handles SIGTERM itself, if it likes; by default it dies of it.
    """

    def __init__(self, body: Callable[..., R], *args: Any) -> None:
        _FORKED.set_forkserver_preload(_imported())  # what counts is what the first child needs
        self._results, results = _FORKED.Pipe(duplex=False)
        life, self._life = _FORKED.Pipe(duplex=False)
        self._process = _FORKED.Process(target=_main, args=(results, life, body, args))
        self._process.start()
        results.close()
        life.close()

    def stop(self) -> None:
        """Send SIGTERM, which a worker takes as a wish to stop gracefully."""
        if self._process.is_alive() and self._process.pid:
            os.kill(self._process.pid, signal.SIGTERM)

    def check(self) -> None:
        """Return if the function still runs.

        Raises:
            ChildFailed: it raised, returned, or its process died.
        """
        if self._results.poll(0):
            self.result()
            msg = f"process {self._process.pid} ended before its time"
            raise ChildFailed(msg)

    def result(self, within: float = _PATIENCE_S) -> R:
        """What the function returned.

        Raises:
            ChildFailed: it raised, or its process died.
            TimeoutError: it still runs after ``within`` seconds.
        """
        if not self._results.poll(within):
            msg = f"process {self._process.pid} has not ended after {within} s"
            raise TimeoutError(msg)
        try:
            good, value = self._results.recv()
        except EOFError:
            self._process.join(_PATIENCE_S)
            msg = f"process {self._process.pid} ended with {self._process.exitcode}"
            raise ChildFailed(msg) from None
        if not good:
            raise ChildFailed(value)
        self._process.join(_PATIENCE_S)
        answer: R = value
        return answer

    def close(self) -> None:
        """End the process if it still runs."""
        if self._process.is_alive():
            self._process.kill()
        self._process.join(_PATIENCE_S)
        self._results.close()
        self._life.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _imported() -> list[str]:
    """Our modules, without the program: a child runs that by itself, under another name."""
    program = getattr(sys.modules["__main__"], "__spec__", None)
    ours = {"benchmarks", "deadq"}
    names = [name for name in sys.modules if name.partition(".")[0] in ours]
    return [name for name in names if program is None or name != program.name]


def _main(results: Connection, life: Connection, body: Callable[..., Any], args: Any) -> None:
    threading.Thread(target=_die_with_parent, args=(life,), daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all; the parent decides
    try:
        answer = (True, body(*args))
    except BaseException:  # noqa: BLE001  told to the parent, which raises it
        answer = (False, traceback.format_exc())
    results.send(answer)
    results.close()


def _die_with_parent(life: Connection) -> None:
    try:
        life.recv()
    except (EOFError, OSError):
        os._exit(1)
