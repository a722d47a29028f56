"""A second call where the first one is slow: the first success wins, the other is cancelled.

::

    @ahedge(within=2.0, budget=FleetBudget("quotes"))
    async def quote(item: str) -> Quote: ...

Jeffrey Dean and Luiz André Barroso, "The Tail at Scale" (CACM 2013): after the p95 it costs about
5 % more calls, and takes the slow end off. What it must not do is to add to an overload; so there
are as many limits as to a retry, see :mod:`deadq.resilience.race`.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, ParamSpec, TypeVar

from ..config import MAX_RETRIES, whole
from ..deadline import duration, seconds
from ..errors import shown
from .budget import RetryBudget, Window, budget_of
from .policy import Key, check_key_of_calls, check_repeats, gives_coroutine, key_of, name_of
from .race import Plan, Race
from .rules import BudgetRule, Rule
from .tail import LEAST_DELAY_S, Tail

P = ParamSpec("P")
R = TypeVar("R")

WINDOW_S: Final = 10.0
"""Over which second calls are a share of all calls. There is no floor: the first 20 calls earn
one second call, and who makes fewer in ten seconds has none."""


class ahedge:  # noqa: N801  a decorator, as users write it
    """For coroutine functions: call again when the call is slow; the first success wins.

    A fast error never wins: when one call fails, the other is waited for; when both fail, the
    error is that of the first. A call that fails before the delay is not repeated: that is what
    ``aretry`` does, and one call uses one or the other. Both calls run as tasks, in copies of the
    caller's context; when the value is returned, the call that lost has been cancelled and is gone
    (one that holds on to its cancellation is left to itself after 50 ms, with a warning).

    Args:
        delay: seconds until the second call, at least 0.001; default: as measured.
        quantile: which quantile of the calls of the last 30 s the delay is, from 0.5 to 0.999.
            There is no second call until five calls lie above it (the p95: after 100 calls).
        share: second calls for each call, at most, over ten seconds, from 0.001 to 0.5.
        within: seconds for both calls together; the ambient deadline holds in any case.
        needs: seconds that a call takes at least; otherwise the measured median counts.
        budget: what second calls draw on too, together with retries: a ``Budget``, a
            ``FleetBudget``, or a preset's name, which gives a budget of its own.
        writes: whether the call changes state; then it needs a key.
        key: a function of the arguments that gives the idempotency key under which the other side
            recognises a repeat; when it gives None, there is no second call.
        pass_on: retries that the calls below may make, of those that are left here.
        name: in the metric; default: that of the function.

    Raises:
        ValueError, TypeError: a setting is odd; the message names the fault and the remedy.

    The calls raise ``TimeoutError`` when their time is over, and ``DeadlineExceeded`` when there
    was none to begin with. Inside a unit a call is a plain call.
    """

    def __init__(
        self,
        *misplaced: object,
        delay: float | None = None,
        quantile: float = 0.95,
        share: float = 0.05,
        within: float | None = None,
        needs: float = 0.0,
        budget: str | Rule | RetryBudget = "sre",
        writes: bool = False,
        key: Key | None = None,
        pass_on: int = 0,
        name: str | None = None,
    ) -> None:
        if misplaced:
            raise TypeError(
                "ahedge takes settings by name alone: write @ahedge() above a function, not "
                f"{shown(misplaced[0])}"
            )
        check_repeats("hedge", name, writes, key)
        self._delay = None if delay is None else seconds(delay, "delay")
        if self._delay is not None and self._delay < LEAST_DELAY_S:
            raise ValueError(
                f"delay must be at least {LEAST_DELAY_S} seconds, not {shown(delay)}: without one "
                "every call would be made twice"
            )
        self._quantile = _between(quantile, "quantile", 0.5, 0.999, "0.95 hedges one call in 20")
        self._share = _between(share, "share", 0.001, 0.5, "0.05 allows one second call for 20")
        self._within = None if within is None else duration(within, "within")
        self._needs = seconds(needs, "needs", positive=False)
        self._budget = budget_of(budget)
        self._writes = writes
        self._key = key
        self._pass_on = whole(pass_on, "pass_on", 0, MAX_RETRIES)
        self._name = name

    def __call__(self, fn: Callable[P, Awaitable[R]], /) -> Callable[P, Coroutine[Any, Any, R]]:
        """The coroutine function, hedged."""
        if not callable(fn):
            raise TypeError(f"@ahedge calls a function, not {shown(fn)}")
        if not gives_coroutine(fn):
            raise TypeError(
                f"{name_of(fn)} is no coroutine function, and only a "
                "coroutine that lost can be cancelled and collected: make it an async def, or a "
                "task with hedge=True, whose jobs a second worker may start"
            )
        check_key_of_calls(self._key, fn)
        plan = self._plan(self._name or name_of(fn))

        @functools.wraps(fn)
        async def hedged(*args: P.args, **kwargs: P.kwargs) -> R:
            def call() -> Awaitable[R]:
                return fn(*args, **kwargs)

            return await Race(plan, call, key_of(self._key, args, kwargs)).run()

        return hedged

    def _plan(self, name: str) -> Plan:
        usual = 1 - self._quantile if self._delay is None else self._share
        return Plan(
            name=name,
            tail=Tail(self._quantile, self._delay, usual),
            share=Window(BudgetRule(ratio=self._share, floor=0.0, window=WINDOW_S)),
            budget=self._budget,
            within=self._within,
            needs=self._needs,
            writes=self._writes,
            pass_on=self._pass_on,
        )


def _between(value: object, what: str, least: float, most: float, remedy: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{what} must be a number, not {shown(value)}: {remedy}")
    if not least <= value <= most:  # NaN fails both
        raise ValueError(
            f"{what} must lie between {least:g} and {most:g}, not {shown(value)}: {remedy}"
        )
    return float(value)
