"""Deadlines in headers: an instant and a duration, of which each makes up for the other's fault.

``x-deadline-ms``  the instant, in milliseconds since 1970. It counts what the way here took, and
                   is as wrong as the clocks of the two hosts are apart.
``x-timeout-ms``   the time that was left when the request was sent, in milliseconds. No clock can
                   spoil it, and the way here is not in it.
``grpc-timeout``   the same, as gRPC writes it: up to eight digits and a unit (H M S m u n).

Where instant and duration differ by more than :data:`AGREE_S`, a clock is wrong: the duration
counts. Otherwise the earlier of the two does.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from ..clock import ServerClock
from ..deadline import NETWORK_MARGIN_S, Deadline
from ..errors import shown

DEADLINE_HEADER: Final = "x-deadline-ms"
TIMEOUT_HEADER: Final = "x-timeout-ms"
GRPC_TIMEOUT_HEADER: Final = "grpc-timeout"

AGREE_S: Final = 1.0
"""Clocks of hosts that are kept by NTP are closer than that (s)."""

_INSTANT: Final = re.compile(r"[0-9]{1,18}")
_DURATION: Final = re.compile(r"[0-9]{1,18}(\.[0-9]{1,18})?")
_GRPC: Final = re.compile(r"([0-9]{1,8})([HMSmun])")
_GRPC_UNITS: Final = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}

_ASCII_SPACE: Final = " \t"


class BadHeader(ValueError):
    """A header says something that cannot be meant. The text names the header and the remedy."""


def deadline_of(header: Callable[[str], str | None], most: float) -> Deadline:
    """Until when somebody awaits the answer to a request that has just come in.

    Args:
        header: gives a header's value by its name in lower case; None where there is none.
        most: seconds that this service gives to any request: more is never asked of it, and less
            only by a header.

    Raises:
        BadHeader: not a number, seconds instead of milliseconds, another unit.
    """
    durations = [
        read(said)
        for name, read in ((TIMEOUT_HEADER, _timeout), (GRPC_TIMEOUT_HEADER, _grpc_timeout))
        if (said := header(name)) is not None
    ]
    duration = min(durations, default=None)
    deadline = Deadline.after(most if duration is None else min(duration, most))
    said = header(DEADLINE_HEADER)
    if said is None:
        return deadline
    instant = _instant(said)
    if duration is not None and abs(instant.remaining() - duration) > AGREE_S:
        return deadline
    return deadline.tighten(instant)


def headers_for(
    deadline: Deadline, *, margin: float = NETWORK_MARGIN_S, trusted: bool = True
) -> dict[str, str] | None:
    """What a call that is made now says of its deadline.

    Args:
        deadline: until when this service has to have the answer.
        margin: seconds of it that are kept back, so that the answer can come back and be used.
        trusted: whether the callee is one of ours. To others only the duration is told: an
            instant, and how many retries are left, is nobody's business.

    Returns:
        Headers by name; None where no time would be left to the callee.
    """
    theirs = deadline.child(margin)
    left_ms = 0 if theirs is None else int(theirs.remaining() * 1000.0)
    if theirs is None or left_ms < 1:
        return None
    told = {TIMEOUT_HEADER: str(left_ms)}
    if trusted:
        told[DEADLINE_HEADER] = str(theirs.server_ms(_HOST))
    return told


_HOST: Final = ServerClock()
"""Of no server: by this host's wall clock."""


def _instant(said: str) -> Deadline:
    text = said.strip(_ASCII_SPACE)
    if not _INSTANT.fullmatch(text):
        raise _bad(DEADLINE_HEADER, said, "whole milliseconds since 1970, such as 1767225600000")
    try:
        return Deadline.at(int(text))
    except ValueError as odd:
        msg = f"{DEADLINE_HEADER}: {odd}"
        raise BadHeader(msg) from None


def _timeout(said: str) -> float:
    text = said.strip(_ASCII_SPACE)
    if not _DURATION.fullmatch(text):
        raise _bad(TIMEOUT_HEADER, said, "milliseconds that are left, such as 1500")
    return float(text) / 1000.0


def _grpc_timeout(said: str) -> float:
    match = _GRPC.fullmatch(said.strip(_ASCII_SPACE))
    if match is None:
        raise _bad(GRPC_TIMEOUT_HEADER, said, "one to eight digits and a unit, such as 1500m")
    return int(match[1]) * _GRPC_UNITS[match[2]]


def _bad(name: str, said: str, wanted: str) -> BadHeader:
    return BadHeader(f"{name} is {shown(said)}; give {wanted}")
