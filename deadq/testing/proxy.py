"""A proxy that makes a dependency slow, deaf or absent, in front of anything that speaks TCP.

It knows no protocol: bytes come in on one socket and leave on another, later. What a test asks
of it (latency, a slow drip, a lost reply, a cut, a refused connect) happens to real sockets, so
that the client under test sees what it would see of a bad network.
"""

import asyncio
import contextlib
import math
import os
import socket
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from typing import Any

from .proxy_door import Door, Listen
from .proxy_target import Place, Target
from .proxy_wire import Swallow, Wire

_PATIENCE_S = 10.0
_OUT_OF_FILES_S = 0.05


class SlowProxy:
    """What :func:`slow_proxy` yields. Every method may be called from any thread.

    ``host`` and ``port`` are where it listens (``""`` and 0 on a unix socket), ``address`` is
    ``"host:port"`` or the socket's path.
    """

    def __init__(
        self,
        target: Place,
        *,
        delay: float,
        jitter: float,
        rate: float | None,
        listen: Listen,
    ) -> None:
        self._target = Target.parse(target)
        self._wire = Wire(self._target, self._tell)
        self._wire.delay = _seconds("delay", delay)
        self._wire.jitter = _seconds("jitter", jitter)
        self._wire.rate = _bytes_per_second(rate)
        self._door = Door(listen)
        self.host, self.port, self.address = self._door.host, self._door.port, self._door.address
        self._news = threading.Condition()
        self._stop = asyncio.Event()
        self._closed = False
        ready: Future[None] = Future()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._run(ready)), name="slow_proxy", daemon=True
        )
        self._thread.start()
        try:
            ready.result(_PATIENCE_S)
        except OSError:
            self._door.remove()
            raise
        _live.add(self)

    @property
    def url(self) -> str:
        """The target's URL with the proxy in the target's place."""
        return self._target.url_through(self.address, unix=self._door.is_unix)

    @property
    def connections(self) -> int:
        """Client connections that are open now and have reached the target."""
        return len(self._wire.links)

    @property
    def accepted(self) -> int:
        """Client connections so far."""
        return self._wire.accepted

    @property
    def swallowed(self) -> int:
        """Replies that have vanished so far."""
        return self._wire.swallowed

    @property
    def bytes_swallowed(self) -> int:
        """Bytes of those replies."""
        return self._wire.bytes_swallowed

    @property
    def bytes_to_server(self) -> int:
        """Bytes passed on to the target so far."""
        return self._wire.bytes_to_server

    @property
    def bytes_to_client(self) -> int:
        """Bytes passed on to clients so far."""
        return self._wire.bytes_to_client

    @property
    def delay(self) -> float:
        """Seconds added to each round trip, half of it each way. A change acts at once, also on
        what is under way.
        """
        return self._wire.delay

    @delay.setter
    def delay(self, seconds: float) -> None:
        self._call(self._set(delay=_seconds("delay", seconds)))

    @property
    def jitter(self) -> float:
        """The most, in seconds, that chance adds to a round trip, half of it each way."""
        return self._wire.jitter

    @jitter.setter
    def jitter(self, seconds: float) -> None:
        self._call(self._set(jitter=_seconds("jitter", seconds)))

    @property
    def rate(self) -> float | None:
        """Bytes a second that each direction of a connection carries; None: all that it can."""
        return self._wire.rate

    @rate.setter
    def rate(self, bytes_per_second: float | None) -> None:
        self._call(self._set(rate=_bytes_per_second(bytes_per_second)))

    def cut(self) -> None:
        """Reset every open connection now; what was under way is lost."""
        self._call(self._wire.cut())

    def refuse(self, refusing: bool = True) -> None:
        """Refuse new connections, or stop refusing them. Open ones go on."""
        self._call(self._refuse() if refusing else self._listen())

    def swallow_replies(self, n: int = 1, *, to: bytes = b"", cut: bool = False) -> None:
        """Let the next ``n`` replies vanish; 0 takes an earlier call back.

        The request reaches the target. A reply is all that the target then sends on that
        connection until the client speaks again. ``to`` spares replies to requests that do not
        contain these bytes; with ``cut`` the client gets a reset in place of the reply.
        """
        if n < 0:
            raise ValueError(f"cannot swallow {n} replies: count from 0 up")
        self._call(self._set(swallow=Swallow(n, to, cut)))

    def wait_until(self, condition: Callable[[], bool], timeout: float = 5.0) -> None:
        """Return once ``condition()`` holds; it is asked again after every event in the proxy.

        Raises ``TimeoutError`` when that takes longer than ``timeout`` seconds.
        """
        with self._news:
            if not self._news.wait_for(condition, timeout):
                raise TimeoutError(f"the proxy saw no such thing within {timeout} s")

    def close(self) -> None:
        """Cut what is open, stop listening and end the thread. Twice does no harm."""
        if self._closed:
            return
        self._closed = True
        _live.discard(self)
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(_PATIENCE_S)
        self._door.remove()

    def forget(self) -> None:
        """In a forked child: close the copies of the sockets, which would keep them open after
        the parent has closed its own. The child has no proxy, its thread stayed behind.
        """
        self._closed = True
        for end in (*self._wire.sockets, *self._door.sockets):
            end.close()

    def _call(self, action: Coroutine[Any, Any, None]) -> None:
        if self._closed:
            action.close()
            raise RuntimeError("this proxy is closed: use it inside its with block")
        asyncio.run_coroutine_threadsafe(action, self._loop).result(_PATIENCE_S)

    def _tell(self) -> None:
        with self._news:
            self._news.notify_all()

    # From here on everything runs in the proxy's own thread.

    async def _run(self, ready: "Future[None]") -> None:
        self._loop = asyncio.get_running_loop()
        try:
            await self._listen()
            ready.set_result(None)
            await self._stop.wait()
        except OSError as error:
            ready.set_exception(error)
        finally:
            await self._refuse()
            await self._wire.cut()

    async def _set(self, **settings: object) -> None:
        for name, value in settings.items():
            setattr(self._wire, name, value)
        self._wire.settings_changed()

    async def _listen(self) -> None:
        if not self._door.listener:
            self._watch(self._door.open())

    async def _refuse(self) -> None:
        if listener := self._door.listener:
            # Who is in the backlog has connected, as far as the client can tell: serve it.
            self._accept(listener)
            self._loop.remove_reader(listener)
            self._door.shut()

    def _watch(self, listener: socket.socket) -> None:
        if listener is self._door.listener:
            self._loop.add_reader(listener, self._accept, listener)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except BlockingIOError:
                return
            except OSError:
                # Out of file descriptors: the backlog stays readable, so look away for a while.
                self._loop.remove_reader(listener)
                self._loop.call_later(_OUT_OF_FILES_S, self._watch, listener)
                return
            client.setblocking(False)
            if not self._door.is_unix:
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._wire.take(client)


