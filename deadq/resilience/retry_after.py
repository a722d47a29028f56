"""``Retry-After``, as a server sends it: seconds, or a date (RFC 9110, section 10.2.3)."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final

from ..errors import Rejected, shown
from .backoff import RandomSource
from .transient import attribute, failure_of, response_of

_SECONDS: Final = re.compile(r"[0-9]{1,18}(\.[0-9]{1,9})?")
_NAME: Final = "retry-after"

_MOST_S: Final = sys.float_info.max
"""An int may be too large for a float."""

_SPREAD: Final = 0.5
"""Share of a hint over which those who obey it are spread: it came to all of them alike."""


def parse(value: str, now: datetime | None = None) -> float | None:
    """The seconds that a header's value asks for; None for one that makes no sense.

    A date in the past asks for none: 0. ``now`` is this host's time, for a date that is all there
    is to go by.

    Raises:
        TypeError: the value is no ``str``.
        ValueError: ``now`` is a naive datetime.
    """
    if not isinstance(value, str):
        raise TypeError(f"the value of Retry-After must be a str, not {shown(value)}")
    if now is not None and now.utcoffset() is None:
        raise ValueError(f"now must be an aware datetime, not {shown(now)}")
    text = value.strip()
    if _SECONDS.fullmatch(text):
        return float(text)
    try:
        instant = parsedate_to_datetime(text)
    except (ValueError, TypeError, OverflowError):
        return None
    if instant.tzinfo is None:  # "-0000": UTC, of an unknown place
        instant = instant.replace(tzinfo=UTC)
    return max(0.0, (instant - (now or datetime.now(UTC))).total_seconds())


def hint_of(error: BaseException) -> float | None:
    """How long the other side asks to wait (s), by what the error carries; None: it does not.

    A refusal of deadq's own carries it as ``retry_after``, a response as a header. Where there are
    several headers, the longest that makes sense counts.
    """
    error = failure_of(error)
    own = attribute(error, "retry_after")
    if own is not None or isinstance(error, Rejected):
        return float(own) if own is not None and _is_seconds(own) else None
    try:
        hints = [parse(value) for value in _values(attribute(response_of(error), "headers"))]
    except Exception:  # noqa: BLE001  headers may be of any class, and raise anything
        return None
    return max((hint for hint in hints if hint is not None), default=None)


def spread_of(hint: float, delay: float, rng: RandomSource) -> float:
    """Seconds to wait on top of a hint, or of the backoff's ``delay`` where that is longer, so that
    those who were told the same do not come back together."""
    return rng.random() * max(hint * _SPREAD, delay)


def _is_seconds(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= _MOST_S


def _values(headers: Any) -> list[str]:
    for name in ("get_list", "getall", "get_all"):  # httpx, aiohttp, urllib
        several = getattr(headers, name, None)
        if callable(several):
            try:
                found = several(_NAME)
            except KeyError:
                return []
            return [_text(value) for value in found or ()]
    if isinstance(headers, Mapping):
        return [_text(value) for name, value in headers.items() if _text(name).lower() == _NAME]
    return []


def _text(value: object) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)
