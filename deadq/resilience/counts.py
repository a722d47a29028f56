"""What is told to Prometheus. Label sets are bounded: by the names and reasons in the code.

The client is imported with the first thing to be counted: who only enqueues need not wait for it.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from prometheus_client import Counter, Gauge

GRANTED: Final = "granted"


@cache
def retries() -> Counter:
    """``deadq_retries_total{name,outcome}``: granted, or the reason for which one was denied."""
    from prometheus_client import Counter

    return Counter(
        "deadq_retries", "Retries granted, or denied and why, by policy.", ("name", "outcome")
    )


@cache
def hedges() -> Counter:
    """``deadq_hedges_total{name,outcome}``: sent, won, or the reason for which none was sent."""
    from prometheus_client import Counter

    return Counter(
        "deadq_hedges", "Second calls sent, won, or withheld and why.", ("name", "outcome")
    )


@cache
def budget_left() -> Gauge:
    """``deadq_retry_budget_available{budget}``: retries that would be allowed now."""
    from prometheus_client import Gauge

    return Gauge(
        "deadq_retry_budget_available", "Retries that a budget would allow now.", ("budget",)
    )
