"""Deadlines for calls by httpx: passed on, and kept to.

A call goes by the ambient deadline, all of it: the wait for a connection, the connect, each
redirect, and a body that drips. It is over at the deadline at the latest, and its connection is
closed then; with no time left nothing is sent. Where there is no deadline, it is only counted.

    client = httpx.AsyncClient(transport=AsyncDeadlineTransport(dependency="quotes"))
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any, Final

import httpx

from ..deadline import NETWORK_MARGIN_S, Deadline
from ..errors import DeadlineExceeded
from .blocking import keeping_to, left_of
from .httpcore_backend import bounded
from .outbound import CallTerms


class CallDeadlineExceeded(DeadlineExceeded, httpx.TimeoutException):
    """A call took until the deadline, or had no time for it. To code that knows httpx alone it is
    one of its timeouts."""

    def __init__(self, message: str, *, request: httpx.Request | None = None) -> None:
        DeadlineExceeded.__init__(self, message)
        self._request = request


@dataclass(frozen=True, slots=True)
class _Limits:
    """Until when a call and each step of it may take."""

    deadline: Deadline
    terms: CallTerms
    request: httpx.Request

    @classmethod
    def of(cls, terms: CallTerms, request: httpx.Request) -> _Limits | None:
        """Of a call that is about to be sent, and now says what it has to say; None: it has none.

        Raises:
            CallDeadlineExceeded: there is no time for it.
        """
        try:
            deadline, told = terms.for_call()
        except DeadlineExceeded as late:
            raise CallDeadlineExceeded(str(late), request=request) from None
        request.headers.update(told)
        return None if deadline is None else cls(deadline, terms, request)

    def _over(self) -> CallDeadlineExceeded:
        return CallDeadlineExceeded(self.terms.over(), request=self.request)

    @contextlib.asynccontextmanager
    async def awaiting(self) -> AsyncIterator[None]:
        """Around a step on an event loop."""
        try:
            async with asyncio.timeout(self.deadline.remaining()) as limit:
                yield
        except TimeoutError:
            if not limit.expired():
                raise
            raise self._over() from None

    @contextlib.contextmanager
    def blocking(self) -> Iterator[None]:
        """Around a step that blocks."""
        try:
            with keeping_to(self.deadline):
                yield
        except httpx.TransportError as error:
            if not self.deadline.expired:
                raise
            raise self._over() from error


class AsyncDeadlineTransport(httpx.AsyncBaseTransport):
    """Keeps asynchronous calls to the ambient deadline.

    Args:
        transport: what sends them; default: httpx's own, made with ``options``.
        dependency: whom the calls are for: the label of ``deadq_outbound_calls_total``.
        margin: seconds of the deadline that the callee does not get, so that its answer can still
            be used.
        trusted: whether the callee is one of ours: others are told how much time is left, and
            neither the instant nor the retries that are left.

    Raises:
        CallDeadlineExceeded: of a call: it took too long, or there was no time for it.
        ValueError: an odd margin; options together with a transport.
    """

    def __init__(
        self,
        transport: httpx.AsyncBaseTransport | None = None,
        *,
        dependency: str,
        margin: float = NETWORK_MARGIN_S,
        trusted: bool = True,
        **options: Any,
    ) -> None:
        _check_options(transport, options)
        self._transport = transport or httpx.AsyncHTTPTransport(**options)
        self._terms = CallTerms(dependency, margin, trusted=trusted)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """One request; a redirect is another one."""
        limits = _Limits.of(self._terms, request)
        if limits is None:
            return await self._transport.handle_async_request(request)
        async with limits.awaiting():
            response = await self._transport.handle_async_request(request)
        assert isinstance(response.stream, httpx.AsyncByteStream)  # noqa: S101  it is asynchronous
        response.stream = _AsyncBody(response.stream, limits)
        return response

    async def aclose(self) -> None:
        """Close its connections."""
        await self._transport.aclose()


class _AsyncBody(httpx.AsyncByteStream):
    """A body that has to have arrived by the deadline."""

    def __init__(self, body: httpx.AsyncByteStream, limits: _Limits) -> None:
        self._body = body
        self._limits = limits

    async def __aiter__(self) -> AsyncIterator[bytes]:
        pieces = aiter(self._body)
        while True:
            # not around the loop: whoever reads may take its time between two pieces
            async with self._limits.awaiting():
                piece = await anext(pieces, None)
            if piece is None:
                return
            yield piece

    async def aclose(self) -> None:
        await self._body.aclose()


class DeadlineTransport(httpx.BaseTransport):
    """Keeps blocking calls to the ambient deadline.

    Args:
        transport: what sends them; default: httpx's own, made with ``options``. Of another one
            each wait by itself is bounded, not a call that drips.
        dependency: as of :class:`AsyncDeadlineTransport`, like ``margin`` and ``trusted``.

    Raises:
        CallDeadlineExceeded: of a call: it took too long, or there was no time for it.
        ValueError: an odd margin; options together with a transport.
    """

    def __init__(
        self,
        transport: httpx.BaseTransport | None = None,
        *,
        dependency: str,
        margin: float = NETWORK_MARGIN_S,
        trusted: bool = True,
        **options: Any,
    ) -> None:
        _check_options(transport, options)
        self._transport = transport or bounded(httpx.HTTPTransport(**options))
        self._terms = CallTerms(dependency, margin, trusted=trusted)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """One request; a redirect is another one."""
        limits = _Limits.of(self._terms, request)
        if limits is None:
            return self._transport.handle_request(request)
        waits = dict(request.extensions.get("timeout", {}))
        for kind in _WAITS:
            waits[kind] = left_of(waits.get(kind), limits.deadline)
        request.extensions = {**request.extensions, "timeout": waits}
        with limits.blocking():
            response = self._transport.handle_request(request)
        assert isinstance(response.stream, httpx.SyncByteStream)  # noqa: S101  it is blocking
        response.stream = _Body(response.stream, limits)
        return response

    def close(self) -> None:
        """Close its connections."""
        self._transport.close()


_WAITS: Final = ("connect", "read", "write", "pool")


class _Body(httpx.SyncByteStream):
    """A body that has to have arrived by the deadline."""

    def __init__(self, body: httpx.SyncByteStream, limits: _Limits) -> None:
        self._body = body
        self._limits = limits

    def __iter__(self) -> Iterator[bytes]:
        pieces = iter(self._body)
        while True:
            with self._limits.blocking():
                piece = next(pieces, None)
            if piece is None:
                return
            yield piece

    def close(self) -> None:
        self._body.close()


def _check_options(transport: object, options: dict[str, Any]) -> None:
    if transport is not None and options:
        names = ", ".join(options)
        msg = f"{names}: options of the transport that deadq makes; yours has its own"
        raise ValueError(msg)
