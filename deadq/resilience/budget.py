"""How many retries a caller may make: a share of its first attempts, so that they cannot multiply.

Retries that depend on nothing but failures turn an outage into N times the load. A budget ties
them to first attempts: 10 % of those of the last ten seconds, plus a small floor so that a caller
with little to do may retry at all (Google, "Site Reliability Engineering", chapter 21, has 10 %;
Finagle's ``RetryBudget`` has the window and the floor). In every window then::

    outbound / inbound <= 1 + ratio + floor / rate of first attempts

:class:`Budget` counts in one process; ``deadq.FleetBudget`` is shared by a fleet through Redis.
"""

from __future__ import annotations

from typing import Final, Protocol

from .. import clock
from .locks import counting_lock
from .rules import BudgetRule, QuotaRule, Rule, rule_of

_SLOTS: Final = 20
"""Pieces of a window: what falls into the oldest one counts in part, and always against us."""


class RetryBudget(Protocol):
    """What retries and hedges draw on."""

    def first(self) -> None:
        """A first attempt is being made."""
        ...

    def take(self, *, throttled: bool = False, after: float = 0.0) -> float:
        """Tokens taken for a retry that may be made ``after`` seconds from now; 0: it may not."""
        ...

    def succeeded(self, taken: float = 0.0) -> None:
        """An attempt succeeded, for which ``taken`` tokens had been taken."""
        ...

    def available(self) -> float:
        """How many retries would be allowed now; a gauge."""
        ...


class Budget:
    """A budget of this process alone. Threads and event loops may share it.

    Args:
        rule: ``"sre"``, ``"finagle"``, ``"aws-2026"``, a :class:`BudgetRule` or a
            :class:`QuotaRule`.

    Raises:
        ValueError, TypeError: no such preset, or not a rule.
    """

    def __init__(self, rule: str | Rule = "sre") -> None:
        self.rule = rule_of(rule)
        self._counts = Window(self.rule) if isinstance(self.rule, BudgetRule) else Quota(self.rule)

    def first(self) -> None:
        """A first attempt is being made."""
        self._counts.first()

    def take(self, *, throttled: bool = False, after: float = 0.0) -> float:
        """Tokens taken for a retry, 0 when there is to be none.

        Args:
            throttled: after a refusal for overload, which a quota charges otherwise.
            after: seconds until it is made, which is when it weighs.
        """
        return self._counts.take(throttled=throttled, after=after)

    def succeeded(self, taken: float = 0.0) -> None:
        """An attempt succeeded, for which ``taken`` tokens had been taken."""
        self._counts.succeeded(taken)

    def available(self) -> float:
        """How many retries would be allowed now; a gauge."""
        return self._counts.available()

    def __repr__(self) -> str:
        return f"<Budget of {self.rule}, {self.available():.1f} left>"


def budget_of(budget: str | Rule | RetryBudget) -> RetryBudget:
    """A budget, or one of its own for a rule or a preset's name.

    Raises:
        ValueError, TypeError: no such preset, or no budget.
    """
    if isinstance(budget, str | BudgetRule | QuotaRule):
        return Budget(budget)
    if not all(callable(getattr(budget, name, None)) for name in ("first", "take", "succeeded")):
        raise TypeError(f"a budget is a Budget, a FleetBudget or a preset's name, not {budget!r}")
    return budget


class Window:
    """First attempts and retries of the last seconds, in slots."""

    __slots__ = ("_firsts", "_lock", "_now", "_rule", "_slot", "_slot_s", "_slots", "_spent")

    def __init__(self, rule: BudgetRule) -> None:
        self._rule = rule
        self._slot_s = rule.window / _SLOTS
        self._slots: dict[int, list[int]] = {}
        """First attempts and tokens spent, of each slot that is still of interest, by number."""
        self._slot = -1
        self._now = [0, 0]
        """The number of the present one, and the slot itself."""
        self._firsts = self._spent = 0
        """Over all of them."""
        self._lock = counting_lock()

    def first(self) -> None:
        slot = int(clock.monotonic() / self._slot_s)
        with self._lock:
            if slot != self._slot:
                self._turn(slot)
            self._now[0] += 1
            self._firsts += 1

    def take(self, *, throttled: bool = False, after: float = 0.0) -> float:
        with self._lock:
            if self._left() < 1:
                return 0.0
            self._spend(after)
            return 1.0

    def spend(self, after: float = 0.0) -> None:
        """Count a retry that was allowed elsewhere."""
        with self._lock:
            self._left()
            self._spend(after)

    def succeeded(self, taken: float) -> None:
        """What was spent stays spent."""

    def available(self, part: float = 1.0) -> float:
        """What is left; of that ``part`` of what is earned, if somebody is to have no more."""
        with self._lock:
            return max(0.0, self._left(part))

    def _left(self, part: float = 1.0) -> float:
        slot = int(clock.monotonic() / self._slot_s)
        if slot != self._slot:
            self._turn(slot)
        # The window ends within the oldest slot: what was earned there may be too old, what was
        # spent there may not be.
        oldest = self._slots.get(slot - _SLOTS)
        earned = self._firsts - (oldest[0] if oldest else 0)
        rule = self._rule
        return part * (rule.ratio * earned + rule.floor * rule.window) - self._spent

    def _spend(self, after: float) -> None:
        """In the slot in which the retry will be made: it weighs there."""
        made = int((clock.monotonic() + min(after, self._rule.window)) / self._slot_s)
        self._slots.setdefault(made, [0, 0])[1] += 1
        self._spent += 1

    def _turn(self, slot: int) -> None:
        """Open the slot of now, and drop those before the window."""
        self._slot = slot
        self._now = self._slots.setdefault(slot, [0, 0])
        for old in [number for number in self._slots if number < slot - _SLOTS]:
            del self._slots[old]
        # summed anew: a fork may have come between two steps of another thread
        self._firsts = sum(firsts for firsts, _ in self._slots.values())
        self._spent = sum(spent for _, spent in self._slots.values())


class Quota:
    """Tokens that retries take and successes give back."""

    __slots__ = ("_left", "_lock", "_rule")

    def __init__(self, rule: QuotaRule) -> None:
        self._rule = rule
        self._left = rule.capacity
        self._lock = counting_lock()

    def first(self) -> None:
        """First attempts earn nothing here: successes do."""

    def take(self, *, throttled: bool = False, after: float = 0.0) -> float:
        cost = self._rule.throttled_cost if throttled else self._rule.cost
        with self._lock:
            if self._left < cost:
                return 0.0
            self._left -= cost
            return cost

    def succeeded(self, taken: float) -> None:
        back = taken or self._rule.refund
        with self._lock:
            self._left = min(self._rule.capacity, self._left + back)

    def available(self) -> float:
        return self._left // self._rule.cost
