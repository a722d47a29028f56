"""Doing something in a moment, for blocking code: one thread of the process waits for all of it."""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
from collections.abc import Callable

from . import clock
from .events import Log
from .store.wire import Forks

log = Log(logging.getLogger("deadq.producer"), {})


class _Waiter:
    """The thread, and what it is to do when (monotonic s)."""

    def __init__(self) -> None:
        self.forks = Forks.count
        self._changed = threading.Condition()
        self._numbers = itertools.count()
        self._waiting: list[tuple[float, int, Callable[[], object]]] = []
        threading.Thread(target=self._run, name="deadq-soon", daemon=True).start()

    def add(self, at: float, do: Callable[[], object]) -> None:
        with self._changed:
            heapq.heappush(self._waiting, (at, next(self._numbers), do))
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                left = self._waiting[0][0] - clock.monotonic() if self._waiting else None
                if left is None or left > 0:
                    self._changed.wait(left)
                    continue
                _, _, do = heapq.heappop(self._waiting)
            _tried(do)  # the others that wait have no part in its failure


def _tried(do: Callable[[], object]) -> None:
    try:
        do()
    except Exception:
        log.exception("what was to be done in a moment has failed")


class _Process:
    """What this process has; a forked child starts afresh, without its parent's thread."""

    waiter: _Waiter | None = None
    lock = threading.Lock()


def soon(seconds: float, do: Callable[[], object]) -> None:
    """Call ``do`` in so many seconds, in another thread. It must not raise, nor take long: what
    asks a server goes :func:`apart`."""
    found = _Process.waiter
    if found is None or found.forks != Forks.count:
        if found is not None:
            _Process.lock = threading.Lock()  # a fork may have copied it locked
        with _Process.lock:
            found = _Process.waiter
            if found is None or found.forks != Forks.count:
                found = _Process.waiter = _Waiter()
    found.add(clock.monotonic() + seconds, do)


def apart(do: Callable[[], object]) -> None:
    """Call ``do`` in a thread of its own, which ends with it."""
    threading.Thread(target=_tried, args=(do,), name="deadq-apart", daemon=True).start()
