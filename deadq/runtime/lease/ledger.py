"""What a child holds: kept by the child, read by whoever renews its lease."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Mapping

from ...store.scripts import Renewal
from ..ties.board import Holding, Page, Sheet


class Ledger:
    """The child's id, the number of the last claim answered, and each job held.

    A job stands here from before its claim counts as answered until its finish has been
    acknowledged; in between, a renewal that does not list it would hand it to somebody else.
    With a ``page`` every change is published there, for the supervisor.
    """

    def __init__(self, page: Page | None = None) -> None:
        self._page = page
        self._unpublished = False
        self.child = ""
        self.number = 0
        self.held: dict[str, Holding] = {}

    def begin(self, child: str) -> None:
        """Start afresh under a new id; what was held under the old one is not ours any more."""
        self.held = {}
        self.number = 0
        self.child = child
        self._publish()

    def take(self, number: int, claimed: Mapping[str, Holding]) -> None:
        """A claim has been answered: its jobs are held from now on."""
        self.held.update(claimed)
        self.number = number
        self._publish()

    def holds(self, job: str, fence: int) -> bool:
        """Whether a job is held, from just that claim."""
        holding = self.held.get(job)
        return holding is not None and holding.fence == fence

    def ended(self, job: str, fence: int) -> None:
        """Its handler has left: held until that is reported, however long the server is away, and
        not overdue meanwhile. Published once for all that end in one turn of the loop."""
        if self.holds(job, fence):
            self.held[job] = self.held[job]._replace(until=math.inf)
            if self._page is not None and not self._unpublished:
                self._unpublished = True
                asyncio.get_running_loop().call_soon(self._publish_ended)

    def let_go(self, jobs: Iterable[tuple[str, int]]) -> None:
        """Jobs, each with its fence, that are settled or lost."""
        for job, fence in jobs:
            if self.holds(job, fence):
                del self.held[job]
        self._publish()

    def snapshot(self) -> Renewal:
        """What a renewal carries. Read in this order: a job claimed meanwhile may be listed
        too early, never too late."""
        child, number = self.child, self.number
        return renewal_of(Sheet(child, number, self.held.copy()))

    def _publish_ended(self) -> None:
        if self._unpublished:
            self._publish()

    def _publish(self) -> None:
        self._unpublished = False
        if self._page is not None:
            self._page.publish(Sheet(self.child, self.number, self.held))


def renewal_of(sheet: Sheet) -> Renewal:
    """What is to be renewed for a child."""
    held = {job: holding.fence for job, holding in sheet.held.items()}
    return Renewal(sheet.child, sheet.number, held)
