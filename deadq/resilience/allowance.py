"""One layer retries: how many retries are left to this layer, and how many it passes on.

Three layers with three retries each make 64 calls of one (Google, "Site Reliability Engineering",
chapter 22). So a request brings along how many retries are left of it, in ``x-retry-budget``:

- No such header: this is the edge, which gives what it is set to.
- Each retry that is spent is subtracted.
- Calls below get 0, unless this layer says otherwise (:func:`pass_on`).
- A header of somebody who is not trusted only lowers what the edge would give.

The allowance is ambient, as the deadline is. Where there is none, this layer is the edge.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Final

from ..ambient import Ambient
from ..config import MAX_RETRIES, whole
from ..errors import shown
from .locks import counting_lock

RETRY_BUDGET_HEADER: Final = "x-retry-budget"

_NUMBER: Final = re.compile(r"[0-9]{1,9}")


class Allowance:
    """Retries that are left to this layer.

    Args:
        left: how many it may make by itself.
        most: how many it may pass on when it says so (:func:`pass_on`); default: ``left``.
        passed: whether ``left`` is what the layer above has passed on to the calls of this block,
            rather than what this layer has received.

    Raises:
        ValueError, TypeError: not a whole number from 0 to 1,000.
    """

    __slots__ = ("_above", "_left", "_lock", "_most", "passed")

    def __init__(
        self,
        left: int,
        *,
        most: int | None = None,
        passed: bool = False,
        above: Allowance | None = None,
    ) -> None:
        self._left = whole(left, "the retries left", 0, MAX_RETRIES)
        self._most = left if most is None else whole(most, "the most retries", 0, MAX_RETRIES)
        self._above = above
        self._lock = counting_lock()
        self.passed = passed

    @classmethod
    def incoming(cls, header: str | None, *, edge: int, trusted: bool = False) -> Allowance:
        """What a request brings along.

        Args:
            header: value of its ``x-retry-budget``; None where there is none.
            edge: what this layer gives as the edge.
            trusted: whether the caller is one of ours; another one can only lower ``edge``.

        Raises:
            ValueError, TypeError: the header is no ``str``; ``edge`` is out of bounds.
        """
        if header is not None and not isinstance(header, str):
            raise TypeError(f"{RETRY_BUDGET_HEADER} must be a str, not {shown(header)}")
        edge = whole(edge, "edge", 0, MAX_RETRIES)
        if header is None or not _NUMBER.fullmatch(header.strip()):
            return cls(edge)
        said = min(int(header), MAX_RETRIES)
        return cls(said if trusted else min(said, edge))

    @staticmethod
    def current() -> Allowance | None:
        """The ambient one; None: this is the edge."""
        return AMBIENT.get()

    @property
    def left(self) -> int:
        """Retries that may still be made by itself."""
        return self._left

    @property
    def most(self) -> int:
        """Retries that may be passed on if this layer says so."""
        return self._most

    def spend(self) -> bool:
        """Take one, also of what the layers above have; False: none is left, here or there, where
        calls that are made side by side were each passed all of it."""
        with self._lock:
            if self._left < 1:
                return False
            self._lower()
        return self._above is None or self._above.spend_below()

    def spend_below(self) -> bool:
        """Take one for a call below, to which it was passed on."""
        with self._lock:
            if self._most < 1:
                return False
            self._lower()
        return self._above is None or self._above.spend_below()

    def _lower(self) -> None:
        self._left, self._most = max(0, self._left - 1), max(0, self._most - 1)

    @contextlib.contextmanager
    def scope(self) -> Iterator[Allowance]:
        """Make it the ambient one of the block."""
        with AMBIENT.held(self):
            yield self


AMBIENT: Final[Ambient[Allowance]] = Ambient("deadq_allowance")


@contextlib.contextmanager
def pass_on(retries: int) -> Iterator[Allowance]:
    """Say that the calls of the block, and what they call, may make up to ``retries`` retries: at
    most as many as this layer has left.

    Raises:
        ValueError, TypeError: not a whole number from 0 to 1,000.
    """
    above = AMBIENT.get()
    said = whole(retries, "the retries passed on", 0, MAX_RETRIES)
    given = said if above is None else min(said, above.most)
    with Allowance(given, passed=True, above=above).scope() as allowance:
        yield allowance


def outgoing() -> str:
    """The value of ``x-retry-budget`` for a call made now."""
    allowance = AMBIENT.get()
    return str(allowance.left) if allowance is not None and allowance.passed else "0"


def set_ambient(allowance: Allowance) -> None:
    """Make it the ambient one of the current context for good (a job's own context)."""
    AMBIENT.set(allowance)
