"""Web apps behind the deadline middlewares, for tests: what a request brought along, and how a
handler was ended. They write down what happens, a line each, in the file ``$EDGE_NOTES``."""

import asyncio
import os
import time
from pathlib import Path

from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from werkzeug.serving import make_server

from deadq import Deadline, QueueFull
from deadq.edge import asgi, inbound, wsgi
from deadq.resilience import Allowance
from tests.workers import tell

WITHIN_S = 3.0


def note(what: str) -> None:
    with Path(os.environ["EDGE_NOTES"]).open("a", encoding="utf-8") as notes:
        notes.write(f"{what}\n")


def seen() -> dict[str, object]:
    """What the request that is being handled has brought along."""
    request, allowance, deadline = inbound(), Allowance.current(), Deadline.current()
    assert allowance is not None
    assert deadline is request.deadline
    return {"left": deadline.remaining(), "key": request.key, "retries": allowance.left}


async def show(_: Request) -> Response:
    return JSONResponse(seen())


async def nap(request: Request) -> Response:
    """Sleeps for as long as it is told to."""
    note("began")
    try:
        await asyncio.sleep(float(request.query_params["seconds"]))
    except asyncio.CancelledError:
        note("cancelled")
        raise
    return PlainTextResponse("slept")


async def echo(request: Request) -> Response:
    """Reads the body, and then sleeps."""
    body = await request.body()
    note(f"read {len(body)}")
    try:
        await asyncio.sleep(float(request.query_params["seconds"]))
    except asyncio.CancelledError:
        note("cancelled")
        raise
    return PlainTextResponse(str(len(body)))


async def drip(_: Request) -> Response:
    """Sends a piece now and then, for ever."""

    async def pieces():
        try:
            while True:
                yield b"."
                await asyncio.sleep(0.05)
        finally:
            note("ended")

    return StreamingResponse(pieces())


async def later(request: Request) -> Response:
    """Goes on once its answer is sent."""

    async def rest() -> None:
        await asyncio.sleep(float(request.query_params["seconds"]))
        note("went on")

    return PlainTextResponse("sent", background=BackgroundTask(rest))


async def full(_: Request) -> Response:
    msg = "no room"
    raise QueueFull(msg, retry_after=1.2)


async def times_out(_: Request) -> Response:
    """Of the handler's own making."""
    try:
        async with asyncio.timeout(0.01):
            await asyncio.sleep(5.0)
    except TimeoutError:
        return PlainTextResponse("its own")
    return PlainTextResponse("never")


async def replay(_: Request) -> Response:
    request = inbound()
    request.replayed = True
    return PlainTextResponse("again")


def caller(source: asgi.Scope) -> str:
    return dict(source["headers"]).get(b"x-api-key", b"").decode("latin-1")


HANDLERS = (show, nap, echo, drip, later, full, times_out, replay)
app = Starlette(routes=[Route(f"/{fn.__name__}", fn, methods=["GET", "POST"]) for fn in HANDLERS])
app.add_middleware(
    asgi.DeadlineMiddleware, within=WITHIN_S, retries=2, service="tests", caller=caller
)


def blocking(environ: wsgi.Environ, start_response: wsgi.StartResponse):
    """A WSGI app without a framework."""
    path = environ["PATH_INFO"]
    request = inbound()
    if path == "/full":
        msg = "no room"
        raise QueueFull(msg, retry_after=1.2)
    if path == "/checks":
        while True:
            time.sleep(0.01)
            request.check()
    request.replayed = path == "/replay"
    start_response("200 OK", [("content-type", "text/plain")])
    return _pieces(path)


def _pieces(path: str):
    """Made after the app has returned, and still in the request's own context."""
    found = seen()
    yield f"{found['left']} {found['key']} {found['retries']}".encode()
    if path == "/streams":
        yield f" {seen()['key']}".encode()


def serve_blocking() -> None:
    """A process with a thread for each request; tells its port."""
    server = make_server("127.0.0.1", 0, served_blocking, threaded=True)
    tell(server.port)
    server.serve_forever()


served_blocking = wsgi.DeadlineMiddleware(
    blocking,
    within=WITHIN_S,
    retries=2,
    service="tests",
    caller=lambda environ: environ.get("HTTP_X_API_KEY", ""),
)
