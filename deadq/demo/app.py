"""The web tier: ``uvicorn deadq.demo.app:app``.

``POST /orders`` with ``{"order": ..., "cents": ...}``. Its header ``x-timeout-ms`` says how long
the caller will wait, ``Idempotency-Key`` makes a repeat the same order. The answers::

    200  booked, with the receipt; a repeat gets the first one
    400  not understood             409  cancelled by somebody
    413  too large                  422  the key belongs to another order
    503  refused: no room, or it cannot be booked in time (Retry-After says when there may be)
    504  the time is over           500  booking failed

An order that was accepted has its id in ``x-job``; ``x-duplicate`` marks a repeat.
"""

from __future__ import annotations

import math
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from .. import (
    Cancelled,
    Deadline,
    DeadlineExceeded,
    DeadlineExpired,
    DeadqError,
    KeyReused,
    PayloadTooLarge,
    Rejected,
)
from .jobs import book, queue

ANSWER_S: Final = 0.15
"""Kept back of the caller's time for the answer's way home (s)."""

KEEP_OPEN_S: Final = 60.0
"""How long an idle connection is kept (s): longer than any caller keeps one in its pool.

The one that closes first must be the caller, or a request now and then goes out on a connection
that is just being closed, and is never answered.
"""

STATUS: Final[dict[type[DeadqError], int]] = {
    Cancelled: 409,
    PayloadTooLarge: 413,
    KeyReused: 422,
    Rejected: 503,
    DeadlineExpired: 504,
    DeadlineExceeded: 504,
}


async def place_order(request: Request) -> Response:
    """Accept or refuse at once; what was accepted is answered when it has been booked."""
    try:
        order, cents = read_order(await request.json())
        call = book.options(
            key=request.headers.get("idempotency-key"),
            deadline=read_deadline(request.headers.get("x-timeout-ms", "1000")),
        )
    except ValueError as odd:
        return JSONResponse({"error": "malformed", "detail": f"{odd!s:.200}"}, 400)
    headers: dict[str, str] = {}
    try:
        job = await call.aenqueue(order, cents)
        headers["x-job"] = job.id
        if job.duplicate:
            headers["x-duplicate"] = "1"
        return JSONResponse(await job.aresult(), headers=headers)
    except DeadqError as error:
        return answer(error, headers)


def read_order(body: object) -> tuple[str, int]:
    """An order as it came, or a ValueError."""
    match body:
        case {"order": str(order), "cents": int(cents)} if 0 < cents < 10**9:
            return order, cents
    msg = 'an order is {"order": "17", "cents": 999}'
    raise ValueError(msg)


def read_deadline(timeout_ms: str) -> Deadline:
    """Until when the order has to be booked, so that the caller still gets the answer."""
    deadline = Deadline.after(float(timeout_ms) / 1_000)
    return deadline.child(ANSWER_S) or deadline


def answer(error: DeadqError, headers: dict[str, str]) -> Response:
    """What the caller is told of an order that was not booked."""
    kinds = (kind for kind in type(error).__mro__ if kind in STATUS)
    status = STATUS.get(next(kinds, DeadqError), 500)
    reason = error.reason if isinstance(error, Rejected) else type(error).__name__
    if isinstance(error, Rejected) and error.retry_after is not None:
        headers["retry-after"] = str(math.ceil(error.retry_after))  # whole seconds, by the standard
    return JSONResponse({"error": reason, "detail": str(error)}, status, headers)


async def health(_: Request) -> Response:
    """Whether the queue's server is in reach, and how many slots its workers have."""
    try:
        return JSONResponse({"slots": (await queue.astats()).slots})
    except DeadqError as error:
        return answer(error, {})


@asynccontextmanager
async def lifespan(_: Starlette) -> AsyncIterator[None]:
    """Close the connections at the end."""
    yield
    await queue.aclose()


app = Starlette(
    routes=[Route("/orders", place_order, methods=["POST"]), Route("/health", health)],
    lifespan=lifespan,
)


def serve(listener: socket.socket) -> None:
    """Serve on a socket that somebody else has opened, until SIGTERM."""
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, timeout_keep_alive=int(KEEP_OPEN_S)
    )
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
