"""Where a worker answers, as it is typed."""

from __future__ import annotations


def address_in(text: str) -> tuple[str, int] | None:
    """``8080``, ``0.0.0.0:8080`` or ``[::1]:8080``; without a host this machine alone. None: it is
    no address."""
    host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdigit() and int(port) < 65_536):
        return None
    return host.strip("[]") or "127.0.0.1", int(port)
