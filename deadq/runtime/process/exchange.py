"""What a child of the process runner says to the server: one call at a time, over one connection.

A finish and the next claim share a round trip. What gets no reply is said anew, the claim under
its number: it gives the same job if it was carried out, and wants none otherwise once the child has
been told to go, for the supervisor's words are heard meanwhile.
"""

from __future__ import annotations

import contextlib
import math
import secrets
from collections.abc import Callable
from typing import Final, TypeVar

from ... import clock
from ...errors import StoreUnavailable
from ...events import Event, log
from ...job import Claim, Outcome, Settlement
from ...queue import Queue
from ...store import scripts
from ...store.sync import SyncStore
from ...store.wire import Wire
from ..insist import HOPELESS, insist, until
from ..jobs.run import SyncRun
from ..jobs.said import say_finished
from ..lease.heartbeat import renewing_store
from ..lease.ledger import renewal_of
from ..lease.registration import registration
from ..lease.renewer import SAFE, Renewer
from ..ties.board import Holding, Page, Sheet
from ..ties.channel import Channel
from .hearing import Hearing

T = TypeVar("T")

_AWAY_S: Final = 5.0
"""Beyond the grace, a stopping child waits so long for a server that is away."""

_DUE_GRACE_S: Final = 0.001
"""A job that falls due is claimed a millisecond late rather than early."""

_LOOKS: Final = 20
"""So often in a lease a renewal is looked for, after nobody renewed in time."""


class _Alone:
    """Hears of the renewals of a child that has no supervisor. It is about to leave in any case,
    and nothing interrupts the unit for which it stays."""

    def __init__(self, page: Page) -> None:
        self._page = page

    def renewed(self, child: str, sent: float) -> None:
        self._page.good = sent

    def told(self, child: str, job: str, word: str, fence: int) -> None: ...
    def lapsed(self, child: str) -> None: ...
    def deaf(self, child: str) -> None: ...


