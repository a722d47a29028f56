"""A queue on a client of its user's own: for a Cluster, or by way of a Sentinel.

Tests make one, and ``deadq work tests.own_clients:queue`` loads the one that the environment
describes.
"""

import asyncio
import json
import os
import time
from typing import Any

from redis import sentinel as blocking
from redis.asyncio import sentinel as unblocking
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode, RedisCluster
from redis.retry import Retry

from deadq import Queue
from tests.standing_together import SERVICE

CLIENT = "DEADQ_TEST_CLIENT"

_SHORT = {"socket_timeout": 1.0, "socket_connect_timeout": 1.0}


def described(kind: str, ports: list[int], *, plain: bool, lease: float = 6.0) -> str:
    """For the environment."""
    return json.dumps({"kind": kind, "ports": ports, "plain": plain, "lease": lease})


def queue_on(kind: str, ports: list[int], *, plain: bool, lease: float) -> Queue:
    client = for_cluster(ports) if kind == "cluster" else by_sentinel(ports)
    return queue_with(client, plain=plain, lease=lease)


def queue_with(client: Any, *, plain: bool = False, lease: float = 6.0) -> Queue:
    """With one task that adds, and one that naps for long."""
    queue = Queue("own", capacity=16, client=client, lease=lease)

    async def add(a: int, b: int) -> int:
        return a + b

    async def nap() -> None:
        await asyncio.sleep(20.0)

    def add_plainly(a: int, b: int) -> int:
        return a + b

    def nap_plainly() -> None:
        time.sleep(20.0)

    queue.task(within=30.0, name="add")(add_plainly if plain else add)
    queue.task(within=30.0, name="nap")(nap_plainly if plain else nap)
    return queue


def for_cluster(ports: list[int]) -> RedisCluster:
    """A blocking client alone: the other one follows from it."""
    nodes = [ClusterNode("127.0.0.1", port) for port in ports]
    return RedisCluster(startup_nodes=nodes, retry=Retry(NoBackoff(), 2), **_SHORT)


def by_sentinel(ports: list[int]) -> tuple[Any, Any]:
    """A pair."""
    told = {"sentinels": [("127.0.0.1", port) for port in ports], "sentinel_kwargs": _SHORT}
    return (
        blocking.Sentinel(**told).master_for(SERVICE, **_SHORT),
        unblocking.Sentinel(**told).master_for(SERVICE, **_SHORT),
    )


if CLIENT in os.environ:
    queue = queue_on(**json.loads(os.environ[CLIENT]))
