"""The closed list of things that happen in a worker: one word for each, in its log lines."""

from __future__ import annotations

from enum import StrEnum


class Event(StrEnum):
    """Names for log lines."""

    REGISTERED = "registered"
    STARTED = "started"
    FINISHED = "finished"
    STALE = "stale"
    LOST = "lost"
    STUBBORN = "stubborn"
    LEFT_BEHIND = "left_behind"
    RENEWAL_FAILED = "renewal_failed"
    STORE_AWAY = "store_away"
    STORE_BACK = "store_back"
    CHILD_ENDED = "child_ended"
    CHILD_KILLED = "child_killed"
    CHILD_MISSING = "child_missing"
    STOPPING = "stopping"
    STOPPED = "stopped"
