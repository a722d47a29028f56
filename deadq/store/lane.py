"""Calls that share round trips: a lone item is sent at once; what gathers meanwhile goes next."""

from __future__ import annotations

import asyncio
import copy
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Generic, TypeVar

from .background import background

A = TypeVar("A")
B = TypeVar("B")


class Lane(Generic[A, B]):
    """Runs ``send`` on batches of items, one batch at a time, on one event loop.

    ``send`` gives the answers in order, in as many pieces as they come in.

    ``orphaned`` is told of an item that was carried out although its caller had left.
    """

    def __init__(
        self,
        send: Callable[[list[A]], AsyncIterator[list[B]]],
        most: int,
        orphaned: Callable[[A, B], None] | None = None,
    ) -> None:
        self._send = send
        self._most = most
        self._orphaned = orphaned
        self._waiting: deque[tuple[A, asyncio.Future[B]]] = deque()
        self._pump: asyncio.Task[None] | None = None

    def put(self, item: A) -> asyncio.Future[B]:
        """The answer to ``item``, to be awaited. Cancelling it does not stop the call."""
        future: asyncio.Future[B] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        if self._pump is None:
            self._pump = background(self._run())
        return future

    async def aclose(self) -> None:
        """Wait until all that was put in has been answered."""
        while self._pump is not None:
            await asyncio.wait([self._pump])

    async def _run(self) -> None:
        try:
            while self._waiting:
                batch = [
                    self._waiting.popleft() for _ in range(min(self._most, len(self._waiting)))
                ]
                await self._carry_out(batch)
        finally:
            self._pump = None

    async def _carry_out(self, batch: list[tuple[A, asyncio.Future[B]]]) -> None:
        done = 0
        try:
            async for answers in self._send([item for item, _ in batch]):
                for answer in answers:
                    item, future = batch[done]
                    done += 1
                    if not future.done():
                        future.set_result(answer)
                    elif self._orphaned is not None:
                        self._orphaned(item, answer)
        except Exception as error:  # noqa: BLE001  handed to every caller that has no answer yet
            for _, future in batch[done:]:
                if not future.done():
                    future.set_exception(copy.copy(error))
        except BaseException:
            for _, future in batch[done:]:
                future.cancel()
            raise
