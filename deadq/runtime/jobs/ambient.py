"""What surrounds a handler: its job's deadline, and how many retries the calls in it may make."""

from __future__ import annotations

from ... import deadline
from ...config import MAX_RETRIES
from ...job import BOUNDED, Claim
from ...resilience import allowance
from ...resilience.allowance import Allowance
from ...tracing import Tracer
from .run import Attempt


def surround(run: Attempt, tracer: Tracer | None) -> None:
    """Make them the ambient ones of the current context, which is the job's own."""
    deadline.set_ambient(run.deadline)
    given = allowance_of(run.claim)
    if given is not None:
        allowance.set_ambient(given)
    if tracer is not None:
        run.trace = tracer.begin(run.claim)


def allowance_of(claim: Claim) -> Allowance | None:
    """Where the queue retries, or a layer above has said how often, calls below get nothing unless
    the handler passes some on. A job that is not retried anyway is the edge, and may."""
    if not claim.retries and BOUNDED not in claim.marks:
        return None
    # a record may say more: a later release's, or one that nobody's producer wrote
    most = min(MAX_RETRIES, max(0, claim.retries - claim.fails))
    return Allowance(0, most=most, passed=True)
