"""Three layers over real HTTP, the lowest of which is down: its calls for each request."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import socket
from collections.abc import Iterator
from typing import Any, Final

from deadq import RetryDenied
from deadq.resilience import (
    RETRY_BUDGET_HEADER,
    Allowance,
    Backoff,
    Budget,
    BudgetRule,
    aretry,
    outgoing,
)

from ..harness.children import Child

LAYERS: Final = 3
"""That retry; what they call, in the end, is one more."""

RETRIES: Final = 3
RULE: Final = BudgetRule(ratio=0.1, floor=0.0)
"""Without a floor: at so few requests it would be most of the budget."""

_AT_ONCE: Final = Backoff("none")


def calls_for_a_request(requests: int, *, deadq: bool) -> float:
    """Calls that the lowest layer gets, for each request at the top."""
    with contextlib.ExitStack() as stack:
        below, ports = "", []
        for _ in range(1 + LAYERS):
            port = stack.enter_context(_layer(below, deadq=deadq))
            below = f"http://127.0.0.1:{port}/"
            ports.append(port)
        return asyncio.run(_drive(ports[-1], ports[0], requests))


@contextlib.contextmanager
def _layer(below: str, *, deadq: bool) -> Iterator[int]:
    ports, port = multiprocessing.get_context("spawn").Pipe(duplex=False)
    with Child(_serve, port, below, deadq):
        if not ports.poll(60.0):
            raise TimeoutError("a layer does not start")
        yield ports.recv()


async def _drive(top: int, bottom: int, requests: int) -> float:
    import httpx

    async with httpx.AsyncClient(timeout=60.0) as client:
        for _ in range(requests):
            answer = await client.get(f"http://127.0.0.1:{top}/")
            assert answer.status_code == 503  # noqa: S101  it is down
        counted = await client.get(f"http://127.0.0.1:{bottom}/calls")
    return int(counted.text) / requests


def _serve(port: Any, below: str, deadq: bool) -> None:
    """One layer, in a process of its own: calls the one below, and tries again as it may."""
    import httpx
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import PlainTextResponse, Response
    from starlette.routing import Route

    calls = 0
    client = httpx.AsyncClient(timeout=60.0)

    @aretry(tries=1 + RETRIES, backoff=_AT_ONCE, budget=Budget(RULE))
    async def once_more() -> None:
        answer = await client.get(below, headers={RETRY_BUDGET_HEADER: outgoing()})
        answer.raise_for_status()

    async def at_every_layer() -> None:
        for _ in range(1 + RETRIES):
            answer = await client.get(below)
            if answer.is_success:
                return
        answer.raise_for_status()

    async def root(request: Request) -> Response:
        nonlocal calls
        calls += 1
        if not below:
            return Response(status_code=503)
        given = Allowance.incoming(
            request.headers.get(RETRY_BUDGET_HEADER), edge=RETRIES, trusted=True
        )
        with given.scope():
            try:
                await (once_more() if deadq else at_every_layer())
            except (RetryDenied, httpx.HTTPStatusError):
                return Response(status_code=503)
        return Response()

    async def counted(_: Request) -> Response:
        return PlainTextResponse(str(calls))

    app = Starlette(routes=[Route("/", root), Route("/calls", counted)])
    listening = socket.create_server(("127.0.0.1", 0))
    port.send(listening.getsockname()[1])  # who calls before it serves is kept waiting
    uvicorn.Server(uvicorn.Config(app, log_level="error")).run([listening])
