"""Tells systemd how the worker is doing: ready, stopping, alive. Elsewhere it does nothing.

See ``man sd_notify``. Each message is one datagram from a socket of its own: there is nothing
that a forked child could inherit.
"""

from __future__ import annotations

import os
import socket
from collections.abc import MutableMapping
from typing import Final

from ...events import log

_VARIABLES: Final = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")
_PATIENCE_S: Final = 0.2
"""How long systemd may keep the worker waiting while its queue is full."""
_MOST_CHARACTERS: Final = 500


class Notifier:
    """Speaks to the socket at ``address``, or to nobody. No method ever raises."""

    def __init__(self, address: str | None = None, *, watchdog_s: float | None = None) -> None:
        self._address = _as_bytes(address) if address else None
        self.watchdog_s = watchdog_s if self._address else None
        """systemd takes the worker for dead after so many seconds without :meth:`watchdog`, which
        should be called twice as often; ``None``: nobody watches."""
        self._failing = False

    @classmethod
    def from_environment(cls, environ: MutableMapping[str, str] | None = None) -> Notifier:
        """What systemd asks for by its variables. They are taken out of the environment, so that
        no child speaks to systemd in this process's name."""
        given = os.environ if environ is None else environ
        address, microseconds, pid = (given.pop(name, "") for name in _VARIABLES)
        watched = microseconds.isdecimal() and pid in {"", str(os.getpid())}
        watchdog_s = int(microseconds[:18]) / 1e6 if watched else None
        return cls(address, watchdog_s=watchdog_s or None)

    def ready(self, status: str = "") -> None:
        """The worker serves."""
        self._send("READY=1" + (f"\nSTATUS={_line(status)}" if status else ""))

    def stopping(self) -> None:
        """The worker has begun to stop."""
        self._send("STOPPING=1")

    def watchdog(self) -> None:
        """The worker is alive."""
        self._send("WATCHDOG=1")

    def status(self, text: str) -> None:
        """What the worker is doing, for people; one line."""
        self._send(f"STATUS={_line(text)}")

    def _send(self, message: str) -> None:
        if self._address is None:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as speaker:
                speaker.settimeout(_PATIENCE_S)
                speaker.sendto(message.encode(errors="replace"), self._address)
        except OSError as error:
            if not self._failing:
                log.warning("systemd cannot be told %s: %s", message.partition("\n")[0], error)
            self._failing = True
        else:
            self._failing = False


def _as_bytes(address: str) -> bytes | None:
    """The address as the kernel takes it, if it is one of a unix socket."""
    if address.startswith("@"):  # an abstract name
        return b"\0" + os.fsencode(address[1:])
    if address.startswith("/"):
        return os.fsencode(address)
    log.warning("systemd's socket %r is neither a path nor an abstract name: not used", address)
    return None


def _line(text: str) -> str:
    return " ".join(text.split())[:_MOST_CHARACTERS]
