"""Running a loop to the end of the worker's own work, whatever handlers do to the loop itself."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from ...events import log

T = TypeVar("T")


def run_to_end(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> T:
    """Run ``work`` on ``loop``, and return what it returns.

    A SystemExit that a handler raises is its job's failure. In a task or callback that it has begun
    asyncio lets it out of the loop all the same, which would end every other job; so does
    ``loop.stop()``. Here the loop goes on.
    """
    task = loop.create_task(work)
    task.add_done_callback(lambda _: loop.stop())
    while not task.done():
        why = "a handler has stopped the loop"
        try:
            loop.run_forever()
        except (SystemExit, KeyboardInterrupt) as error:
            why = f"a task or callback of a handler raised {type(error).__name__}"
        if not task.done():
            log.error("%s; the worker goes on", why)
    return task.result()
