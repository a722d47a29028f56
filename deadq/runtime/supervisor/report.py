"""What a supervisor reports of a job for which it had to kill a child."""

from __future__ import annotations

from ... import clock, codec
from ...job import Outcome, Settlement
from ...resilience.backoff import Backoff
from ..jobs.run import MARKS
from ..ties.board import Holding


def report_for(job: str, holding: Holding, mark: str) -> Settlement | None:
    """The report that the child would have made."""
    outcome = MARKS.get(mark)
    if outcome is None:
        return None
    held_us = max(0, int((clock.monotonic() - holding.since) * 1e6))
    delay_ms, blob = 0, b""
    if outcome is Outcome.RETRY:
        blob = codec.describe_exception(TimeoutError("the attempt ran longer than its limit"))
        delay_ms = int(1000 * Backoff().delay(1))
    return Settlement(job, holding.fence, outcome, held_us, True, delay_ms, blob)
