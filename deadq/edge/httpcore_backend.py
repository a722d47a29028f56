"""httpcore's blocking connections, with waits bounded by what is left of the whole call."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import httpcore
import httpx

from .blocking import addresses, left_of

_PIECE: Final = 16_384


def bounded(transport: httpx.HTTPTransport) -> httpx.HTTPTransport:
    """The transport, with connections whose waits are bounded."""
    # httpx has no parameter for it; httpcore, which makes the connections, has
    transport._pool._network_backend = _Backend(httpcore.SyncBackend())
    return transport


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
        try:
            found = addresses(host, port, left_of(timeout))
        except TimeoutError as late:
            raise httpcore.ConnectTimeout(str(late)) from late
        except OSError as unknown:
            raise httpcore.ConnectError(str(unknown)) from unknown
        for address in found:
            try:
                stream = self._inner.connect_tcp(
                    address, port, left_of(timeout), local_address, options
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
        return _Stream(self._inner.connect_unix_socket(path, left_of(timeout), socket_options))

    def sleep(self, seconds: float) -> None:
        self._inner.sleep(left_of(seconds) or 0.0)


class _Stream(httpcore.NetworkStream):
    def __init__(self, inner: httpcore.NetworkStream) -> None:
        self._inner = inner

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._inner.read(max_bytes, left_of(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        # piece by piece: of a peer that takes a byte now and then each wait is short
        for at in range(0, len(buffer), _PIECE):
            self._inner.write(buffer[at : at + _PIECE], left_of(timeout))

    def close(self) -> None:
        self._inner.close()

    def start_tls(
        self,
        ssl_context: Any,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        return _Stream(self._inner.start_tls(ssl_context, server_hostname, left_of(timeout)))

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)
