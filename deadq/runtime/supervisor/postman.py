"""Listens for the children of the process runner, which have no connection to wait on.

A message to one of them goes on to it. A token of the queue goes to one of them that is parked;
the wait includes tokens only while there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from ... import clock
from ...errors import StoreUnavailable
from ...events import Event, log
from ...store.mailbox import WAIT_S, Mailbox
from ...store.wire import PAUSES
from .charge import Charge

_GRACE_S: Final = 5.0
"""How much later than asked the server may answer before the connection counts as dead."""


class Postman:
    """One blocked connection. ``sweep`` asks for a renewal, which repeats tokens that were lost;
    ``interval`` is that of renewals (s)."""

    def __init__(
        self,
        mailbox: Mailbox,
        charges: Callable[[], Sequence[Charge]],
        *,
        sweep: Callable[[], None],
        interval: float,
    ) -> None:
        self._mailbox = mailbox
        self._charges = charges
        self._sweep = sweep
        self._interval = interval
        self._failures = 0
        self._parked: list[str] = []
        """Children, the one that has been parked longest first."""
        self._passed_over: dict[tuple[str, int], float] = {}
        """Children that were free while tokens lay about, with the number of their last claim, and
        since when (monotonic s)."""
        self.waiting = False
        """Whether there is a connection that a selector must watch."""
        self.broken = 0
        """How many connections have broken: another one may have the number of the one before."""
        self.next_at = 0.0
        """When to ask, or to doubt that the answer will come (monotonic s)."""

    def fileno(self) -> int:
        """For a selector."""
        return self._mailbox.fileno()

    def tick(self) -> None:
        """Begin to wait, if nothing is waited for; wait anew where an answer is overdue."""
        if self.waiting:
            self._doubt()
        self.ask()

    def renewed(self, at: float, *, tokens: int) -> None:
        """A renewal that was due ``at`` (monotonic s) has seen so many tokens that lie about.

        In a worker that is busy they may: nobody listens for them. But a free child is parked, and
        takes one. If it does not for a whole interval, the line is dead: either the token came on
        it, or the word that the child is parked.
        """
        sheets = [charge.sheet() for charge in self._charges()] if tokens else []
        self._passed_over = {
            (sheet.child, sheet.number): self._passed_over.get((sheet.child, sheet.number), at)
            for sheet in sheets
            if sheet.child and not sheet.held
        }
        if any(since + self._interval <= at for since in self._passed_over.values()):
            self._passed_over = {}
            self._doubt()

    def _doubt(self) -> None:
        """The connection may be dead and not show it: take another one. As what was said on it
        may have been lost, every child that is free looks for itself."""
        self.waiting = False
        self.next_at = 0.0
        self.broken += 1
        self._mailbox.close()
        for charge in self._charges():
            if not charge.sheet().held:
                charge.channel.send("token")

    def ask(self) -> None:
        """Begin to wait."""
        try:
            self._mailbox.ask(tokens=bool(self._still_parked()))
        except StoreUnavailable as error:
            self._failed(error)
        else:
            self.waiting = True
            self.next_at = clock.monotonic() + WAIT_S + _GRACE_S

    def hear(self) -> None:
        """Something has come: pass it on."""
        self.waiting = False
        self.next_at = 0.0
        try:
            message = self._mailbox.answer()
        except StoreUnavailable as error:
            self._failed(error)
            return
        if self._failures:
            self._failures = 0
            self._wake_all()  # a token may have gone with the connection
        if message == "token":
            self._hand_on()
        elif message is not None:
            self._deliver(*message.split(" "))

    def abandon(self) -> None:
        """In a forked child: the connection is the supervisor's."""
        self._mailbox.close()

    close = abandon

    def _failed(self, error: StoreUnavailable) -> None:
        if not self._failures:
            log.warning("%s: %s", Event.STORE_AWAY, error)
        self._failures += 1
        self.broken += 1
        self.next_at = clock.monotonic() + PAUSES.delay(self._failures)

    def _deliver(self, word: str, subject: str = "", fence: str = "") -> None:
        if word == "parked":
            if subject in self._parked:
                self._parked.remove(subject)
            self._parked.append(subject)
        elif word == "token":
            self._wake(subject)
        elif word in ("cancel", "outrun", "unit") and fence.isascii() and fence.isdigit():
            for charge in self._charges():
                if subject in charge.sheet().held:
                    charge.channel.send(word, subject, fence)

    def _still_parked(self) -> list[str]:
        """Of the children that have been parked those that have neither gone nor a new id."""
        living = {charge.sheet().child for charge in self._charges()}
        self._parked = [child for child in self._parked if child in living]
        return self._parked

    def _hand_on(self) -> None:
        """A token of the queue: for the first child that is really free."""
        busy = {c.sheet().child for c in self._charges() if c.sheet().held}
        free = [child for child in self._still_parked() if child not in busy]
        if not any(self._wake(child) for child in free):
            # one that has just been parked may not show it on its page yet; those that do run a
            # job claim after it anyway, and the token is for another worker
            self._wake_all()
            self._sweep()

    def _wake(self, child: str) -> bool:
        """Whether it is there to hear."""
        self._parked = [parked for parked in self._parked if parked != child]
        charges = [charge for charge in self._charges() if charge.sheet().child == child]
        for charge in charges:
            charge.channel.send("token")
        return any(not charge.channel.closed for charge in charges)

    def _wake_all(self) -> None:
        for child in list(self._parked):
            self._wake(child)
