"""The load: orders sent through the web tier whether or not earlier ones have been answered."""

from __future__ import annotations

import asyncio
import itertools
import math
import random
import ssl
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Final

import httpx

REPEATED: Final = 0.02
"""Share of the orders that are sent a second time under the same key."""
RECENT: Final = 40
"""A repeat follows this many orders after its first at most: some of those still run."""
TIMEOUTS_MS: Final = (1_500, 2_500)
"""Callers wait for something between these, evenly spread."""
PATIENCE_S: Final = 5.0
"""How long the load itself waits for an answer, far beyond what any caller would (s)."""
KEEP_OPEN_S: Final = 5.0
"""How long an idle connection waits for its next order (s): less than the web tier keeps it."""

_SENDERS: Final = 32


@dataclass(frozen=True, slots=True)
class Order:
    """What is sent, and when: seconds from the beginning of its phase."""

    at: float
    key: str
    number: str
    cents: int
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back, and when: seconds from the beginning of the phase, and from the sending.

    ``status`` 0: nothing came.
    """

    order: Order
    came: float
    status: int
    took: float
    accepted: bool
    duplicate: bool
    reason: str = ""
    receipt: str = ""
    retry_after: str = ""

    @property
    def on_time(self) -> bool:
        """Whether it was booked on time: the queue takes no result after the deadline."""
        return self.status == 200

    @property
    def heard_late(self) -> bool:
        """Whether it was booked on time, and the answer came after the sender's patience."""
        return self.on_time and self.took * 1_000 > self.order.timeout_ms


def plan(phase: str, rate: float, seconds: float, dice: random.Random) -> list[Order]:
    """Orders at random instants, ``rate`` a second on average, a few of them repeats."""
    orders: list[Order] = []
    for number, at in enumerate(_instants(rate, seconds, dice)):
        timeout_ms = dice.randint(*TIMEOUTS_MS)
        if orders and dice.random() < REPEATED:
            first = dice.choice(orders[-RECENT:])
            orders.append(Order(at, first.key, first.number, first.cents, timeout_ms))
        else:
            name = f"{phase}-{number}"
            orders.append(Order(at, f"order-{name}", name, dice.randint(100, 99_999), timeout_ms))
    return orders


def _instants(rate: float, seconds: float, dice: random.Random) -> Iterator[float]:
    at = dice.expovariate(rate)
    while at < seconds:
        yield at
        at += dice.expovariate(rate)


@asynccontextmanager
async def senders(address: str) -> AsyncIterator[list[httpx.AsyncClient]]:
    """HTTP clients for the web tier at ``address``.

    Many, since a client's pool looks at all its connections for each request; and without the
    trouble of loading certificates, which takes each of them some 30 ms.
    """
    limits = httpx.Limits(
        max_connections=None, max_keepalive_connections=None, keepalive_expiry=KEEP_OPEN_S
    )
    trust = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    async with AsyncExitStack() as opened:
        yield [
            await opened.enter_async_context(
                httpx.AsyncClient(base_url=address, limits=limits, verify=trust)
            )
            for _ in range(_SENDERS)
        ]


async def send_all(clients: Sequence[httpx.AsyncClient], orders: Sequence[Order]) -> list[Answer]:
    """Send each order at its instant, and wait for the last answer."""
    begin = time.perf_counter()
    sending: list[asyncio.Task[Answer]] = []
    async with asyncio.TaskGroup() as group:
        for order, client in zip(orders, itertools.cycle(clients), strict=False):
            await asyncio.sleep(max(0.0, begin + order.at - time.perf_counter()))
            sending.append(group.create_task(_send(client, order, begin)))
    return [task.result() for task in sending]


async def _send(client: httpx.AsyncClient, order: Order, begin: float) -> Answer:
    sent = time.perf_counter()
    try:
        response = await client.post(
            "/orders",
            json={"order": order.number, "cents": order.cents},
            headers={"idempotency-key": order.key, "x-timeout-ms": str(order.timeout_ms)},
            timeout=PATIENCE_S,
        )
    except httpx.HTTPError as error:
        came = time.perf_counter()
        reason = type(error).__name__
        return Answer(order, came - begin, 0, came - sent, False, False, reason)
    came = time.perf_counter()
    body = content(response)
    return Answer(
        order,
        came - begin,
        response.status_code,
        came - sent,
        accepted="x-job" in response.headers,
        duplicate="x-duplicate" in response.headers,
        reason="" if response.is_success else str(body.get("error", response.status_code)),
        receipt=str(body.get("number", "")),
        retry_after=response.headers.get("retry-after", ""),
    )


def content(response: httpx.Response) -> dict[str, object]:
    """The JSON object that came; empty where a web app that has broken down sent something else."""
    try:
        body = response.json()
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that ``share`` of all do not exceed; NaN of none."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else math.nan
