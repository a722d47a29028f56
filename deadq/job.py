"""What travels: a submit on its way in, a claim in a worker's hands, a settlement on its way out.

A *job* is what was submitted; a *claim* is a job in a worker's hands; a *unit* is a step that
completes or never starts. Data only: nothing here calls a service.

States and their moves; :data:`MOVES` is the whole table::

    submit ──> later ──> ready ──> running ──> done | failed | exhausted | exceeded | cancelled
                 │         │ ^        │  │
                 │         │ └────────┤  └──> crashed (the third death or lapse, or at most once)
                 │         │          ├──> later   (retry with a delay)
                 │         │          └──> suspect ──> running   (alone, in a worker of one slot)
                 └─────────┴──> expired | cancelled | malformed
                           └──> strange ──> ready | expired | cancelled

    retry, give-back, lapsed lease: running ──> ready. Its worker died, or a lease lapsed for the
    second time: running ──> suspect; and from then on suspect wherever it says ready above.
    replay: failed | exhausted | exceeded | crashed is submitted anew.
"""

from __future__ import annotations

import hashlib
import re
from enum import StrEnum
from typing import Final, NamedTuple

from .config import text
from .twins import TIED_AWAY

RECORD_VERSION: Final = 1
"""Layout of the record that this release writes, and the newest one that its workers know."""

MAX_KEY_BYTES: Final = 1024

_AN_ID: Final = re.compile("[0-9a-f]{32}")

BOUNDED: Final = "b"
"""Mark of a job whose retries were given by a layer above (DESIGN 7, one layer retries)."""

HEDGED: Final = "h"
"""Mark of a job that an idle worker may start a second time, and which so has no units."""


class State(StrEnum):
    """Where a job is in its life."""

    LATER = "later"
    READY = "ready"
    SUSPECT = "suspect"
    """Waits to be run alone: a worker has died running it."""
    RUNNING = "running"
    STRANGE = "strange"
    DONE = "done"
    FAILED = "failed"
    EXHAUSTED = "exhausted"
    EXCEEDED = "exceeded"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    CRASHED = "crashed"
    """Given up: too many workers have died running it, or have lost its lease."""
    MALFORMED = "malformed"
    GONE = "gone"

    @property
    def final(self) -> bool:
        """Whether nothing more will happen to the job."""
        return not MOVES[self]


MOVES: Final[dict[State, frozenset[State]]] = {
    State.LATER: frozenset(
        {State.READY, State.SUSPECT, State.EXPIRED, State.CANCELLED, State.MALFORMED}
    ),
    State.READY: frozenset(
        {State.RUNNING, State.EXPIRED, State.CANCELLED, State.STRANGE, State.MALFORMED}
    ),
    State.SUSPECT: frozenset(
        {State.RUNNING, State.EXPIRED, State.CANCELLED, State.STRANGE, State.MALFORMED}
    ),
    State.RUNNING: frozenset(
        {
            State.READY,
            State.SUSPECT,
            State.LATER,
            State.DONE,
            State.FAILED,
            State.EXHAUSTED,
            State.EXCEEDED,
            State.EXPIRED,
            State.CANCELLED,
            State.CRASHED,
        }
    ),
    State.STRANGE: frozenset(
        {State.READY, State.SUSPECT, State.EXPIRED, State.CANCELLED, State.MALFORMED}
    ),
    State.DONE: frozenset(),
    State.FAILED: frozenset(),
    State.EXHAUSTED: frozenset(),
    State.EXCEEDED: frozenset(),
    State.EXPIRED: frozenset(),
    State.CANCELLED: frozenset(),
    State.CRASHED: frozenset(),
    State.MALFORMED: frozenset(),
    State.GONE: frozenset(),
}


class Verdict(StrEnum):
    """What became of a submit: not where the job is, but what the caller was told."""

    ADMITTED = "admitted"
    DUPLICATE = "duplicate"
    MALFORMED = "malformed"
    KEY_REUSED = "key_reused"
    NOT_DEAD = "not_dead"
    PAUSED = "paused"
    EXPIRED = "expired"
    FULL = "full"
    UNMEETABLE = "unmeetable"


class Criticality(StrEnum):
    """How much of the cap and of the bearable wait a job may use."""

    CRITICAL_PLUS = "critical_plus"
    CRITICAL = "critical"
    SHEDDABLE_PLUS = "sheddable_plus"
    SHEDDABLE = "sheddable"


