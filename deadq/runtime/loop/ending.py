"""How a child on an event loop comes to its end: what it has been told, and what it waits for."""

from __future__ import annotations

import asyncio
import math
from typing import Final

from ... import clock
from ..lease.ledger import Ledger
from .async_runner import AsyncRunner
from .settler import Settler
from .waits import first

_LEAVE_S: Final = 5.0
"""Beyond the grace, so long (s): for handlers to leave, and for a server that is away to come
back."""

_AFTER_UNIT_S: Final = 0.5
"""So long after the last unit its handler may take to leave (s): its supervisor waits no longer."""

_LAST_WORD_S: Final = 1.0
"""How long a child with nothing in hand waits for the answer to its last claim (s)."""

_LOOK_S: Final = 0.05
"""How often it is looked at what is left (s)."""


class Ending:
    """Whether a child is to go, and how soon. It may be told so at any time, and again."""

    def __init__(self, grace: float) -> None:
        self._grace = grace
        self._stop_at = math.inf
        self._hastened = asyncio.Event()
        self.stopping = asyncio.Event()
        """Set when the worker stops."""
        self.leaving = asyncio.Event()
        """Set when somebody else takes this child's place: what runs may run to its end."""

    def stop(self) -> None:
        """Stop gracefully."""
        self._stop_at = min(self._stop_at, clock.monotonic() + self._grace)
        self.stopping.set()

    def hasten(self) -> None:
        """Stop, and interrupt the handlers now."""
        self._stop_at = min(self._stop_at, clock.monotonic())
        self.stopping.set()
        self._hastened.set()

    def patience(self) -> float:
        """Until when it is worth waiting for a server that is away (monotonic s)."""
        return self._stop_at + _LEAVE_S

    async def told(self) -> None:
        """Until it is to go."""
        await first(None, self.stopping.wait(), self.leaving.wait())

    async def pause(self, seconds: float) -> None:
        """So long, or until the worker stops."""
        await first(seconds, self.stopping.wait())

    async def drain(self, settler: Settler, runner: AsyncRunner, ledger: Ledger) -> None:
        """Let handlers end; past the grace interrupt them; report all."""
        settler.stop_claiming()
        idle = settler.idle

        def in_hand() -> bool:
            return not idle.is_set() and bool(runner.runs or ledger.held)

        async def emptied() -> None:
            while in_hand():
                await first(_LOOK_S, idle.wait())

        if self.leaving.is_set() and not self.stopping.is_set():
            await first(None, emptied(), self.stopping.wait())
        self.stop()  # what ended the work need not have been a stop
        await first(self._grace, emptied(), self._hastened.wait())
        if in_hand():
            runner.interrupt_all("stop")
            await first(_LEAVE_S, emptied())
        if runner.in_unit:
            # none is interrupted: each ends at its own limit, and waits for its record till then
            while runner.in_unit:
                await first(_LOOK_S, idle.wait())
            await first(_AFTER_UNIT_S, emptied())
        if not in_hand():
            await first(_LAST_WORD_S, idle.wait())
