"""Waiting for a push: a worker's blocked connection on its control list and the queue's tokens."""

from __future__ import annotations

import asyncio
from typing import Any, Final, NamedTuple

from hiredis import pack_command
from redis import exceptions as rx

from .. import clock
from . import keys
from .background import check_cancelled
from .home import ahome
from .scripts import Call, Claimed
from .wire import BROKEN, Wire, forgotten, translate

_GRACE_S: Final = 5.0
"""How much later than asked the server may answer before the connection counts as dead."""


class Woken(NamedTuple):
    """Why a wait ended, and what the claim that went with it brought."""

    message: str | None
    """A control message, ``token``, or None when the time was over."""
    answer: Claimed | None
    """None when no claim was sent, or the server did not know the script."""
    since: float
    """Monotonic second at which the push came."""


class Parking:
    """One blocked pop at a time on a connection of its own: control messages first, then tokens.

    A claim is sent along with the pop. The server runs it the moment the pop ends, without a
    round trip in between.
    """

    def __init__(self, client: Any, wire: Wire, queue: str) -> None:
        self._client = client
        self._wire = wire
        self._prefix = keys.prefix(queue)
        self._pool: Any = None
        self._connection: Any = None
        self._given_up = 0
        """How often a wait has been given up."""
        self._reply_timeout: float | None = client.get_connection_kwargs().get("socket_timeout")

    async def wait(self, child: str, seconds: float, claim: Call[Claimed] | None) -> Woken:
        """Wait for a message, and with ``claim`` also for a token, at most so many seconds.

        Raises:
            StoreUnavailable: the connection broke. A token may have gone down with it, and
                ``claim`` may have been carried out.
        """
        if self._reply_timeout is not None:  # a client of the user's own
            seconds = min(seconds, self._reply_timeout / 2)
        lists = [f"{self._prefix}ctl:{child}"]
        if claim is not None:
            lists.append(f"{self._prefix}wake")
        try:
            async with asyncio.timeout(seconds + _GRACE_S):
                return await self._pop(("BLPOP", *lists, max(0.001, seconds)), claim)
        except TimeoutError as error:
            raise translate(rx.TimeoutError("no answer to a blocked pop")) from error
        except (*BROKEN, rx.ResponseError) as error:
            raise translate(error) from error

    async def aclose(self) -> None:
        """Close the connection; a wait under way ends with an error, one that is still connecting
        too."""
        self._given_up += 1
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.disconnect(nowait=True)
            await self._pool.release(connection)

    async def _pop(self, pop: tuple[Any, ...], claim: Call[Claimed] | None) -> Woken:
        try:
            if self._connection is None:
                await self._connect()
            connection = self._connection
            commands = [pack_command(pop)]
            if claim is not None:
                commands.append(pack_command(self._wire.evalsha(claim)))
            sent = clock.monotonic()
            await connection.send_packed_command(commands)
            check_cancelled()
            found = await connection.read_response(disable_decoding=True)
            since = clock.monotonic()
            answer = None
            if claim is not None:
                answer = await self._answer(connection, claim, sent)
            return Woken(_message(found), answer, since)
        except BaseException:
            await self.aclose()  # its replies may still come
            raise

    async def _connect(self) -> None:
        given_up = self._given_up
        pool = (await ahome(self._client, self._prefix)).connection_pool
        connection = await pool.get_connection()
        if self._given_up != given_up:  # the id that the wait was for may be nobody's any more
            await pool.release(connection)
            msg = "the wait was given up while it was connecting"
            raise rx.ConnectionError(msg)
        self._pool, self._connection = pool, connection

    async def _answer(self, connection: Any, claim: Call[Claimed], sent: float) -> Claimed | None:
        try:
            reply = await connection.read_response(disable_decoding=True)
        except rx.ResponseError as error:
            if forgotten(error):
                return None
            raise
        answer: Claimed = self._wire.answer(claim, reply, sent, clock.monotonic())
        return answer


def _message(found: Any) -> str | None:
    if found is None:
        return None
    name, message = (
        v.decode("utf-8", "replace") if isinstance(v, bytes) else str(v) for v in found
    )
    return "token" if name.endswith(":wake") else message
