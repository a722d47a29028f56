"""What a deadline comes to as a limit of a statement: the arithmetic, without any database."""

from __future__ import annotations

import math
import re
from typing import Final

from ... import clock
from ...deadline import Deadline

GRACE_S: Final = 1.0
"""So long what has to be done after the deadline may take (s)."""

SLACK_S: Final = 0.015
"""So long beyond the deadline the server's own limit may take to come about (s)."""

CLEAN_S: Final = 2.0
"""So long a connection may take to be clean again; one that is not by then is closed (s)."""

NEAR_S: Final = 0.002
"""A limit that came to an end so shortly before the deadline was set for it: two clocks measured
the same time (s)."""

HICCUP_S: Final = 0.01
"""A limit that was so long on its way is told anew (s)."""

_MOST_MS: Final = 2**31 - 1

_UNITS_MS: Final = {"us": 0.001, "ms": 1, "s": 1000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_SETTING: Final = re.compile(r"(\d+)(us|ms|s|min|h|d)?")


def limit_ms(deadline: Deadline, way_s: float = 0.0) -> int:
    """What is left, in whole milliseconds: rounded up, for 0 would be no limit at all.

    ``way_s`` is what it takes to tell the server.
    """
    return min(_MOST_MS, max(1, math.ceil((deadline.remaining() - way_s) * 1000.0)))


def in_ms(setting: str) -> int:
    """A duration as PostgreSQL shows it, such as ``0``, ``1500ms`` or ``2min``.

    Raises:
        ValueError: it is none.
    """
    match = _SETTING.fullmatch(setting)
    if match is None:
        msg = f"{setting!r} is no duration of PostgreSQL's"
        raise ValueError(msg)
    return int(int(match[1]) * _UNITS_MS[match[2] or "ms"])


def passed(deadline: Deadline | None, way_s: float = 0.0) -> bool:
    """Whether a statement that was limited to this deadline has ended at it."""
    return deadline is not None and deadline.remaining() <= NEAR_S + way_s


def patience(deadline: Deadline | None, way_s: float = 0.0) -> float:
    """Until when a wait that begins now may take (monotonic s): then a cancel request is sent, for
    the server's own limit does not seem to have come about."""
    if deadline is None:
        return math.inf
    if deadline.expired:  # to undo something, say
        return clock.monotonic() + GRACE_S
    return deadline.monotonic + SLACK_S + 3 * way_s
