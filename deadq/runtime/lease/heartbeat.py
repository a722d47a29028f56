"""Renews the lease of a child that has no supervisor, from a thread: a busy loop costs no lease."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final, Protocol

from ... import clock
from ...errors import DeadqError
from ...events import Event, log
from ...queue import Queue
from ...store.likeness import like, likeness
from ...store.sync import SyncStore
from ...store.wire import Wire
from ..ties.board import Page
from .ledger import Ledger
from .outage import Outage
from .renewer import SAFE, Renewer

_LONGEST_REPLY_S: Final = 1.0


class Lease(Protocol):
    """A child's lease, whoever renews it."""

    @property
    def safe_until(self) -> float:
        """When handlers have to stop unless there is another renewal (monotonic s)."""
        ...

    def renewed(self, child: str, sent: float) -> None:
        """The child was registered by a call sent at ``sent`` (monotonic s): a new lease."""

    def start(self) -> None: ...
    def stop(self) -> None: ...


class SharedLease:
    """A lease that the supervisor renews; both see it on the child's page."""

    def __init__(self, page: Page, lease: float) -> None:
        self._page = page
        self._safe = SAFE * lease

    @property
    def safe_until(self) -> float:
        return self._page.good + self._safe

    def renewed(self, child: str, sent: float) -> None:
        self._page.good = sent

    def start(self) -> None:
        """The supervisor renews already."""

    def stop(self) -> None:
        """The supervisor stops when the child is gone."""


class Heartbeat:
    """Renews three times a lease; the callbacks are called from its thread.

    ``told`` hears of single jobs: ``(job, "lost" | "cancel", fence)``; ``lapsed`` that the lease is
    over; ``deaf`` that the server gave out a claim whose answer has not come for a whole interval.
    """

    def __init__(
        self,
        queue: Queue,
        ledger: Ledger,
        *,
        told: Callable[[str, str, int], None],
        lapsed: Callable[[str], None],
        deaf: Callable[[], None],
    ) -> None:
        lease = queue.config.lease
        self._ledger = ledger
        self._safe = SAFE * lease
        self._told = told
        self._lapsed = lapsed
        self._deaf = deaf
        self._renewer = Renewer(
            renewing_store(queue, lease),
            queue.clock,
            lease=lease,
            retention_ms=queue.config.retention_ms,
            hearers=self,
        )
        self._outage = Outage()
        self._stop = threading.Event()
        self._good = clock.monotonic()
        self._thread = threading.Thread(target=self._run, name="deadq-heartbeat", daemon=True)

    def start(self) -> None:
        """Begin, unless it has begun; the child is registered."""
        if self._thread.ident is None:
            self._thread.start()

    def renewed(self, child: str, sent: float) -> None:
        self._good = sent

    def told(self, child: str, job: str, word: str, fence: int) -> None:
        self._told(job, word, fence)

    def lapsed(self, child: str) -> None:
        self._lapsed(child)

    def deaf(self, child: str) -> None:
        self._deaf()

    @property
    def safe_until(self) -> float:
        return self._good + self._safe

    def stop(self) -> None:
        """Stop renewing; returns when the thread has ended."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        # a lease that somebody else renewed before, and does no longer, may be nearly over
        pause = min(self._renewer.interval, max(0.0, self.safe_until - clock.monotonic()) / 3)
        while not self._stop.wait(pause):
            pause = self._beat()
            left = self.safe_until - clock.monotonic()
            if left <= 0:
                self._lapsed(self._ledger.child)
                pause = self._renewer.interval
            else:
                pause = min(pause, left)

    def _beat(self) -> float:
        """One renewal; returns the pause to the next (s)."""
        renewal = self._ledger.snapshot()
        if not renewal.child:
            self._good = clock.monotonic()  # nothing to lose until the child is registered again
            return self._renewer.interval
        try:
            pause = self._renewer.renew([renewal])
        except DeadqError as error:
            self._outage.failed(error)
        except Exception:  # noqa: BLE001  it is logged
            # whatever it was, a guard that dies in silence is worse
            log.exception("%s", Event.RENEWAL_FAILED)
        else:
            self._outage.over()
            return pause
        return self._renewer.again


def renewing_store(queue: Queue, lease: float, alike: dict[str, Any] | None = None) -> SyncStore:
    """A store for renewals: its waits are short against the lease, except on a client of the user's
    own that has no likeness. With ``alike``, a client's likeness, its connections are such as that
    one has; else they are as the queue's own.

    A call is sent once: the renewer tries again soon anyway, and a reset and a timeout in a row
    must be over before the safe part of the lease is.
    """
    backend = queue.backend
    patience = min(_LONGEST_REPLY_S, lease / 4)
    alike = alike or likeness(backend.given)
    client = like(alike, patience) if alike else backend.sync_client(timeout=patience)
    wire = Wire(queue.name, queue.clock, backend.now)
    return SyncStore(client, wire, own=client is not backend.given_sync, tries=1)
