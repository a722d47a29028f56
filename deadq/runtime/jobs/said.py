"""What every child says in its log of the beginning and the end of a job."""

from __future__ import annotations

import logging

from ...events import Event, log
from ...job import Claim, Settlement


def say_started(claim: Claim) -> None:
    """A handler is about to start."""
    if log.isEnabledFor(logging.INFO):
        log.info(
            "%s: job %s %s, attempt %d, fence %d",
            Event.STARTED,
            claim.id,
            claim.task,
            claim.attempt,
            claim.fence,
        )


def say_finished(report: Settlement, word: str) -> None:
    """The server has answered to a report; ``stale`` and ``gone`` are refusals."""
    if word in ("stale", "gone"):
        log.warning(
            "%s: job %s fence %d, reported %s: %s",
            Event.STALE,
            report.id,
            report.fence,
            report.outcome,
            word,
        )
    elif log.isEnabledFor(logging.INFO):
        log.info("%s: job %s, %s", Event.FINISHED, report.id, word)
