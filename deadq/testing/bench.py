"""What a faked queue knows of those who wait for it and of those who run it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Protocol

from .. import clock
from .moving_clock import Clock


class Hand(Protocol):
    """Somebody who runs jobs of the queue."""

    @property
    def busy(self) -> bool:
        """Whether a handler of theirs is running."""
        ...

    def told(self) -> None:
        """Something has changed; from any thread."""
        ...


class Bench:
    """Passes on that something has changed: to waiters by a future, to hands by a call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[Future[None]] = []
        self._hands: list[Hand] = []

    @property
    def busy(self) -> bool:
        """Whether anything is running."""
        return any(hand.busy for hand in self._hands)

    def changed(self) -> Future[None]:
        """A future that is done at the next change."""
        waiter: Future[None] = Future()
        with self._lock:
            self._waiting.append(waiter)
        return waiter

    def tell(self) -> None:
        """Something has changed."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
            hands = list(self._hands)
        for waiter in waiting:
            if waiter.set_running_or_notify_cancel():
                waiter.set_result(None)
        for hand in hands:
            hand.told()

    @contextmanager
    def working(self, hand: Hand) -> Iterator[None]:
        """``hand`` is at work until the block ends."""
        with self._lock:
            self._hands.append(hand)
        try:
            yield
        finally:
            with self._lock:
                self._hands.remove(hand)


def following(bench: Bench) -> AbstractContextManager[None]:
    """Have moves of the test's clock count as changes until the block ends."""
    now = clock.current()
    return now.watched(bench.tell) if isinstance(now, Clock) else nullcontext()
