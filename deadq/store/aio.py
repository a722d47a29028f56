"""The asyncio shell: runs calls on connections of the client's own pool."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from typing import Any, TypeVar

from hiredis import pack_command
from redis import asyncio as aredis
from redis import exceptions as rx
from redis.client import NEVER_DECODE

from .. import clock
from .background import background
from .scripts import Call
from .wire import BROKEN, TRIES, Command, Wire, forgotten, translate

T = TypeVar("T")


class AsyncStore:
    """Runs :class:`Call` values and returns their answers, on one event loop.

    A call, once sent, runs to its end even when its caller is cancelled, so that no reply is
    ever left behind on a connection for somebody else to read.
    """

    def __init__(self, client: aredis.Redis, wire: Wire, *, own: bool = True) -> None:
        self.client = client
        self.wire = wire
        self._pool: Any = getattr(client, "connection_pool", None)  # a Cluster client has none
        self._rests = own
        self._resting: list[Any] = []  # connections at rest, as in the blocking shell
        self._running: set[asyncio.Task[Any]] = set()

    async def run(self, call: Call[T]) -> T:
        """Run one call.

        Raises:
            StoreUnavailable: the server cannot be reached, or refuses.
        """
        return await self._to_the_end(self.run_here(call))

    async def run_all(self, calls: Sequence[Call[Any]]) -> list[Any]:
        """Run several calls in one round trip, in order."""
        return await self._to_the_end(self.run_all_here(calls))

    async def aclose(self) -> None:
        """Wait for the calls that are under way; give the connections back to the pool."""
        while self._running:
            await asyncio.wait(self._running)
        while self._resting:
            await self._pool.release(self._resting.pop())

    async def _to_the_end(self, work: Coroutine[Any, Any, T]) -> T:
        task = background(work)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # seen: a caller that was cancelled does not ask for it any more

    async def run_here(self, call: Call[T]) -> T:
        """Run one call within the calling task, which must not be cancelled meanwhile."""
        wire = self.wire
        replies, sent, received = await self._send([wire.evalsha(call)])
        reply = replies[0]
        if forgotten(reply):
            replies, sent, received = await self._send([wire.eval(call)])
            reply = replies[0]
        answer: T = wire.answer(call, reply, sent, received)
        return answer

    async def stream(self, calls: Sequence[Call[T]]) -> AsyncIterator[T]:
        """Run calls in one round trip; each answer is given out while the server does the next.

        To be used up by a task that is not cancelled meanwhile.
        """
        done = 0
        if self._pool is not None and len(calls) > 1:
            resting = self._resting
            sent = clock.monotonic()
            try:
                connection = resting.pop() if resting else await self._pool.get_connection()
            except (*BROKEN, rx.ResponseError) as error:
                raise translate(error) from error
            try:
                packed = [pack_command(self.wire.evalsha(call)) for call in calls]
                await connection.send_packed_command(packed)
                for call in calls:
                    reply = await _read(connection)
                    if forgotten(reply):
                        yield await self.run_here(call)
                    else:
                        yield self.wire.answer(call, reply, sent, clock.monotonic())
                    done += 1
                await self._rest(connection)
            except BROKEN:
                await self._drop(connection)
                await self._drop_resting()
            except BaseException:
                await self._drop(connection)
                raise
        for call in calls[done:]:
            yield await self.run_here(call)

    async def _rest(self, connection: Any) -> None:
        if self._rests:
            self._resting.append(connection)
        else:
            await self._pool.release(connection)

    async def _drop(self, connection: Any) -> None:
        await connection.disconnect(nowait=True)
        await self._pool.release(connection)

    async def run_all_here(self, calls: Sequence[Call[Any]]) -> list[Any]:
        """Run several calls within the calling task. Cancelling it drops the connection."""
        wire = self.wire
        replies, sent, received = await self._send([wire.evalsha(call) for call in calls])
        answers = []
        for call, reply in zip(calls, replies, strict=True):
            if forgotten(reply):
                answers.append(await self.run_here(call))
            else:
                answers.append(wire.answer(call, reply, sent, received))
        return answers

    async def _send(self, commands: list[Command]) -> tuple[list[Any], float, float]:
        for attempt in range(TRIES):
            sent = clock.monotonic()
            try:
                replies = await self._exchange(commands)
            except BROKEN as error:
                await self._drop_resting()
                if attempt == TRIES - 1:
                    raise translate(error) from error
            except rx.ResponseError as error:  # while connecting: AUTH, SELECT
                raise translate(error) from error
            else:
                return replies, sent, clock.monotonic()
        raise AssertionError  # pragma: no cover  the loop returns or raises

    async def _drop_resting(self) -> None:
        """Where one connection broke, the others have most likely died with it."""
        while self._resting:
            await self._drop(self._resting.pop())

    async def _exchange(self, commands: list[Command]) -> list[Any]:
        pool = self._pool
        if pool is None:
            return [await _one(self.client, command) for command in commands]
        resting = self._resting
        connection = resting.pop() if resting else await pool.get_connection()
        try:
            await connection.send_packed_command([pack_command(c) for c in commands])
            replies = [await _read(connection) for _ in commands]
        except BaseException:
            await self._drop(connection)
            raise
        await self._rest(connection)
        return replies


async def _read(connection: Any) -> Any:
    try:
        return await connection.read_response(disable_decoding=True)
    except rx.ResponseError as error:
        return error  # belongs to one command; the others' replies follow


async def _one(client: Any, command: Command) -> Any:
    try:
        return await client.execute_command(*command, **{NEVER_DECODE: True})
    except rx.ResponseError as error:
        return error
