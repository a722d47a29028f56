"""What is told to Prometheus: requests in, calls out. Labels are names that the code gives."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prometheus_client import Counter


@cache
def inbound() -> Counter:
    """``deadq_inbound_requests_total{service}``."""
    from prometheus_client import Counter

    return Counter("deadq_inbound_requests", "Requests that came in.", ("service",))


@cache
def outbound() -> Counter:
    """``deadq_outbound_calls_total{dependency}``: divided by the requests that came in, it tells
    how many calls a request makes."""
    from prometheus_client import Counter

    return Counter("deadq_outbound_calls", "Calls that were sent.", ("dependency",))
