"""A lock around a few counters, which neither a fork nor a signal may leave held.

A forked child has a copy of each lock as it was, but of the threads only the one that forked. What
another one held would be held for ever, and the first call that counts would hang. And a signal's
handler that calls may come in between, in the thread that holds the lock.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any, Final

_all: Final[weakref.WeakSet[Any]] = weakref.WeakSet()


def counting_lock() -> threading.RLock:
    """One that is free in a forked child, and that its own thread may take again.

    What it guards may have been left half counted there: it has to be such as mends itself.
    """
    lock = threading.RLock()
    _all.add(lock)
    return lock


def _free_all() -> None:
    for lock in list(_all):
        lock._at_fork_reinit()  # as threading and logging do with theirs


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_free_all)
