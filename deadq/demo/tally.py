"""What has happened so far, for whoever watches: counts, and what came in each second."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from .load import Answer, Order

ON_TIME: Final = "on time"
LATE: Final = "late"
OFFERED: Final = "offered"
ACCEPTED: Final = "accepted"

REFUSED: Final = "refused: "
"""What the name of a refusal begins with; the reason follows."""


class Tally:
    """Counts orders as they go and answers as they come."""

    def __init__(self) -> None:
        self.total: Counter[str] = Counter()
        self._phases: dict[str, Counter[str]] = {}
        self._seconds: list[Counter[str]] = []

    def sent(self, order: Order) -> None:
        self._count(order, OFFERED, order.at)

    def answered(self, answer: Answer) -> None:
        """An answer counts in the second in which it came."""
        if answer.accepted and not answer.duplicate:
            self._count(answer.order, ACCEPTED, answer.came)
            self._count(answer.order, ON_TIME if answer.on_time else LATE, answer.came)
        elif answer.status and not answer.accepted:
            self._count(answer.order, f"{REFUSED}{answer.reason}", answer.came)

    def of(self, phase: str) -> Counter[str]:
        """What became so far of the orders of a phase."""
        return self._phases.get(phase, Counter())

    def each_second(self, what: str, now: float) -> Sequence[int]:
        """Of every second that is over at ``now`` (s from the beginning)."""
        over = max(0, int(now))
        whole = self._seconds[:over]
        return [second[what] for second in whole] + [0] * (over - len(whole))

    def rate(self, what: str, now: float, over_s: int = 2) -> float:
        """A second, in the last whole seconds."""
        return sum(self.each_second(what, now)[-over_s:]) / over_s

    def _count(self, order: Order, what: str, at: float) -> None:
        self.total[what] += 1
        self._phases.setdefault(order.phase, Counter())[what] += 1
        while len(self._seconds) <= int(at):
            self._seconds.append(Counter())
        self._seconds[int(at)][what] += 1
