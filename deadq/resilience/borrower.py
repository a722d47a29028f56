"""What a process does under a budget that its fleet shares: it counts, borrows and spends. No I/O.

It asks at most once in 128 calls, or in one window, whichever comes first; so a call costs no
round trip. What it borrows weighs in the fleet's budget until it tells what it has spent, so that
the bound holds for the fleet in every window. Until the fleet has answered (at first, and after a
silence in which the loan has run out), and while the server is away, the same rule holds for this
process alone.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from .. import clock
from .backoff import Backoff
from .budget import Window
from .locks import counting_lock
from .rules import BudgetRule

CALLS: Final = 128
"""At least so many lie between two questions, unless a window has passed."""

_SLOT_S: Final = 0.5
"""Deeds are told of with their age, to half a second."""

_PAUSES: Final = Backoff("equal", base=0.1, cap=5.0)
"""Between tries while the server is away."""


class Question(NamedTuple):
    """What to tell and to ask: the number of the call, tokens wanted, the loan's length (s), and
    for each kind of deed ("f" first attempts, "s" tokens spent) how long ago (s; below 0 it is to
    come) and how many."""

    number: int
    wanted: int
    length_s: float
    deeds: list[tuple[str, float, int]]


class Borrower:
    """One process under a shared budget. Threads may share it."""

    def __init__(self, rule: BudgetRule) -> None:
        self._rule = rule
        self._own = Window(rule)
        self._lock = counting_lock()
        self._deeds: dict[tuple[str, int], int] = {}
        self._told: dict[tuple[str, int], int] = {}
        """Those of the question that is under way, for as long as its answer is not known."""
        self._question: Question | None = None
        self._calls = 0
        self._asked = 0
        """How many tokens were asked for since the last question."""
        self._number = 0
        self._next = -math.inf
        """Before this no question for time's sake; after a failure, none at all."""
        self._failures = 0
        self._alone = True
        self._tokens = 0
        self._left = 0
        self._until = -math.inf

    def first(self) -> bool:
        """A first attempt is being made. Whether it is time for a question."""
        self._own.first()
        with self._lock:
            self._note("f")
            return self._due()

    def take(self, after: float = 0.0) -> tuple[float, bool]:
        """Tokens taken for a retry ``after`` seconds from now, 0 or 1; and whether it is time for a
        question."""
        with self._lock:
            self._asked += 1
            if self._by_itself():
                taken = self._own.take(after=after)
            elif self._tokens:
                self._tokens -= 1
                self._own.spend(after)
                taken = 1.0
            else:
                taken = 0.0
            if taken:
                self._note("s", min(after, self._rule.window))
            return taken, self._due()

    def due(self) -> bool:
        """Whether it is time for a question."""
        with self._lock:
            return bool(self._calls) and self._due()

    @property
    def alone(self) -> bool:
        """Whether the rule holds for this process alone."""
        return self._alone

    def available(self) -> float:
        """Retries that the fleet, as last told, or this process alone would be allowed."""
        with self._lock:
            if self._by_itself():
                return self._own.available()
            return float(self._tokens + self._left)

    def question(self) -> Question:
        """The question that is due. After a failure it is the same one, as it may have arrived; but
        what it tells of lies farther back by then."""
        with self._lock:
            if self._question is None:
                self._told, self._deeds = self._deeds, {}
                self._number += 1
                least = max(1, math.ceil(self._rule.ratio * CALLS + self._rule.floor))
                wanted = min(10_000, max(least, self._asked))
                self._calls = self._asked = 0
            else:
                wanted = self._question.wanted
            now = clock.monotonic()
            self._question = Question(
                self._number,
                wanted,
                1.5 * self._rule.window,
                [
                    (kind, now - slot * _SLOT_S, number)
                    for (kind, slot), number in self._told.items()
                    if now - slot * _SLOT_S < 2 * self._rule.window
                ],
            )
            return self._question

    def answered(self, tokens: int, left: int) -> None:
        """The fleet has lent ``tokens`` and has ``left`` for others."""
        with self._lock:
            now = clock.monotonic()
            length = self._question.length_s if self._question else 0.0
            self._question, self._told = None, {}
            self._alone, self._failures = False, 0
            self._tokens, self._left = tokens, left
            # what was spent since the question was made weighs on the new loan
            spent = sum(n for (kind, _), n in self._deeds.items() if kind == "s")
            self._tokens = max(0, tokens - spent)
            self._next, self._until = now + self._rule.window, now + length

    def failed(self) -> None:
        """The server cannot be reached: this process goes on alone."""
        with self._lock:
            self._failures += 1
            self._alone = True
            self._next = clock.monotonic() + _PAUSES.delay(self._failures)

    def _note(self, kind: str, after: float = 0.0) -> None:
        self._calls += 1
        slot = int((clock.monotonic() + after) / _SLOT_S)
        key = kind, slot
        known = self._deeds.get(key)
        if known is None and len(self._deeds) > 4 * self._rule.window / _SLOT_S:
            # nobody has asked for long: what is older than a window need not be told
            oldest = slot - self._rule.window / _SLOT_S
            self._deeds = {k: n for k, n in self._deeds.items() if k[1] >= oldest}
        self._deeds[key] = (known or 0) + 1

    def _by_itself(self) -> bool:
        """Whether there is no loan: the server is away, or has not answered since the last one ran
        out. A caller with little to do would otherwise never get a retry."""
        return self._alone or clock.monotonic() >= self._until

    def _due(self) -> bool:
        if self._failures:
            return clock.monotonic() >= self._next
        return self._calls >= CALLS or clock.monotonic() >= self._next
