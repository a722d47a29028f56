"""The payment queue: what the web app and every worker import.

    deadq work workers.checkout.jobs:queue --concurrency 16

The review may be interrupted at any moment, as it changes nothing. The charge is a unit: it
completes or never starts, and a later attempt gets its recorded result.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from contextlib import closing
from typing import Final, TypedDict

from deadq import Queue, current_job

LEDGER: Final = os.environ.get("CHECKOUT_LEDGER", "checkout.sqlite")
REVIEW_S: Final = float(os.environ.get("CHECKOUT_REVIEW_S", "0.05"))
MOST_CENTS: Final = 1_000_000


class Receipt(TypedDict):
    """What the customer gets, once."""

    order: str
    cents: int
    charge: str


class DeclinedError(Exception):
    """The payment will not be made, however often it is asked for."""


queue = Queue("checkout", capacity=64)


@queue.task(within=2.0, timeout=1.5, retries=2, retry_on=(sqlite3.OperationalError,))
async def pay(order: str, cents: int) -> Receipt:
    """Review an order, then charge it."""
    await review(cents)
    receipt: Receipt = await current_job().unit("charge", charge, order, cents, needs=0.1)
    return receipt


async def review(cents: int) -> None:
    """Ask the risk department, which takes its time."""
    await asyncio.sleep(REVIEW_S)
    if cents > MOST_CENTS:
        msg = f"{cents} cents are more than we take"
        raise DeclinedError(msg)


def charge(order: str, cents: int) -> Receipt:
    """The effect: one row. A crash between effect and record lets it run again, under the same
    key, by which the ledger can tell."""
    key = current_job().unit_key("charge")
    with closing(sqlite3.connect(LEDGER, timeout=1.0)) as ledger, ledger:
        ledger.execute(
            "CREATE TABLE IF NOT EXISTS charges (key TEXT PRIMARY KEY, what TEXT, cents INTEGER)"
        )
        ledger.execute("INSERT OR IGNORE INTO charges VALUES (?, ?, ?)", (key, order, cents))
    return Receipt(order=order, cents=cents, charge=key)
