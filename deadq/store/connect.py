"""Where the server is, and clients for it: from a URL, or derived from the user's own client."""

from __future__ import annotations

import asyncio
import os
import random
import secrets
import threading
import time
import weakref
from typing import Any, Final, cast

import redis
from redis import asyncio as aredis
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.retry import Retry

from .. import clock
from ..clock import ServerClock
from ..errors import StoreUnavailable
from . import scripts
from .aio import AsyncStore
from .background import background
from .clients import atold, check_url, embedded_url, keepalive, other_kind, sort_clients, told
from .sync import SyncStore
from .wire import (
    BROKEN,
    CONNECT_TIMEOUT_S,
    PAUSES,
    REPLY_TIMEOUT_S,
    AccessRefused,
    Forks,
    Now,
    Wire,
    server_time,
    translate,
)

MAX_CONNECTIONS: Final = 10_000
"""Of one pool of ours: as many as there are callers at a time, who must not be refused for it."""


class UnsafeServer(StoreUnavailable):
    """The server's settings would let it throw accepted jobs away."""


class Backend:
    """One server as a queue sees it: stores for threads, loops and forked children."""

    def __init__(
        self,
        queue: str,
        url: str | None,
        client: Any,
        *,
        allow_eviction: bool,
        now: Now = server_time,
    ) -> None:
        if url is not None and client is not None:
            msg = "give url or client, not both"
            raise ValueError(msg)
        self._queue = queue
        self._url = None if url is None else check_url(url)
        self._embedded = False
        self._sync_given, self._async_given = sort_clients(client)
        self._allow_eviction = allow_eviction
        self._lock = threading.Lock()
        self.now = now
        self.clock = ServerClock()
        self._wire = Wire(queue, self.clock, now)
        self._forget()

    def _forget(self) -> None:
        """Start afresh: at first, and in a forked child, which must not share connections."""
        self._forks = Forks.count
        self._store: SyncStore | None = None
        self._loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncStore] = (
            weakref.WeakKeyDictionary()
        )
        self._connecting: dict[asyncio.AbstractEventLoop, asyncio.Future[AsyncStore]] = {}
        self.channel = secrets.token_urlsafe(6)
        self.nonces = random.getrandbits(30)
        self._sharded: bool | None = None

    def check_fork(self) -> bool:
        """Whether this process is a fork of the one that was used last; then forget its state."""
        if self._forks == Forks.count:
            return False
        Forks.inherited.append((self._store, dict(self._loops), self._connecting))
        self._lock = threading.Lock()
        self._forget()
        return True

    @property
    def url(self) -> str:
        """The URL in use: given, ``$DEADQ_URL``, or that of the embedded server, then started."""
        if self._url is None:
            self._embedded = self.private
            self._url = check_url(os.environ.get("DEADQ_URL") or embedded_url())
        return self._url

    @property
    def place(self) -> Any:
        """What queues on one server have in common: their URL, or the user's own client."""
        return self.url if self.given is None else self.given

    @property
    def private(self) -> bool:
        """Whether no server is named anywhere, so that it is the embedded one."""
        unnamed = self._url is None and not os.environ.get("DEADQ_URL")
        return self.given is None and (self._embedded or unnamed)

    @property
    def given(self) -> Any:
        """The user's own client, blocking or asyncio, if there is one."""
        return self._async_given if self._sync_given is None else self._sync_given

    @property
    def given_sync(self) -> Any:
        """The user's own blocking client, if there is one."""
        return self._sync_given

    @property
    def sharded(self) -> bool:
        """Whether the server has sharded channels (Redis 7, Valkey)."""
        return bool(self._sharded)

    def sync(self) -> SyncStore:
        """The store for blocking code, connected and checked.

        Raises:
            StoreUnavailable: the server cannot be reached.
            UnsafeServer: its eviction policy could drop accepted jobs.
        """
        store = self._store
        if store is not None and self._forks == Forks.count:
            return store
        if self._forks != Forks.count:
            self.check_fork()  # before the lock: a fork may have copied it locked
        with self._lock:
            if self._store is None:
                fresh = SyncStore(self.sync_client(), self._wire, own=self._sync_given is None)
                try:
                    self._examine(told(fresh.client.info))
                    fresh.run(scripts.fetch(()))  # a first reading of the server's clock
                except (*BROKEN, redis.ResponseError) as error:
                    raise translate(error) from error
                self._store = fresh
            return self._store

    async def aio(self) -> AsyncStore:
        """The store for the running event loop, connected and checked."""
        if self._forks != Forks.count:
            self.check_fork()
        loop = asyncio.get_running_loop()
        store = self._loops.get(loop)
        if store is not None:
            return store
        connecting = self._connecting.get(loop)
        if connecting is None:  # the first caller connects, the others wait for it
            connecting = background(self._aconnect(loop))
            self._connecting[loop] = connecting
            connecting.add_done_callback(lambda done: self._connected(loop, done))
        return await asyncio.shield(connecting)

    def reach(self, until: float) -> None:
        """Connect, if need be, to a server that may be away, at most until then (monotonic s)."""
        failures = 0
        while True:
            try:
                self.sync()
            except StoreUnavailable as error:
                failures += 1
                time.sleep(_pause(error, failures, until))
            else:
                return

    async def areach(self, until: float) -> None:
        """The asyncio twin of :meth:`reach`."""
        failures = 0
        while True:
            try:
                await self.aio()
            except StoreUnavailable as error:
                failures += 1
                await asyncio.sleep(_pause(error, failures, until))
            else:
                return

    def _connected(self, loop: asyncio.AbstractEventLoop, done: asyncio.Future[AsyncStore]) -> None:
        self._connecting.pop(loop, None)
        if not done.cancelled():
            done.exception()  # seen: whoever asked may have been cancelled

    async def _aconnect(self, loop: asyncio.AbstractEventLoop) -> AsyncStore:
        if self._url is None and self._sync_given is self._async_given:
            await asyncio.to_thread(lambda: self.url)  # may have to start a server
        fresh = AsyncStore(self.async_client(), self._wire, own=self._async_given is None)
        try:
            self._examine(await atold(fresh.client.info))
            await fresh.run(scripts.fetch(()))  # a first reading of the server's clock
        except BaseException as error:
            await fresh.aclose()
            if self._async_given is None:
                await fresh.client.aclose()
            if isinstance(error, (*BROKEN, redis.ResponseError)):
                raise translate(error) from error
            raise
        self._loops[loop] = fresh
        return fresh

    async def aclose(self) -> None:
        """Close what the running loop opened."""
        store = self._loops.pop(asyncio.get_running_loop(), None)
        if store is not None:
            await store.aclose()
            if store.client is not self._async_given:
                await store.client.aclose()

    def close(self) -> None:
        """Close what blocking code opened."""
        store, self._store = self._store, None
        if store is not None:
            store.close()
            if store.client is not self._sync_given:
                store.client.close()

    def sync_client(
        self, *, reply_timeout: float | None = REPLY_TIMEOUT_S, timeout: float | None = None
    ) -> redis.Redis:
        """A blocking client: the user's own, or one like it, or one for the URL.

        ``timeout`` bounds connecting as well as each reply (s); the user's own client keeps its.
        """
        if self._sync_given is not None:
            return cast("redis.Redis", self._sync_given)
        if self._async_given is not None:
            return cast("redis.Redis", other_kind(self._async_given))
        return redis.Redis.from_url(
            self.url,
            socket_timeout=timeout or reply_timeout,
            socket_connect_timeout=timeout or CONNECT_TIMEOUT_S,
            max_connections=MAX_CONNECTIONS,
            **keepalive(self.url),
            retry=Retry(NoBackoff(), 0),
        )

    def async_client(self, *, reply_timeout: float | None = REPLY_TIMEOUT_S) -> aredis.Redis:
        """An asyncio client: the user's own, or one like it, or one for the URL."""
        if self._async_given is not None:
            return cast("aredis.Redis", self._async_given)
        if self._sync_given is not None:
            store = self._loops.get(asyncio.get_running_loop())
            return cast("aredis.Redis", store.client if store else other_kind(self._sync_given))
        return aredis.Redis.from_url(
            self.url,
            socket_timeout=reply_timeout,
            socket_connect_timeout=CONNECT_TIMEOUT_S,
            max_connections=MAX_CONNECTIONS,
            **keepalive(self.url),
            retry=AsyncRetry(NoBackoff(), 0),
        )

    def _examine(self, info: dict[str, Any]) -> None:
        policy = str(info.get("maxmemory_policy") or "noeviction")
        if policy != "noeviction" and not self._allow_eviction:
            msg = (
                f"the server's maxmemory-policy is {policy}: it may throw accepted jobs away. "
                "Set it to noeviction, or pass allow_eviction=True if losing jobs is acceptable"
            )
            raise UnsafeServer(msg)
        version = str(info.get("redis_version") or "0")
        major = int(version.split(".", maxsplit=1)[0]) if version[:1].isdigit() else 0
        # what Valkey calls server_mode; others that claim to be Redis 7 name neither
        self._sharded = major >= 7 and ("redis_mode" in info or "server_mode" in info)


def _pause(error: StoreUnavailable, failures: int, until: float) -> float:
    """How long to wait before the next try; raises ``error`` where there is to be none."""
    left = until - clock.monotonic()
    if left <= 0 or isinstance(error, (UnsafeServer, AccessRefused)):
        raise error
    return min(left, PAUSES.delay(failures))
