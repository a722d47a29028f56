"""Words between a supervisor and a child: lines of text over a pair of sockets.

Neither side ever waits for the other, but for a child that is told when to begin. What cannot be
sent to a child that does not read is left out: whatever matters is told again with the next
renewal. The end of the other process is heard as the end of the stream.
"""

from __future__ import annotations

import contextlib
import select
import socket
from typing import Final

_BACKLOG: Final = 1 << 18
"""Most bytes that wait for a child that does not read."""


class Channel:
    """One end. ``closed`` once the other side is gone."""

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self._end = end
        self._unsent = b""
        self._heard = b""
        self._kept: list[str] = []
        self.closed = False

    @classmethod
    def pair(cls) -> tuple[Channel, Channel]:
        """Both ends."""
        ours, theirs = socket.socketpair()
        return cls(ours), cls(theirs)

    def fileno(self) -> int:
        """For a selector."""
        return self._end.fileno()

    def send(self, *words: object) -> None:
        """Send one line; never waits, never fails."""
        if len(self._unsent) < _BACKLOG:
            self._unsent += " ".join(map(str, words)).replace("\n", " ").encode() + b"\n"
        self._flush()

    def _flush(self) -> None:
        try:
            while self._unsent:
                self._unsent = self._unsent[self._end.send(self._unsent) :]
        except BlockingIOError:
            return
        except OSError:
            self._unsent = b""
            self.closed = True

    def await_line(self, line: str) -> None:
        """Wait until something is said, or the other side is gone. If it was ``line``, that is all
        there is to it; anything else stays to be received. What is still unsent goes on its way:
        the other side may be waiting for its end."""
        while not (self.closed or self._kept):
            select.select([self._end], [self._end] if self._unsent else [], [])
            self._flush()
            lines = self.receive()
            if line in lines:
                lines.remove(line)
                self._kept += lines
                return
            self._kept += lines

    def receive(self) -> list[str]:
        """The lines that have come."""
        try:
            while not self.closed:
                data = self._end.recv(65_536)
                self._heard += data
                self.closed = not data
        except BlockingIOError:
            pass
        except OSError:
            self.closed = True
        *lines, self._heard = self._heard.split(b"\n")
        kept, self._kept = self._kept, []
        return kept + [line.decode(errors="replace") for line in lines]

    def hang_up(self) -> None:
        """Say nothing more: for the other side this one is gone. What it says is still heard."""
        with contextlib.suppress(OSError):  # it is gone itself
            self._end.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close this process's copy of the end."""
        self._end.close()
