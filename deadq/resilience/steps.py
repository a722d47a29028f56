"""Whether the present code runs inside a unit: a step that changes state, and runs once."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from ..ambient import Ambient

_inside: Ambient[bool] = Ambient("deadq_inside_unit")


def inside_unit() -> bool:
    """Whether it does. Then a call is repeated under an idempotency key only, and never hedged."""
    return _inside.get() is True


@contextlib.contextmanager
def as_unit() -> Iterator[None]:
    """Mark what the block does as a unit's work."""
    with _inside.held(True):
        yield