CRITICALITY_RANK: Final[dict[str, int]] = {c.value: i for i, c in enumerate(Criticality)}


class Outcome(StrEnum):
    """What a worker reports of a claim."""

    DONE = "done"
    FAILED = "failed"
    RETRY = "retry"
    RELEASE = "release"
    """Given back uncharged: the worker stops, or lost interest through no fault of the job."""
    CUT = "cut"
    """Interrupted by the runtime at its deadline."""
    CANCELLED = "cancelled"
    UNRUN = "unrun"
    """Its deadline passed between claim and start."""
    YIELDED = "yielded"
    """It did not start, for its twin in another queue runs, or has run."""


class Departure(StrEnum):
    """How a child left the fleet."""

    LEAVES = "leaves"
    KILLED = "killed"
    """By its supervisor, on purpose: through no fault of the jobs that it held."""
    DIED = "died"
    """Nobody knows why: each of the jobs that it held is a suspect."""


class Submission(NamedTuple):
    """A submit as the store takes it. Times in ms of the server's clock.

    Without fingerprint and task it is a replay of the dead job with this id.
    """

    id: str
    key: str
    fingerprint: bytes
    task: str
    deadline_ms: int
    not_before_ms: int
    rank: int
    retries: int
    token: str
    payload: bytes
    once: str = ""
    """``1``: a crash ends the job, which so runs at most once."""
    marks: str = ""
    """What its worker has to know of it: :data:`BOUNDED`, :data:`HEDGED`; and in capitals and
    digits, behind these, where it comes from: the trace and, behind an ``@``, the instant."""
    twin: str = ""
    """Of one of two tied jobs: ``Twin.text``."""


class Admission(NamedTuple):
    """The answer to a submit: the deadline in force (ms) and a retry hint (ms)."""

    verdict: str
    deadline_ms: int
    retry_after_ms: int


class Claim(NamedTuple):
    """A job in a worker's hands. Times in ms of the server's clock."""

    id: str
    key: str
    task: str
    deadline_ms: int
    attempt: int
    fence: int
    fails: int
    payload: bytes
    retries: int = 0
    marks: str = ""
    twin: str = ""


class Settlement(NamedTuple):
    """What a worker reports of one claim: ``held_us`` is how long it took up its slot."""

    id: str
    fence: int
    outcome: str
    held_us: int
    cut: bool
    delay_ms: int
    blob: bytes


class DeadJob(NamedTuple):
    """A job that failed for good, as kept for a look and a replay.

    ``ended_ms`` is an instant of the server's clock; type and message are those of the error, and
    None where there was none, as for a job that ran out of time.
    """

    id: str
    key: str
    task: str
    state: State
    ended_ms: int
    attempts: int
    error_type: str | None
    error_message: str | None


class Sight(NamedTuple):
    """A job as a reader sees it."""

    state: State
    deadline_ms: int
    attempt: int
    blob: bytes
    units: tuple[str, ...]

    @property
    def tied_away(self) -> bool:
        """Whether its twin in another queue runs in its place."""
        return self.state is State.CANCELLED and self.blob == TIED_AWAY


def job_id(key: str) -> str:
    """The id that a key stands for: the key *is* the job's identity (blake2b-128, hex).

    Raises:
        UnicodeEncodeError: the key holds a lone surrogate.
    """
    return hashlib.blake2b(key.encode(), digest_size=16).hexdigest()


def ids_for(name: object) -> tuple[str, ...]:
    """The ids that a job's id or key may stand for, in the order in which to look for them.

    An id is 32 hex digits. A key may look alike: then it is one if no job has that id.

    Raises:
        TypeError: not a ``str``.
        ValueError: empty, over 1,024 bytes, or not valid Unicode.
    """
    given = text(name, "a job's id or key", MAX_KEY_BYTES)
    by_key = job_id(given)
    return (given, by_key) if _AN_ID.fullmatch(given) else (by_key,)


def check_key(key: object) -> str:
    """An idempotency key as given by a caller, or an error that names fault and remedy.

    Keys are compared byte by byte in UTF-8: composed and decomposed letters differ.

    Raises:
        TypeError: not a ``str``.
        ValueError: empty, over 1,024 bytes, or not valid Unicode.
    """
    return text(key, "key", MAX_KEY_BYTES, remedy="; leave it out to get a random one")
