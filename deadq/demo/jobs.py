"""The queue and its task: what the web tier and every worker import.

The task books an order: it looks the order over, pays at a bank, and prints a receipt. Only the
payment changes anything; it is a unit.
"""

from __future__ import annotations

import asyncio
import os
from typing import Final, TypedDict

from .. import Queue, current_job
from . import bank

REVIEW_S: Final = 0.02
PRINT_S: Final = 0.08
SERVICE_S: Final = REVIEW_S + bank.USUAL_S + PRINT_S
"""How long one order takes (s)."""
PAYMENT_LIMIT_S: Final = 1.7
"""A payment that was begun so long ago, and is not on record, may be tried again (s)."""
LEASE_S: Final = 1.5
"""A worker of which nothing is heard for so long has lost its jobs (s)."""

BANK_VARIABLE: Final = "DEADQ_DEMO_BANK"
"""The environment variable that says where the bank is: host:port."""
NAME_VARIABLE: Final = "DEADQ_DEMO_NAME"
"""The environment variable by which a worker has a name at the bank."""


class Receipt(TypedDict):
    """What a customer gets, once."""

    order: str
    cents: int
    number: str


queue = Queue("demo", capacity=72, lease=LEASE_S)


@queue.task(within=3.0)
async def book(order: str, cents: int) -> Receipt:
    """Book an order; interrupted at its deadline, but not while it pays."""
    await asyncio.sleep(REVIEW_S)
    unit = current_job().unit("pay", pay, needs=bank.USUAL_S, limit=PAYMENT_LIMIT_S)
    number = await unit
    await asyncio.sleep(PRINT_S)
    return Receipt(order=order, cents=cents, number=number)


def pay() -> str:
    """Pay, unless that has been done: an earlier attempt may have, and died before it could say so.

    The fence says which attempt is the later one. An earlier one that comes back is refused by the
    bank, though it knows nothing of leases.
    """
    job = current_job()
    payment = job.unit_key("pay")
    with bank.Teller(os.environ[BANK_VARIABLE], os.environ.get(NAME_VARIABLE, "")) as teller:
        number = teller.authorize(payment, job.fence)
        return number or teller.capture(job.key, payment, job.fence)
