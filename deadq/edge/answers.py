"""deadq's errors as HTTP: a status, headers, and one line that says what happened."""

from __future__ import annotations

import json
import math
from typing import Final, NamedTuple

from ..errors import (
    BreakerOpen,
    Cancelled,
    DeadlineExceeded,
    DeadlineExpired,
    DeadqError,
    KeyReused,
    PayloadTooLarge,
    QueueFull,
    Rejected,
    RetryDenied,
)

_STATUS: Final[dict[type[DeadqError], int]] = {
    Cancelled: 409,  # by somebody else who had the same key
    PayloadTooLarge: 413,
    KeyReused: 422,
    QueueFull: 429,
    DeadlineExpired: 504,
    DeadlineExceeded: 504,
    Rejected: 503,
    BreakerOpen: 503,
    RetryDenied: 502,  # what this service calls has failed, and was not to be tried again
}
"""The status of an error and of those under it, unless they have their own; others are a 500.

409 and 422 as "The Idempotency-Key HTTP Header Field" (IETF draft) has them; a repeat that comes
while the first one is under way is no conflict here, it gets the first one's answer.
"""


class Answer(NamedTuple):
    """What a caller is told."""

    status: int
    headers: dict[str, str]
    body: bytes
    """JSON: ``error``, a word, and ``detail``, a line."""


def answer_for(error: DeadqError) -> Answer:
    """What the caller of a request is told that ended with this error."""
    kinds = (kind for kind in type(error).__mro__ if kind in _STATUS)
    status = _STATUS.get(next(kinds, DeadqError), 500)
    headers = {}
    retry_after = getattr(error, "retry_after", None)
    if retry_after is not None:
        headers["retry-after"] = str(math.ceil(retry_after))  # whole seconds
    word = error.reason if isinstance(error, Rejected) else type(error).__name__
    # what a handler raised is for the log: it may name what is no caller's business
    inside = status in (500, 502)
    detail = "the request could not be carried out" if inside else str(error)
    return told(status, word, detail, headers)


def told(status: int, word: str, detail: str, headers: dict[str, str] | None = None) -> Answer:
    """An answer that says a word and a line."""
    body = json.dumps({"error": word, "detail": detail}).encode()
    kind = {"content-type": "application/json", "content-length": str(len(body))}
    return Answer(status, {**kind, **(headers or {})}, body)
