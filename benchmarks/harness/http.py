"""The least HTTP/1.1 that a dependency and its callers need: a status, no body."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

_HEAD_END: Final = b"\r\n\r\n"


class Answered(Exception):
    """The other side answered with ``status``, which was no success."""

    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.status = status


async def serve(status: Callable[[], int]) -> tuple[asyncio.Server, int]:
    """Answer every request with the status that the function gives; returns server and port."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                await reader.readuntil(_HEAD_END)
                writer.write(b"HTTP/1.1 %d .\r\nContent-Length: 0\r\n\r\n" % status())
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    return server, server.sockets[0].getsockname()[1]


class Client:
    """Requests on connections that are kept, as many as there are requests at a time."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._rests: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def get(self) -> None:
        """One request.

        Raises:
            Answered: with a status that is no success.
            OSError: the connection cannot be made, or breaks.
        """
        if self._rests:
            reader, writer = self._rests.pop()
        else:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            head = await reader.readuntil(_HEAD_END)
        except BaseException:
            writer.close()
            raise
        self._rests.append((reader, writer))
        status = int(head.split(b" ", 2)[1])
        if status >= 400:
            raise Answered(status)

    def close(self) -> None:
        """Close the connections at rest."""
        for _, writer in self._rests:
            writer.close()
