"""URLs, the user's own clients, and what a server says of itself: the plain parts of connecting."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import redis
from redis import asyncio as aredis
from redis.asyncio import connection as aconnection
from redis.asyncio.cluster import ClusterNode as AsyncClusterNode
from redis.asyncio.cluster import RedisCluster as AsyncRedisCluster
from redis.cluster import RedisCluster
from redis.connection import (
    Connection,
    ConnectionPool,
    SSLConnection,
    UnixDomainSocketConnection,
    parse_url,
)

from ..errors import shown

_SCHEMES: Final = {"valkey": "redis", "valkeys": "rediss"}

TWIN: Final[dict[type[Any], type[Any]]] = {
    Connection: aconnection.Connection,
    SSLConnection: aconnection.SSLConnection,
    UnixDomainSocketConnection: aconnection.UnixDomainSocketConnection,
}

_SHARED_SETTINGS: Final = frozenset(
    {
        "client_name",
        "credential_provider",
        "db",
        "host",
        "password",
        "path",
        "port",
        "protocol",
        "socket_connect_timeout",
        "socket_keepalive",
        "socket_keepalive_options",
        "socket_timeout",
        "username",
    }
)
"""Connection settings that mean the same to the blocking and the asyncio client."""

_OF_ONE_NODE: Final = frozenset({"db", "host", "path", "port"})


def check_url(url: str) -> str:
    """The URL as the client takes it.

    Raises:
        ValueError: a scheme or a part that cannot be understood, with what would be.
    """
    if not isinstance(url, str):
        msg = f"url must be a str such as redis://localhost:6379/0, not {type(url).__name__}"
        raise TypeError(msg)
    scheme, _, rest = url.partition("://")
    url = f"{_SCHEMES.get(scheme, scheme)}://{rest}" if rest else url
    try:
        settings = parse_url(url)  # type: ignore[no-untyped-call]
        settings.pop("connection_class", Connection)(**settings)  # connects to nothing yet
        settings.get("host", "").encode("idna")
        if "\0" in url:
            raise ValueError("a NUL character")
    except (ValueError, TypeError) as error:
        msg = (
            f"cannot read the server's URL ({shown(str(error), 120)}); write redis://host:port/db, "
            "rediss://host:port/db for TLS, or unix:///path/to.sock?db=0"
        )
        raise ValueError(msg) from None
    return url


def keepalive(url: str) -> dict[str, Any]:
    """Only TCP knows it; a unix socket's connection refuses the setting."""
    return {} if url.startswith("unix:") else {"socket_keepalive": True}


def embedded_url() -> str:
    """The URL of the embedded server, which is started if need be."""
    # imported late: it needs flock, and who names a server needs none of it
    from . import embedded

    return embedded.ensure()


def told(ask: Callable[[], Any]) -> dict[str, Any]:
    """INFO's fields; none where the server has no INFO, or the user no leave to ask."""
    try:
        return _info(ask())
    except redis.ResponseError as error:
        if not _not_to_be_had(error):
            raise
        return {}


async def atold(ask: Callable[[], Any]) -> dict[str, Any]:
    """The asyncio twin of :func:`told`."""
    try:
        return _info(await ask())
    except redis.ResponseError as error:
        if not _not_to_be_had(error):
            raise
        return {}


def _not_to_be_had(error: redis.ResponseError) -> bool:
    return isinstance(error, redis.exceptions.NoPermissionError) or "unknown command" in str(error)


def _info(info: Any) -> dict[str, Any]:
    """INFO's fields as text keys, whatever the client decodes; of a cluster, one node's."""
    fields = {_text(k): v for k, v in dict(info).items()}
    first = next(iter(fields.values()), None)
    if isinstance(first, dict) and "redis_version" not in fields:
        fields = {_text(k): v for k, v in first.items()}
    return {k: _text(v) if isinstance(v, bytes) else v for k, v in fields.items()}


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def sort_clients(client: Any) -> tuple[Any, Any]:
    """The user's client as (blocking, asyncio); a pair where neither follows from the other."""
    if client is None:
        return None, None
    if isinstance(client, tuple):
        if len(client) == 2 and all(hasattr(one, "execute_command") for one in client):
            return client[0], client[1]
        msg = f"client must be a redis client or a pair (sync, async), not {shown(client)}"
        raise TypeError(msg)
    method = getattr(client, "execute_command", None)
    if method is None:
        msg = f"client must be a redis client or a pair (sync, async), not {shown(client)}"
        raise TypeError(msg)
    if asyncio.iscoroutinefunction(method) or type(client).__module__.startswith("redis.asyncio"):
        return None, client
    return client, None


def other_kind(client: Any) -> Any:
    """A client of the other kind, blocking or asyncio, for the same server or Cluster.

    Raises:
        TypeError: it does not follow from this one.
    """
    if isinstance(client, RedisCluster):
        return AsyncRedisCluster(**_cluster_settings(client))
    blocking = isinstance(client, redis.Redis)
    pool = getattr(client, "connection_pool", None)  # an asyncio Cluster client has none
    made_of = getattr(pool, "connection_class", type(client))
    twin = TWIN if blocking else {v: k for k, v in TWIN.items()}
    if pool is None or made_of not in twin:
        msg = (
            f"cannot derive the other kind of client from {made_of.__name__}; pass both: "
            "Queue(..., client=(blocking, asyncio)), such as (redis.Redis(...), "
            "redis.asyncio.Redis(...))"
        )
        raise TypeError(msg)
    settings = {**_shared(pool.connection_kwargs), "connection_class": twin[made_of]}
    if blocking:
        return aredis.Redis(connection_pool=aconnection.ConnectionPool(**settings))
    return redis.Redis(connection_pool=ConnectionPool(**settings))


def _cluster_settings(client: RedisCluster) -> dict[str, Any]:
    """Settings for an asyncio Cluster client, which looks for the same nodes first."""
    given: dict[str, Any] = client.nodes_manager.connection_kwargs
    tls = given.get("ssl") or given.get("connection_class") is SSLConnection
    nodes = client.nodes_manager.startup_nodes.values()
    return {
        **{k: v for k, v in _shared(given).items() if k not in _OF_ONE_NODE},
        **({"ssl": True} if tls else {}),
        "startup_nodes": [AsyncClusterNode(node.host, node.port) for node in nodes],
    }


def _shared(given: dict[str, Any]) -> dict[str, Any]:
    """What both kinds take; left out is OCSP, which only blocking ones know, where it is off."""
    return {
        k: v
        for k, v in given.items()
        if k in _SHARED_SETTINGS or (k.startswith("ssl_") and (v or "ocsp" not in k))
    }
