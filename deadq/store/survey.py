"""What a server is like, for an operator's check: kind, memory, persistence, clock and rights."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import redis

from . import keys, scripts
from .clients import told
from .connect import Backend
from .wire import BROKEN, translate

_SAMPLES: Final = 50
"""So many records are weighed, to know what one takes."""


class ServerFacts(NamedTuple):
    """A server as an operator's check sees it. Sizes in bytes; None where it does not say."""

    product: str
    """``Redis`` or ``Valkey``."""
    version: tuple[int, ...]
    """Of Redis, or the Redis that it is compatible with."""
    policy: str | None
    """Its ``maxmemory-policy``."""
    most: int | None
    """Its ``maxmemory``, or all memory of its machine where there is no such limit."""
    replica: bool
    aof: bool | None
    fsync: str | None
    """``always``, ``everysec`` or ``no``."""
    ahead_s: float
    """By how much its clock is ahead of this host's wall clock."""
    refused: tuple[str, ...]
    """Commands that the user may not run on the queue's keys."""
    record_bytes: float | None
    """What a job of this queue takes on average, arguments and result included."""
    mean_ms: int
    """Service time over the queue; 0 without samples."""
    tasks: dict[str, tuple[int, int]]
    """p50 and p95 of each task's service time (ms), where there are samples."""


def survey(backend: Backend, queue: str, tasks: Sequence[str]) -> ServerFacts:
    """Ask the server.

    Raises:
        StoreUnavailable: it cannot be reached, or does not let the user run scripts.
    """
    store = backend.sync()
    answer = store.run(scripts.survey(tasks))
    try:
        info = told(store.client.info)
        most, fsync = (_setting(store.client, name) for name in ("maxmemory", "appendfsync"))
        weight = _weight(store.client, keys.key(queue, "job", "*"))
    except (*BROKEN, redis.ResponseError) as error:
        raise translate(error) from error
    limit = _number(info.get("maxmemory")) or _number(most)
    return ServerFacts(
        product="Valkey" if "valkey_version" in info else "Redis",
        version=_version(str(info.get("valkey_version") or info.get("redis_version") or "")),
        policy=info.get("maxmemory_policy"),
        most=limit or _number(info.get("total_system_memory")),
        replica=str(info.get("role")) in {"slave", "replica"},
        aof=None if "aof_enabled" not in info else str(info["aof_enabled"]) == "1",
        fsync=fsync,
        ahead_s=backend.clock.now_ms() / 1_000 - time.time(),
        refused=tuple(answer.refused),
        record_bytes=weight,
        mean_ms=answer.mean_ms,
        tasks=answer.tasks,
    )


def _setting(client: redis.Redis, name: str) -> str | None:
    """One of its settings; None where the user may not ask."""
    try:
        found: Any = client.config_get(name)
    except redis.ResponseError:
        return None
    for value in dict(found).values():
        return value.decode() if isinstance(value, bytes) else str(value)
    return None


def _weight(client: redis.Redis, pattern: str) -> float | None:
    """The mean weight of some records with their arguments and results."""
    try:
        found = itertools.islice(client.scan_iter(pattern, count=1_000), _SAMPLES)
        sizes = [_size(client, key) for key in found]
    except redis.ResponseError:
        return None
    return sum(sizes) / len(sizes) if sizes else None


def _size(client: redis.Redis, key: Any) -> int:
    record = key.encode() if isinstance(key, str) else key
    parts = [record, *(record.replace(b":job:", kind, 1) for kind in (b":data:", b":result:"))]
    return sum(int(client.memory_usage(part) or 0) for part in parts)


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part.isdigit())


def _number(value: Any) -> int | None:
    return int(value) if str(value).isdigit() and int(value) else None
