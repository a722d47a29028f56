"""The lock behind a supervised child's gate: no child is killed inside a unit.

A child holds a lock while any of its units is open. A supervisor that has to kill it takes that
lock first, without waiting; once it has it, no unit can begin. The kernel frees the lock of a
child that dies. It is a POSIX record lock, one byte for each child of a file without a name: such
locks belong to the process, so a program that a handler has started does not keep one alive.
"""

from __future__ import annotations

import contextlib
import fcntl
import tempfile
from collections.abc import Iterator

from .board import Page


class Locks:
    """One lock for each child: byte ``index`` of a file that has no name."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  lives as long as the supervisor

    def take(self, index: int) -> bool:
        """Lock without waiting; False: another process has it."""
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, index)
        except (BlockingIOError, PermissionError):  # which of them is the system's choice
            return False
        return True

    def free(self, index: int) -> None:
        """Unlock."""
        fcntl.lockf(self._file, fcntl.LOCK_UN, 1, index)

    def close(self) -> None:
        """Give the file back."""
        self._file.close()


class LockedGate:
    """The gate of a supervised child; to be used by one thread."""

    def __init__(self, page: Page, locks: Locks, index: int) -> None:
        self._page = page
        self._locks = locks
        self._index = index
        self._open: list[float] = []
        self._running: list[float] = []

    @contextlib.contextmanager
    def passing(self, until: float) -> Iterator[bool]:
        # said before the lock is taken: whoever finds it taken must know until when to wait
        self._open.append(until)
        self._page.unit_until = max(self._open)
        try:
            first = len(self._open) == 1
            yield not self._page.condemned and (not first or self._locks.take(self._index))
        finally:
            self._open.remove(until)
            self._page.unit_until = max(self._open, default=0.0)
            if not self._open:
                self._locks.free(self._index)

    @contextlib.contextmanager
    def running(self, until: float) -> Iterator[None]:
        self._running.append(until)
        self._page.unit_due = min(self._running)
        try:
            yield
        finally:
            self._running.remove(until)
            self._page.unit_due = min(self._running, default=0.0)
