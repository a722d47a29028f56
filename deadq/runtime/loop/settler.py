"""Finishing, and claiming while the child is not parked; one call in flight, and one claim.

Outcomes that gather while a call is under way go together in the next one, and the claim for
the slots they freed goes with them. A call whose reply is lost is sent again to the letter.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from ... import clock
from ...job import Claim, Outcome, Settlement
from ...store import scripts
from ...store.aio import AsyncStore
from ..insist import ainsist
from ..jobs.said import say_finished, say_started
from ..lease.ledger import Ledger
from ..ties.board import Holding

T = TypeVar("T")

_BATCH: Final = 200
_CLAIMS: Final = 500
"""Most outcomes, and most claims, in one call."""


class Settler:
    """Reports outcomes and claims what fits into the free slots.

    ``take`` is given each claim with the monotonic second at which it was asked for, and says until
    when it may run; then ``start`` starts it. ``anew`` registers the child again when the server
    no longer knows it. ``worn`` is called once ``most`` jobs have been started: then no more are
    claimed.
    """

    def __init__(
        self,
        store: AsyncStore,
        ledger: Ledger,
        *,
        slots: int,
        retention_ms: int,
        tasks: Sequence[str],
        take: Callable[[Claim, float], Holding],
        start: Callable[[Claim], None],
        anew: Callable[[], Awaitable[None]],
        most: int | None = None,
        worn: Callable[[], None] | None = None,
    ) -> None:
        self._store = store
        self._ledger = ledger
        self._slots = slots
        self._retention_ms = retention_ms
        self._tasks = tasks
        self._take = take
        self._start = start
        self._anew = anew
        self._left = math.inf if most is None else most
        self._worn = worn
        self._outbox: list[Settlement] = []
        self._due = asyncio.Event()
        self._claim_asked = False
        self._busy = 0
        self.claiming = True
        self.parked = False
        """Whether the child is parked on the server: then the next claim is the claimer's."""
        self.parked_at = asyncio.Event()
        self.park_until_ms = 0
        self.idle = asyncio.Event()
        """Set while no slot is busy and nothing waits to be reported."""
        self.idle.set()

    def settle(self, settlement: Settlement | None) -> None:
        """Take in an outcome (None: nothing to report), and free its slot."""
        self._busy -= 1
        if settlement is None:
            self._claim_asked = True  # no report goes out that a claim could go with
        else:
            self._outbox.append(settlement)
        self._due.set()

    def ask(self) -> None:
        """There may be work: claim for the free slots."""
        self._claim_asked = True
        self._due.set()

    def unpark(self) -> None:
        """The child is not parked any more, or nobody knows: the next claim is the settler's."""
        self.parked = False
        self.parked_at.clear()

    def stop_claiming(self) -> None:
        """Claim nothing more. A claim that is outstanding is asked for once again, for nothing
        new: what it was given goes back, and if it was not carried out it never will be."""
        self.claiming = False
        self.unpark()
        self.idle.clear()
        self.ask()

    async def run(self) -> None:
        """Work until cancelled; between two calls it sleeps."""
        while True:
            await self._due.wait()
            self._due.clear()
            while self._outbox or (self._claim_asked and not self.parked):
                await self._exchange()
            if not self._busy and not self._outbox:
                self.idle.set()

    def next_claim(
        self, reported: Sequence[Settlement] = (), *, deaf: bool
    ) -> tuple[int, scripts.Call[scripts.Claimed]]:
        """The claim that comes next, for all free slots, and its number.

        ``reported`` goes with it, and before it.
        """
        number = self._ledger.number + 1
        want = min(_CLAIMS, self._free(reported), self._left) if self.claiming else 0
        call = scripts.claim(
            self._ledger.child,
            number,
            int(want),
            retention_ms=self._retention_ms,
            park=self.claiming,
            deaf=deaf,
            tasks=self._tasks,
        )
        return number, call

    def _free(self, reported: Sequence[Settlement] = ()) -> int:
        """Slots for which jobs may be claimed, once ``reported`` has been.

        What runs takes one up, under whichever id it was claimed; so does what is held, until its
        report is acknowledged: a child never holds more than there is room for on its page.
        """
        ledger = self._ledger
        gone = sum(ledger.holds(settlement.id, settlement.fence) for settlement in reported)
        return self._slots - max(self._busy, len(ledger.held) - gone)

    async def _exchange(self) -> None:
        """One round trip: what has ended, and a claim for what is free."""
        child, batch = self._ledger.child, self._outbox[:_BATCH]
        del self._outbox[:_BATCH]
        number, claim = 0, None
        if not self.parked and (self.claiming or self._claim_asked):
            self._claim_asked = False
            number, claim = self.next_claim(batch, deaf=True)
        since = clock.monotonic()
        try:
            words, answer = await self._say(child, batch, claim)
        except asyncio.CancelledError:
            self._outbox[:0] = batch  # whether it arrived or not, it may be reported again
            raise
        if batch:
            self._finished(child, batch, words)
        if answer is not None:
            await self.claimed(child, number, answer, since)

    async def _say(
        self, child: str, batch: list[Settlement], claim: scripts.Call[scripts.Claimed] | None
    ) -> tuple[list[str], scripts.Claimed | None]:
        if claim is None:
            finish = scripts.finish(child, batch, retention_ms=self._retention_ms)
            return await self._persist(finish), None
        if not batch:
            return [], await self._persist(claim)
        return await self._persist(scripts.exchange(batch, claim))

    def _finished(self, child: str, batch: list[Settlement], words: list[str]) -> None:
        if child == self._ledger.child:
            self._ledger.let_go([(settlement.id, settlement.fence) for settlement in batch])
        for settlement, word in zip(batch, words, strict=True):
            say_finished(settlement, word)

    async def claimed(self, child: str, number: int, answer: scripts.Claimed, since: float) -> None:
        """Take in the answer to a claim."""
        ledger = self._ledger
        if child != ledger.child:
            self.ask()  # the lease lapsed meanwhile: these jobs go back by themselves
            return
        if not answer.known:
            await self._anew()
            self.ask()
            return
        take = self._take if self.claiming else _only_hold
        ledger.take(number, {claim.id: take(claim, since) for claim in answer.claims})
        self.parked = answer.park_until_ms > 0 and self.claiming
        self.park_until_ms = answer.park_until_ms
        if self.parked:
            self.parked_at.set()
        else:
            self.parked_at.clear()
        for claim in answer.claims:
            self._begin(claim)
        if not self.parked and self.claiming and (answer.more or self._busy < self._slots):
            self.ask()

    def _begin(self, claim: Claim) -> None:
        if not self.claiming:
            self._outbox.append(
                Settlement(
                    claim.id, claim.fence, Outcome.RELEASE, 0, cut=False, delay_ms=0, blob=b""
                )
            )
            self._due.set()
            return
        say_started(claim)
        self.idle.clear()
        self._busy += 1
        self._start(claim)
        self._left -= 1
        if self._left <= 0 and self._worn is not None:
            self.stop_claiming()
            self._worn()

    async def _persist(self, call: scripts.Call[T]) -> T:
        """Send until answered: every call may be repeated, and an outcome must not be lost."""
        return await ainsist(lambda: self._store.run_here(call), asyncio.sleep)


def _only_hold(claim: Claim, since: float) -> Holding:
    """Of a claim that goes back at once."""
    return Holding(claim.fence, math.inf, "cut", since)
