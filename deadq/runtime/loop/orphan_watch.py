"""The end of a child whose supervisor is gone while a handler keeps the loop to itself.

That there is no supervisor any more is heard on the loop, and it is the supervisor that kills a
child which hears nothing. So a thread of its own waits for the same, and sees to it that nobody
who hears nothing outlives it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import threading
import time
from typing import Final

from ... import clock
from ...events import Event, log
from ..ties.board import Page
from ..ties.channel import Channel

ALONE_S: Final = 10.0
"""So long the loop of a child without a supervisor may take to answer, outside of its units."""

_LOOK_S: Final = 0.25
"""How often it is asked."""

_SAY_S: Final = 1.0
"""So long the last line of its log may take."""


class OrphanWatch:
    """Watches one child from within, on whose loop it is made. It ends with the process."""

    def __init__(self, channel: Channel, page: Page) -> None:
        self._channel = channel
        self._page = page
        self._loop = asyncio.get_running_loop()
        self._answered = False

    def start(self) -> None:
        """Watch from now on."""
        threading.Thread(target=self._watch, name="deadq-orphan-watch", daemon=True).start()

    def _watch(self) -> None:
        ends = select.poll()
        ends.register(self._channel.fileno(), 0)  # for no words, which are the loop's to read
        ends.poll()
        waited_s = 0.0  # by the looks: while the whole process stood still, nobody waited
        while waited_s < ALONE_S:
            self._answered = False
            with contextlib.suppress(RuntimeError):  # the loop has been closed
                self._loop.call_soon_threadsafe(self._answer)
            time.sleep(_LOOK_S)
            well = self._answered or clock.monotonic() < self._page.unit_until
            waited_s = 0.0 if well else waited_s + _LOOK_S
        try:
            # aside: what holds up the loop may hold up the log as well
            saying = threading.Thread(target=self._say, daemon=True)
            saying.start()
            saying.join(_SAY_S)
        finally:
            os._exit(1)

    def _answer(self) -> None:
        self._answered = True

    def _say(self) -> None:
        what = "this child ends: the supervisor is gone, and its loop gets no turn"
        log.error("%s: %s for %g s", Event.STUBBORN, what, ALONE_S)
