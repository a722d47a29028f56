"""Deadlines for ASGI apps: Starlette, FastAPI, Django, Quart, or none of them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final, Unpack

from ..errors import DeadqError
from ..resilience import Allowance
from .answers import Answer, answer_for, told
from .headers import BadHeader
from .inbound import REPLAYED_HEADER, Inbound, Terms, TermsGiven, ambient

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_QUIET_S: Final = 0.02
"""Most handlers are done by then, and need nobody who watches and listens."""

_TOLD_S: Final = 0.01

_GONE: Final[Message] = {"type": "http.disconnect"}


class DeadlineMiddleware:
    """Gives each request a deadline, makes it the ambient one, and holds the handler to it.

    The handler is cancelled at the deadline, which is answered with 504, and when the caller hangs
    up. What it does once its answer is sent (background tasks) is left alone. A request that comes
    with too little time is answered with 504 at once, one that cannot be understood with 400. An
    error of deadq's that the app lets through is answered as :func:`deadq.edge.answer_for` says.

    Args:
        app: the app.
        within: seconds that a request may take; a caller may ask for less, and gets no more.
        reserve: with no more than this left (s) nothing useful can be done.
        retries: what this service gives as the edge, where a request says nothing: most retries of
            whatever is done for it.
        trusted: whether callers are services of ours, whose ``x-retry-budget`` counts as it stands.
        service: the label of ``deadq_inbound_requests_total``.
        caller: tells from the scope who calls, so that callers do not share idempotency keys;
            without it all of them are one.

    Raises:
        ValueError, TypeError: an odd setting, by its name.
    """

    def __init__(self, app: App, **terms: Unpack[TermsGiven]) -> None:
        self._app = app
        self._terms = Terms(**terms)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """An ASGI app."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(reversed(list(scope["headers"])))  # of those that come twice, the first

        def header(name: str) -> str | None:
            value = headers.get(name.encode())
            return None if value is None else value.decode("latin-1")

        try:
            request, allowance = self._terms.read(header, scope)
        except BadHeader as odd:
            await _answer(send, told(400, "malformed", str(odd)))
            return
        exchange = _Exchange(request, receive, send)
        if self._terms.hopeless(request):
            await exchange.answer(_too_late())
            return
        has_body = headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers
        await self._handle(scope, exchange, allowance, has_body=has_body)

    async def _handle(
        self, scope: Scope, exchange: _Exchange, allowance: Allowance, *, has_body: bool
    ) -> None:
        request = exchange.request
        try:
            async with asyncio.timeout(None) as exchange.limit:
                exchange.watch(listening=not has_body)
                with ambient(request, allowance):
                    await self._app(scope, exchange.receive, exchange.send)
        except TimeoutError:
            if not exchange.limit.expired():
                raise
            if not exchange.gone:
                await exchange.answer(_too_late())
        except DeadqError as error:
            if exchange.begun:
                raise
            await exchange.answer(answer_for(error))
        finally:
            await exchange.close()


class _Exchange:
    """A request and its answer, and whether the caller is still there."""

    limit: asyncio.Timeout

    def __init__(self, request: Inbound, receive: Receive, send: Send) -> None:
        self.request = request
        self.begun = False
        """Whether an answer is on its way."""
        self.gone = False
        """Whether the caller has hung up."""
        self._receive = receive
        self._send = send
        self._ended = False
        self._asked = False
        """Whether the app is waiting for a message by itself."""
        self._watched = self._listening = False
        self._timer: asyncio.TimerHandle | None = None
        self._listener: asyncio.Task[None] | None = None
        self._heard: asyncio.Queue[Message] | None = None

    def watch(self, *, listening: bool) -> None:
        """From shortly on, hold the app to the deadline, and hear it when nobody is there any more.

        Messages are taken one ahead of the app at most, so that a body is not read into memory; of
        a request with a body (not ``listening``) only once the app has begun to read, as by asking
        for it a server lets the caller send it.
        """
        self._listening = listening
        loop, left = asyncio.get_running_loop(), self.request.deadline.remaining()
        self._until = loop.time() + left
        self._timer = loop.call_later(min(left, _QUIET_S), self._watch)

    async def receive(self) -> Message:
        """For the app."""
        if self._heard is None:
            self._asked = True
            try:
                message = await self._receive()
            finally:
                self._asked = False
            if message["type"] == "http.disconnect":
                await self._hung_up()
            else:
                self._listening = True
                self._listen()
            return message
        message = await self._heard.get()
        if message is _GONE:
            self._heard.put_nowait(_GONE)  # whoever asks again hears it again
        return message

    async def send(self, message: Message) -> None:
        """For the app."""
        if message["type"] == "http.response.start":
            self.begun = True
            if self.request.replayed:
                named = (REPLAYED_HEADER.encode(), b"true")
                message = {**message, "headers": [*message.get("headers", ()), named]}
        elif message["type"] == "http.response.body" and not message.get("more_body"):
            self._ended = True
            self.limit.reschedule(None)
        await self._send(message)

    async def answer(self, answer: Answer) -> None:
        """In the app's place, unless it has begun to."""
        if not self.begun:
            self.begun = True
            await _answer(self._send, answer)

    async def close(self) -> None:
        """Hear nothing any more."""
        if self._timer is not None:
            self._timer.cancel()
        if self._listener is not None:
            self._listener.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._listener

    def _watch(self) -> None:
        self._watched = True
        if not self._ended:
            self.limit.reschedule(self._until)
        self._listen()

    def _listen(self) -> None:
        # while the app asks it hears by itself
        if self._watched and self._listening and not self._asked and self._heard is None:
            self._heard = asyncio.Queue(1)
            self._listener = asyncio.create_task(self._hear(self._heard))

    async def _hear(self, heard: asyncio.Queue[Message]) -> None:
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                break
            await heard.put(message)
        await self._hung_up()
        await heard.put(_GONE)

    async def _hung_up(self) -> None:
        # once the answer is out, servers say so too: nobody has hung up on it
        if not self._ended and not self.limit.expired():
            self.gone = True
            self.limit.reschedule(asyncio.get_running_loop().time())
            # the app is cancelled first: to hear of it now would be an error to one that reads
            await asyncio.sleep(_TOLD_S)


def _too_late() -> Answer:
    return told(504, "DeadlineExceeded", "the request's deadline has passed")


async def _answer(send: Send, answer: Answer) -> None:
    headers = [(name.encode(), value.encode("latin-1")) for name, value in answer.headers.items()]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})
