"""What a child holds, and how it says so on its page."""

import asyncio
import math

from deadq.runtime.lease.ledger import Ledger
from deadq.runtime.ties.board import Holding, Page

SLOTS = 4


def claimed(count, first=0):
    """Jobs with the longest of everything, as a claim hands them out."""
    numbers = range(first, first + count)
    return {f"{n:032x}": Holding(2**62 + n, 1e6 + n, "timeout", 1e6) for n in numbers}


def begun():
    page = Page(SLOTS)
    ledger = Ledger(page)
    ledger.begin("f" * 33)
    return ledger, page


def test_every_slot_has_room_on_the_page():
    ledger, page = begun()
    jobs = claimed(SLOTS)
    ledger.take(2**62, jobs)
    assert page.read() == ("f" * 33, 2**62, jobs)


def test_what_does_not_fit_leaves_the_page_as_it_was(caplog):
    """Then a renewal carries the number of a claim before that of the jobs it does not list."""
    ledger, page = begun()
    jobs = claimed(SLOTS)
    ledger.take(1, jobs)
    ledger.take(2, claimed(20, first=SLOTS))
    assert page.read() == ("f" * 33, 1, jobs)
    assert "no page for 24 jobs" in caplog.text
    ledger.let_go([(job, holding.fence) for job, holding in claimed(20).items()])
    assert page.read() == ("f" * 33, 2, claimed(SLOTS, first=20))


def test_a_job_whose_handler_has_left_is_held_and_never_overdue():
    async def main():
        ledger, page = begun()
        (job, holding), *rest = claimed(2).items()
        ledger.take(1, dict([(job, holding), *rest]))
        ledger.ended(job, holding.fence - 1)  # another claim's
        await asyncio.sleep(0)
        assert page.read().held[job] == holding
        ledger.ended(job, holding.fence)
        await asyncio.sleep(0)
        assert page.read().held == {job: holding._replace(until=math.inf), **dict(rest)}
        assert ledger.snapshot().held[job] == holding.fence

    asyncio.run(main())
