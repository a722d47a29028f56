"""The one timer of a process: SIGALRM at an instant, and again and again until it is set anew."""

from __future__ import annotations

import math
import signal
from typing import Final

from ... import clock
from ...events import Event, log

REPEAT_S: Final = 0.05
"""A signal that came just before a blocking call began would be lost without another one."""

_SHORTEST_S: Final = 0.0001
"""A timer of no time at all would never go off."""


class Alarm:
    """Set lazily: one that goes off too early costs less than setting it for every job."""

    def __init__(self) -> None:
        self._at = math.inf
        """When it goes off (monotonic s); -inf: it has, and repeats."""

    def set(self, at: float) -> None:
        """Go off at ``at`` (monotonic s); inf: not at all."""
        if at == math.inf:
            signal.setitimer(signal.ITIMER_REAL, 0)
        else:
            delay = max(at - clock.monotonic(), _SHORTEST_S)
            signal.setitimer(signal.ITIMER_REAL, delay, REPEAT_S)
        # last: if a signal handler sets it meanwhile, this is later than the truth, never earlier
        self._at = at

    def by(self, at: float) -> None:
        """Go off at ``at`` or before."""
        if at < self._at or self._at == -math.inf:
            self.set(at)

    def gone_off(self) -> None:
        """To be called when SIGALRM has come."""
        self._at = -math.inf

    def mend(self) -> None:
        """Set it again if somebody has used the timer for something else."""
        at = self._at
        left, interval = signal.getitimer(signal.ITIMER_REAL)
        ours = bool(left) and abs(interval - REPEAT_S) < REPEAT_S / 10
        if ours != (at < math.inf) and at == self._at:  # it has not just gone off
            log.warning("%s: the timer of SIGALRM, which is deadq's", Event.LEFT_BEHIND)
            self.set(at)
