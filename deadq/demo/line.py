"""A network: ``python -m deadq.demo.line FD=TARGET ...`` carries bytes between socket and target.

Frozen (SIGSTOP) it keeps what has been sent, and delivers it when it goes on: late, but whole.
A target is ``host:port``, or the path of a unix socket.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from typing import Final

_AT_ONCE: Final = 1 << 16

Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def carry_all(listener: socket.socket, target: str) -> None:
    """Carry what comes in at the socket, until cancelled."""

    async def join(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer):
            try:
                far_reader, far_writer = await _connect(target)
            except OSError:
                return
            with contextlib.closing(far_writer):
                both = (_carry(reader, far_writer), _carry(far_reader, writer))
                done, rest = await asyncio.wait(
                    [asyncio.ensure_future(way) for way in both],
                    return_when=asyncio.FIRST_COMPLETED,
                )
                for way in rest:
                    way.cancel()
                await asyncio.gather(*done, *rest, return_exceptions=True)

    server = await asyncio.start_server(join, sock=listener)
    async with server:
        await server.serve_forever()


async def _connect(target: str) -> Ends:
    host, _, port = target.rpartition(":")
    if "/" in target:
        return await asyncio.open_unix_connection(target)
    return await asyncio.open_connection(host, int(port))


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(_AT_ONCE):
            writer.write(data)
            await writer.drain()


async def _all(ways: list[str]) -> None:
    async with asyncio.TaskGroup() as group:
        for way in ways:
            number, _, target = way.partition("=")
            group.create_task(carry_all(socket.socket(fileno=int(number)), target))


if __name__ == "__main__":
    asyncio.run(_all(sys.argv[1:]))
