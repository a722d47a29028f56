"""Under Cluster: the node that holds a queue, where a connection that waits has to lead.

A Cluster client sends each command to the right node by itself. A blocked pop and a subscription
stay on one connection, which is opened anew, perhaps to another node, whenever it breaks.
"""

from __future__ import annotations

from typing import Any

from redis import asyncio as aredis
from redis.asyncio import connection as aconnection


def home(client: Any, key: str) -> Any:
    """A plain client for the node that holds ``key``; outside a Cluster ``client`` itself."""
    if hasattr(client, "connection_pool"):
        return client
    return client.get_redis_connection(client.get_node_from_key(key))


async def ahome(client: Any, key: str) -> Any:
    """The asyncio twin of :func:`home`."""
    if hasattr(client, "connection_pool"):
        return client
    await client.initialize()
    node = client.get_node_from_key(key)
    # not one of the node's own connections: those answer what is sent next, whoever is cancelled
    pool = aconnection.ConnectionPool(
        connection_class=node.connection_class, **node.connection_kwargs
    )
    return aredis.Redis(connection_pool=pool)
