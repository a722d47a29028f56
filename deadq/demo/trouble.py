"""What is done to the workers and the bank, at its time."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import time
from collections.abc import Callable, Sequence
from typing import Final

from . import bank
from .books import payments_late, reports_late
from .scenes import Cause, Span, Timed
from .stage import FAR, LINE, WORKER, Stage

SLOWER: Final = 5
"""How many times as long the slow bank takes."""
KILLED: Final = f"{WORKER} 1"

LEAD_S: Final = 1.0
"""How long a scene goes on before somebody dies: what was before must be seen to be over (s)."""
LEAD_SHARE: Final = 0.36
"""The same, as a share of the scene."""
RESTART_S: Final = 1.0
"""How long the killed worker is away before it is started again (s)."""
STILL_S: Final = 2.0
"""How long the other one's machine stands still (s): its lease lapses, its jobs are given away, and
the payments that it was about to make are begun anew by others. Not so long that its supervisor
must hold a payment to hang, and kill the process that is in it."""
DRAIN_S: Final = 0.2
"""Its network stands still so much before itself (s): what it says meanwhile arrives late."""

_TRIES: Final = 3
_HEARD_S: Final = 0.4
"""So long after it goes on, all that it had to say has been said (s)."""
_MOMENT_WITHIN_S: Final = 3.0
_LOOK_EVERY_S: Final = 0.005
_PAID_AGO_S: Final = (0.015, 0.050)
_PAYING_AGO_S: Final = (0.010, 0.100)
"""How long ago a payment was made whose job is about to end, or was begun that will go on (s)."""
_BUSY = (
    "SELECT sum(what = 'capture' AND at BETWEEN ? AND ?),"
    " sum(what = 'authorize' AND at BETWEEN ? AND ?)"
    " FROM (SELECT * FROM asked ORDER BY rowid DESC LIMIT 50) WHERE teller = ?"
)


class Troubles:
    """Carries out what the scenes have in store, and notes from when to when it lasted."""

    def __init__(self, stage: Stage, begin: float, tell: Callable[[str], None]) -> None:
        self._stage = stage
        self._begin = begin
        self._tell = tell
        self.spans: dict[str, Span] = {}

    async def all(self, plan: Sequence[Timed]) -> None:
        """Every scene's, one after the other."""
        for timed in plan:
            await self._until(timed.begins)
            match timed.scene.cause:
                case Cause.SURGE:
                    self.spans[timed.scene.name] = Span(timed.begins, timed.ends)
                case Cause.DEATH:
                    await self._death(timed)
                case Cause.SLOW_BANK:
                    await self._slow_bank(timed)

    async def _death(self, timed: Timed) -> None:
        stage = self._stage
        await self._until(timed.begins + max(LEAD_S, LEAD_SHARE * timed.seconds))
        began = self._now()
        stage.kill(KILLED)
        self._tell(f"{KILLED} is killed with -9")
        again = asyncio.create_task(self._start_again())
        try:
            for _ in range(_TRIES):
                since = time.time()
                await self._stand_still()
                ended = self._now()
                if await self._came_late(since):
                    break
            await again
        finally:
            again.cancel()
        self.spans[timed.scene.name] = Span(began, ended)

    async def _stand_still(self) -> None:
        stage = self._stage
        await self._amid_work()
        stage.freeze(LINE)
        try:
            await asyncio.sleep(DRAIN_S)
            stage.freeze(FAR)
            self._tell(f"the machine of {FAR} stands still for {STILL_S:g} s")
            await asyncio.sleep(STILL_S)
        finally:
            stage.thaw(LINE)
            stage.thaw(FAR)
        self._tell(f"{FAR} goes on, its jobs given to others meanwhile")

    async def _came_late(self, since: float) -> bool:
        """Whether it has paid, and reported, what was others' by then: if it was in no such moment
        after all, nothing was shown, and it is to be tried again."""
        await asyncio.sleep(_HEARD_S)
        stage = self._stage
        with contextlib.closing(bank.open_ledger(stage.ledger)) as ledger:
            paid = payments_late(ledger, FAR, since)
        return bool(paid and reports_late(stage.worker_logs, stage.log(FAR)))

    async def _start_again(self) -> None:
        await asyncio.sleep(RESTART_S)
        self._stage.start_again(KILLED)
        self._tell(f"{KILLED} is started again")

    async def _amid_work(self) -> None:
        """A moment at which the far worker has payments to make, and results to report."""
        until = self._now() + _MOMENT_WITHIN_S
        with contextlib.closing(bank.open_ledger(self._stage.ledger)) as ledger:
            while not busy(ledger):
                if self._now() > until:
                    return
                await asyncio.sleep(_LOOK_EVERY_S)

    async def _slow_bank(self, timed: Timed) -> None:
        began = self._now()
        with bank.Teller(self._stage.bank) as teller:
            teller.pace(SLOWER * bank.USUAL_S)
            self._tell(f"the bank takes {SLOWER} times as long")
            await self._until(timed.ends)
            teller.pace(bank.USUAL_S)
        self._tell("the bank is as fast as ever")
        self.spans[timed.scene.name] = Span(began, self._now())

    def _now(self) -> float:
        return time.perf_counter() - self._begin

    async def _until(self, at: float) -> None:
        await asyncio.sleep(max(0.0, at - self._now()))


def busy(ledger: sqlite3.Connection) -> bool:
    """Whether the far worker has payments to make, and results to report."""
    now = time.time()
    ago = [now - s for pair in (_PAID_AGO_S, _PAYING_AGO_S) for s in reversed(pair)]
    paid, paying = ledger.execute(_BUSY, (*ago, FAR)).fetchone()
    return bool(paid and paying)
