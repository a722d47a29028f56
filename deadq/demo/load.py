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
from dataclasses import dataclass, replace
from typing import Final, Protocol

import httpx

REPEATED: Final = 0.02
"""Share of the orders that are sent a second time under the same key."""
RECENT: Final = 40
"""A repeat follows this many orders after its first at most: some of those still run."""
TIMEOUTS_MS: Final = (2_500, 4_000)
"""Callers wait for something between these, evenly spread."""
PATIENCE_S: Final = 8.0
"""How long the load itself waits for an answer, far beyond what any caller would (s)."""
KEEP_OPEN_S: Final = 5.0
"""How long an idle connection waits for its next order (s): less than the web tier keeps it."""

_SENDERS: Final = 32


@dataclass(frozen=True, slots=True)
class Order:
    """What is sent, in which phase, and when: seconds from the beginning of the first."""

    phase: str
    at: float
    key: str
    number: str
    cents: int
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back, and when: seconds from the beginning, and from the sending.

    ``status`` 0: nothing came.
    """

    order: Order
    came: float
    status: int
    took: float
    lag: float = 0.0
    """How much too late the order was sent (s): this program found no processor before."""
    job: str = ""
    """Its id, if it was accepted."""
    duplicate: bool = False
    reason: str = ""
    receipt: str = ""
    retry_after: str = ""

    @property
    def accepted(self) -> bool:
        return bool(self.job)

    @property
    def on_time(self) -> bool:
        """Whether it was booked on time: the queue takes no result after the deadline."""
        return self.status == 200

    @property
    def heard_late(self) -> bool:
        """Whether it was booked on time, and the answer came after the sender's patience."""
        return self.on_time and self.took * 1_000 > self.order.timeout_ms


def plan(phase: str, rate: float, begins: float, ends: float, dice: random.Random) -> list[Order]:
    """Orders at random instants, ``rate`` a second on average, a few of them repeats."""
    orders: list[Order] = []
    for number, at in enumerate(_instants(rate, begins, ends, dice)):
        timeout_ms = dice.randint(*TIMEOUTS_MS)
        if orders and dice.random() < REPEATED:
            first = dice.choice(orders[-RECENT:])
            orders.append(replace(first, at=at, timeout_ms=timeout_ms))
        else:
            name = f"{phase}-{number}"
            cents = dice.randint(100, 99_999)
            orders.append(Order(phase, at, f"order-{name}", name, cents, timeout_ms))
    return orders


def _instants(rate: float, begins: float, ends: float, dice: random.Random) -> Iterator[float]:
    at = begins + dice.expovariate(rate)
    while at < ends:
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


class Listener(Protocol):
    """Who watches the orders go and the answers come."""

    def sent(self, order: Order) -> None: ...
    def answered(self, answer: Answer) -> None: ...


async def send_all(
    clients: Sequence[httpx.AsyncClient],
    orders: Sequence[Order],
    begin: float,
    listener: Listener,
) -> list[Answer]:
    """Send each order at its instant, counted from ``begin`` (perf_counter, s), and wait for the
    last answer."""
    sending: list[asyncio.Task[Answer]] = []
    async with asyncio.TaskGroup() as group:
        for order, client in zip(orders, itertools.cycle(clients), strict=False):
            await asyncio.sleep(max(0.0, begin + order.at - time.perf_counter()))
            listener.sent(order)
            sending.append(group.create_task(_send(client, order, begin, listener)))
    return [task.result() for task in sending]


async def _send(
    client: httpx.AsyncClient, order: Order, begin: float, listener: Listener
) -> Answer:
    sent = time.perf_counter()
    lag = sent - begin - order.at
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
        answer = Answer(order, came - begin, 0, came - sent, lag, reason=reason)
    else:
        came = time.perf_counter()
        answer = _read(response, Answer(order, came - begin, 0, came - sent, lag))
    listener.answered(answer)
    return answer


def _read(response: httpx.Response, answer: Answer) -> Answer:
    body = content(response)
    return replace(
        answer,
        status=response.status_code,
        job=response.headers.get("x-job", ""),
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
