"""What a chain of calls can come to: the longest wait, and the most calls for one request.

From a description of tiers, each with what its callers grant it and what it calls in turn::

    one call       tries * timeout_s + (tries - 1) * backoff_s
    a tier         work_s + its calls, added up; of those made at the same time the longest
    amplification  over each path the product of tries, added up over the paths to a tier

Three services one after the other, two tries of 5 s each, make 30 s; three layers that try twice
make 8 calls of the lowest, three that try four times 64. These 64 are an example of "Site
Reliability Engineering" (Beyer et al., 2016), chapter 22. That one layer alone should retry is also
what "Timeouts, retries, and backoff with jitter" (Amazon Builders' Library) advises.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

_PARTS: Final = 5
"""So many parts of a sum are told, the others counted."""
_ROUNDING: Final = 1e-9
"""What sums of decimal fractions are off by, as a part of themselves, is no excess."""


@dataclass(frozen=True, slots=True)
class Call:
    """What one tier calls: ``times`` calls, of which each is tried ``tries`` times at most."""

    tier: str
    times: int
    timeout_s: float
    tries: int
    backoff_s: float

    @property
    def longest_s(self) -> float:
        """How long the caller waits at most for one of the calls, with all its tries."""
        return self.tries * self.timeout_s + (self.tries - 1) * self.backoff_s

    def told(self, times: int) -> str:
        """The same as a sum: ``stock 3 x (2 x 5 s + 0.1 s)``."""
        text = f"{self.timeout_s:g} s"
        if self.tries > 1:
            text = f"{self.tries} x {text}"
            if self.backoff_s:
                text += f" + {(self.tries - 1) * self.backoff_s:g} s"
        if times > 1:
            text = f"{times} x ({text})" if self.tries > 1 else f"{times} x {text}"
        return f"{self.tier} {text}"


class Step(NamedTuple):
    """Calls that a tier makes at the same time, or one that it makes ``times`` over."""

    calls: tuple[Call, ...]
    at_once: bool

    @property
    def longest_s(self) -> float:
        """How long it takes at most."""
        if self.at_once:
            return max(call.longest_s for call in self.calls)
        return sum(call.times * call.longest_s for call in self.calls)

    def told(self) -> str:
        """What that is made of."""
        longest = max(self.calls, key=lambda call: call.longest_s)
        if not self.at_once:
            return longest.told(longest.times)
        beside = sum(call.times for call in self.calls) - 1
        return longest.told(1) + (f" (with {beside} more at the same time)" if beside else "")


@dataclass(frozen=True, slots=True)
class Tier:
    """A tier: the time that it needs itself, and what it calls, one step after the other."""

    name: str
    work_s: float
    steps: tuple[Step, ...]

    @property
    def calls(self) -> Iterator[Call]:
        """Of all its steps."""
        return (call for step in self.steps for call in step.calls)

    @property
    def promises_s(self) -> float:
        """The sum of what it grants to those that it calls, and what it needs itself."""
        return self.work_s + sum(step.longest_s for step in self.steps)

    def told(self) -> str:
        """What that sum is made of."""
        parts = [f"its own work {self.work_s:g} s"] if self.work_s else []
        told = self.steps[: _PARTS - len(parts)]
        parts += [step.told() for step in told]
        if len(told) < len(self.steps):
            parts.append(f"{len(self.steps) - len(told)} more")
        return " + ".join(parts)


@dataclass(frozen=True, slots=True)
class Chain:
    """Tiers from the edge down: none stands before one that calls it."""

    budget_s: float
    tiers: Mapping[str, Tier]


class ChainFaultKind(StrEnum):
    """In which way a chain is at fault."""

    PROMISE = "promise"
    """A layer promises more than it receives."""
    RETRIES = "retries"
    """Two layers retry."""
    BUDGET = "budget"
    """The sum exceeds the edge's budget."""


class ChainFault(NamedTuple):
    """What is wrong with a tier, in one line, and what to do about it."""

    kind: ChainFaultKind
    tier: str
    reason: str
    remedy: str


class TierFigures(NamedTuple):
    """One tier of a chain. ``receives_s``: the least that a caller grants to one try of it.
    ``promises_s``: its own work, and what it grants in turn. ``tries``: the most by a caller.
    ``calls`` for one request when all goes well, and ``calls_at_worst``."""

    tier: str
    receives_s: float
    promises_s: float
    tries: int
    calls: int
    calls_at_worst: int

    @property
    def amplification(self) -> float:
        """How many times more calls it can get than when all goes well."""
        return self.calls_at_worst / self.calls


