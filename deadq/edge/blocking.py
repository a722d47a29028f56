"""Blocking network calls that keep to a deadline in all their parts.

A timeout of a socket bounds one wait; a peer that sends a byte now and then keeps a call alive
for ever (encode/httpx issue 1450). So each wait is bounded by what is left of the whole.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from typing import Any, Final, TypeVar

import httpcore
import httpx

from ..deadline import Deadline

T = TypeVar("T")

_LEAST_S: Final = 0.001
"""A timeout of 0 would mean not to wait at all, and to fail for another reason."""

_deadline: ContextVar[Deadline | None] = ContextVar("deadq_blocking_deadline", default=None)


@contextlib.contextmanager
def keeping_to(deadline: Deadline) -> Iterator[None]:
    """Bound every wait of the block."""
    token = _deadline.set(deadline)
    try:
        yield
    finally:
        _deadline.reset(token)


def bounded(transport: httpx.HTTPTransport) -> httpx.HTTPTransport:
    """The transport, with connections whose waits are bounded."""
    # httpx has no parameter for it; httpcore, which makes the connections, has
    transport._pool._network_backend = _Backend(httpcore.SyncBackend())
    return transport


def _left(timeout: float | None) -> float | None:
    """What a wait may take, if it may take ``timeout`` by itself."""
    deadline = _deadline.get()
    if deadline is None:
        return timeout
    left = max(deadline.remaining(), _LEAST_S)
    return left if timeout is None else min(timeout, left)


class _Backend(httpcore.NetworkBackend):
    def __init__(self, inner: httpcore.NetworkBackend) -> None:
        self._inner = inner

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        error: Exception | None = None
        options = None if socket_options is None else list(socket_options)
        for address in _addresses(host, port, _left(timeout)):
            try:
                stream = self._inner.connect_tcp(
                    address, port, _left(timeout), local_address, options
                )
                return _Stream(stream)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as failed:
                error = failed
        raise error or httpcore.ConnectError(f"{host} has no address")

    def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        return _Stream(self._inner.connect_unix_socket(path, _left(timeout), socket_options))

    def sleep(self, seconds: float) -> None:
        self._inner.sleep(_left(seconds) or 0.0)


class _Stream(httpcore.NetworkStream):
    def __init__(self, inner: httpcore.NetworkStream) -> None:
        self._inner = inner

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._inner.read(max_bytes, _left(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        # piece by piece: of a peer that takes a byte now and then each wait is short
        for at in range(0, len(buffer), _PIECE):
            self._inner.write(buffer[at : at + _PIECE], _left(timeout))

    def close(self) -> None:
        self._inner.close()

    def start_tls(
        self,
        ssl_context: Any,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        return _Stream(self._inner.start_tls(ssl_context, server_hostname, _left(timeout)))

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


_PIECE: Final = 16_384


def _addresses(host: str, port: int, timeout: float | None) -> list[str]:
    """Addresses of a host, in the order in which they are to be tried."""
    if timeout is None:
        return [host]
    try:
        found = _within(timeout, lambda: socket.getaddrinfo(host, port, 0, socket.SOCK_STREAM))
    except OSError as error:
        raise httpcore.ConnectError(str(error)) from error
    return [str(entry[4][0]) for entry in found]


def _within(timeout: float, call: Callable[[], T]) -> T:
    """Of a call that nothing can interrupt: what it returned, unless that takes too long."""
    answers: list[T] = []
    errors: list[Exception] = []

    def work() -> None:
        try:
            answers.append(call())
        except Exception as error:  # noqa: BLE001  raised where it is waited for
            errors.append(error)

    thread = threading.Thread(target=work, name="deadq-resolver", daemon=True)
    thread.start()
    thread.join(timeout)
    if errors:
        raise errors[0]
    if not answers:
        msg = "the name was not resolved in time"
        raise httpcore.ConnectTimeout(msg)
    return answers[0]
