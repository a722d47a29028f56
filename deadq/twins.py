"""Two jobs in two queues of which one is to run: how each is told of the other. Data only."""

from __future__ import annotations

from typing import Final, NamedTuple

TIED_AWAY: Final = b"tied"
"""What stands in place of a result where a job was cancelled because its twin was to start."""


class Twin(NamedTuple):
    """The other one of two tied jobs, as the record of each names it."""

    role: str
    """Which of the two the record is that names the other: ``first`` or ``second``."""
    id: str
    queue: str

    @property
    def text(self) -> str:
        """As the record holds it."""
        return f"{self.role} {self.id} {self.queue}"

    @classmethod
    def read(cls, text: str) -> Twin | None:
        """What a record holds; None where it names no twin, or not as a producer writes it."""
        role, _, rest = text.partition(" ")
        ident, _, queue = rest.partition(" ")
        return cls(role, ident, queue) if role in ("first", "second") and queue else None
