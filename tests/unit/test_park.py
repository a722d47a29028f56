"""Waiting for a push: what happens to a wait that is given up."""

import asyncio
import contextlib
from types import SimpleNamespace
from unittest.mock import AsyncMock

import pytest

from deadq import StoreUnavailable
from deadq.store.park import Parking


class Pool:
    """Connects when the test says so."""

    def __init__(self):
        self.connection_kwargs = {}
        self.asked = asyncio.Event()
        self.connects = asyncio.Event()
        self.released = []

    async def get_connection(self):
        self.asked.set()
        await self.connects.wait()
        return "connection"  # nothing can be sent over it

    async def release(self, connection):
        self.released.append(connection)


async def give_up_while_connecting():
    pool = Pool()
    parking = Parking(
        SimpleNamespace(connection_pool=pool, get_connection_kwargs=dict), None, "queue"
    )
    waiting = asyncio.ensure_future(parking.wait("old-id", 60.0, None))
    await pool.asked.wait()
    await parking.aclose()
    pool.connects.set()
    with pytest.raises(StoreUnavailable, match="given up"):
        await waiting
    assert pool.released == ["connection"]


def test_a_wait_that_is_given_up_while_it_connects_does_not_begin():
    """It would wait under an id that has been given up meanwhile, and hear nothing."""
    asyncio.run(give_up_while_connecting())


class Swallower:
    """A connection whose sends swallow a cancellation, as the redis client's may on Python 3.11."""

    def __init__(self):
        self.sending = asyncio.Event()
        self.dropped = False

    async def send_packed_command(self, _):
        self.sending.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()

    async def read_response(self, **_):
        await asyncio.Event().wait()

    async def disconnect(self, **_):
        self.dropped = True


async def cancel_while_sending():
    pool, connection = Pool(), Swallower()
    pool.connects.set()
    pool.get_connection = AsyncMock(return_value=connection)
    client = SimpleNamespace(connection_pool=pool, get_connection_kwargs=dict)
    waiting = asyncio.ensure_future(Parking(client, None, "queue").wait("id", 60.0, None))
    await connection.sending.wait()
    waiting.cancel()
    await asyncio.wait({waiting}, timeout=5.0)
    assert waiting.cancelled()
    assert connection.dropped


def test_a_wait_that_is_cancelled_while_it_is_sent_ends():
    asyncio.run(cancel_while_sending())
