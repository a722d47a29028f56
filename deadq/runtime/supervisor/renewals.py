"""What a supervisor says to the server for its children: renewals, and what becomes of the jobs
of those that ended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from ... import clock
from ...errors import StoreUnavailable
from ...events import Event, log
from ...job import Departure, Settlement
from ...queue import Queue
from ...store import scripts
from ...store.mailbox import Mailbox
from ..lease.heartbeat import renewing_store
from ..lease.ledger import renewal_of
from ..lease.outage import Outage
from ..lease.renewer import Renewer
from .charge import Charge
from .spawn import Facts

_LOADS_TOO: Final = (
    "queue %s has a client that only your own code can make: the supervisor uses it, with your "
    "module loaded, and what that starts or opens is there before the fork of a child"
)


class Departed(NamedTuple):
    """A child that has ended without a release of its own."""

    child: str
    how: Departure
    settlements: Sequence[Settlement]
    """Of jobs whose end the supervisor decided."""


class Renewals:
    """Renews three times a lease for all children of a crew, in one call."""

    def __init__(
        self, facts: Facts, load: Callable[[], Queue], charges: Callable[[], Sequence[Charge]]
    ) -> None:
        if facts.url is None and facts.likeness is None:
            log.warning(_LOADS_TOO, facts.name)
            queue = load()
        else:
            queue = Queue(facts.name, capacity=1, url=facts.url)
        self._queue = queue
        self._retention_ms = facts.retention_ms
        self._charges = charges
        self._store = renewing_store(queue, facts.lease, facts.likeness)
        self._renewer = Renewer(
            self._store,
            queue.clock,
            lease=facts.lease,
            retention_ms=facts.retention_ms,
            hearers=self,
        )
        self._departed: list[Departed] = []
        self._outage = Outage()
        self.next_at = clock.monotonic() + self._renewer.interval
        """When to renew next (monotonic s)."""
        self.last_good: float | None = None
        """When the last good renewal was sent (monotonic s)."""

    @property
    def away(self) -> bool:
        """Whether the server did not answer last."""
        return self._outage.failures > 0

    @property
    def suspects(self) -> int:
        """How many jobs wait to be run alone."""
        return self._renewer.suspects

    @property
    def tokens(self) -> int:
        """How many tokens nobody had taken, as the last renewal told; 0 if it got no answer."""
        return self._renewer.tokens

    @property
    def interval(self) -> float:
        """Seconds from one good renewal to the next, at most."""
        return self._renewer.interval

    def mailbox(self, post: str) -> Mailbox:
        """A blocked connection of its own."""
        return Mailbox(self._store.client, self._queue.name, post)

    def beat(self) -> None:
        """Renew, and hand back what is still to be handed back."""
        renewals = [renewal_of(sheet) for c in self._charges() if (sheet := c.sheet()).child]
        sent = clock.monotonic()
        try:
            self._hand_back()
            pause = self._renewer.renew(renewals)
        except StoreUnavailable as error:
            self._outage.failed(error)
            pause = self._renewer.again
        else:
            self._outage.over()
            self.last_good = sent
        self.next_at = clock.monotonic() + pause

    def soon(self) -> None:
        """Renew at the next opportunity: that repeats tokens that were lost."""
        self.next_at = 0.0

    def departed(self, departed: Departed) -> None:
        """Hand a dead child's jobs back at once, or as soon as the server answers."""
        self._departed.append(departed)
        if self.away:
            return  # to wait for it once more would keep everything else waiting
        try:
            self._hand_back()
        except StoreUnavailable as error:
            log.warning("%s: %s", Event.STORE_AWAY, error)

    def _hand_back(self) -> None:
        while self._departed:
            child, how, settlements = self._departed[0]
            if settlements:
                self._store.run(scripts.finish(child, settlements, retention_ms=self._retention_ms))
            self._renewer.suspects = self._store.run(
                scripts.release(child, retention_ms=self._retention_ms, how=how)
            )
            del self._departed[0]

    def abandon(self) -> None:
        """In a forked child: these connections are the supervisor's."""
        self._store.abandon()

    def close(self) -> None:
        """Close the connections."""
        self._store.close()
        self._queue.close()

    # What a renewal has brought.

    def renewed(self, child: str, sent: float) -> None:
        for charge in self._of(child):
            charge.page.good = sent

    def told(self, child: str, job: str, word: str, fence: int) -> None:
        for charge in self._of(child):
            charge.channel.send(word, job, fence)

    def lapsed(self, child: str) -> None:
        for charge in self._of(child):
            charge.channel.send("lapsed", child)

    def deaf(self, child: str) -> None:
        for charge in self._of(child):
            charge.channel.send("deaf")

    def _of(self, child: str) -> list[Charge]:
        """The charge that has this id now; a new one may have been given meanwhile."""
        return [charge for charge in self._charges() if charge.sheet().child == child]
