"""One child, as its supervisor sees it."""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import signal
from collections.abc import Callable
from typing import Final

from ... import clock
from ..settings import Ties
from ..ties.board import Page, Sheet
from ..ties.channel import Channel
from ..ties.unit_lock import LockedGate, Locks
from .spawn import Birth, fork, live

_places = itertools.count()
"""Bytes of the lock file: never the same for two children."""

_TO_LEAVE_S: Final = 0.5
"""So long after its last unit a child may take to report the job."""

_AFTER_LIMIT_S: Final = 0.25
"""So long after the limit of its last unit a child is killed inside it."""


class Charge:
    """A child in a supervisor's care: where it is reached, what it holds, and how it may end.

    Raises:
        OSError: no process, socket or memory is to be had for it.
    """

    def __init__(self, birth: Birth, slots: int, locks: Locks, let_go: Callable[[], None]) -> None:
        self.number = birth.number
        self.child = ""
        """Its id, once it is registered."""
        self.leaving = False
        """Whether it claims no more, and its place is somebody else's."""
        self.said_bye = False
        self.fault: tuple[int, str] | None = None
        self.killed = False
        self._in_unit_at = -math.inf
        self._locks = locks
        self._place = next(_places)
        with contextlib.ExitStack() as half_made:
            self.page = Page(slots)
            half_made.callback(self.page.close)
            self.channel, theirs = Channel.pair()
            half_made.callback(self.channel.close)
            half_made.callback(theirs.close)

            def work() -> int:
                self.channel.close()
                let_go()
                gate = LockedGate(self.page, locks, self._place)
                return live(birth, Ties(self.page, gate, theirs))

            self.pid = fork(work)
            half_made.pop_all()
        theirs.close()

    @property
    def suspect(self) -> bool:
        """Whether it is there for suspects alone."""
        return self.number is None

    @property
    def retired(self) -> bool:
        """Whether it is replaced, and has given its id up for good."""
        return self.leaving and bool(self.child) and not self.sheet().child

    def sheet(self) -> Sheet:
        """What it holds."""
        return self.page.read()

    def unit_over(self, now: float) -> bool:
        """Whether it runs a unit's function whose limit was over at ``now`` (monotonic s)."""
        return 0 < self.page.unit_due < now

    def kill(self) -> bool:
        """Kill it, unless it is in a unit whose limit is not over, or was just now: the
        interruption that waited for the unit's end gets time. Says whether it did."""
        now = clock.monotonic()
        if now < self.page.unit_until + _AFTER_LIMIT_S:
            self._in_unit_at = now
        if now < self._in_unit_at + _TO_LEAVE_S:
            return False
        if not self._locks.take(self._place) and now < self.page.unit_until + _AFTER_LIMIT_S:
            return False  # it has begun one in this very moment
        self.page.condemn()
        self.killed = True
        os.kill(self.pid, signal.SIGKILL)
        return True

    def reap(self) -> int | None:
        """Its exit code if it has ended (a signal's number negative), else None."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if pid else None

    def close(self) -> None:
        """It has ended, and been accounted for."""
        self._locks.free(self._place)
        self.channel.close()
        self.page.close()
