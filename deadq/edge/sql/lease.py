"""A connection of a pool in somebody's hands: it goes back exactly once, whatever interrupts.

A signal handler may raise on the main thread at any instruction, also between a pool's giving a
connection out and the assignment of it. So on the main thread both ways are gone by a thread of
their own, in which no signal handler runs.
"""

from __future__ import annotations

import _thread
import asyncio
import contextvars
import threading
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Generic, TypeVar

C = TypeVar("C")
T = TypeVar("T")


def to_the_end(act: Callable[[], object]) -> BaseException | None:
    """Do something that must not be left half done; returns what was raised here meanwhile."""
    if threading.current_thread() is not threading.main_thread():
        act()
        return None
    first: BaseException | None = None
    errors: list[BaseException] = []
    over: list[bool] = []
    claim, done = threading.Lock(), threading.Lock()
    done.acquire()

    def work() -> None:
        if claim.acquire(blocking=False):
            try:
                act()
            except BaseException as error:  # noqa: BLE001  raised where it is waited for
                errors.append(error)
            over.append(True)
            done.release()

    while not over:
        try:
            # whether an interrupted call has started one is not known: the first does it.
            # A Thread object's start() cannot be interrupted without harm; this can.
            _thread.start_new_thread(work, ())
            done.acquire()
        except BaseException as error:  # noqa: BLE001  a signal's; the caller is told of it
            first = first or error
    if errors:
        raise errors[0]
    return first


async def ato_the_end(act: Coroutine[Any, Any, T]) -> T:
    """The same on an event loop. Cancellations of the caller are held back until it is done."""
    inner = asyncio.ensure_future(act)
    cancelled: asyncio.CancelledError | None = None
    while not inner.done():
        try:
            await asyncio.shield(inner)
        except asyncio.CancelledError as error:
            if inner.done() and inner.cancelled():
                raise
            cancelled = error
        except BaseException:  # noqa: BLE001  its own: see below
            break
    if cancelled is not None and inner.exception() is None:
        raise cancelled
    return inner.result()


class Lease(Generic[C]):
    """``with Lease(take, give) as connection:`` commits at the end, rolls back on an error.

    ``give`` rolls back what is open: it is called once for each connection that ``take`` gave.
    """

    def __init__(
        self, take: Callable[[], C], give: Callable[[C], None], commit: Callable[[C], None]
    ) -> None:
        self._take = take
        self._give = give
        self._commit = commit
        self._lock = threading.Lock()
        self._held: list[C] = []
        self._wanted = True

    def __enter__(self) -> C:
        try:
            interrupted = self._on_a_thread()
            if interrupted is not None:
                raise interrupted
            return self._held[0]
        except BaseException:
            self._wanted = False
            to_the_end(self._give_back)
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                self._commit(self._held[0])
        finally:
            interrupted = to_the_end(self._give_back)
        if interrupted is not None and kind is None:
            raise interrupted

    def __del__(self) -> None:
        # a signal that came in between the lines of a with statement
        if self._held:
            self._give_back()

    def _on_a_thread(self) -> BaseException | None:
        """Take one; a wait that is interrupted ends at once, and what it was for is given back."""
        if threading.current_thread() is not threading.main_thread():
            self._take_one()
            return None
        errors: list[BaseException] = []
        context = contextvars.copy_context()  # with the deadline: a pool may try a connection out
        done = threading.Lock()
        done.acquire()

        def work() -> None:
            try:
                context.run(self._take_one)
            except BaseException as error:  # noqa: BLE001  raised where it is waited for
                errors.append(error)
            done.release()

        try:
            _thread.start_new_thread(work, ())
            done.acquire()
        except BaseException as error:  # noqa: BLE001  the signal's
            return error
        if errors:
            raise errors[0]
        return None

    def _take_one(self) -> None:
        taken = self._take()
        with self._lock:
            self._held.append(taken)
        if not self._wanted:
            self._give_back()

    def _give_back(self) -> None:
        while True:
            with self._lock:
                if not self._held:
                    return
                taken = self._held.pop()
            self._give(taken)
