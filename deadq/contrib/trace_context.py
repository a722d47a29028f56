"""The trace that a job comes from, as it travels in its marks.

Behind the marks proper, which are small letters: trace id, span id and flags in capital hex
digits; a trace state, if there is one, in base32; and ``@`` with the instant of the submit (ms of
the server's clock, hex). Workers of other releases look for the letters that they know, and pass
over the rest. With all of it marks have 64 bytes, which is the most that a record's field should
have (DESIGN 5); a trace state makes them longer.
"""

from __future__ import annotations

import base64
import re
from typing import Final

from opentelemetry.trace import SpanContext, TraceFlags, TraceState

__all__ = ["packed", "unpacked"]

_MAX_STATE: Final = 512
"""Most bytes of a trace state that travel: what W3C asks everyone to pass on."""

_CARRIED: Final = re.compile(
    r"[a-z]*([0-9A-F]{32})([0-9A-F]{16})([0-9A-F]{2})([A-Z2-7]*)(?:@([0-9A-F]{1,14}))?"
)


def packed(origin: SpanContext, now_ms: float) -> str:
    """What goes behind a job's marks; nothing if there is no trace."""
    if not origin.is_valid:
        return ""
    state = origin.trace_state.to_header().encode()
    rest = base64.b32encode(state).decode().rstrip("=") if len(state) <= _MAX_STATE else ""
    ids = f"{origin.trace_id:032X}{origin.span_id:016X}{origin.trace_flags:02X}"
    return f"{ids}{rest}@{int(now_ms):X}"


def unpacked(marks: str) -> tuple[SpanContext | None, int | None]:
    """The context, and the instant (ms), as far as the marks have them."""
    found = _CARRIED.fullmatch(marks)
    if found is None:
        return None, None
    trace_id, span_id, flags, rest, at = found.groups()
    try:
        header = base64.b32decode(rest + "=" * (-len(rest) % 8)).decode()
    except ValueError:
        header = ""
    origin = SpanContext(
        int(trace_id, 16),
        int(span_id, 16),
        is_remote=True,
        trace_flags=TraceFlags(int(flags, 16)),
        trace_state=TraceState.from_header([header]) if header else None,
    )
    return origin if origin.is_valid else None, None if at is None else int(at, 16)
