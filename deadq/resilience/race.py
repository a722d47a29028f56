"""One call and, when it is slow, a second one: the first success wins, the other is collected.

A second call has to pass every limit, each with its own word in the metric::

    unit        a unit's work runs once
    no_key      the call changes state, and the other side could not tell a repeat
    samples     too few calls in the last 30 s to know what is slow (counted for every call)
    slow        so many calls are slow that the whole fleet must be
    deadline    the time that is left is less than a call usually takes
    share       as many second calls as calls may have were made in the last ten seconds
    layer       another layer retries or hedges (``x-retry-budget``)
    budget      the fleet has made as many retries and hedges as it may

What a bound refused may be granted a little later, when the call has proved slower still: so it
asks again after twice, four times ... the delay, and a tenth of what the bound allows is left to
those that do. Otherwise a p95 and a bound of 5 %, which just suffice for each other, would leave
the very slow calls to the same chance as those just above the p95.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from .. import clock
from ..deadline import Deadline
from ..errors import DeadlineExceeded
from . import counts
from .allowance import Allowance
from .budget import RetryBudget, Window
from .steps import inside_unit
from .tail import Sight, Tail

R = TypeVar("R")

log: Final = logging.getLogger("deadq.hedge")

SENT: Final = "sent"
WON: Final = "won"

LOSER_PATIENCE_S: Final = 0.05
"""A winner waits so long, at most, for the loser to clean up and leave."""

EARLY_PART: Final = 0.9
"""Of what the bound allows: for calls that have just outlasted the delay."""

_FINAL: Final = frozenset({"no_key", "deadline", "layer"})
"""Reasons that a little later hold all the more."""

_lingering: Final[set[asyncio.Task[Any]]] = set()
"""Losers that did not leave in time: a loop keeps weak references only."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The settings of one hedged function, and what is known of its calls. Times in seconds."""

    name: str
    tail: Tail
    share: Window
    budget: RetryBudget
    within: float | None
    needs: float
    writes: bool
    pass_on: int


