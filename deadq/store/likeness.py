"""The connections of a user's own client as plain values: another process makes ones like them,
and runs none of the code that made the client.
"""

from __future__ import annotations

from typing import Any, Final

import redis
from redis import asyncio as aredis
from redis.asyncio import connection as aconnection
from redis.backoff import NoBackoff
from redis.connection import (
    BlockingConnectionPool,
    Connection,
    ConnectionPool,
    SSLConnection,
    UnixDomainSocketConnection,
)
from redis.retry import Retry

from .clients import TWIN

_KINDS: Final = {"tcp": Connection, "tls": SSLConnection, "unix": UnixDomainSocketConnection}

_CLIENTS: Final = (redis.Redis, aredis.Redis)
_POOLS: Final = (
    ConnectionPool,
    BlockingConnectionPool,
    aconnection.ConnectionPool,
    aconnection.BlockingConnectionPool,
)
"""What is known through and through; a class derived from these may do anything."""

_OWN_CODE: Final = ("credential_provider", "redis_connect_func", "ssl_ocsp_context")

_SETTINGS: Final = frozenset(
    {
        "client_name",
        "db",
        "host",
        "password",
        "path",
        "port",
        "protocol",
        "socket_keepalive",
        "username",
    }
)
"""What says which server, and who asks; beside it whatever is about TLS."""


def likeness(client: Any) -> dict[str, Any] | None:
    """What the client's connections are made of; None where plain values do not say it: Sentinel,
    Cluster, a credential provider, classes and functions of the user's own."""
    pool: Any = getattr(client, "connection_pool", None)
    if type(client) not in _CLIENTS or type(pool) not in _POOLS:
        return None
    made_of = pool.connection_class
    kind = next((k for k, c in _KINDS.items() if made_of in (c, TWIN[c])), None)
    given = pool.connection_kwargs
    if kind is None or any(given.get(name) is not None for name in _OWN_CODE):
        return None
    settings = {
        name: value
        for name, value in given.items()
        if name in _SETTINGS or (name.startswith("ssl_") and name not in _OWN_CODE)
    }
    return {"kind": kind, **settings} if all(map(_plain, settings.values())) else None


def like(settings: dict[str, Any], timeout: float) -> redis.Redis:
    """A blocking client by such settings. ``timeout`` bounds connecting and each reply (s)."""
    pool = ConnectionPool(
        connection_class=_KINDS[settings["kind"]],
        socket_timeout=timeout,
        socket_connect_timeout=timeout,
        retry=Retry(NoBackoff(), 0),
        **{name: value for name, value in settings.items() if name != "kind"},
    )
    return redis.Redis(connection_pool=pool)


def _plain(value: object) -> bool:
    """Whether JSON gives it back as it is; enumerations as the numbers that they are."""
    if isinstance(value, list):
        return all(map(_plain, value))
    return value is None or isinstance(value, str | int | float)
