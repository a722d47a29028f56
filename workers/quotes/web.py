"""The quotes' web app.

    uvicorn workers.quotes.web:app

``POST /quotes`` with ``{"item": "umbrella"}`` gets the best offer, within the time that the caller
says (X-Timeout-Ms, X-Deadline-Ms) and 5 s at most. A caller that hangs up gives its quote up: the
worker stops asking, and what runs in the database is cancelled.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from deadq import JobFailed
from deadq.edge import inbound
from deadq.edge.asgi import DeadlineMiddleware

from .jobs import NoOfferError, queue, quote


async def best_offer(request: Request) -> Response:
    """Ask for a quote, and wait for it."""
    came = inbound()
    try:
        item = read_item(await request.json())
        job = came.answered_by(await quote.options(key=came.key).aenqueue(item))
    except ValueError as odd:  # no JSON, no item, or one that cannot travel
        return JSONResponse({"error": "malformed", "detail": f"{odd!s:.200}"}, 400)
    try:
        return JSONResponse(await job.aresult())
    except JobFailed as failed:
        if failed.type_name.endswith(NoOfferError.__name__):
            return JSONResponse({"error": "no_offer", "detail": "no seller has answered"}, 503)
        raise


def read_item(body: object) -> str:
    """What a quote is asked for, or a ValueError."""
    match body:
        case {"item": str(item)} if item:
            return item
    msg = 'a quote is for {"item": "umbrella"}'
    raise ValueError(msg)


@asynccontextmanager
async def lifespan(_: Starlette) -> AsyncIterator[None]:
    """Close the connections at the end."""
    yield
    await queue.aclose()


app = Starlette(routes=[Route("/quotes", best_offer, methods=["POST"])], lifespan=lifespan)
app.add_middleware(DeadlineMiddleware, within=5.0, service="quotes")
