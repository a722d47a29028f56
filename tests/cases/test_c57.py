"""C57: a non-idempotent call hedged. A real server on a socket, and httpx."""

import asyncio
import contextlib
from collections import Counter

import httpx
import pytest
from prometheus_client import REGISTRY

from deadq import Deadline
from deadq.resilience import BudgetRule, ahedge
from deadq.resilience.steps import as_unit

DELAY_S = 0.05
SLOW_S = 0.2
PATIENCE_S = 30.0
PLENTY = BudgetRule(1000, 1000)


class Server:
    """Counts, answers after 200 ms, and makes each key's effect once.

    A request to ``/held`` is answered when another one has come; to ``/fast`` at once.
    """

    def __init__(self):
        self.requests, self.effects, self.keys = Counter(), Counter(), []
        self.open, self.given_up, self.idle = 0, asyncio.Event(), asyncio.Event()
        self._come = asyncio.Event()

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        return self

    async def __aexit__(self, *error):
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader, writer):
        self.open += 1
        self.idle.clear()
        try:
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                while True:
                    await self._answer(reader, writer)
        finally:
            self.open -= 1
            writer.close()
            if not self.open:
                self.idle.set()

    async def _answer(self, reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        method, path, _ = head[0].split(" ")
        headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
        await reader.readexactly(int(headers.get("content-length", 0)))
        self.requests[method] += 1
        key = headers.get("idempotency-key")
        self.keys.append(key)
        if method == "POST" and (key is None or not self.effects[key]):
            self.effects[key] += 1
        if path == "/held" and self.requests[method] > 1:
            path = "/fast"
            self._come.set()
        if path != "/fast":
            await self._hold(reader, path)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        await writer.drain()

    async def _hold(self, reader, path):
        gone = asyncio.ensure_future(reader.read(1))
        held = asyncio.ensure_future(
            asyncio.Event().wait() if path == "/held" else asyncio.sleep(SLOW_S)
        )
        try:
            await asyncio.wait({gone, held}, return_when=asyncio.FIRST_COMPLETED)
            if gone.done():
                self.given_up.set()
                raise ConnectionResetError
        finally:
            for task in (gone, held):
                task.cancel()
            await asyncio.wait({gone, held})

    async def all_closed(self):
        async with asyncio.timeout(PATIENCE_S):
            await self.idle.wait()


def outcomes(name):
    found = {
        outcome: REGISTRY.get_sample_value("deadq_hedges_total", {"name": name, "outcome": outcome})
        for outcome in ("sent", "won", "no_key", "unit", "deadline", "slow", "share", "layer")
    }
    return {outcome: value for outcome, value in found.items() if value}


@contextlib.asynccontextmanager
async def scene(name, **settings):
    """A server, and a call to it that is hedged after 50 ms; it has earned what it needs."""
    async with Server() as server, httpx.AsyncClient(timeout=PATIENCE_S) as client:

        @ahedge(**{"name": name, "delay": DELAY_S, "budget": PLENTY, **settings})
        async def call(method, path, key=None):
            if method == "WARM":
                return None
            headers = {"Idempotency-Key": key} if key else {}
            response = await client.request(method, server.url + path, headers=headers)
            return response.raise_for_status().text

        for _ in range(100):
            await call("WARM", "")
        yield server, client, call


def key_of(method, path, key=None):
    return key


def test_a_get_is_made_twice_at_most_and_nothing_is_left():
    async def main():
        async with scene("c57-get") as (server, client, call):
            before = asyncio.all_tasks()
            assert await call("GET", "/held") == "ok"
            ours = {task for task in asyncio.all_tasks() - before if task.get_name() == "c57-get"}
            assert not ours
            busy = [c for c in client._transport._pool.connections if not c.is_idle()]
            assert not busy, "the loser's connection is closed, the winner's is idle"
            async with asyncio.timeout(PATIENCE_S):
                await server.given_up.wait()
            assert server.requests == {"GET": 2}
            await client.aclose()
            await server.all_closed()

    asyncio.run(main())
    assert outcomes("c57-get") == {"sent": 1, "won": 1}


def test_every_slow_get_is_made_twice_at_most():
    async def main():
        async with scene("c57-gets") as (server, _, call):
            for _ in range(3):
                await call("GET", "/slow")
            assert server.requests["GET"] <= 6

    asyncio.run(main())


def test_a_post_without_a_key_is_made_once():
    async def main():
        async with scene("c57-post", writes=True, key=key_of) as (server, _, call):
            assert await call("POST", "/slow") == "ok"
            assert (server.requests, server.effects) == ({"POST": 1}, {None: 1})

    asyncio.run(main())
    assert outcomes("c57-post") == {"no_key": 1}
    with pytest.raises(ValueError, match="idempotency key"):
        ahedge(writes=True)


def test_a_post_with_a_key_is_made_twice_at_most_under_the_same_key_with_one_effect():
    async def main():
        async with scene("c57-keyed", writes=True, key=key_of) as (server, client, call):
            assert await call("POST", "/held", key="order-17") == "ok"
            assert server.requests == {"POST": 2}
            assert server.keys == ["order-17"] * 2
            assert server.effects == {"order-17": 1}
            await client.aclose()
            await server.all_closed()

    asyncio.run(main())


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_any_call_inside_a_unit_is_made_once(method):
    name = f"c57-unit-{method}"

    async def main():
        async with scene(name, writes=True, key=key_of) as (server, _, call):
            with as_unit():
                assert await call(method, "/slow", key="order-17") == "ok"
            assert server.requests == {method: 1}

    asyncio.run(main())
    assert outcomes(name) == {"unit": 1}


def test_with_40_ms_left_there_is_no_second_call():
    async def main():
        async with scene("c57-late") as (server, client, call):
            with pytest.raises(TimeoutError), Deadline.after(0.04).scope():
                await call("GET", "/slow")
            assert server.requests["GET"] <= 1
            await client.aclose()
            await server.all_closed()

    asyncio.run(main())
    assert "sent" not in outcomes("c57-late")


def test_nor_with_less_left_than_a_call_takes():
    async def main():
        async with scene("c57-needs", needs=60.0) as (server, _, call):
            with Deadline.after(60.0).scope():
                await call("GET", "/slow")
            assert server.requests["GET"] == 1

    asyncio.run(main())
    assert outcomes("c57-needs") == {"deadline": 1}


@pytest.mark.parametrize(
    ("settings", "most"), [({}, 10), ({"budget": BudgetRule(0.0, 0.2)}, 2)], ids=["share", "budget"]
)
def test_they_stay_within_their_budget(settings, most):
    """Of a hundred more calls every one is slow; the warm ones have earned as well."""

    async def main():
        async with scene("c57-many", **settings) as (server, _, call):
            await asyncio.gather(*(call("GET", "/slow") for _ in range(100)))
            return server.requests["GET"]

    assert 100 <= asyncio.run(main()) <= 100 + most
