"""Notices of ended jobs, by push: one subscribed connection for each process (or loop) and queue.

A notice only says "look again"; the state itself is always read. Watchers are told to look
again after every subscription too, since notices may have been missed while it was away.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import threading
from collections.abc import Callable
from typing import Any, Protocol

from redis.exceptions import RedisError

from .. import clock
from ..events import Log
from .background import background, check_cancelled
from .home import ahome, home
from .wire import BROKEN, CONNECT_TIMEOUT_S, REPLY_TIMEOUT_S

log = Log(logging.getLogger("deadq.producer"), {})

_RETRY_S = 0.05
_RETRY_MOST_S = 1.0
_SUBSCRIBE_S = CONNECT_TIMEOUT_S + REPLY_TIMEOUT_S
"""How long subscribing may take, the answer included (s)."""


def _ident(message: dict[str, Any]) -> str | None:
    """The job that a message names; None for a confirmation of the subscription."""
    if message["type"] in ("unsubscribe", "sunsubscribe"):  # not by us
        raise ConnectionError("the channel has moved to another node")
    if message["type"] in ("message", "smessage"):
        data = message["data"]
        return data.decode("utf-8", "replace") if isinstance(data, bytes) else str(data)
    return None


def _shut(pubsub: Any) -> None:
    """End a read that another thread is in; without a socket it ends by itself, a little later."""
    sock = getattr(getattr(pubsub, "connection", None), "_sock", None)
    if isinstance(sock, socket.socket):
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)


def _complain(error: Exception) -> None:
    if not isinstance(error, (RedisError, *BROKEN)):
        log.warning("the listener for ended jobs starts over", exc_info=error)


class Beside(Protocol):
    """Something else for which a thread waits beside a job."""

    news: threading.Event
    """Set when there is reason to look."""

    def came(self) -> bool:
        """Look whether it is there."""
        ...


class Listener:
    """For blocking code: a daemon thread reads, waiters hold events."""

    def __init__(self, client: Any, channel: str, sharded: Callable[[], bool]) -> None:
        self._client = client
        self._channel = channel
        self._sharded = sharded
        self._lock = threading.Lock()
        self._watchers: dict[str, list[threading.Event]] = {}
        self._subscribed = threading.Event()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        self._pubsub: Any = None

    def watch(self, job: str, event: threading.Event | None = None) -> threading.Event:
        """An event, the given one or a new one, that is set when there is reason to look at
        ``job``."""
        event = threading.Event() if event is None else event
        with self._lock:
            self._watchers.setdefault(job, []).append(event)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._read, name="deadq-listener", daemon=True
                )
                self._thread.start()
        return event

    def unwatch(self, job: str, event: threading.Event) -> None:
        """Forget an event of :meth:`watch`."""
        with self._lock:
            events = self._watchers.get(job, [])
            if event in events:
                events.remove(event)
            if not events:
                self._watchers.pop(job, None)

    def close(self) -> None:
        """Stop reading; those who still wait look once more."""
        self._closed.set()
        _shut(self._pubsub)
        if self._thread is not None:
            self._thread.join(timeout=2.0)
        self._wake(None)

    def _read(self) -> None:
        pause = _RETRY_S
        while not self._closed.is_set():
            try:
                client = home(self._client, self._channel)
                with contextlib.closing(client.pubsub()) as pubsub:
                    self._pubsub = pubsub
                    subscribe = pubsub.ssubscribe if self._sharded() else pubsub.subscribe
                    subscribe(self._channel)
                    while not self._closed.is_set():
                        message = pubsub.get_message(timeout=0.5)
                        if message is not None:
                            self._wake(_ident(message))
                            pause = _RETRY_S
            except Exception as error:  # noqa: BLE001  a reader that dies in silence is worse
                _complain(error)
                self._wake(None)
                self._closed.wait(pause)
                pause = min(_RETRY_MOST_S, pause * 2)

    def _wake(self, job: str | None) -> None:
        with self._lock:
            if job is not None:
                events = list(self._watchers.get(job, ()))
            else:
                events = [event for events in self._watchers.values() for event in events]
        for event in events:
            event.set()


class AsyncListener:
    """For one event loop: a task reads, waiters hold events."""

    def __init__(self, make: Callable[[], Any], channel: str, sharded: Callable[[], bool]) -> None:
        self._make = make
        self._channel = channel
        self._sharded = sharded
        self._watchers: dict[str, set[asyncio.Event]] = {}
        self._task: asyncio.Task[None] | None = None

    def watch(self, job: str) -> asyncio.Event:
        """An event that is set when there is reason to look at ``job``."""
        event = asyncio.Event()
        self._watchers.setdefault(job, set()).add(event)
        if self._task is None:
            self._task = background(self._read())
        return event

    def unwatch(self, job: str, event: asyncio.Event) -> None:
        """Forget an event of :meth:`watch`."""
        events = self._watchers.get(job)
        if events is not None:
            events.discard(event)
            if not events:
                del self._watchers[job]

    async def aclose(self) -> None:
        """Stop reading."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def _read(self) -> None:
        pause, made = _RETRY_S, None
        while True:
            try:
                if made is None:
                    made = self._make()
                client = await ahome(made, self._channel)
                async with client.pubsub() as pubsub:
                    subscribe = pubsub.ssubscribe if self._sharded() else pubsub.subscribe
                    async with asyncio.timeout(_SUBSCRIBE_S):
                        await subscribe(self._channel)
                        check_cancelled()
                        while (message := await pubsub.get_message(timeout=None)) is None:
                            pass
                    while True:
                        if message is not None:
                            self._wake(_ident(message))
                            pause = _RETRY_S
                        message = await pubsub.get_message(timeout=None)
            except Exception as error:  # noqa: BLE001  a reader that dies in silence is worse
                _complain(error)
                self._wake(None)
                await asyncio.sleep(pause)
                pause = min(_RETRY_MOST_S, pause * 2)

    def _wake(self, job: str | None) -> None:
        if job is not None:
            for event in self._watchers.get(job, ()):
                event.set()
        else:
            for events in self._watchers.values():
                for event in events:
                    event.set()


async def set_within(event: asyncio.Event, until: float, pause: float | None) -> None:
    """Wait for ``event``, until a monotonic instant (s), or ``pause`` seconds at most."""
    left = until - clock.monotonic()
    limit = asyncio.timeout(left if pause is None else min(left, pause))
    try:
        async with limit:
            await event.wait()
    except TimeoutError:
        if not limit.expired():  # an outer timeout's, not ours
            raise
