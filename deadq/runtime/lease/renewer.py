"""One renewal of leases, for all children of one process: what it says, and what follows from it.

The lease counts from the sending of the last good renewal. A child that cannot be renewed stops
its handlers at 80 % of the lease: then nobody else can be running its jobs yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from ... import clock
from ...clock import ServerClock
from ...store import scripts
from ...store.sync import SyncStore

SAFE: Final = 0.8
"""The part of the lease in which nobody else can be running a child's jobs yet."""

_LAPSE_GRACE_S: Final = 0.005
_SHORTEST_S: Final = 0.01


class Hearers(Protocol):
    """Who is told what a renewal has brought, by the child's id."""

    def renewed(self, child: str, sent: float) -> None:
        """The lease counts from ``sent`` (monotonic s)."""

    def told(self, child: str, job: str, word: str, fence: int) -> None:
        """A job is ``lost``, or somebody wants to ``cancel`` it."""

    def lapsed(self, child: str) -> None:
        """The lease is over: the server no longer knows the child."""

    def deaf(self, child: str) -> None:
        """The server gave out a claim whose answer has not come for a whole interval."""


class Renewer:
    """Renews for one queue, on a connection of its own with short timeouts."""

    def __init__(
        self,
        store: SyncStore,
        server: ServerClock,
        *,
        lease: float,
        retention_ms: int,
        hearers: Hearers,
    ) -> None:
        self._store = store
        self._server = server
        self._retention_ms = retention_ms
        self._hearers = hearers
        self._missing: dict[str, int] = {}
        self.interval = lease / 3
        """Seconds from one renewal to the next."""
        self.again = lease / 20
        """Seconds to the next try after a failure."""
        self._lease_ms = int(lease * 1000)
        self.suspects = 0
        """How many jobs of the queue wait to be run alone, as the last renewal told."""
        self.tokens = 0
        """How many tokens nobody had taken, as the last renewal told; 0 if it got no answer."""

    def renew(self, renewals: Sequence[scripts.Renewal]) -> float:
        """Renew the children's leases; returns the pause to the next renewal (s).

        Raises:
            StoreUnavailable: the server cannot be reached, or refuses.
        """
        self.tokens = 0
        sent = clock.monotonic()
        call = scripts.renew(renewals, lease_ms=self._lease_ms, retention_ms=self._retention_ms)
        answer = self._store.run(call)
        for renewal, renewed in zip(renewals, answer.children, strict=True):
            if renewed.known:
                self._hearers.renewed(renewal.child, sent)
                for job, word in renewed.words.items():
                    self._hearers.told(renewal.child, job, word, renewal.held[job])
                self._compare(renewal, renewed.number)
            else:
                self._hearers.lapsed(renewal.child)
        self._missing = {r.child: self._missing.get(r.child, 0) for r in renewals}
        self.suspects = answer.suspects
        self.tokens = answer.tokens
        if not answer.first_lapse_ms:
            return self.interval
        # somebody else's lease may end earlier than that: be there to sweep it
        lapse_s = (answer.first_lapse_ms - self._server.now_ms()) / 1000
        return max(_SHORTEST_S, min(self.interval, lapse_s + _LAPSE_GRACE_S))

    def _compare(self, renewal: scripts.Renewal, number: int) -> None:
        """The last claim that the server has carried out, against the last one answered here."""
        if number <= renewal.number:
            self._missing[renewal.child] = 0
        elif number == self._missing.get(renewal.child):
            self._missing[renewal.child] = 0
            self._hearers.deaf(renewal.child)
        else:
            self._missing[renewal.child] = number
