"""Deadlines for calls by requests: passed on, and kept to.

    session = requests.Session()
    session.mount("https://", DeadlineAdapter(dependency="quotes"))

A call goes by the ambient deadline, all of it: see :mod:`deadq.edge.httpx`.
"""

from __future__ import annotations

import contextlib
import io
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import requests
from requests.adapters import HTTPAdapter
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import ConnectTimeoutError, NameResolutionError, NewConnectionError

from ..deadline import NETWORK_MARGIN_S, Deadline
from ..errors import DeadlineExceeded
from .blocking import addresses, keeping_to, left_of
from .outbound import CallTerms

_PIECE: Final = 16_384


class CallDeadlineExceeded(DeadlineExceeded, requests.Timeout):
    """A call took until the deadline, or had no time for it. To code that knows requests alone it
    is one of its timeouts."""

    def __init__(self, message: str, *, request: Any = None) -> None:
        DeadlineExceeded.__init__(self, message)
        self.request, self.response = request, None


class DeadlineAdapter(HTTPAdapter):
    """Keeps calls to the ambient deadline.

    Args:
        dependency: whom the calls are for: the label of ``deadq_outbound_calls_total``.
        margin: seconds of the deadline that the callee does not get, so that its answer can still
            be used.
        trusted: whether the callee is one of ours: others are told how much time is left, and
            neither the instant nor the retries that are left.
        options: those of ``requests.adapters.HTTPAdapter``, but ``max_retries``.

    Raises:
        CallDeadlineExceeded: of a call: it took too long, or there was no time for it.
        ValueError: an odd margin; ``max_retries``.
    """

    def __init__(
        self,
        *,
        dependency: str,
        margin: float = NETWORK_MARGIN_S,
        trusted: bool = True,
        **options: Any,
    ) -> None:
        if options.get("max_retries"):
            msg = "max_retries: no budget bounds these; put deadq.resilience.retry around the call"
            raise ValueError(msg)
        self._terms = CallTerms(dependency, margin, trusted=trusted)
        super().__init__(**options)

    def init_poolmanager(self, *args: Any, **options: Any) -> None:
        """Make the pools, whose waits are bounded."""
        super().init_poolmanager(*args, **options)
        self.poolmanager.pool_classes_by_scheme = {"http": _Pool, "https": _TlsPool}

    def send(self, request: requests.PreparedRequest, *args: Any, **options: Any) -> Any:
        """One request; a redirect is another one."""
        try:
            deadline, told = self._terms.for_call()
        except DeadlineExceeded as late:
            raise CallDeadlineExceeded(str(late), request=request) from None
        request.headers.update(told)
        if deadline is None:
            return super().send(request, *args, **options)
        limits = _Limits(deadline, self._terms, request)
        with limits.blocking():
            response = super().send(request, *args, **options)
        response.raw = _Raw(response.raw, limits)
        return response


@dataclass(frozen=True, slots=True)
class _Limits:
    """Until when a call and each step of it may take."""

    deadline: Deadline
    terms: CallTerms
    request: requests.PreparedRequest

    @contextlib.contextmanager
    def blocking(self) -> Iterator[None]:
        """Around a step that blocks."""
        try:
            with keeping_to(self.deadline):
                yield
        except Exception as error:
            if not self.deadline.expired:
                raise
            raise CallDeadlineExceeded(self.terms.over(), request=self.request) from error


class _Raw:
    """A body that has to have arrived by the deadline."""

    def __init__(self, raw: Any, limits: _Limits) -> None:
        self._raw = raw
        self._limits = limits

    def __getattr__(self, name: str) -> Any:
        return getattr(self._raw, name)

    def read(self, *args: Any, **options: Any) -> bytes:
        """As that of urllib3."""
        with self._kept():
            data: bytes = self._raw.read(*args, **options)
        return data

    def stream(self, *args: Any, **options: Any) -> Iterator[bytes]:
        """As that of urllib3."""
        pieces = self._raw.stream(*args, **options)
        while True:
            with self._kept():
                piece = next(pieces, None)
            if piece is None:
                return
            yield piece

    @contextlib.contextmanager
    def _kept(self) -> Iterator[None]:
        try:
            with self._limits.blocking():
                yield
        except DeadlineExceeded:
            self._raw.close()  # the rest of it may still come: nobody is to read that
            raise


class _Socket:
    """A socket whose every wait is bounded by what is left of the whole call."""

    def __init__(self, inner: socket.socket) -> None:
        self._inner = inner
        self._timeout = inner.gettimeout()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def settimeout(self, timeout: float | None) -> None:
        self._timeout = timeout
        self._inner.settimeout(timeout)

    def bound(self) -> socket.socket:
        """The socket, for one wait."""
        self._inner.settimeout(left_of(self._timeout))
        return self._inner

    def sendall(self, data: Any) -> None:
        view = memoryview(data)
        for at in range(0, len(view), _PIECE):
            self.bound().sendall(view[at : at + _PIECE])

    def makefile(self, *_: Any, **__: Any) -> io.BufferedReader:
        """What http.client reads from."""
        raw: Any = self._inner.makefile("rb", buffering=0)
        return io.BufferedReader(_Reading(self, raw))


class _Reading(io.RawIOBase):
    def __init__(self, line: _Socket, raw: Any) -> None:
        self._line = line
        self._raw = raw

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._line.bound()
        count: int | None = self._raw.readinto(buffer)
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Bounded:
    """A connection that is made, written to and read from within what is left."""

    host: str
    port: int
    timeout: Any
    sock: Any
    _dns_host: str

    def _new_conn(self) -> socket.socket:
        given, host = self.timeout, self._dns_host
        error: Exception | None = None
        try:
            found = addresses(host, self.port, left_of(_number(given)))
        except TimeoutError as late:
            raise ConnectTimeoutError(self, str(late)) from late
        except socket.gaierror as unknown:
            raise NameResolutionError(host, self, unknown) from unknown  # type: ignore[arg-type]
        try:
            for address in found:
                self._dns_host, self.timeout = address, left_of(_number(given))
                try:
                    made: socket.socket = super()._new_conn()  # type: ignore[misc]
                except (ConnectTimeoutError, NewConnectionError) as failed:
                    error = failed
                else:
                    return made
        finally:
            self._dns_host, self.timeout = host, given
        raise error or NewConnectionError(self, f"{host} has no address")  # type: ignore[arg-type]

    def connect(self) -> None:
        super().connect()  # type: ignore[misc]
        self.sock = _Socket(self.sock)


def _number(timeout: Any) -> float | None:
    return float(timeout) if isinstance(timeout, int | float) else None


class _Connection(_Bounded, HTTPConnection):
    pass


class _TlsConnection(_Bounded, HTTPSConnection):
    pass


class _BoundedPool:
    def _get_conn(self, timeout: float | None = None) -> Any:
        return super()._get_conn(left_of(timeout))  # type: ignore[misc]


class _Pool(_BoundedPool, HTTPConnectionPool):
    ConnectionCls = _Connection


class _TlsPool(_BoundedPool, HTTPSConnectionPool):
    ConnectionCls = _TlsConnection
