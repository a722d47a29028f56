"""How many retries a caller may make: a share of its first attempts, so that they cannot multiply.

Retries that depend on nothing but failures turn an outage into N times the load. A budget ties
them to first attempts: 10 % of those of the last ten seconds, plus a small floor so that a caller
with little to do may retry at all (Google, "Site Reliability Engineering", chapter 21, has 10 %;
Finagle's ``RetryBudget`` has the window and the floor). In every window then::

    outbound / inbound <= 1 + ratio + floor / rate of first attempts

:class:`Budget` counts in one process; ``deadq.FleetBudget`` is shared by a fleet through Redis.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from dataclasses import dataclass
from typing import Final, Protocol

from .. import clock

_SLOTS: Final = 20
"""Pieces of a window: what falls into the oldest one counts in part, and always against us."""

_LONGEST_WINDOW_S: Final = 60.0
_MOST: Final = 1e9


def _number(what: str, value: object, least: float, most: float, remedy: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{what} must be a number, not {value!r}: {remedy}")
    if not least <= value <= most:  # NaN fails both
        raise ValueError(f"{what} must lie between {least:g} and {most:g}, not {value!r}: {remedy}")


@dataclass(frozen=True, slots=True)
class BudgetRule:
    """Retries as a share of first attempts.

    Args:
        ratio: retries for each first attempt.
        floor: retries a second that are allowed whatever the traffic.
        window: seconds over which both are counted, 0.1 to 60.

    Raises:
        ValueError, TypeError: a number is odd; the message names the fault and the remedy.
    """

    ratio: float = 0.1
    floor: float = 1.0
    window: float = 10.0

    def __post_init__(self) -> None:
        _number(
            "budget ratio", self.ratio, 0.0, _MOST, "0.1 allows one retry for ten first attempts"
        )
        _number("budget floor", self.floor, 0.0, _MOST, "give retries a second, such as 1")
        _number("budget window", self.window, 0.1, _LONGEST_WINDOW_S, "give seconds, such as 10")

    @property
    def words(self) -> str:
        """As the server is told of it: ratio, floor a second, window in ms."""
        return f"{float(self.ratio):.12g} {float(self.floor):.12g} {math.ceil(self.window * 1000)}"


@dataclass(frozen=True, slots=True)
class QuotaRule:
    """Retries from a quota that successes fill up again, as in the AWS SDKs.

    Args:
        capacity: tokens at the start, and at most.
        cost: tokens that a retry takes.
        throttled_cost: tokens that a retry after a refusal for overload takes (429, 503).
        refund: tokens that a success at the first attempt gives back; one at a retry gives back
            what that retry took.

    Raises:
        ValueError, TypeError: a number is odd; the message names the fault and the remedy.
    """

    capacity: float = 500.0
    cost: float = 14.0
    throttled_cost: float = 5.0
    refund: float = 1.0

    def __post_init__(self) -> None:
        _number("quota capacity", self.capacity, 0.0, _MOST, "the SDKs have 500")
        _number("quota cost", self.cost, 1e-6, _MOST, "the SDKs have 14")
        _number("quota throttled_cost", self.throttled_cost, 1e-6, _MOST, "the SDKs have 5")
        _number("quota refund", self.refund, 0.0, _MOST, "the SDKs have 1")


Rule = BudgetRule | QuotaRule

PRESETS: Final[dict[str, Rule]] = {
    # Google, "Site Reliability Engineering", chapter 21; the floor is ours.
    "sre": BudgetRule(ratio=0.1, floor=1.0, window=10.0),
    # Finagle, RetryBudget.scala: ttl 10 s, 10 retries a second at least, 20 % of requests.
    "finagle": BudgetRule(ratio=0.2, floor=10.0, window=10.0),
    # AWS SDKs' standard mode of 2026 (botocore, AWS_NEW_RETRIES_2026).
    "aws-2026": QuotaRule(capacity=500.0, cost=14.0, throttled_cost=5.0, refund=1.0),
}
"""Rules by name."""


def rule_of(rule: str | Rule) -> Rule:
    """A rule by its preset's name, or the rule itself.

    Raises:
        ValueError: no preset has this name.
        TypeError: neither a name nor a rule.
    """
    if isinstance(rule, str):
        if rule not in PRESETS:
            raise ValueError(
                f"there is no budget preset {rule!r}: use one of {', '.join(PRESETS)}, "
                "or a BudgetRule"
            )
        return PRESETS[rule]
    if not isinstance(rule, BudgetRule | QuotaRule):
        raise TypeError(f"a budget takes a preset's name or a BudgetRule, not {rule!r}")
    return rule


def window_rule(rule: str | Rule, what: str) -> BudgetRule:
    """A rule that a fleet can share.

    Raises:
        ValueError: one that counts for each process by itself, or no preset.
    """
    found = rule_of(rule)
    if isinstance(found, QuotaRule):
        raise ValueError(  # noqa: TRY004  a preset's name is a value
            f"{what} cannot use a quota such as aws-2026, which is each process's own: "
            "use sre, finagle or a BudgetRule"
        )
    return found


class RetryBudget(Protocol):
    """What retries and hedges draw on."""

    def first(self) -> None:
        """A first attempt is being made."""
        ...

    def take(self, *, throttled: bool = False) -> float:
        """Tokens taken for a retry that may be made now; 0: it may not."""
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

    def take(self, *, throttled: bool = False) -> float:
        """Tokens taken for a retry that may be made now; 0: it may not. ``throttled``: after a
        refusal for overload, which a quota charges otherwise."""
        return self._counts.take(throttled=throttled)

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

    __slots__ = ("_firsts", "_lock", "_rule", "_slot_s", "_slots", "_spent")

    def __init__(self, rule: BudgetRule) -> None:
        self._rule = rule
        self._slot_s = rule.window / _SLOTS
        self._slots: deque[list[int]] = deque([[-1, 0, 0]])
        """Number, first attempts, tokens spent: of each slot that is still of interest."""
        self._firsts = self._spent = 0
        """Over all of these."""
        self._lock = threading.Lock()

    def first(self) -> None:
        slot = int(clock.monotonic() / self._slot_s)
        with self._lock:
            newest = self._slots[-1]
            if slot != newest[0]:
                newest = self._turned(slot)
            newest[1] += 1
            self._firsts += 1

    def take(self, *, throttled: bool = False) -> float:
        with self._lock:
            if self._left() < 1:
                return 0.0
            self._slots[-1][2] += 1
            self._spent += 1
            return 1.0

    def succeeded(self, taken: float) -> None:
        """What was spent stays spent."""

    def available(self) -> float:
        with self._lock:
            return max(0.0, self._left())

    def _left(self) -> float:
        slot = int(clock.monotonic() / self._slot_s)
        if slot != self._slots[-1][0]:
            self._turned(slot)
        oldest = self._slots[0]
        # The window ends within that slot: what was earned there may be too old, what was spent
        # there may not be.
        earned = self._firsts - (oldest[1] if oldest[0] <= slot - _SLOTS else 0)
        rule = self._rule
        return rule.ratio * earned + rule.floor * rule.window - self._spent

    def _turned(self, slot: int) -> list[int]:
        """The slot of now, opened; those before the window are dropped."""
        slots = self._slots
        slots.append([slot, 0, 0])
        while slots[0][0] < slot - _SLOTS:
            _, firsts, spent = slots.popleft()
            self._firsts -= firsts
            self._spent -= spent
        return slots[-1]


class Quota:
    """Tokens that retries take and successes give back."""

    __slots__ = ("_left", "_lock", "_rule")

    def __init__(self, rule: QuotaRule) -> None:
        self._rule = rule
        self._left = rule.capacity
        self._lock = threading.Lock()

    def first(self) -> None:
        """First attempts earn nothing here: successes do."""

    def take(self, *, throttled: bool = False) -> float:
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
