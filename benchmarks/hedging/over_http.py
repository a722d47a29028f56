"""The same effect over real HTTP: five servers on sockets, httpx, and time that passes."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Iterator
from typing import Final, cast

import httpx

from deadq.resilience import ahedge

from ..harness.rounds import percentile

SERVERS: Final = 5
USUAL_S: Final = 0.002
STALL_S, STALL_SHARE = 1.0, 0.02
DELAY_S: Final = 0.1
TOGETHER: Final = 2
"""Requests under way at the same time."""
WARM: Final = 20
"""Requests that are not counted: they earn the first second calls."""
_PATIENCE_S: Final = 30.0
_ANSWER: Final = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Farm:
    """The servers: each answers at once, or stalls."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._serving: set[asyncio.Task[None]] = set()
        self.calls = 0

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[tuple[list[str], httpx.AsyncClient]]:
        """Their URLs, and a client. Nobody serves any more when the block has ended."""
        async with contextlib.AsyncExitStack() as stack:
            urls = []
            for _ in range(SERVERS):
                server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
                await stack.enter_async_context(server)
                urls.append(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
            async with httpx.AsyncClient(timeout=_PATIENCE_S) as client:
                yield urls, client
            if self._serving:
                await asyncio.wait(self._serving)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = cast("asyncio.Task[None]", asyncio.current_task())
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                await reader.readuntil(b"\r\n\r\n")
                self.calls += 1
                stalls = self._chance.random() < STALL_SHARE
                await asyncio.sleep(STALL_S if stalls else USUAL_S)
                writer.write(_ANSWER)
                await writer.drain()
        writer.close()


async def measure(requests: int, seed: int, *, hedged: bool) -> tuple[list[float], float]:
    """Seconds that each request took, and calls made for each that was needed."""
    farm = Farm(seed)
    async with farm.serving() as (urls, client):

        async def get(turn: Iterator[str]) -> None:
            (await client.get(next(turn))).raise_for_status()

        call = ahedge(delay=DELAY_S)(get) if hedged else get

        async def ask(numbers: Iterator[int], taken: list[float]) -> None:
            for _ in numbers:
                begin = time.monotonic()
                pairs = zip(urls, [*urls[1:], urls[0]], strict=True)
                await asyncio.gather(*(call(iter(pair)) for pair in pairs))
                taken.append(time.monotonic() - begin)

        async def some(number: int) -> list[float]:
            numbers, taken = iter(range(number)), list[float]()
            await asyncio.gather(*(ask(numbers, taken) for _ in range(TOGETHER)))
            return taken

        await some(WARM)
        before = farm.calls
        taken = await some(requests)
        return taken, (farm.calls - before) / (requests * SERVERS)


def over_http(requests: int, seed: int) -> tuple[dict[str, float], dict[str, float]]:
    """Figures, and what they come from (ms)."""
    plain, _ = asyncio.run(measure(requests, seed, hedged=False))
    hedged, calls = asyncio.run(measure(requests, seed, hedged=True))
    before, after = percentile(plain, 0.99), percentile(hedged, 0.99)
    figures = {"http_p99_cut": before / after, "http_extra_requests": calls - 1}
    return figures, {
        "p50_ms": round(percentile(plain, 0.5) * 1000, 1),
        "p99_ms": round(before * 1000, 1),
        "hedged_p50_ms": round(percentile(hedged, 0.5) * 1000, 1),
        "hedged_p99_ms": round(after * 1000, 1),
    }
