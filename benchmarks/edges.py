"""What deadlines at the edges add to a no-op request over real HTTP, by each way in and out.

The app is a Starlette route that returns an empty answer, under uvicorn, in a process of its own;
requests go over one connection, one at a time. Each figure is a duration as a multiple of the
same request without: the middleware in the app, or the transport or adapter in the client.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import socket
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import httpx
import requests
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from deadq import Deadline
from deadq.edge.asgi import DeadlineMiddleware
from deadq.edge.httpx import AsyncDeadlineTransport, DeadlineTransport
from deadq.edge.requests import DeadlineAdapter

from .harness.children import Child
from .harness.environment import Environment
from .harness.report import Bar, Options, Report, options, say
from .harness.rounds import Pair, each, paired

TURNS: Final = 5
QUICK: Final = (5, 60)
PRECISE: Final = (15, 500)
"""Rounds, and requests in each turn of a round."""

MOST: Final = 1.15
BARS: Final = {name: Bar(most=MOST) for name in ("asgi", "httpx", "httpx_async", "requests")}


def serve(listener: socket.socket, *, wrapped: bool) -> None:
    """The app, until its process is ended."""

    async def nothing(_: Request) -> Response:
        return Response()

    app = Starlette(routes=[Route("/", nothing)])
    if wrapped:
        app.add_middleware(DeadlineMiddleware)
    config = uvicorn.Config(app, log_level="warning", access_log=False)
    asyncio.run(uvicorn.Server(config).serve(sockets=[listener]))


@contextlib.contextmanager
def served(*, wrapped: bool) -> Iterator[int]:
    """The port of the app in a process of its own."""
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        Child(_serve_wrapped if wrapped else _serve_plain, listener),
    ):
        yield listener.getsockname()[1]


def _serve_wrapped(listener: socket.socket) -> None:
    serve(listener, wrapped=True)


def _serve_plain(listener: socket.socket) -> None:
    serve(listener, wrapped=False)


def inward(port: int, times: int) -> Callable[[], float]:
    """A turn of requests by a bare client that says how much time is left."""
    line = http.client.HTTPConnection("127.0.0.1", port)

    def call() -> None:
        line.request("GET", "/", headers={"x-timeout-ms": "20000"})
        line.getresponse().read()

    return lambda: each(call, times)


def by_client(client: Any, port: int, times: int) -> Callable[[], float]:
    """A turn of blocking requests, with a deadline around them."""
    url = f"http://127.0.0.1:{port}/"

    def turn() -> float:
        with Deadline.after(60.0).scope():
            return each(lambda: client.get(url), times)

    return turn


def by_async_client(
    runner: asyncio.Runner, client: httpx.AsyncClient, port: int, times: int
) -> Callable[[], float]:
    """A turn of requests on a loop, with a deadline around them."""
    url = f"http://127.0.0.1:{port}/"

    async def turn() -> float:
        with Deadline.after(60.0).scope():
            begin = time.perf_counter()
            for _ in range(times):
                await client.get(url)
            return (time.perf_counter() - begin) / times

    return lambda: runner.run(turn())


def measure(given: Options) -> Iterator[tuple[str, Pair]]:
    """The pairs, by the names of their figures."""
    rounds, times = QUICK if given.quick else PRECISE

    def compared(name: str, ours: Callable[[], float], raw: Callable[[], float]) -> Pair:
        pair = paired(ours, raw, rounds, lambda: None, TURNS)
        say(f"{name}: {pair.duration:.3f}")
        return pair

    with served(wrapped=False) as plain, served(wrapped=True) as wrapped:
        yield "asgi", compared("asgi", inward(wrapped, times), inward(plain, times))
        with (
            httpx.Client(transport=DeadlineTransport(dependency="app")) as ours,
            httpx.Client() as raw,
        ):
            calls = (by_client(client, plain, times) for client in (ours, raw))
            yield "httpx", compared("httpx", *calls)
        with requests.Session() as mine, requests.Session() as bare:
            mine.mount("http://", DeadlineAdapter(dependency="app"))
            bare.trust_env = mine.trust_env = False
            calls = (by_client(session, plain, times) for session in (mine, bare))
            yield "requests", compared("requests", *calls)
        with asyncio.Runner() as runner:
            ours_async = httpx.AsyncClient(transport=AsyncDeadlineTransport(dependency="app"))
            raw_async = httpx.AsyncClient()
            calls = (
                by_async_client(runner, client, plain, times) for client in (ours_async, raw_async)
            )
            yield "httpx_async", compared("httpx_async", *calls)
            for client in (ours_async, raw_async):
                runner.run(client.aclose())


def picture(pairs: dict[str, Pair]) -> Any:
    """What a request takes, with and without."""
    from plotly.graph_objects import Bar as Column
    from plotly.graph_objects import Figure

    columns = [
        Column(
            x=list(pairs),
            y=[pair.microseconds()[key] for pair in pairs.values()],
            name=label,
            hovertemplate="%{y:.0f}",
        )
        for label, key in (("with a deadline", "ours_us"), ("without", "raw_us"))
    ]
    return Figure(columns).update_layout(
        title_text="What a no-op request takes over one connection, with deadlines and without",
        xaxis_title="way in or out",
        yaxis_title="median duration (µs)",
    )


def main() -> int:
    """Run it from the command line."""
    given = options(__doc__, server=False)
    environment = Environment()
    pairs = dict(measure(given))
    figures = {name: pair.duration for name, pair in pairs.items()}
    series = {name: pair.microseconds() for name, pair in pairs.items()}
    return Report(environment, figures, series, lambda: picture(pairs)).emit(given, BARS)


if __name__ == "__main__":
    sys.exit(main())
