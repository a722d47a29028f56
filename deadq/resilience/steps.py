"""Whether the present code runs inside a unit: a step that changes state, and runs once."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

_inside: ContextVar[bool] = ContextVar("deadq_inside_unit", default=False)


def inside_unit() -> bool:
    """Whether it does. Then a call is repeated under an idempotency key only, and never hedged."""
    return _inside.get()


@contextlib.contextmanager
def as_unit() -> Iterator[None]:
    """Mark what the block does as a unit's work."""
    token = _inside.set(True)
    try:
        yield
    finally:
        _inside.reset(token)
