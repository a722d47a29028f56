"""A service that spends some of a request's time, and calls the next one with the rest.

``/spend?s=7&then=URL,URL``: seconds, and whom to call one after the other, each calling the next.
``$WALL_OFFSET_S`` is how wrong this host's clock is.
"""

import asyncio
import os
import time

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from deadq.edge import inbound
from deadq.edge.asgi import DeadlineMiddleware
from deadq.edge.httpx import AsyncDeadlineTransport

_true_time, _wrong_by = time.time, float(os.environ.get("WALL_OFFSET_S", "0"))
time.time = lambda: _true_time() + _wrong_by

client = httpx.AsyncClient(
    transport=AsyncDeadlineTransport(dependency="next", margin=0.0), timeout=None
)


async def spend(request: Request) -> Response:
    """The instants, by the clock that all processes of a machine share, at which the request's
    deadline is by this service's account and those below."""
    came = inbound()
    mine = {"deadline": came.deadline.monotonic, "left": came.deadline.remaining()}
    seconds, _, rest = request.query_params["s"].partition(",")
    await asyncio.sleep(float(seconds))
    here, _, beyond = request.query_params.get("then", "").partition(",")
    if not here:
        return JSONResponse([mine])
    answer = await client.get(f"{here}/spend", params={"s": rest, "then": beyond})
    answer.raise_for_status()
    return JSONResponse([mine, *answer.json()])


app = Starlette(routes=[Route("/spend", spend)])
app.add_middleware(DeadlineMiddleware, within=60.0, service="tier")
