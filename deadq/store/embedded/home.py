"""What can be found out about a data folder's server, and said to it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import BusyLoadingError, RedisError, ResponseError
from redis.retry import Retry


@dataclass(frozen=True)
class Answer:
    """A living server's word on itself; what it was too busy to say is None."""

    pid: int | None
    version: str | None
    loading: bool


@dataclass(frozen=True)
class Home:
    """A data folder, existing or not."""

    folder: Path

    @property
    def log(self) -> Path:
        return self.folder / "server.log"

    def socket(self) -> Path:
        return Path(os.fsdecode((self.folder / "server.socket").read_bytes()))

    def url(self) -> str:
        return f"unix://{quote(str(self.socket()))}"

    def publish(self, socket: Path) -> None:
        # written before the server starts, so that a starter's death leaves no unknown server
        draft = self.folder / "server.socket.new"
        draft.write_bytes(os.fsencode(socket))
        draft.replace(self.folder / "server.socket")

    def pid(self) -> int | None:
        with contextlib.suppress(OSError, ValueError):
            return int((self.folder / "server.pid").read_text())
        return None

    def forget_pid(self) -> None:
        """Drop a killed server's pid; only to be called under the lock."""
        (self.folder / "server.pid").unlink(missing_ok=True)

    @contextlib.contextmanager
    def lock_if_free(self) -> Iterator[int | None]:
        """The lock's descriptor if nobody has it; closing it leaves the lock to an heir."""
        lock = os.open(self.folder / "server.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
        else:
            yield lock
        finally:
            os.close(lock)

    def held(self) -> bool:
        """Whether a server lives, or is being started."""
        try:
            lock = os.open(self.folder / "server.lock", os.O_RDWR)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(lock)
        return False

    def client(self) -> Redis:
        return Redis(
            unix_socket_path=str(self.socket()),
            socket_timeout=1.0,
            socket_connect_timeout=1.0,
            retry=Retry(NoBackoff(), 0),
            protocol=2,
            decode_responses=True,
        )

    def ask(self) -> Answer | None:
        """Ask the server how it is; None when there is no answer."""
        try:
            with self.client() as client:
                info = client.info()
        except BusyLoadingError:
            return Answer(None, None, loading=True)
        except ResponseError:
            return Answer(None, None, loading=False)  # busy with a script, say: alive
        except (RedisError, OSError):
            return None
        name = "Valkey" if "valkey_version" in info else "Redis"
        version = info.get("valkey_version", info["redis_version"])
        return Answer(info["process_id"], f"{name} {version}", loading=bool(info["loading"]))

    def ask_to_leave(self, pid: int | None) -> None:
        """SHUTDOWN; for a silent server SIGTERM, which does the same."""
        if self.ask() is not None:
            with contextlib.suppress(RedisError, OSError), self.client() as client:
                client.shutdown()
        elif pid is not None and self.is_server(pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)

    def is_server(self, pid: int) -> bool:
        """Whether the process works in this folder, which nobody but its server does."""
        with contextlib.suppress(OSError):
            return Path(f"/proc/{pid}/cwd").readlink() == self.folder
        return False

    def silence(self, *, loading: bool) -> str:
        """Name the fault of a server that lives and does not serve."""
        if loading:
            return f"the private server in {self.folder} is still loading its data; try again"
        who = f"the private server (pid {self.pid()}) in {self.folder}"
        with contextlib.suppress(FileNotFoundError):
            if not self.socket().exists():
                return (
                    f"{who} lives, but its socket {self.socket()} is gone or cannot be seen"
                    " from here: run 'deadq server stop' and try again"
                )
        return f"{who} does not answer; see {self.log}"
