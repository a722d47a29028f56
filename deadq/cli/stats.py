"""``deadq stats``: depths and counters of a queue."""

from __future__ import annotations

from ..store.scripts import Stats
from ..store.whereabouts import server_of
from .naming import queue_named
from .printing import print_json
from .tables import print_pairs


def stats(target: str, *, url: str | None, as_json: bool) -> None:
    """Print what the server counts.

    Raises:
        Fault: there is no such module or queue, or its name or URL is odd.
        StoreUnavailable: the server cannot be reached.
    """
    with queue_named(target, url) as queue:
        counted, server = queue.stats(), server_of(queue.backend)
    if as_json:
        print_json({"queue": queue.name, "server": server, **counted._asdict()})
    else:
        paused = ", paused" if counted.paused else ""
        unused = "" if counted.counters else "; nothing was ever submitted to it"
        print_pairs(f"queue {queue.name} on {server}{paused}{unused}", rows(counted))


def rows(counted: Stats) -> list[tuple[str, int]]:
    """Depths first, then the counters by name."""
    depths = counted._asdict()
    counters = depths.pop("counters")
    del depths["paused"]
    return [*depths.items(), *sorted(counters.items())]
