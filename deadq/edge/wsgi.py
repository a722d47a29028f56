"""Deadlines for WSGI apps: Flask, Django, or none of them.

Nothing can interrupt a thread: what the deadline bounds here are waits (for jobs, for calls that
go out by :mod:`deadq.edge.httpx`, for retries), and handlers that ask ``inbound().check()``.
"""

from __future__ import annotations

import contextvars
import http
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Unpack

from ..errors import DeadqError
from .answers import Answer, answer_for, told
from .headers import BadHeader
from .inbound import REPLAYED_HEADER, Inbound, Terms, TermsGiven, set_ambient

Environ = dict[str, Any]
StartResponse = Callable[..., Any]
App = Callable[[Environ, StartResponse], Iterable[bytes]]


class DeadlineMiddleware:
    """Gives each request a deadline, and makes it the ambient one.

    A request that comes with too little time is answered with 504 at once, one that cannot be
    understood with 400. An error of deadq's that the app lets through is answered as
    :func:`deadq.edge.answer_for` says.

    Args:
        app: the app.
        terms: as of :class:`deadq.edge.asgi.DeadlineMiddleware`; ``caller`` gets the environ.

    Raises:
        ValueError, TypeError: an odd setting, by its name.
    """

    def __init__(self, app: App, **terms: Unpack[TermsGiven]) -> None:
        self._app = app
        self._terms = Terms(**terms)

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """A WSGI app."""

        def header(name: str) -> str | None:
            return environ.get("HTTP_" + name.upper().replace("-", "_"))

        try:
            request, allowance = self._terms.read(header, environ)
        except BadHeader as odd:
            return _answer(start_response, told(400, "malformed", str(odd)))
        if self._terms.hopeless(request):
            late = told(504, "DeadlineExceeded", "the request's deadline has passed")
            return _answer(start_response, late)
        context = contextvars.copy_context()
        context.run(set_ambient, request, allowance)
        try:
            pieces = context.run(self._app, environ, _marking(start_response, request))
        except DeadqError as error:
            return _answer(start_response, answer_for(error))
        return _Body(context, pieces)


class _Body:
    """An answer whose pieces are made in the request's own context."""

    def __init__(self, context: contextvars.Context, pieces: Iterable[bytes]) -> None:
        self._context = context
        self._pieces = pieces
        self._iterator: Iterator[bytes] | None = None

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        if self._iterator is None:
            self._iterator = self._context.run(iter, self._pieces)
        return self._context.run(next, self._iterator)

    def close(self) -> None:
        """Let the app clean up."""
        close = getattr(self._pieces, "close", None)
        if close is not None:
            self._context.run(close)


def _marking(start_response: StartResponse, request: Inbound) -> StartResponse:
    def start(status: str, headers: list[tuple[str, str]], *more: Any) -> Any:
        if request.replayed:
            headers = [*headers, (REPLAYED_HEADER, "true")]
        return start_response(status, headers, *more)

    return start


def _answer(start_response: StartResponse, answer: Answer) -> list[bytes]:
    phrase = http.HTTPStatus(answer.status).phrase
    start_response(f"{answer.status} {phrase}", list(answer.headers.items()))
    return [answer.body]