class Exchange:
    """One child's id and dealings. Instants are monotonic s."""

    def __init__(
        self, queue: Queue, post: str, page: Page, channel: Channel, hearing: Hearing, grace: float
    ) -> None:
        self._queue = queue
        self._config = queue.config
        self._retention_ms = queue.config.retention_ms
        self._safe = SAFE * queue.config.lease
        self._tasks = tuple(queue.tasks)
        self._post = post
        self._page = page
        self._channel = channel
        self._hearing = hearing
        self._grace = grace
        self._leave_by = math.inf
        self._held: dict[str, Holding] = {}
        self._parked_until_ms = 0
        self.number = 0
        """Of the last claim answered."""
        self.store: SyncStore

    @property
    def fit(self) -> bool:
        """Whether a job that is claimed now may be started."""
        hearing = self._hearing
        return bool(hearing.child) and not hearing.lapsed and not self._overdue

    @property
    def _overdue(self) -> bool:
        return clock.monotonic() >= self._page.good + self._safe

    def patience(self) -> float:
        """Until when it is worth waiting for a server that is away."""
        hearing = self._hearing
        if not hearing.going:
            return math.inf
        if hearing.stop_at < math.inf:
            return hearing.stop_at + _AWAY_S
        self._leave_by = min(self._leave_by, clock.monotonic() + self._grace + _AWAY_S)
        return self._leave_by

    # Coming and going.

    def connect(self) -> bool:
        """Reach the server, and see that it is fit; False when told to stop before it answered.

        Raises:
            UnsafeServer, AccessRefused: waiting would not mend it.
        """
        backend = self._queue.backend
        if self._until_answered(backend.sync) is None:
            return False
        client = backend.sync_client()  # apart from what handlers use, and interrupts may break
        wire = Wire(self._queue.name, self._queue.clock, backend.now)
        self.store = SyncStore(client, wire, own=client is not backend.given_sync)
        return True

    def register(self) -> bool:
        """Take up a new id; False when told to stop before the server answered."""
        hearing, page = self._hearing, self._page
        # A supervisor that has stopped renewing may be stopped itself: then what is claimed now
        # would be lost in its turn, and charged for it. Its next renewal shows that it is there.
        unattended = page.good > 0 and self._overdue and not hearing.lapsed
        child = f"{self._post}.{secrets.token_hex(8)}"
        call = registration(self._queue, child, 1)

        def send() -> float:
            sent = clock.monotonic()
            self.store.run(call)
            return sent

        sent = self._until_answered(send)
        if sent is None:
            return False
        page.good = sent
        hearing.child, hearing.lapsed, self.number = child, False, 0
        self.hold(None)
        self._channel.send("registered", child)
        log.info("%s: child %s, 1 slot", Event.REGISTERED, child)
        while unattended and page.good <= sent and not hearing.going and not hearing.lapsed:
            hearing.wait(self._config.lease / _LOOKS)
        return True

    def release(self) -> None:
        """Give the id up. Where the server is away it stays on the page, with what is held: the
        supervisor sees to it."""
        child = self._hearing.child
        if child:
            with contextlib.suppress(StoreUnavailable):
                self.store.run(scripts.release(child, retention_ms=self._retention_ms))
                self._hearing.child = ""
                self.hold(None)
            log.info("%s: child %s", Event.STOPPED, child)

    def close(self) -> None:
        """Close the connection."""
        if hasattr(self, "store"):
            self.store.close()

    def _until_answered(self, attempt: Callable[[], T]) -> T | None:
        """What ``attempt`` returns in the end; None when told to go before."""
        hearing = self._hearing
        if hearing.going:
            return None
        try:
            return insist(
                attempt,
                hearing.wait,
                lambda error: not hearing.going and not isinstance(error, HOPELESS),
            )
        except HOPELESS:
            raise
        except StoreUnavailable:
            return None

    # Jobs.

    def hold(self, run: SyncRun | None, *, ended: bool = False) -> None:
        """Publish what is in hand: before a handler starts, when it has ``ended`` and is to be
        reported, and once nothing is."""
        self._held = {}
        if run is not None:
            claim, until = run.claim, math.inf if ended else run.until
            self._held[claim.id] = Holding(claim.fence, until, run.why, run.since)
        self._page.publish(self._sheet)

    @property
    def _sheet(self) -> Sheet:
        return Sheet(self._hearing.child, self.number, self._held)

    def next(self, report: Settlement | None) -> tuple[Claim | None, float]:
        """Report what has ended, and claim unless this child is going; with when it was asked.

        Raises:
            StoreUnavailable: the server is away for longer than a child that is going waits.
        """
        hearing, number = self._hearing, self.number + 1
        child, asked, since = hearing.child, False, 0.0

        def say() -> tuple[str, scripts.Claimed | None]:
            nonlocal asked, since
            claiming = not hearing.going and self.fit
            # a claim that may have been carried out is asked for once more even when nothing is
            # wanted any more: what it was given goes back
            asked = asked or claiming
            if report is None and not asked:
                return "", None
            hearing.token = False  # what comes from now on may be about this claim
            since = clock.monotonic()
            return self._say(child, report, number if asked else 0, claiming)

        word, answer = insist(say, hearing.wait, until(self.patience))
        if report is not None:
            say_finished(report, word)
        return (None if answer is None else self._claimed(answer, number)), since

    def untie(self, run: SyncRun) -> Outcome | None:
        """How a tied job ends instead of starting, lest its twin in another queue run too; None:
        it may start."""
        call = scripts.untie(run.claim, self._queue.name, retention_ms=self._retention_ms)
        worth = until(lambda: min(run.deadline.monotonic, self.patience()))
        try:
            may = insist(lambda: self.store.run(call), self._hearing.wait, worth)
        except StoreUnavailable:
            return Outcome.RELEASE
        return None if may else Outcome.YIELDED

    def park(self) -> None:
        """Wait until there may be work, if the last claim left this child parked."""
        hearing = self._hearing
        left = (self._parked_until_ms - self._queue.clock.now_ms()) / 1000
        until = clock.monotonic() + left + _DUE_GRACE_S
        while not (hearing.token or hearing.going or hearing.lapsed):
            left = until - clock.monotonic()
            if left <= 0:
                return
            hearing.wait(left)

    def renewal(self) -> Callable[[], float]:
        """A function that renews this child's own lease and returns the pause to the next (s).

        It has a connection of its own: it is called in the midst of what the other one does.
        """
        renewer = Renewer(
            renewing_store(self._queue, self._config.lease),
            self._queue.clock,
            lease=self._config.lease,
            retention_ms=self._retention_ms,
            hearers=_Alone(self._page),
        )

        def renew() -> float:
            try:
                return renewer.renew([renewal_of(self._sheet)])
            except StoreUnavailable:
                return renewer.again

        return renew

    def _say(
        self, child: str, report: Settlement | None, number: int, claiming: bool
    ) -> tuple[str, scripts.Claimed | None]:
        """One round trip; what became of the report, and the answer to the claim."""
        if report is None:
            return "", self.store.run(self._claim(child, number, claiming=claiming))
        if not number:
            call = scripts.finish(child, (report,), retention_ms=self._retention_ms)
            return self.store.run(call)[0], None
        claim = self._claim(child, number, claiming=claiming)
        (word,), answer = self.store.run(scripts.exchange((report,), claim))
        return word, answer

    def _claim(self, child: str, number: int, *, claiming: bool) -> scripts.Call[scripts.Claimed]:
        return scripts.claim(
            child,
            number,
            int(claiming),
            retention_ms=self._retention_ms,
            park=claiming,
            deaf=True,
            tasks=self._tasks,
        )

    def _claimed(self, answer: scripts.Claimed, number: int) -> Claim | None:
        if not answer.known:
            self._hearing.child = ""
            return None
        self.number = number
        self._parked_until_ms = answer.park_until_ms
        if not answer.claims:
            self.hold(None)
            return None
        return answer.claims[0]
