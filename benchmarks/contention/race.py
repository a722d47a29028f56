"""A race for one row that has a version number: the model of Brooker's simulator.

All clients start at once, and each has to update the row once. A client reads the row, and then
writes it on condition that the version is still the one it has read. A write that fails is
followed by the next read, after the backoff. Every message, to the row or back, is on its way for
abs(Normal(10 ms, 2 ms)). Only writes count as calls; the race ends when the last client knows
that it has succeeded.

After https://github.com/aws-samples/aws-arch-backoff-simulator (commit 66cb169), the program
behind "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.
"""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final

from deadq.resilience import Backoff

HOP_S: Final = NormalDist(0.010, 0.002)
"""How long a message is on its way: the amount of what is drawn from this."""


@dataclass(frozen=True, slots=True)
class Race:
    """What happened. Instants in seconds from the start."""

    writes: list[float]
    """When each write came to the row, failed ones too; in order."""
    winners: list[int]
    """The numbers of the clients, in the order in which they succeeded."""
    end: float

    @property
    def calls(self) -> int:
        return len(self.writes)


def race(clients: int, backoff: Backoff, source: random.Random) -> Race:
    """Run one race; ``source`` draws how long the messages are on their way."""
    # by inversion, which takes half as long as source.gauss
    hop, draw, delay = HOP_S.inv_cdf, source.random, backoff.delay
    # Only writes are events: what a read saw is out of date iff a write has succeeded since. Each
    # entry is a client's next write: when it comes to the row, when the read before it did, whose
    # it is, how often that one has failed, and its last backoff.
    pending: list[tuple[float, float, int, int, float | None]] = []
    for client in range(clients):
        read = abs(hop(draw()))
        write = read + abs(hop(draw())) + abs(hop(draw()))
        pending.append((write, read, client, 0, None))
    heapq.heapify(pending)
    writes: list[float] = []
    winners: list[int] = []
    changed = end = 0.0
    while pending:
        write, read, client, failures, slept = pending[0]
        writes.append(write)
        answered = write + abs(hop(draw()))
        if read >= changed:
            heapq.heappop(pending)
            changed = write
            winners.append(client)
            end = max(end, answered)
            continue
        slept = delay(failures + 1, slept)
        read = answered + slept + abs(hop(draw()))
        write = read + abs(hop(draw())) + abs(hop(draw()))
        heapq.heapreplace(pending, (write, read, client, failures + 1, slept))
    return Race(writes, winners, end)
