"""Queues on a fake server in memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from .. import clock
from ..clock import ServerClock
from ..queue import Queue
from ..store.connect import Backend
from ..store.scripts import Call
from ..store.wire import Wire
from .bench import Bench
from .waiting import FakeProducer

if TYPE_CHECKING:
    import fakeredis

_URL = "redis://fakeredis.invalid"
"""Stands in messages; nobody ever connects to it."""

_READING = {"fetch", "stats", "dead"}

_INFO = {"redis_version": "7.0.0", "maxmemory_policy": "noeviction"}
"""What deadq asks of a server before it uses one; fakeredis itself has no INFO."""


def queue(name: str = "test", *, capacity: int = 64, **settings: Any) -> Queue:
    """A queue on a fake server of its own, which goes by the clock in use.

    Takes what :class:`deadq.Queue` takes, but ``url`` and ``client``.

    Raises:
        ModuleNotFoundError: fakeredis is missing; the message says what to install.
        TypeError: ``url`` or ``client`` was given.
    """
    for setting in ("url", "client"):
        if setting in settings:
            msg = f"testing.queue() has a fake server of its own; leave {setting} out"
            raise TypeError(msg)
    made = Queue(name, capacity=capacity, **settings)
    _move(made, _fake_server())
    return made


@contextmanager
def faked(queue: Queue) -> Iterator[Queue]:
    """Move a queue of yours, with its tasks, to an empty fake server until the block ends.

    Raises:
        ModuleNotFoundError: fakeredis is missing; the message says what to install.
    """
    before = queue.backend, queue.producer
    _move(queue, _fake_server())
    try:
        yield queue
    finally:
        queue.backend, queue.producer = before


def _move(queue: Queue, server: fakeredis.FakeServer) -> None:
    bench = Bench()
    queue.backend = FakeBackend(queue.name, server, bench)
    queue.producer = FakeProducer(queue, bench)


class TellingWire(Wire):
    """Tells the queue's bench of every call that may change what there is to do."""

    __slots__ = ("_bench",)

    def __init__(self, queue: str, server: ServerClock, bench: Bench) -> None:
        super().__init__(queue, server, _now)
        self._bench = bench

    def answer(self, call: Call[Any], reply: Any, sent: float, received: float) -> Any:
        """Read a reply, or raise what it stands for."""
        answer = super().answer(call, reply, sent, received)
        if call.script.name not in _READING:
            self._bench.tell()
        return answer


class FakeBackend(Backend):
    """A fake server as a queue sees it."""

    def __init__(self, queue: str, server: fakeredis.FakeServer, bench: Bench) -> None:
        super().__init__(queue, _URL, None, allow_eviction=True, now=_now)
        self._server = server
        self._wire = TellingWire(queue, self.clock, bench)

    @property
    def place(self) -> Any:
        """What queues on one server have in common."""
        return self._server

    def sync_client(
        self, *, reply_timeout: float | None = None, timeout: float | None = None
    ) -> Any:
        """A blocking client."""
        import fakeredis

        client: Any = fakeredis.FakeRedis(server=self._server)
        client.info = lambda: _INFO
        return client

    def async_client(self, *, reply_timeout: float | None = None) -> Any:
        """An asyncio client: one for each loop, as tests come with many."""
        import fakeredis

        async def info() -> dict[str, str]:
            return _INFO

        client: Any = fakeredis.FakeAsyncRedis(server=self._server)
        client.info = info
        return client


def _now() -> str:
    """The time that scripts go by: that of the clock in use."""
    return str(int(clock.current().wall_ms()))


def _fake_server() -> fakeredis.FakeServer:
    try:
        import fakeredis
        import lupa  # type: ignore[import-untyped]  # noqa: F401  fakeredis runs scripts with it, and says nothing without it
    except ModuleNotFoundError as missing:
        msg = f"deadq.testing needs {missing.name} for a fake server: pip install 'deadq[testing]'"
        raise ModuleNotFoundError(msg, name=missing.name) from None
    server = fakeredis.FakeServer(version=(7,), server_type="redis")
    database = type(server.dbs[0])

    class MovedDatabase(database):  # type: ignore[misc, valid-type]
        """Lets keys expire by the clock in use."""

        @property
        def time(self) -> float:
            return clock.current().wall_ms() / 1000

        @time.setter
        def time(self, _of_the_host: float) -> None:
            """Fakeredis sets the host's time before every command."""

    server.dbs.clear()
    server.dbs.default_factory = lambda: MovedDatabase(server.lock)  # type: ignore[attr-defined]
    return server
