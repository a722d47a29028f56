"""What every child says in its log of the beginning and the end of a job."""

from __future__ import annotations

import logging
from typing import Final

from ...codec import read_exception
from ...events import Event, log
from ...job import Claim, Outcome, Settlement, State

_HEADER: Final = "Traceback ("


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
    elif report.outcome is Outcome.FAILED or word == State.EXHAUSTED:
        log.warning("%s: job %s, %s\n%s", Event.FINISHED, report.id, word, _why(report.blob))
    elif log.isEnabledFor(logging.INFO):
        log.info("%s: job %s, %s", Event.FINISHED, report.id, word)


def say_given_up(claim: Claim, mark: str | None) -> None:
    """A run has ended of which nothing is reported."""
    if mark == "outrun":
        log.info("%s: job %s, fence %d", Event.OUTRUN, claim.id, claim.fence)
    else:
        log.warning("%s: job %s, fence %d", Event.LOST, claim.id, claim.fence)


def _why(blob: bytes) -> str:
    """The frames that the handler's exception came through, in the margin of the log: what begins
    with ``Traceback`` there is a fault of the worker's own."""
    _, _, trace = read_exception(blob)
    lines = [line for line in trace.splitlines() if not line.startswith(_HEADER)]
    return "\n".join(f"  | {line}".rstrip() for line in lines)
