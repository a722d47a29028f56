"""The quotes queue: what the web app and every worker import.

    deadq work workers.quotes.jobs:queue --concurrency 16

A quote asks all sellers at once, and a slow one a second time, as far as the budget that the fleet
has for it allows; whoever has not answered when there is just time left to write is left out. The
best offer goes into PostgreSQL, with the unit's record in the same transaction: exactly once.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final, TypedDict

import httpx
from psycopg_pool import AsyncConnectionPool

from deadq import FleetBudget, Queue, current_job
from deadq.edge.httpx import AsyncDeadlineTransport
from deadq.edge.sql import acreate_table, aunit
from deadq.edge.sql.psycopg import AsyncDeadlineConnection, aconnection
from deadq.resilience import ahedge

DATABASE: Final = os.environ.get("QUOTES_DATABASE", "postgresql:///quotes")
SELLERS: Final = os.environ.get(
    "QUOTES_SELLERS",
    "http://127.0.0.1:8101/north,http://127.0.0.1:8101/south,http://127.0.0.1:8101/west",
).split(",")
WRITE_S: Final = 0.3
"""Kept back of a job's time for writing (s)."""

TABLE: Final = (
    "CREATE TABLE IF NOT EXISTS quotes "
    "(made bigint GENERATED ALWAYS AS IDENTITY, item text, seller text, cents bigint)"
)


class Quote(TypedDict):
    """The best offer."""

    item: str
    seller: str
    cents: int


class NoOfferError(Exception):
    """Nobody has answered, or not in time."""


class Desk:
    """What a worker has open while it works."""

    def __init__(self, pool: AsyncConnectionPool[AsyncDeadlineConnection[Any]]) -> None:
        self.pool = pool
        self.sellers: list[Callable[[str], Awaitable[Quote]]] = []

    def add(self, url: str, client: httpx.AsyncClient, budget: FleetBudget) -> None:
        """A seller to ask; a second call may reach another of its machines."""

        @ahedge(budget=budget, name=_name(url))
        async def ask(item: str) -> Quote:
            answer = await client.get(url, params={"item": item})
            answer.raise_for_status()
            return Quote(item=item, seller=_name(url), cents=int(answer.json()["cents"]))

        self.sellers.append(ask)


queue = Queue("quotes", capacity=64)
_desks: list[Desk] = []


@queue.lifespan
async def opened() -> AsyncIterator[None]:
    """Connections to the database and to each seller, for as long as the worker works."""
    async with contextlib.AsyncExitStack() as stack:
        pool = AsyncConnectionPool(
            DATABASE, connection_class=AsyncDeadlineConnection, max_size=4, open=False
        )
        await stack.enter_async_context(pool)
        async with aconnection(pool) as conn:
            # two workers may come at the same time, and CREATE IF NOT EXISTS is no lock
            await conn.execute("SELECT pg_advisory_xact_lock(17)")
            await acreate_table(conn)
            await conn.execute(TABLE)
        desk = Desk(pool)
        for url in SELLERS:
            budget = FleetBudget(f"quotes.{_name(url)}")
            stack.callback(budget.close)
            # another company's machine is told how much time is left, and nothing else
            transport = AsyncDeadlineTransport(dependency=_name(url), trusted=False)
            client = await stack.enter_async_context(httpx.AsyncClient(transport=transport))
            desk.add(url, client, budget)
        _desks.append(desk)
        try:
            yield
        finally:
            _desks.remove(desk)


@queue.task(within=2.0, retries=1, retry_on=(NoOfferError,))
async def quote(item: str) -> Quote:
    """Ask everybody, and write down the best offer."""
    desk = _desks[-1]
    best = min(await offers(desk, item), key=lambda offer: offer["cents"])
    async with aconnection(desk.pool) as conn:

        async def keep(offer: Quote) -> Quote:
            await conn.execute(
                "INSERT INTO quotes (item, seller, cents) VALUES (%(item)s, %(seller)s, %(cents)s)",
                offer,
            )
            return offer

        return await aunit("keep", keep, best, conn=conn)


async def offers(desk: Desk, item: str) -> list[Quote]:
    """Of all who answer while there is time."""
    asking = current_job().deadline.child(WRITE_S)
    if asking is None:
        raise NoOfferError
    with asking.scope():
        found = await asyncio.gather(*(ask(item) for ask in desk.sellers), return_exceptions=True)
    made = [offer for offer in found if not isinstance(offer, BaseException)]
    if not made:
        raise NoOfferError
    return made


def _name(url: str) -> str:
    return url.rsplit("/", 1)[-1]
