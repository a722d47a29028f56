"""Running a coroutine from blocking code that may itself be running on an event loop."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def on_a_loop() -> bool:
    """Whether an event loop is running in this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def run_aside(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine to its end, on a loop of its own.

    Where a loop is running that the caller is blocking, it runs in a thread of its own, for
    which the caller waits: still only one of them runs at a time.
    """
    if not on_a_loop():
        return asyncio.run(work())
    context = contextvars.copy_context()
    outcome: list[T] = []
    fault: list[BaseException] = []

    def elsewhere() -> None:
        try:
            outcome.append(context.run(asyncio.run, work()))
        except BaseException as error:  # noqa: BLE001  raised again below
            fault.append(error)

    thread = threading.Thread(target=elsewhere, name="deadq-testing")
    thread.start()
    thread.join()
    if fault:
        raise fault[0]
    return outcome[0]
