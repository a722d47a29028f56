"""The kinds of worker that have to stand what befalls a server, and on which servers."""

import contextlib
import functools
import os
import signal
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.marks import THOROUGH
from tests.servers import binaries, wait_until
from tests.workers import Process, WorkerProcess


class SupervisedProcess(Process):
    """``Worker.run()`` on a shop: a supervisor and its children, registered when the constructor
    returns. The keyword arguments are those of :class:`WorkerProcess`, and the runner.
    """

    def __init__(
        self,
        url: str,
        book: Path,
        *,
        runner: str,
        concurrency: int = 8,
        grace: float = 5.0,
        **settings: Any,
    ) -> None:
        super().__init__(
            "tests.shop:serve_supervised",
            url=url,
            book=str(book),
            concurrency=concurrency,
            grace=grace,
            runner=runner,
            settings=settings,
        )
        self.children = concurrency if runner == "process" else 1
        self._url = url
        try:
            wait_until(self._registered, f"the children to register:\n{self.errors}", 60.0)
        except BaseException:
            self.close()
            raise

    def freeze(self) -> None:
        """SIGSTOP to all of them."""
        os.killpg(self.pid, signal.SIGSTOP)
        wait_until(lambda: set(_states(self.pid)) == {"T"}, "all of them to stop")

    def thaw(self) -> None:
        os.killpg(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL to all of them, and return when they are gone."""
        os.killpg(self.pid, signal.SIGKILL)
        super().kill()
        wait_until(lambda: not _states(self.pid), "all of them to be gone")

    def _registered(self) -> bool:
        """Whether the server knows this worker's children, once it answers at all."""
        with contextlib.suppress(redis.RedisError), redis.Redis.from_url(self._url) as client:
            known = 0
            for key in client.scan_iter("deadq:{shop}:worker:*"):
                pid = (client.hget(key, "who") or b"").rpartition(b":")[2]
                known += _session(int(pid or 0)) == self.pid
            return known >= self.children
        return False


def _stat(pid: int) -> list[str]:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()


def _session(pid: int) -> int:
    return int((_stat(pid) or [0, 0, 0, 0])[3])


def _states(session: int) -> list[str]:
    """The states of a session's processes, but for those that have ended."""
    stats = [_stat(int(path.name)) for path in Path("/proc").glob("[0-9]*")]
    return [stat[0] for stat in stats if stat and int(stat[3]) == session and stat[0] not in "ZX"]


WORKERS: dict[str, Callable[..., Process]] = {
    "one_loop": WorkerProcess,
    "async": functools.partial(SupervisedProcess, runner="async"),
    "process": functools.partial(SupervisedProcess, runner="process"),
}
"""The kinds of worker that have to stand all this."""

NEWEST, OLDEST = "valkey9", "redis62"


def on_servers(*daily: str, kinds: Iterable[str] = WORKERS) -> pytest.MarkDecorator:
    """For tests that own their server: they ask for ``version`` and ``kind``, and hand them to
    :class:`Trouble`. The first kind of worker is tried on each server, the last on the newest, and
    any between them there too, by the thorough tests; these take the server between the newest and
    the oldest as well. What is not with the first kind and on a server named here is slow.
    """
    first, *others = kinds
    pairs = [(version, first) for version in binaries()] + [(NEWEST, kind) for kind in others]

    def marks(version: str, kind: str) -> tuple[pytest.MarkDecorator, ...]:
        if kind == first and version in daily:
            return ()
        in_between = version not in (NEWEST, OLDEST) or kind in others[:-1]
        return THOROUGH if in_between else (pytest.mark.slow,)

    return pytest.mark.parametrize(
        ("version", "kind"), [pytest.param(*pair, marks=marks(*pair)) for pair in pairs]
    )
