"""How a command fails: one line that says what to do, and an exit code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class Fault(Exception):
    """A command cannot do what was asked. ``code`` is 1 for a failure, 2 for a wrong request."""

    def __init__(self, line: str, *, code: int = 2) -> None:
        super().__init__(line)
        self.code = code


@contextmanager
def asked() -> Iterator[None]:
    """Odd settings within this block were asked for by the user, and are no bug."""
    try:
        yield
    except (ValueError, TypeError) as odd:
        raise Fault(str(odd)) from odd