class ChainVerdict(NamedTuple):
    """What a chain comes to, and its faults; ``tiers`` from the edge down, times in s."""

    budget_s: float
    worst_s: float
    tiers: tuple[TierFigures, ...]
    faults: tuple[ChainFault, ...]

    @property
    def most_amplified(self) -> TierFigures:
        """The tier that can get the most calls beyond the usual ones, by a factor."""
        return max(self.tiers, key=lambda figures: figures.amplification)


def judge(chain: Chain) -> ChainVerdict:
    """The figures of a chain, and all that is wrong with it."""
    edge = next(iter(chain.tiers.values()))
    promises = {tier.name: tier.promises_s for tier in chain.tiers.values()}  # each summed once
    figures = {edge.name: TierFigures(edge.name, chain.budget_s, edge.promises_s, 1, 1, 1)}
    for tier in chain.tiers.values():
        caller = figures[tier.name]
        for call in tier.calls:
            known = figures.get(call.tier)
            figures[call.tier] = TierFigures(
                call.tier,
                min(call.timeout_s, known.receives_s if known else math.inf),
                promises[call.tier],
                max(call.tries, known.tries if known else 1),
                caller.calls * call.times + (known.calls if known else 0),
                caller.calls_at_worst * call.times * call.tries
                + (known.calls_at_worst if known else 0),
            )
    faults = [
        *_budget(chain.budget_s, edge),
        *_promises(chain, promises),
        *_retries(chain, figures),
    ]
    ordered = tuple(figures[name] for name in chain.tiers)
    # of calls that are alike, each would have its own
    return ChainVerdict(chain.budget_s, edge.promises_s, ordered, tuple(dict.fromkeys(faults)))


def _exceeds(promised_s: float, received_s: float) -> bool:
    return promised_s > received_s * (1 + _ROUNDING)


def _budget(budget_s: float, edge: Tier) -> Iterator[ChainFault]:
    if _exceeds(edge.promises_s, budget_s):
        yield ChainFault(
            ChainFaultKind.BUDGET,
            edge.name,
            f"{edge.name} has {budget_s:g} s and can take {edge.promises_s:g} s: {edge.told()}",
            "let timeouts be shorter, tries fewer, or calls be made at the same time",
        )


def _promises(chain: Chain, promises: Mapping[str, float]) -> Iterator[ChainFault]:
    for caller in chain.tiers.values():
        for call in caller.calls:
            tier = chain.tiers[call.tier]
            promises_s = promises[tier.name]
            if _exceeds(promises_s, call.timeout_s):
                yield ChainFault(
                    ChainFaultKind.PROMISE,
                    tier.name,
                    f"{tier.name} receives {call.timeout_s:g} s from {caller.name} and promises "
                    f"{promises_s:g} s: {tier.told()}",
                    f"let {tier.name} promise {call.timeout_s:g} s at most: what it does later is "
                    "for nobody",
                )


def _retries(chain: Chain, figures: Mapping[str, TierFigures]) -> Iterator[ChainFault]:
    above: dict[str, tuple[str, Call]] = {}
    """For a tier, a call on some way down to it that is tried again, and who makes it."""
    for tier in chain.tiers.values():
        outer = above.get(tier.name)
        for call in tier.calls:
            if call.tries > 1:
                above[call.tier] = (tier.name, call)
                if outer:
                    calls = counted(figures[call.tier].calls_at_worst)
                    yield _twice(*outer, tier.name, call, calls)
            elif outer:
                above[call.tier] = outer


def _twice(higher: str, first: Call, lower: str, second: Call, calls: str) -> ChainFault:
    return ChainFault(
        ChainFaultKind.RETRIES,
        lower,
        f"{higher} tries {first.tier} {first.tries} times, and {lower} tries {second.tier} "
        f"{second.tries} times: {second.tier} can get {calls} calls for one request",
        f"let one layer retry: tries = 1 for {first.tier} or for {second.tier}",
    )


def counted(number: int) -> str:
    """A number of calls, which may be of any length, in a few characters."""
    return f"{number:,}" if number < 10**9 else f"10^{len(str(number)) - 1}"
