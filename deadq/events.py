"""The closed list of things that happen in a worker: one word for each, in its log lines; and the
log that they are written to."""

from __future__ import annotations

import contextlib
import logging
import traceback
from enum import StrEnum
from typing import Any


class Event(StrEnum):
    """Names for log lines."""

    REGISTERED = "registered"
    STARTED = "started"
    FINISHED = "finished"
    STALE = "stale"
    LOST = "lost"
    OUTRUN = "outrun"
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


class Log(logging.LoggerAdapter[logging.Logger]):
    """A log whose handlers and filters are the user's, as is the stream, which may be closed. What
    they raise is shown on stderr, if that is possible: it must not end what is being done."""

    def log(self, level: int, msg: object, *args: Any, **kwargs: Any) -> None:
        """Write a line; the other methods come here too."""
        try:
            super().log(level, msg, *args, stacklevel=2, **kwargs)
        except Exception:  # noqa: BLE001  whatever it is
            with contextlib.suppress(Exception):
                traceback.print_exc()


log = Log(logging.getLogger("deadq.worker"), {})
