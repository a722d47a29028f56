"""The traffic of a proxy: connections, and what happens to their bytes on the way.

Everything here runs in one event loop. ``SlowProxy`` is the face of it for other threads.
"""

import asyncio
import contextlib
import random
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass, field

from .proxy_target import Target

_CHUNK = 16 * 1024
_IN_FLIGHT = 256
"""Chunks held per direction; a sender of more is slowed down, as by a full network."""
_REQUEST_KEPT = 64 * 1024
_DRIP_S = 0.02
_DIAL_S = 10.0
_RESET = struct.pack("ii", 1, 0)

_Queue = asyncio.Queue[tuple[float, bytes]]


@dataclass(slots=True)
class Swallow:
    """How many replies are still to vanish, and which."""

    left: int = 0
    to: bytes = b""
    cut: bool = False


@dataclass(slots=True, eq=False)
class Link:
    """One client's connection, and the one to the target that was opened for it."""

    client: socket.socket
    server: socket.socket
    request: bytearray = field(default_factory=bytearray)
    answered: bool = False
    swallowing: bool = False

    def client_spoke(self, data: bytes) -> None:
        """What comes from the target from here on belongs to this request."""
        if self.answered:
            self.request.clear()
            self.answered = self.swallowing = False
        self.request += data[: _REQUEST_KEPT - len(self.request)]


class Wire:
    """Carries the bytes of all connections, late, slowly or not at all.

    ``delay`` and ``jitter`` are seconds for a round trip, ``rate`` is bytes a second; after
    setting one of them call :meth:`settings_changed`. ``told`` is called after every event.
    """

    def __init__(self, target: Target, told: Callable[[], None]) -> None:
        self.delay = 0.0
        self.jitter = 0.0
        self.rate: float | None = None
        self.swallow = Swallow()
        self.swallowed = 0
        self.bytes_swallowed = 0
        self.accepted = 0
        self.bytes_to_server = 0
        self.bytes_to_client = 0
        self.sockets: set[socket.socket] = set()
        self.links: set[Link] = set()
        self._target = target
        self._told = told
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()

    def settings_changed(self) -> None:
        """Let what waits on the way look at the new settings."""
        self._changed.set()
        self._changed = asyncio.Event()

    def take(self, client: socket.socket) -> None:
        """Carry this freshly accepted connection until one side has had enough."""
        self.accepted += 1
        self.sockets.add(client)
        task = asyncio.create_task(self._carry(client))
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._carried(done, client))

    def _carried(self, task: asyncio.Task[None], client: socket.socket) -> None:
        self._tasks.discard(task)
        if client in self.sockets:  # cut before its first step, so that nothing was closed
            self._close(client, None, orderly=False)

    async def cut(self) -> None:
        """Reset every connection; returns when all are closed."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _carry(self, client: socket.socket) -> None:
        link, orderly = None, False
        try:
            server = await self._dial()
            link = Link(client, server)
            self.links.add(link)
            self._told()
            async with asyncio.TaskGroup() as group:
                to_server, to_client = _Queue(_IN_FLIGHT), _Queue(_IN_FLIGHT)
                group.create_task(self._hear_client(link, to_server))
                group.create_task(self._hear_server(link, to_client))
                group.create_task(self._speak_to_server(link, to_server))
                group.create_task(self._speak_to_client(link, to_client))
            orderly = True
        except* OSError:
            pass  # the other side learns it by the reset below
        finally:
            self._close(client, link, orderly=orderly)

    def _close(self, client: socket.socket, link: Link | None, *, orderly: bool) -> None:
        # Only the client sees a reset: it could make the target forget a request that it has.
        if not orderly and client.family != socket.AF_UNIX:
            with contextlib.suppress(OSError):
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        for end in (client, link.server) if link else (client,):
            end.close()
            self.sockets.discard(end)
        if link:
            self.links.discard(link)
        self._told()

    async def _dial(self) -> socket.socket:
        loop = asyncio.get_running_loop()
        places: list[tuple[socket.AddressFamily, object]] = []
        if self._target.path:
            places.append((socket.AF_UNIX, self._target.path))
        else:
            found = await loop.getaddrinfo(
                self._target.host, self._target.port, type=socket.SOCK_STREAM
            )
            places += [(family, address) for family, _, _, _, address in found]
        failure: OSError = OSError("the target has no address")
        for family, address in places:
            server = socket.socket(family, socket.SOCK_STREAM)
            server.setblocking(False)
            self.sockets.add(server)
            try:
                async with asyncio.timeout(_DIAL_S):
                    await loop.sock_connect(server, address)  # type: ignore[arg-type]
            except BaseException as error:
                self.sockets.discard(server)
                server.close()
                if not isinstance(error, OSError):
                    raise
                failure = error
            else:
                if family != socket.AF_UNIX:
                    server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return server
        raise failure

    async def _hear_client(self, link: Link, queue: _Queue) -> None:
        loop = asyncio.get_running_loop()
        while data := await loop.sock_recv(link.client, _CHUNK):
            link.client_spoke(data)
            await queue.put((self._due(), data))
        await queue.put((self._due(), b""))

    async def _hear_server(self, link: Link, queue: _Queue) -> None:
        loop = asyncio.get_running_loop()
        while data := await loop.sock_recv(link.server, _CHUNK):
            if self._swallows(link):
                self.bytes_swallowed += len(data)
                self._told()
                if self.swallow.cut:
                    raise ConnectionResetError
            else:
                await queue.put((self._due(), data))
        await queue.put((self._due(), b""))

    def _due(self) -> float:
        """When a chunk that came in now may leave, but for the delay in force by then."""
        now = asyncio.get_running_loop().time()
        return now + random.random() * self.jitter / 2

    def _swallows(self, link: Link) -> bool:
        link.answered = True
        if not link.swallowing and self.swallow.left > 0 and self.swallow.to in link.request:
            self.swallow.left -= 1
            self.swallowed += 1
            link.swallowing = True
        return link.swallowing

    async def _speak_to_server(self, link: Link, queue: _Queue) -> None:
        def sent(size: int) -> None:
            self.bytes_to_server += size
            self._told()

        await self._speak(link.server, queue, sent)

    async def _speak_to_client(self, link: Link, queue: _Queue) -> None:
        def sent(size: int) -> None:
            self.bytes_to_client += size
            self._told()

        await self._speak(link.client, queue, sent)

    async def _speak(self, end: socket.socket, queue: _Queue, sent: Callable[[int], None]) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due, data = await queue.get()
            await self._until(lambda due=due: due + self.delay / 2)  # type: ignore[misc]
            if not data:
                end.shutdown(socket.SHUT_WR)
                return
            while data:
                size = max(1, int(self.rate * _DRIP_S)) if self.rate else len(data)
                piece, data = data[:size], data[size:]
                await loop.sock_sendall(end, piece)
                sent(len(piece))
                if self.rate:
                    await self._drip(len(piece))

    async def _drip(self, size: int) -> None:
        began = asyncio.get_running_loop().time()
        await self._until(lambda: began + (size / self.rate if self.rate else 0.0))

    async def _until(self, due: Callable[[], float]) -> None:
        """Wait for an instant that moves when the settings change."""
        loop = asyncio.get_running_loop()
        while (left := due() - loop.time()) > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._changed.wait()
