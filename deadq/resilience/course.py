"""One call and its attempts: what each may take, and what follows a failure. Decides, never waits.

A retry has to pass every limit, each with its own word in :class:`RetryDenied` and in the metric::

    no_key      the call changes state, and the other side could not tell a repeat
    permanent   the failure will not go away by itself
    tries       this many attempts were allowed
    layer       another layer retries (``x-retry-budget``)
    deadline    pause and attempt would not fit into the time that is left
    budget      the fleet has made as many retries as it may
"""

from __future__ import annotations

import contextlib
from typing import Final, NoReturn

from .. import clock
from ..errors import DeadlineExceeded, RetryDenied
from . import counts
from .allowance import Allowance
from .policy import Policy
from .retry_after import hint_of, spread_of
from .steps import inside_unit
from .transient import failure_of, is_throttled

LONGEST_HINT_S: Final = 300.0
"""The longest ``Retry-After`` that is waited for where no deadline says how long to wait."""


class Course:
    """The attempts at one call."""

    __slots__ = (
        "_above",
        "_below",
        "_failed",
        "_inner",
        "_key",
        "_lent",
        "_policy",
        "_previous",
        "_since",
        "_taken",
        "_throttled",
        "deadline",
        "number",
        "over",
    )

    def __init__(self, policy: Policy, key: str | None) -> None:
        self._policy = policy
        self._key = key
        self._above = Allowance.current()
        self._inner: Allowance | None = None
        """What the calls of the present attempt may retry, of ``_lent`` that were left to them."""
        self._lent = 0
        self._below = 0
        """Retries of ours that calls below have made."""
        self._failed: Exception | None = None
        """What the attempt before the present one has failed with."""
        self._previous: float | None = None
        self._since = 0.0
        self._taken = 0.0
        self.deadline = policy.overall()
        self.number = 0
        """Of the present attempt, from 1 on."""
        self.over = False

    def begin(self) -> float | None:
        """Begin the next attempt. Seconds that it may take; None: as long as it likes.

        Raises:
            DeadlineExceeded: no time is left, not even for a first one.
            RetryDenied: the pause before it has lasted too long.
        """
        policy, deadline = self._policy, self.deadline
        limit = policy.timeout
        if deadline is not None:
            left = deadline.remaining()
            if left <= 0:
                self._too_late()
            limit = left if limit is None else min(limit, left)
        self._failed = None
        self.number += 1
        if self.number == 1:
            policy.budget.first()
        self._since = clock.monotonic()
        return limit

    def allowance(self) -> Allowance:
        """What the calls of the attempt may retry: nothing, unless the policy passes some on."""
        most = self._left()
        if self._above is not None:
            most = min(most, self._above.left)
        self._lent = most
        self._inner = Allowance(
            min(self._policy.pass_on, most), most=most, passed=True, above=self._above
        )
        return self._inner

    def succeeded(self) -> None:
        """The attempt returned."""
        self.over = True
        policy = self._policy
        policy.latencies.record(clock.monotonic() - self._since)
        policy.budget.succeeded(self._taken)

    def failed(self, error: Exception) -> float:
        """The attempt raised. Seconds to wait before the next one.

        Raises:
            RetryDenied: there is to be none; ``reason`` says which limit refused it. With
                ``reraise`` the error itself, with a note that says so.
        """
        policy = self._policy
        if self._inner is not None:
            self._below += self._lent - self._inner.most
            self._inner = None
        if (policy.writes or inside_unit()) and self._key is None:
            self._deny("no_key", error, "it changes state and has no idempotency key")
        if not policy.wanted(error):
            why = f"{type(error).__name__} does not pass by itself"
            given_up = isinstance(error, RetryDenied)
            self._deny("permanent", error, "a layer below has given up" if given_up else why)
        if self._left() < 1:
            below = f", {self._below} of them by calls below" if self._below else ""
            self._deny("tries", error, f"{_all(policy.tries)} made{below}")
        if self._above is not None and self._above.left < 1:
            self._deny("layer", error, "another layer retries (x-retry-budget: 0)")
        delay = self._pause(error)
        self._taken = policy.budget.take(throttled=is_throttled(error), after=delay)
        if not self._taken:
            self._deny("budget", error, "the retry budget is spent")
        if self._above is not None and not self._above.spend():
            self._deny("layer", error, "another layer retries (x-retry-budget: 0)")
        counts.retries().labels(policy.name, counts.GRANTED).inc()
        self._failed = error
        return delay

    def _left(self) -> int:
        return max(0, self._policy.tries - self.number - self._below)

    def _pause(self, error: Exception) -> float:
        """Backoff, or longer if the other side asks for it; never past the deadline."""
        policy = self._policy
        delay = policy.backoff.delay(self.number, self._previous)
        self._previous = delay
        hint = hint_of(error)
        spread = 0.0
        if hint is not None:
            spread = spread_of(hint, delay, policy.backoff.rng)
            delay = max(delay, hint, policy.backoff.base)  # a date in the past makes no hot loop
        needs = max(policy.needs, policy.latencies.quantile(0.5) or 0.0)
        if self.deadline is None:
            if hint is not None and hint > LONGEST_HINT_S:
                self._deny("deadline", error, f"it was asked to wait {hint:.0f} s")
            return delay + spread
        left = self.deadline.remaining()
        room = left - needs - delay
        if room <= 0:
            asked = "" if hint is None else f", as it was asked to wait {hint:.3g} s"
            self._deny(
                "deadline", error,
                f"{max(0.0, left):.3g} s are left, a pause of {delay:.3g} s and an "
                f"attempt of about {needs:.3g} s do not fit{asked}",
            )  # fmt: skip
        return delay + min(spread, room / 2)

    def _too_late(self) -> NoReturn:
        if self._failed is not None:
            self._deny("deadline", self._failed, "the pause lasted longer than it should have")
        self.over = True
        raise DeadlineExceeded("no time is left for an attempt")

    def _deny(self, reason: str, error: Exception, why: str) -> NoReturn:
        self.over = True
        counts.retries().labels(self._policy.name, reason).inc()
        tried = "attempt" if self.number == 1 else "attempts"
        text = f"not retried after {self.number} {tried}: {why}"
        if self._policy.reraise:
            with contextlib.suppress(Exception):  # an error may be odd in any way
                error.add_note(text)
            raise error
        # the error itself does not come along everywhere: a job's outcome has the text alone
        raise RetryDenied(f"{text} ({_told(failure_of(error))})", reason=reason) from error


def _all(tries: int) -> str:
    return "the only attempt was" if tries == 1 else f"all {tries} attempts were"


def _told(error: BaseException) -> str:
    """Its kind and the first line of what it says, which is short and printable."""
    said = ""
    with contextlib.suppress(Exception):  # an error may be odd in any way
        said = str(error).strip().partition("\n")[0][:160]
    kind = type(error).__name__
    if not said:
        return kind
    return f"{kind}: {said if said.isprintable() else ascii(said)[1:-1]}"
