"""Taking up work: a connection, and an id in the fleet. Both wait for a server that is away. And
giving it up again."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from typing import Final

from ... import clock
from ...errors import StoreUnavailable
from ...events import Event, log
from ...queue import Queue
from ...store import scripts
from ...store.aio import AsyncStore
from ..insist import HOPELESS, ainsist
from ..lease.heartbeat import Lease
from ..lease.ledger import Ledger
from ..lease.registration import registration
from .ending import Ending

_GOOD_BYE_S: Final = 1.0
"""How long a child waits for the answer to its good-bye (s)."""


async def connect(queue: Queue, ending: Ending) -> AsyncStore | None:
    """The store; None when told to stop before the server answered.

    Raises:
        UnsafeServer, AccessRefused: waiting would not mend it.
    """
    if ending.stopping.is_set():
        return None
    try:
        return await ainsist(
            queue.backend.aio,
            ending.pause,
            lambda error: not ending.stopping.is_set() and not isinstance(error, HOPELESS),
        )
    except HOPELESS:
        raise
    except StoreUnavailable:
        return None


async def register(
    queue: Queue,
    store: AsyncStore,
    ledger: Ledger,
    lease: Lease,
    *,
    slots: int,
    ending: Ending,
) -> bool:
    """Take up a new id; False when told to stop before the server answered."""
    child = secrets.token_hex(8)
    call = registration(queue, child, slots)

    async def send() -> float:
        sent = clock.monotonic()
        await store.run(call)
        return sent

    try:
        sent = await ainsist(send, ending.pause, lambda _: not ending.stopping.is_set())
    except StoreUnavailable:
        return False
    lease.renewed(child, sent)
    ledger.begin(child)
    log.info("%s: child %s, %d slots", Event.REGISTERED, child, slots)
    return True


async def retire(queue: Queue, store: AsyncStore, ledger: Ledger) -> None:
    """Give the id up. Where the server is away it stays on the page: the supervisor sees to it."""
    child = ledger.child
    with contextlib.suppress(StoreUnavailable, TimeoutError):
        async with asyncio.timeout(_GOOD_BYE_S):
            await store.run(scripts.release(child, retention_ms=queue.config.retention_ms))
        ledger.begin("")
    log.info("%s: child %s", Event.STOPPED, child)
