"""What ``deadq work tests.timed_checkout:queue`` loads: the checkout as it is, whose two steps note
in a book when they begin and how they end. They may take as long as the caller waits; the charge
waits for the gate, where a test sets one.
"""

import asyncio
import dataclasses
import os
from pathlib import Path

from tests.servers import wait_until
from tests.shop import Book
from workers.checkout import jobs

queue = jobs.queue
_book = Book(Path(os.environ["CHECKOUT_BOOK"]))
_gate = os.environ.get("CHECKOUT_GATE")
_review, _charge = jobs.review, jobs.charge


async def review(cents):
    _book.note("review")
    try:
        await _review(cents)
    except asyncio.CancelledError:
        _book.note("interrupted")
        raise


def charge(order, cents):
    _book.note("charge")
    if _gate:
        wait_until(Path(_gate).exists, "the gate to open")
    receipt = _charge(order, cents)
    _book.note("charged")
    return receipt


jobs.review, jobs.charge = review, charge
jobs.pay.config = dataclasses.replace(jobs.pay.config, timeout=None)
