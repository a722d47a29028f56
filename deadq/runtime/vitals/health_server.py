"""Answers health probes by HTTP, on the supervisor's own thread.

A thread beside it would answer while the supervisor hangs, and forking with threads is unsafe.
"""

from __future__ import annotations

import contextlib
import json
import math
import socket
from collections.abc import Callable, Mapping
from typing import Final

from ... import clock
from ...config import whole
from ...errors import DeadqError, shown

_PATIENCE_S: Final = 2.0
"""A connection that has not ended by itself after so long is closed."""
_MOST_CONNECTIONS: Final = 32
_MOST_BYTES: Final = 4096
_MOST_DRAINED: Final = 65_536
_REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
}

Read = Callable[[], Mapping[str, object]]


class HealthServer:
    """Answers GET /health, /health/live and /health/ready: 200 or 503, with what ``read`` gives.

    Live is what ``read`` calls ``live``; ready is who is live and ``ready``; /health asks for
    both. ``read`` is :meth:`Health.read` or the like.

    The supervisor's loop drives it. It watches ``fileno()`` for reading and calls :meth:`accept`;
    it watches what that gives, and calls its ``on_readable()`` until that is false; by ``until``
    it calls :meth:`expire`. What these give back as closed it watches no longer. A forked child
    calls :meth:`forget`.

    Args:
        host: an address of this machine; ``"0.0.0.0"`` or ``"::"`` for all.
        port: 0 takes a free one, to be read from ``address``.
        read: gives the worker's state at the time of a question.

    Raises:
        ValueError, TypeError: there is no such port.
        DeadqError: the address cannot be listened to.
    """

    def __init__(self, host: str, port: int, read: Read) -> None:
        whole(port, "port", 0, 65_535)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            self._listener = socket.create_server((host, port), family=family)
        except (OSError, UnicodeError) as error:
            why = getattr(error, "strerror", None) or error
            msg = (
                f"the health endpoint cannot listen at {shown(host)}, port {port} ({why}); name an "
                "address of this machine and a port that is free, or port 0 for any"
            )
            raise DeadqError(msg) from error
        self._listener.setblocking(False)
        self._read = read
        self._connections: list[HealthConnection] = []
        self.address: tuple[str, int] = self._listener.getsockname()[:2]

    @property
    def until(self) -> float:
        """When :meth:`expire` has something to do (monotonic s); infinite: there is nothing."""
        return min((one.until for one in self._open()), default=math.inf)

    def fileno(self) -> int:
        return self._listener.fileno()

    def accept(self) -> HealthConnection | None:
        """Take a connection; ``None`` where it has gone again, or there are too many."""
        try:
            client, _ = self._listener.accept()
        except OSError:
            return None
        if len(self._open()) >= _MOST_CONNECTIONS:
            client.close()
            return None
        connection = HealthConnection(client, self._read)
        self._connections.append(connection)
        return connection

    def expire(self) -> list[HealthConnection]:
        """Close the connections whose time is over, and return them."""
        now = clock.monotonic()
        late = [one for one in self._open() if one.until <= now]
        for connection in late:
            connection.close()
        return late

    def close(self) -> None:
        """Stop listening, and end every connection."""
        for connection in self._open():
            connection.close()
        self._listener.close()

    def forget(self) -> None:
        """In a forked child: drop its copies. The supervisor goes on answering."""
        for connection in self._open():
            connection.forget()
        self._listener.close()

    def _open(self) -> list[HealthConnection]:
        self._connections = [one for one in self._connections if not one.closed]
        return self._connections


class HealthConnection:
    """One question and its answer. ``until`` is when its time is over (monotonic s)."""

    def __init__(self, client: socket.socket, read: Read) -> None:
        client.setblocking(False)
        self._client = client
        self._read = read
        self._asked = b""
        self._answered = False
        self._drained = 0
        self.until = clock.monotonic() + _PATIENCE_S

    @property
    def closed(self) -> bool:
        return self.fileno() < 0

    def fileno(self) -> int:
        return self._client.fileno()

    def on_readable(self) -> bool:
        """Take what has come, and answer once the question is whole. Whether it stays open."""
        try:
            came = self._client.recv(_MOST_BYTES + 1)
        except BlockingIOError:
            return True
        except OSError:
            came = b""
        if not came or self._drained > _MOST_DRAINED:
            self.close()
        elif self._answered:
            # until the client has read the answer and goes: a reset would take it away from it
            self._drained += len(came)
        else:
            self._asked += came
            self._answer_if_whole()
        return not self.closed

    def close(self) -> None:
        """End it, even where a child that was forked meanwhile holds a copy."""
        with contextlib.suppress(OSError):
            self._client.shutdown(socket.SHUT_RDWR)
        self._client.close()

    def forget(self) -> None:
        """Drop this process's copy."""
        self._client.close()

    def _answer_if_whole(self) -> None:
        if len(self._asked) > _MOST_BYTES:
            answer = _response(431, {"error": f"a request may have {_MOST_BYTES} bytes"})
        elif b"\r\n\r\n" in self._asked or b"\n\n" in self._asked:
            line = self._asked.partition(b"\n")[0]
            answer = _answer(line.decode("latin-1").split(), self._read)
        else:
            return
        self._answered = True
        try:
            # a fresh socket's buffer takes far more than an answer: what it refuses is not worth
            # waiting for
            self._client.sendall(answer)
            self._client.shutdown(socket.SHUT_WR)
        except OSError:
            self.close()


def _answer(words: list[str], read: Read) -> bytes:
    """The answer to a request line. Neither headers nor a body could change it."""
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        return _response(400, {"error": "not an HTTP/1 request"})
    method, target, _ = words
    question = target.partition("?")[0]
    if question not in {"/health", "/health/live", "/health/ready"}:
        error = {"error": "no such page; there are /health, /health/live and /health/ready"}
        return _response(404, error, bare=method == "HEAD")
    if method != "GET":
        return _response(405, {"error": "only GET is answered"}, bare=method == "HEAD")
    state = read()
    good = state.get("live") is True
    if question != "/health/live":
        good = good and state.get("ready") is True
    return _response(200 if good else 503, {"healthy": good, **state})


def _response(code: int, document: Mapping[str, object], *, bare: bool = False) -> bytes:
    """The bytes of an answer; a ``bare`` one has no body, as HEAD asks."""
    body = json.dumps(document).encode()
    head = [
        f"HTTP/1.1 {code} {_REASONS[code]}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        "Cache-Control: no-store",
        "Connection: close",
        *(["Allow: GET"] if code == 405 else []),
    ]
    return "\r\n".join([*head, "", ""]).encode() + (b"" if bare else body)
