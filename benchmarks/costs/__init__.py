"""What single steps cost: each against the plain client doing the nearest thing on one server.

*Raw* is redis-py with hiredis, the same server, the same payload, the same run. Both sides are
measured in interleaved rounds, and the median of the rounds' ratios counts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from deadq import Queue, Rejected, Task

from ..harness.server import PrivateServer

PAYLOAD: Final = "x" * 100
"""What a job carries, and what raw commands push."""
ROUNDS: Final = 5
_FILL: Final = 1000


@dataclass(slots=True)
class Bench:
    """One run: the server, how much to measure, and what was found."""

    server: PrivateServer
    quick: bool
    figures: dict[str, float] = field(default_factory=dict)
    series: dict[str, Any] = field(default_factory=dict)

    def times(self, full: int) -> int:
        """How often to do something that is done ``full`` times in a full run."""
        return full // 4 if self.quick else full

    def flush(self) -> None:
        """Empty the server; its scripts stay."""
        with self.server.client() as client:
            client.flushall()


def queue_of(url: str, *, capacity: int = 10_000_000, name: str = "costs") -> Queue:
    """A queue, the same for producer and worker."""
    return Queue(name, capacity=capacity, url=url)


async def nothing(payload: str) -> None:
    """The handler whose own cost is nil."""


def task_of(queue: Queue) -> Task[[str], None]:
    """The task without any work, under a deadline that never matters here."""
    return queue.task(within=3600.0)(nothing)


def fill(task: Task[[str], None], jobs: int) -> None:
    """Submit so many jobs.

    Raises:
        Rejected: one was refused: then nothing that follows would mean anything.
    """
    for first in range(0, jobs, _FILL):
        for outcome in task.enqueue_many([(PAYLOAD,)] * min(_FILL, jobs - first)):
            if isinstance(outcome, Rejected):
                raise outcome
