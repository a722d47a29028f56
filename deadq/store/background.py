"""Work that is nobody's in particular, and outlives the caller that happened to begin it; and
cancellations that must not get lost."""

from __future__ import annotations

import asyncio
import contextvars
import warnings
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def background(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """A task in an empty context: not the caller's deadline, nor the job in which it was begun,
    with which a worker would take it for something that the job has left behind."""
    return asyncio.get_running_loop().create_task(work, context=contextvars.Context())


def check_cancelled() -> None:
    """Raise the cancellation that a send may have swallowed.

    On Python 3.11 ``asyncio.wait_for`` does that when it is over in the same moment, and the redis
    client sends by it where its replies have a timeout.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def warn_on_a_loop() -> None:
    """Called by a wait that blocks: whoever stops an event loop by it is told. It is no error, as a
    notebook's cells run on a loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    msg = (
        "a blocking wait for a job stops the event loop that runs on this thread: "
        "await task.acall(...) or job.aresult() in place of call(...) or result()"
    )
    warnings.warn(msg, RuntimeWarning, stacklevel=4)
