"""A chain of four tiers, for a caller that hangs up: a web app, a worker, a service that it calls,
and a database that it works in. Each says in ``$EDGE_NOTES`` when it has been cancelled."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from typing import Any

import httpx
from psycopg_pool import AsyncConnectionPool
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from deadq import Queue
from deadq.edge import inbound
from deadq.edge.asgi import DeadlineMiddleware
from deadq.edge.httpx import AsyncDeadlineTransport
from deadq.edge.sql.psycopg import AsyncDeadlineConnection, aconnection
from tests.edge_served import note

NAME = "crossing"
"""Of the worker's connections: what the server shows them as."""
STEP_S = 0.15
"""What the service takes, and each of the statements."""

queue = Queue("crossing", capacity=64, lease=5.0)
pools: list[AsyncConnectionPool[AsyncDeadlineConnection[Any]]] = []


@queue.lifespan
async def opened() -> AsyncIterator[None]:
    pool = AsyncConnectionPool(
        os.environ["CROSSING_DATABASE"],
        connection_class=AsyncDeadlineConnection,
        kwargs={"application_name": NAME},
        min_size=2,
        max_size=2,
        open=False,
    )
    async with pool:
        await pool.wait()
        pools.append(pool)
        yield


@queue.task(within=20.0)
async def work(number: int) -> int:
    transport = AsyncDeadlineTransport(dependency="slow")
    try:
        async with httpx.AsyncClient(transport=transport, timeout=None) as client:
            await client.get(f"{os.environ['CROSSING_SERVICE']}/slow", params={"n": number})
        async with aconnection(pools[0]) as conn:
            await conn.execute("INSERT INTO crossed VALUES (%s, 'first')", [number])
            await conn.execute("SELECT pg_sleep(%s)", [STEP_S])
            await conn.execute("INSERT INTO crossed VALUES (%s, 'second')", [number])
            await conn.execute("SELECT pg_sleep(%s)", [STEP_S])
    except asyncio.CancelledError:
        note(f"worker {number}")
        raise
    return number


@queue.task(within=20.0)
async def free() -> list[int]:
    """How many connections the pool has, and how many of them are to be had."""
    stats = pools[0].get_stats()
    return [stats["pool_size"], stats["pool_available"]]


async def start(request: Request) -> Response:
    """The web app: the job's result is its answer."""
    number = int(request.query_params["n"])
    call = work.options(key=inbound().key)
    return JSONResponse(await call.acall(number))


async def slow(request: Request) -> Response:
    """The service."""
    number = request.query_params["n"]
    try:
        await asyncio.sleep(STEP_S)
    except asyncio.CancelledError:
        note(f"service {number}")
        raise
    return PlainTextResponse("done")


@contextlib.asynccontextmanager
async def lifespan(_: Starlette) -> AsyncIterator[None]:
    yield
    await queue.aclose()


web = Starlette(routes=[Route("/start", start)], lifespan=lifespan)
web.add_middleware(DeadlineMiddleware, within=20.0, service="web")
service = Starlette(routes=[Route("/slow", slow)])
service.add_middleware(DeadlineMiddleware, within=20.0, service="service")
