"""Parks on the server until there may be work, or a message for this child. It never polls.

A parked child has one claim outstanding: it waits on the server behind the blocked pop, and is
run there as soon as a token comes. While it waits, the settler sends no claim.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final, Protocol

from ...clock import ServerClock
from ...errors import StoreUnavailable
from ...events import Event, log
from ...store.park import Parking
from ...store.scripts import Call, Claimed
from ...store.wire import PAUSES
from ..jobs.run import MARK_OF
from ..lease.ledger import Ledger
from .waits import first

LONGEST_S: Final = 60.0
_PARKED_WITHIN_S: Final = 1.0
"""Of the two that say that the child is parked, the later may come so long after the first."""

_DUE_GRACE_S: Final = 0.001
"""A job that falls due is claimed a millisecond late rather than early."""


class Claims(Protocol):
    """What the claimer needs of the settler."""

    parked: bool
    """Whether the child is parked on the server, so that the next claim is the claimer's."""
    parked_at: asyncio.Event
    park_until_ms: int

    def next_claim(self, *, deaf: bool) -> tuple[int, Call[Claimed]]: ...
    async def claimed(self, child: str, number: int, answer: Claimed, since: float) -> None: ...
    def unpark(self) -> None: ...
    def ask(self) -> None: ...


class Claimer:
    """Waits for pushes. ``interrupt`` (job, mark, fence) hears when somebody cancelled a job of
    this child, or another run of it has succeeded; ``recorded`` when a unit for which the job may
    be waiting has ended."""

    def __init__(
        self,
        parking: Parking,
        ledger: Ledger,
        server: ServerClock,
        claims: Claims,
        *,
        interrupt: Callable[[str, str, int], None],
        recorded: Callable[[str, int], None],
    ) -> None:
        self._parking = parking
        self._ledger = ledger
        self._server = server
        self._claims = claims
        self._interrupt = interrupt
        self._recorded = recorded

    async def run(self) -> None:
        """Wait for pushes until cancelled."""
        failures = 0
        self._claims.ask()
        while True:
            try:
                await (self._parked() if self._claims.parked else self._listen())
            except StoreUnavailable as error:
                failures += 1
                log.warning("%s: %s", Event.STORE_AWAY, error)
                await asyncio.sleep(PAUSES.delay(failures))
                # A token may have gone down with the connection, and the claim may have been
                # carried out: claim first, under the same number.
                self._claims.unpark()
                self._claims.ask()
            else:
                failures = 0

    async def _listen(self) -> None:
        """Busy: for messages alone, until the settler's claim has parked this child."""
        listening = asyncio.ensure_future(self._parking.wait(self._ledger.child, LONGEST_S, None))
        try:
            await first(None, asyncio.wait({listening}), self._claims.parked_at.wait())
            if not listening.done():
                # the server has said so here too: if that does not come, nothing ever will
                await asyncio.wait({listening}, timeout=_PARKED_WITHIN_S)
        finally:
            heard = listening.done()
            if not heard:
                listening.cancel()  # this closes the connection
                await asyncio.wait({listening})
        if not heard:
            return
        woken = listening.result()
        if _word(woken.message) == "parked":
            # the claim that parked this child is being answered on the other connection
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_PARKED_WITHIN_S):
                    await self._claims.parked_at.wait()
        elif woken.message is not None:
            self._told(woken.message)

    async def _parked(self) -> None:
        """Free: for messages and tokens, with a claim behind."""
        claims, child = self._claims, self._ledger.child
        number, call = claims.next_claim(deaf=False)
        left = (claims.park_until_ms - self._server.now_ms()) / 1000.0 + _DUE_GRACE_S
        woken = await self._parking.wait(child, min(LONGEST_S, max(0.0, left)), call)
        claims.unpark()
        if woken.message is not None and _word(woken.message) != "token":
            self._told(woken.message)
        if woken.answer is None:
            claims.ask()
        else:
            await claims.claimed(child, number, woken.answer, woken.since)
            await asyncio.sleep(0)  # the handlers start before the next wait is sent

    def _told(self, message: str) -> None:
        word, _, rest = message.partition(" ")
        job, _, fence = rest.partition(" ")
        number = int(fence) if fence.isascii() and fence.isdigit() and len(fence) < 20 else None
        if word in MARK_OF and number is not None:
            self._interrupt(job, MARK_OF[word], number)
        elif word == "unit" and number is not None:
            self._recorded(job, number)
        elif word == "token":
            self._claims.ask()


def _word(message: str | None) -> str:
    """What a message is about; the child that it is for may be named behind it."""
    return (message or "").partition(" ")[0]
