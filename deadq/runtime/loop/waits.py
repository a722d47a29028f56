"""Waiting on an event loop: for the first of several, in spite of a cancellation, for a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any


async def first(timeout: float | None, *waits: Coroutine[Any, Any, Any]) -> None:
    """Wait until one of them is over, or ``timeout`` seconds."""
    tasks = {asyncio.ensure_future(wait) for wait in waits}
    try:
        await asyncio.wait(tasks, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


async def shielded(work: Coroutine[Any, Any, None]) -> None:
    """Finish ``work`` even if the caller is cancelled meanwhile; then say so."""
    task = asyncio.ensure_future(work)
    cancelled = False
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise
            cancelled = True
    if cancelled:
        raise asyncio.CancelledError


async def in_own_thread(call: Callable[[], object]) -> None:
    """Run ``call`` in a new thread: handlers may keep all of those busy that the loop lends."""
    pool = ThreadPoolExecutor(1)
    try:
        await asyncio.get_running_loop().run_in_executor(pool, call)
    finally:
        pool.shutdown(wait=False)
