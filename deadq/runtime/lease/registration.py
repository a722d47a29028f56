"""What a child says to the server first, whichever runner is its."""

from __future__ import annotations

import os
import socket

from ...queue import Queue
from ...store import scripts


def registration(queue: Queue, child: str, slots: int) -> scripts.Call[str]:
    """The call by which a child takes up work.

    It is the same one however often it is sent: each of them may be carried out, also one that
    nobody waits for any more, and under another id it would be a worker that does not exist.
    """
    config = queue.config
    return scripts.register(
        child,
        lease_ms=config.lease_ms,
        slots=slots,
        who=f"{socket.gethostname()}:{os.getpid()}",  # as operators look for it
        retention_ms=config.retention_ms,
        rule=config.budget,
        tasks=tuple(queue.tasks),
    )