_live: "weakref.WeakSet[SlowProxy]" = weakref.WeakSet()


def _forget_all() -> None:
    for proxy in list(_live):
        proxy.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)


@contextlib.contextmanager
def slow_proxy(
    target: Place,
    *,
    delay: float = 0.0,
    jitter: float = 0.0,
    rate: float | None = None,
    listen: Listen = "tcp",
) -> Iterator[SlowProxy]:
    """Put a proxy in front of ``target`` for the length of a with block.

    ``target`` is ``("host", port)``, ``"host:port"``, the path of a unix socket, or a URL
    (``redis://``, ``unix://``, ``http://``, …); connect to the proxy's ``address`` or ``url``
    instead. ``delay`` and ``jitter`` are seconds for a round trip, ``rate`` is bytes a second
    for each direction of a connection. Raises ``ValueError`` or ``TypeError`` for settings
    that make no sense, ``OSError`` where it cannot listen.
    """
    proxy = SlowProxy(target, delay=delay, jitter=jitter, rate=rate, listen=listen)
    try:
        yield proxy
    finally:
        proxy.close()


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _seconds(name: str, value: float) -> float:
    if not _is_number(value):
        raise TypeError(f"proxy {name} must be a number of seconds, not {value!r}")
    if not 0 <= value < math.inf:
        raise ValueError(f"proxy {name} {value!r} is not a finite number of seconds from 0 up")
    return float(value)


def _bytes_per_second(value: float | None) -> float | None:
    if value is None:
        return None
    if not _is_number(value):
        raise TypeError(f"proxy rate must be a number of bytes a second, not {value!r}")
    if not 0 < value < math.inf:
        raise ValueError(f"proxy rate {value!r} is not above 0: leave it out for no limit")
    return float(value)
