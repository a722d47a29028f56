"""What a child of the process runner hears from its supervisor, and its waits.

The words are taken in wherever the main thread is, in a handler's blocking call too: the socket
raises a signal when there is something to read. A wait is woken by words and by signals.
"""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import select
import signal
from typing import Final

from ... import clock
from ..jobs.run import MARK_OF, SyncRun
from ..ties.channel import Channel

_FULL: Final = 4096
"""Bytes read at a time from the pipe that signals write to."""


class Hearing:
    """The words so far, as they are to be obeyed. Instants are monotonic s."""

    def __init__(self, channel: Channel, grace: float) -> None:
        self._channel = channel
        self._grace = grace
        self._listening = False
        self._more = False
        self.run: SyncRun | None = None
        """The run that words may be about."""
        self.child = ""
        """The id under which it is known."""
        self.token = False
        """Whether there may be work."""
        self.lapsed = False
        """Whether the lease of this id is over."""
        self.stop_at = math.inf
        """When a handler has to stop because the worker does."""
        self.leaving = False
        """Whether this child is to claim nothing more, and to go once it is free."""
        self.alone = False
        """Whether the supervisor is gone."""
        self._woken, self._wake = os.pipe()
        for end in (self._woken, self._wake):
            os.set_blocking(end, False)

    # The words.

    @property
    def going(self) -> bool:
        """Whether nothing more is to be claimed."""
        return self.leaving or self.stop_at < math.inf

    def listen(self) -> None:
        """Take in what has been said. A signal may call this in the midst of a call of it."""
        self._more = True
        if self._listening:
            return  # whoever is at it looks once more
        self._listening = True
        try:
            while self._more:
                self._more = False
                for line in self._channel.receive():
                    self._obey(line)
        finally:
            self._listening = False
        if self._channel.closed and not self.alone:
            self.alone = True
            self.hasten()

    def stop(self) -> None:
        """Claim nothing more, and let a handler run on for the grace; a second time changes
        nothing."""
        self.stop_at = min(self.stop_at, clock.monotonic() + self._grace)

    def hasten(self) -> None:
        """Stop, and interrupt a handler now."""
        self.stop_at = min(self.stop_at, clock.monotonic())

    def _obey(self, line: str) -> None:
        word, _, rest = line.partition(" ")
        if word == "unit" or word in MARK_OF:
            self._about_job(word, rest)
        elif word == "lapsed":
            if rest == self.child:
                self.lapsed = True
                if self.run is not None:
                    self.run.interrupt("lost")
        elif word in ("token", "deaf"):
            self.token = True
        elif word == "stop":
            self.stop()
        elif word == "hasten":
            self.hasten()
        elif word == "leave":
            self.leaving = True

    def _about_job(self, word: str, rest: str) -> None:
        run = self.run
        if run is None or rest != f"{run.claim.id} {run.claim.fence}":
            return
        if word == "unit":
            run.unit_recorded = True
        else:
            run.interrupt(MARK_OF[word])

    # Waiting.

    def prick_up(self) -> None:
        """Have the socket raise SIGIO in this process, whose handler must stand already; hear what
        was said before."""
        descriptor = self._channel.fileno()
        fcntl.fcntl(descriptor, fcntl.F_SETOWN, os.getpid())
        flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | os.O_ASYNC)
        self._armed()
        self.listen()

    def wait(self, seconds: float) -> None:
        """Until something is said or a signal has come, at most so long; perhaps for nothing.

        Whoever waits for something looks again: it may have come before the wait.
        """
        if not self._armed():
            return
        if self._channel.closed and not self.alone:
            self.listen()  # that nobody is there any more was found out in sending
            return
        watched: list[int] = [self._woken]
        if not self._channel.closed:
            watched.append(self._channel.fileno())
        select.select(watched, (), (), max(0.0, seconds))
        with contextlib.suppress(BlockingIOError):
            while len(os.read(self._woken, _FULL)) == _FULL:
                pass
        self.listen()

    def close(self) -> None:
        """Hear nothing any more."""
        signal.set_wakeup_fd(-1)
        descriptor = self._channel.fileno()
        flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags & ~os.O_ASYNC)
        os.close(self._woken)
        os.close(self._wake)

    def _armed(self) -> bool:
        """Let signals write to the pipe; says whether they did before. A handler that used an
        event loop may have taken that away."""
        return signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False) == self._wake
