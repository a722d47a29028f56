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
    499  hung up: for the log, nobody reads it

429 and 503 say in Retry-After when there may be room. A caller that hangs up gives its order up,
unless the charge has begun or somebody else waits for it.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from deadq import (
    BreakerOpen,
    Cancelled,
    Deadline,
    DeadlineExceeded,
    DeadlineExpired,
    DeadqError,
    JobFailed,
    JobHandle,
    KeyReused,
    PayloadTooLarge,
    QueueFull,
    Rejected,
)

from .jobs import DeclinedError, Receipt, pay, queue

WAY_HOME_S: Final = 0.1
"""Kept back of the caller's time for the answer's way home (s)."""
CLOCKS_AGREE_S: Final = 1.0
"""Where instant and duration differ by more, the caller's clock is wrong (s)."""

HUNG_UP: Final = 499
"""What proxies call a request whose caller has gone."""

STATUS: Final[dict[type[DeadqError], int]] = {
    Cancelled: 409,
    PayloadTooLarge: 413,
    KeyReused: 422,
    QueueFull: 429,
    DeadlineExpired: 504,
    DeadlineExceeded: 504,
    Rejected: 503,
    BreakerOpen: 503,
}


async def place_order(request: Request) -> Response:
    """Accept or refuse at once; what was accepted is answered when it is paid."""
    try:
        order, cents = read_order(await request.json())
        call = pay.options(key=read_key(request), deadline=read_deadline(request))
    except ClientDisconnect:
        return Response(status_code=HUNG_UP)
    except ValueError as odd:
        return malformed(odd)
    headers: dict[str, str] = {}
    try:
        job = await call.aenqueue(order, cents)
        if job.duplicate:
            headers["idempotency-replayed"] = "true"
        if "respond-async" in request.headers.get("prefer", ""):
            return JSONResponse({"job": job.id}, 202, headers)
        return JSONResponse(await receipt_for(request, job), headers=headers)
    except ClientDisconnect:
        return Response(status_code=HUNG_UP)
    except ValueError as odd:  # an order that cannot travel, or an instant years ahead
        return malformed(odd)
    except DeadqError as error:
        return refused(error, headers)


def malformed(odd: ValueError) -> Response:
    """What the caller is told of a request that makes no sense."""
    return JSONResponse({"error": "malformed", "detail": f"{odd!s:.200}"}, 400)


def read_order(body: object) -> tuple[str, int]:
    """An order as it came, or a ValueError."""
    match body:
        case {"order": str(order), "cents": int(cents)} if cents > 0:
            return order, cents
    msg = 'an order is {"order": "17", "cents": 999}'
    raise ValueError(msg)


def read_key(request: Request) -> str:
    """The caller's key, which nobody else can name."""
    key = request.headers.get("idempotency-key", "")
    if not key:
        msg = "a payment needs an Idempotency-Key header"
        raise ValueError(msg)
    return f"{quote(request.headers.get('x-api-key', ''), safe='')}:{key}"


def read_deadline(request: Request) -> Deadline:
    """Until when the order has to be paid, so that the caller still gets the answer."""
    timeout, instant = (request.headers.get(f"x-{name}-ms") for name in ("timeout", "deadline"))
    deadline = Deadline.after(float(timeout) / 1_000) if timeout else Deadline.after(2.0)
    if instant:
        until = Deadline.at(int(instant))
        apart = abs(until.remaining() - deadline.remaining())
        if not timeout or apart <= CLOCKS_AGREE_S:
            deadline = until.tighten(deadline) if timeout else until
    return deadline.child(WAY_HOME_S) or deadline


async def receipt_for(request: Request, job: JobHandle[Receipt]) -> Receipt:
    """Wait for it as long as the caller does: a wait that is cancelled gives the job up."""
    paid = asyncio.ensure_future(job.aresult())
    gone = asyncio.ensure_future(hung_up(request))
    try:
        await asyncio.wait({paid, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not paid.done():
            raise ClientDisconnect
        return paid.result()
    finally:
        paid.cancel()
        gone.cancel()


async def hung_up(request: Request) -> None:
    """Returns when the caller has gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def refused(error: DeadqError, headers: dict[str, str]) -> Response:
    """What the caller is told of an order that was not paid."""
    kinds = (kind for kind in type(error).__mro__ if kind in STATUS)
    status = STATUS.get(next(kinds, DeadqError), 500)
    reason = error.reason if isinstance(error, Rejected) else type(error).__name__
    if isinstance(error, Rejected | BreakerOpen) and error.retry_after is not None:
        headers["retry-after"] = str(math.ceil(error.retry_after))  # whole seconds
    elif isinstance(error, JobFailed) and error.type_name.endswith(DeclinedError.__name__):
        status, reason = 402, "declined"
    return JSONResponse({"error": reason}, status, headers)


@asynccontextmanager
async def lifespan(_: Starlette) -> AsyncIterator[None]:
    """Close the connections at the end."""
    yield
    await queue.aclose()


app = Starlette(routes=[Route("/orders", place_order, methods=["POST"])], lifespan=lifespan)
