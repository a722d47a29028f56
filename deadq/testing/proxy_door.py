"""Where a proxy listens: a port or a socket path that stays its own while it refuses connects."""

import shutil
import socket
import tempfile
from pathlib import Path
from typing import Literal

Listen = Literal["tcp", "unix"]


class Door:
    """A listening socket that can be shut and opened again at the same address."""

    def __init__(self, listen: Listen) -> None:
        if listen not in {"tcp", "unix"}:
            raise ValueError(f"a proxy cannot listen on {listen!r}: use 'tcp' or 'unix'")
        self.host, self.port = "", 0
        self.is_unix = listen == "unix"
        self._folder: Path | None = None
        self._place: socket.socket | None = None
        self.listener: socket.socket | None = None
        if listen == "unix":
            self._folder = Path(tempfile.mkdtemp(prefix="deadq-proxy-"))
            self.address = str(self._folder / "socket")
        else:
            # Bound but never listening: the port stays ours while the door is shut.
            self._place = _bound("127.0.0.1", 0)
            self.host, self.port = self._place.getsockname()
            self.address = f"{self.host}:{self.port}"

    @property
    def sockets(self) -> list[socket.socket]:
        """What is open now."""
        return [end for end in (self._place, self.listener) if end]

    def open(self) -> socket.socket:
        """Listen; returns the non-blocking socket to accept from."""
        if self.is_unix:
            Path(self.address).unlink(missing_ok=True)
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            listener.setblocking(False)
            listener.bind(self.address)
        else:
            listener = _bound(self.host, self.port)
        listener.listen(socket.SOMAXCONN)
        self.listener = listener
        return listener

    def shut(self) -> None:
        """Let connects be refused. The file of a unix socket stays, so that they are refused
        there, too, and not told that there is no such place.
        """
        if self.listener:
            self.listener.close()
            self.listener = None

    def remove(self) -> None:
        """Give the address back."""
        self.shut()
        if self._place:
            self._place.close()
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)


def _bound(host: str, port: int) -> socket.socket:
    """A socket on a port that others of ours may be bound to as well; not listening yet."""
    place = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    place.setblocking(False)
    place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    place.bind((host, port))
    return place
