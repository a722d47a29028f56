"""What a handler's fork means: for signal handlers that belong to one process, and for a new
process that comes back from the handler.

Between the fork and the end of the hook no signal gets through: one that is sent to the new
process at once, as to end it, finds there what signals mean by default.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import traceback
from _signal import getsignal  # type: ignore[import-not-found]  # the public one looks it up in an enum
from collections.abc import Collection
from typing import Any, NoReturn


class ForkHooks:
    """Takes ``handler`` off the signals in every process that is forked off while it stands."""

    _standing: ForkHooks | None = None
    _hooked = False

    def __init__(self, numbers: Collection[int], handler: Any) -> None:
        self._numbers = numbers
        self._handler = handler
        self._held_back = threading.local()
        """What each thread that forks had blocked before, as its ``mask``."""

    def start(self) -> None:
        """From now on."""
        cls = ForkHooks
        cls._standing = self
        if not cls._hooked:
            cls._hooked = True
            os.register_at_fork(
                before=cls._before, after_in_parent=cls._after, after_in_child=cls._in_child
            )

    def stop(self) -> None:
        """No longer."""
        ForkHooks._standing = None

    @classmethod
    def _before(cls) -> None:
        if cls._standing is not None:
            standing = cls._standing
            mask = signal.pthread_sigmask(signal.SIG_BLOCK, standing._numbers)
            standing._held_back.mask = mask

    @classmethod
    def _after(cls) -> None:
        if cls._standing is not None:
            cls._standing._unblock()

    @classmethod
    def _in_child(cls) -> None:
        standing, cls._standing = cls._standing, None
        if standing is None:
            return
        signal.set_wakeup_fd(-1)
        for number in standing._numbers:
            if getsignal(number) is standing._handler:
                signal.signal(number, signal.SIG_DFL)
        standing._unblock()

    def _unblock(self) -> None:
        # None before: the hooks have come to stand while this thread was between two of them
        mask = getattr(self._held_back, "mask", None)
        if mask is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def end_fork(value: object, *, good: bool) -> NoReturn:
    """A handler forked, and the new process came back from it, with what it returned (``good``) or
    raised: it ends here, for the job, the connections and the lease are its parent's."""
    code = 0
    if isinstance(value, SystemExit):
        code = value.code if isinstance(value.code, int) else int(value.code is not None)
    elif not good and isinstance(value, BaseException):
        traceback.print_exception(value)
        code = 1
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, ValueError, OSError):
            stream.flush()
    os._exit(code)
