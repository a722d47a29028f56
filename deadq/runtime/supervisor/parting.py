"""How a child takes leave of the user's code, which knows only that its interpreter ends.

A forked process ends by ``os._exit()``, which does none of what the end of an interpreter does. So
what the user's module has registered with ``atexit`` is called here, and processes that it has
begun by multiprocessing are ended; nobody else would.
"""

from __future__ import annotations

import atexit
import contextlib
import signal
import sys
from typing import Final

_LEAVE_S: Final = 5.0
"""All of it may take so long; then the process ends where it stands."""


def forget_parents() -> None:
    """At the beginning: what the supervisor's program has registered is not this child's to do."""
    atexit._clear()


def take_leave() -> None:
    """At the end, on the main thread. Threads that are left are not waited for."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
    signal.setitimer(signal.ITIMER_REAL, _LEAVE_S)
    for part in (_end_pools, atexit._run_exitfuncs, _end_daemons):
        with contextlib.suppress(BaseException):
            part()
    signal.setitimer(signal.ITIMER_REAL, 0)


def _end_pools() -> None:
    """Executors of processes, which the interpreter ends when it waits for its threads."""
    pools = sys.modules.get("concurrent.futures.process")
    if pools is not None:
        pools._python_exit()


def _end_daemons() -> None:
    multiprocessing = sys.modules.get("multiprocessing")
    if multiprocessing is None:
        return
    for process in multiprocessing.active_children():
        with contextlib.suppress(AssertionError):  # it is the supervisor's program's
            if process.daemon and process.is_alive():
                process.terminate()
