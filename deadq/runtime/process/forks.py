"""What a fork means for signal handlers that belong to one process.

Between the fork and the end of the hook no signal gets through: one that is sent to the new
process at once, as to end it, finds there what signals mean by default.
"""

from __future__ import annotations

import os
import signal
from _signal import getsignal  # type: ignore[import-not-found]  # the public one looks it up in an enum
from collections.abc import Collection
from typing import Any


class ForkHooks:
    """Takes ``handler`` off the signals in every process that is forked off while it stands."""

    _standing: ForkHooks | None = None
    _hooked = False

    def __init__(self, numbers: Collection[int], handler: Any) -> None:
        self._numbers = numbers
        self._handler = handler
        self._held_back: set[Any] = set()

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
            standing._held_back = signal.pthread_sigmask(signal.SIG_BLOCK, standing._numbers)

    @classmethod
    def _after(cls) -> None:
        if cls._standing is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, cls._standing._held_back)

    @classmethod
    def _in_child(cls) -> None:
        standing, cls._standing = cls._standing, None
        if standing is None:
            return
        signal.set_wakeup_fd(-1)
        for number in standing._numbers:
            if getsignal(number) is standing._handler:
                signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, standing._held_back)
