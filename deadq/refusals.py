"""What a caller is told for each verdict that is no acceptance."""

from __future__ import annotations

from typing import Final

from .clock import jittered
from .config import QueueConfig
from .errors import DeadlineExpired, KeyReused, Paused, QueueFull, Rejected, Unmeetable, shown
from .job import Verdict

_SHORTEST_HINT_S: Final = 0.5
"""Before jitter: a queue that drains in a moment, or has not measured how fast, would have all who
were refused come back at once."""

_REFUSALS: Final[dict[str, tuple[type[Rejected], str]]] = {
    Verdict.FULL: (QueueFull, "the queue {name} is full ({capacity} live jobs)"),
    Verdict.UNMEETABLE: (Unmeetable, "the job could not be finished before its deadline"),
    Verdict.EXPIRED: (DeadlineExpired, "the deadline had passed when the job arrived"),
    Verdict.KEY_REUSED: (KeyReused, "this key belongs to another task or other arguments"),
    Verdict.PAUSED: (Paused, "the queue {name} is paused"),
}


def refusal(verdict: str, queue: QueueConfig, hint_ms: int) -> Rejected:
    """The error for a verdict; ``hint_ms`` is the drain time that the server estimates."""
    kind, text = _REFUSALS.get(verdict, (Rejected, "the server refused the job as {verdict}"))
    message = text.format(name=shown(queue.name), capacity=queue.capacity, verdict=verdict)
    if not hint_ms:
        return kind(message)
    return kind(message, retry_after=jittered(max(_SHORTEST_HINT_S, hint_ms / 1000)))
