"""Before a tied job starts: its twin in another queue must not run too."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from ...config import QueueConfig
from ...errors import StoreUnavailable
from ...job import Outcome
from ...store import scripts
from ...store.aio import AsyncStore
from ..insist import ainsist, until
from ..jobs.run import Run


def untying(
    store: AsyncStore, queue: QueueConfig
) -> Callable[[Run], Coroutine[Any, Any, Outcome | None]]:
    """What asks of a tied job how it ends instead of starting; None: it may start. While the
    server is away it asks on, up to the job's deadline."""

    async def untie(run: Run) -> Outcome | None:
        call = scripts.untie(run.claim, queue.name, retention_ms=queue.retention_ms)
        worth = until(lambda: run.deadline.monotonic)
        try:
            may = await ainsist(lambda: store.run(call), asyncio.sleep, worth)
        except StoreUnavailable:
            return Outcome.RELEASE
        return None if may else Outcome.YIELDED

    return untie