class Race(Generic[R]):
    """One hedged call."""

    __slots__ = (
        "_above",
        "_bar",
        "_call",
        "_deadline",
        "_delay",
        "_ended",
        "_outlasted",
        "_plan",
        "_sight",
        "_since",
        "_taken",
        "_tasks",
        "_withheld",
    )

    def __init__(self, plan: Plan, call: Callable[[], Awaitable[R]], key: str | None) -> None:
        self._plan = plan
        self._call = call
        self._above = Allowance.current()
        self._bar = "no_key" if plan.writes and key is None else None
        self._deadline = Deadline.current()
        if plan.within is not None:
            self._deadline = Deadline.after(plan.within).tighten(self._deadline)
        self._delay = plan.tail.delay()
        self._sight: Sight | None = None
        self._outlasted = False
        self._tasks: list[asyncio.Task[R]] = []
        self._taken = 0.0
        self._since = 0.0
        self._ended: float | None = None
        self._withheld: str | None = None

    async def run(self) -> R:
        """The value of the call that succeeded first.

        Raises:
            DeadlineExceeded: no time is left, not even for a first call.
            TimeoutError: the time was over before one succeeded.
        """
        plan, once = self._plan, inside_unit()
        left = None if once or self._deadline is None else self._deadline.remaining()
        if left is not None and left <= 0:
            raise DeadlineExceeded("no time is left for a call")
        plan.budget.first()
        plan.share.first()
        if once:
            return await self._once()
        try:
            async with asyncio.timeout(left):
                winner = await self._decided()
        except BaseException as error:
            self._learn()
            await _ended(self._tasks)
            if isinstance(error, TimeoutError) and left is not None:
                error.args = (f"{plan.name}: no call succeeded within {left:.3g} s",)
            raise
        self._learn()
        if _succeeded(winner):
            won = winner is not self._tasks[0]
            if won:
                counts.hedges().labels(plan.name, WON).inc()
            plan.budget.succeeded(self._taken if won else 0.0)
            for loser in self._tasks:
                if not loser.done():
                    await _left(loser, plan.name)
                _succeeded(loser)  # of one that failed at the same instant the error is looked at
        return winner.result()

    async def _once(self) -> R:
        """Inside a unit: here and now, and whatever the deadline."""
        self._since = clock.monotonic()
        with self._allowance().scope():
            value = await self._call()
        took = clock.monotonic() - self._since
        self._plan.tail.record(took)
        if self._delay is not None and took > self._delay:
            self._count("unit")
        self._plan.budget.succeeded(0.0)
        return value

    async def _decided(self) -> asyncio.Task[R]:
        """The task whose outcome is that of the call: the first success, or else the first call."""
        self._since = clock.monotonic()
        if self._delay is not None:
            self._sight = self._plan.tail.begin(self._delay)
        self._start()
        first = self._tasks[0]
        first.add_done_callback(self._first_ended)
        if self._delay is None:
            self._withheld = "samples"
        else:
            await self._hedged(first, self._delay)
        while True:
            for task in self._tasks:
                if _succeeded(task):
                    return task
            running = [task for task in self._tasks if not task.done()]
            if not running:
                return first
            await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)

    async def _hedged(self, first: asyncio.Task[R], delay: float) -> None:
        """Wait until the first call has ended, or a second one been sent or refused for good."""
        await asyncio.wait((first,), timeout=delay)
        if first.done():
            return
        self._outlasted = True
        self._saw(slow=True)
        await asyncio.sleep(0)  # let the others that are slow at this instant say so first
        pause = delay
        while not first.done():
            self._withheld = self._refusal(EARLY_PART if pause == delay else 1.0)
            if self._withheld is None:
                self._count(SENT)
                self._start()
            if self._withheld is None or self._withheld in _FINAL:
                return
            await asyncio.wait((first,), timeout=pause)
            pause *= 2

    def _refusal(self, part: float) -> str | None:
        """Why there is to be no second call now; None: it has been paid for. ``part``: of what the
        bound allows, so much is for a call such as this."""
        plan, above = self._plan, self._above
        if self._bar is not None:
            return self._bar
        if plan.tail.slow:
            return "slow"
        needs = max(plan.needs, plan.tail.typical())
        if self._deadline is not None and self._deadline.remaining() < needs:
            return "deadline"
        if above is not None and above.left < 1:
            return "layer"
        if plan.share.available(part) < 1:
            return "share"
        self._taken = plan.budget.take()
        if not self._taken:
            return "budget"
        if not plan.share.take():
            return "share"  # another thread was faster
        if above is not None and not above.spend():
            return "layer"
        return None

    def _start(self) -> None:
        with ExitStack() as stack:
            stack.enter_context(self._allowance().scope())
            if self._deadline is not None:
                stack.enter_context(self._deadline.scope())
            self._tasks.append(asyncio.create_task(self._called(), name=self._plan.name))

    async def _called(self) -> R:
        return await self._call()

    def _allowance(self) -> Allowance:
        """What the calls below may retry: nothing, unless the plan passes some on."""
        most = self._plan.pass_on
        if self._above is not None:
            most = min(most, self._above.left)
        return Allowance(most, passed=True, above=self._above)

    def _first_ended(self, first: asyncio.Task[R]) -> None:
        self._ended = clock.monotonic()
        if not self._outlasted:
            self._saw(slow=False if _succeeded(first) else None)

    def _saw(self, *, slow: bool | None) -> None:
        if self._sight is not None and self._delay is not None:
            self._plan.tail.seen(self._sight, self._delay, slow=slow)

    def _learn(self) -> None:
        """How long the first call took. One that was given up, or failed, after the delay would
        have taken longer still; one that failed before says nothing."""
        if not self._tasks:
            return
        if self._withheld is not None:
            self._count(self._withheld)
        if self._outlasted or _succeeded(self._tasks[0]):
            self._plan.tail.record((self._ended or clock.monotonic()) - self._since)

    def _count(self, outcome: str) -> None:
        counts.hedges().labels(self._plan.name, outcome).inc()


def _succeeded(task: asyncio.Task[Any]) -> bool:
    return task.done() and not task.cancelled() and task.exception() is None


async def _ended(tasks: Sequence[asyncio.Task[Any]]) -> None:
    """Cancel them all, and wait until they are gone, as an await would; hand on more cancels."""
    for task in tasks:
        task.cancel()
    again: asyncio.CancelledError | None = None
    while running := [task for task in tasks if not task.done()]:
        try:
            await asyncio.wait(running)
        except asyncio.CancelledError as error:
            again = error
            for task in running:
                task.cancel()
    for task in tasks:
        _succeeded(task)  # its error has been looked at
    if again is not None:
        raise again


async def _left(loser: asyncio.Task[Any], name: str) -> None:
    """Cancel the loser, and wait a little until it is gone; after that it goes by itself."""
    loser.cancel()
    try:
        await asyncio.wait((loser,), timeout=LOSER_PATIENCE_S)
    finally:
        if not loser.done():
            _lingering.add(loser)
            log.warning("%s: a call that lost goes on after its cancellation", name)
        loser.add_done_callback(_gone)


def _gone(loser: asyncio.Task[Any]) -> None:
    _lingering.discard(loser)
    _succeeded(loser)  # its error has been looked at
