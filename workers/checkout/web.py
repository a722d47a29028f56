"""The checkout's web app.

    uvicorn workers.checkout.web:app

``POST /orders`` with ``{"order": "17", "cents": 999}`` and these headers::

    Idempotency-Key   makes a repeat the same order; each caller has keys of its own
    X-Api-Key         who calls
    X-Timeout-Ms      how long the caller will wait; X-Deadline-Ms: until when (epoch, ms)
    Prefer            respond-async: 202 at once; the same call without it gets the receipt

and these answers::

    200  paid; a repeat gets the same receipt, marked Idempotency-Replayed: true
    202  accepted                     402  declined
    400  not understood               409  cancelled by somebody
    413  too large                    422  the key belongs to another order
    429  the queue is full            503  cannot be paid in time, paused, or the queue, or what
                                           the app itself calls by a breaker, is away
    504  the time is over             500  the worker failed

429 and 503 say in Retry-After when there may be room. A caller that hangs up gives its order up,
unless the charge has begun or somebody else waits for it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from deadq import JobFailed
from deadq.edge import inbound
from deadq.edge.asgi import DeadlineMiddleware, Scope

from .jobs import DeclinedError, pay, queue

LONGEST_S: Final = 30.0
"""A caller may ask for less, and gets no more (s)."""


async def place_order(request: Request) -> Response:
    """Accept or refuse at once; what was accepted is answered when it is paid."""
    came = inbound()
    try:
        if came.key is None:
            return malformed("a payment needs an Idempotency-Key header")
        order, cents = read_order(await request.json())
        job = came.answered_by(await pay.options(key=came.key).aenqueue(order, cents))
    except ValueError as odd:  # no JSON, no order, or one that cannot travel
        return malformed(odd)
    if "respond-async" in request.headers.get("prefer", ""):
        return JSONResponse({"job": job.id}, 202)
    try:
        return JSONResponse(await job.aresult())
    except JobFailed as failed:
        if failed.type_name.endswith(DeclinedError.__name__):
            return JSONResponse({"error": "declined"}, 402)
        raise


def read_order(body: object) -> tuple[str, int]:
    """An order as it came, or a ValueError."""
    match body:
        case {"order": str(order), "cents": int(cents)} if cents > 0:
            return order, cents
    msg = 'an order is {"order": "17", "cents": 999}'
    raise ValueError(msg)


def malformed(odd: object) -> Response:
    """What the caller is told of a request that makes no sense."""
    return JSONResponse({"error": "malformed", "detail": f"{odd!s:.200}"}, 400)


def caller(scope: Scope) -> str:
    """Who calls: nobody else can name a caller's keys."""
    return next(
        (value.decode("latin-1") for name, value in scope["headers"] if name == b"x-api-key"), ""
    )


@asynccontextmanager
async def lifespan(_: Starlette) -> AsyncIterator[None]:
    """Close the connections at the end."""
    yield
    await queue.aclose()


app = Starlette(routes=[Route("/orders", place_order, methods=["POST"])], lifespan=lifespan)
app.add_middleware(DeadlineMiddleware, within=LONGEST_S, service="checkout", caller=caller)
