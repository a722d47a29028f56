"""What operators are shown of jobs: data only."""

from __future__ import annotations

from typing import NamedTuple

from .job import State


class ListedJob(NamedTuple):
    """An unfinished job, as a list of them shows it. Instants are ms of the server's clock."""

    id: str
    key: str
    task: str
    state: State
    deadline_ms: int
    """The latest that a caller has attached."""
    remaining_s: float
    """Until then; negative past it."""
    attempts: int
    worker: str
    """Host and process that run it, ``host:pid``; both where it runs twice, with a space between
    them (``hedge=True``); empty while nobody does."""


class UnitReport(NamedTuple):
    """A unit on a job's record."""

    name: str
    state: str
    """``done``, ``raised``, or ``begun``: it runs, or is in doubt once its limit is over."""
    fence: int
    """Of the attempt that began it."""
    begun_ms: int
    """Instant of the server's clock."""
    limit_ms: int


class JobReport(NamedTuple):
    """All that is known of a job but its arguments and its result. Instants are ms of the
    server's clock."""

    id: str
    key: str
    task: str
    state: State
    deadline_ms: int
    """The latest that a caller has attached."""
    remaining_s: float
    """Until then; negative past it."""
    submitted_ms: int | None
    """None once it has ended."""
    ended_ms: int | None
    attempts: int
    """How often it was started, give-backs included."""
    retries_used: int
    retries: int
    """How often it may be tried again."""
    crashes: int
    """How often a worker died running it, or lost its lease."""
    fence: int
    """The last one given; 0: never started."""
    worker: str
    """Host and process that run it, ``host:pid``; both where it runs twice, with a space between
    them (``hedge=True``); empty while nobody does."""
    waiters: int
    """Calls that hold the job: when the last one leaves, it is cancelled."""
    cancelling: bool
    """Somebody has cancelled it, and its handler has not left yet."""
    units: tuple[UnitReport, ...]
    argument_bytes: int
    result_bytes: int
    kept_s: float
    """How long the record is kept."""
    error_type: str | None
    error_message: str | None
    error_traceback: str | None = None
    """A bounded rendering of where it was raised; empty where that is not known."""
