"""How a budget counts: rules, and those that others have published, by name."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

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
