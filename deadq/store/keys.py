"""Every key of a queue, with its type and what it holds.

All share one hash tag, so a queue is one Cluster slot and one ACL pattern
(``~deadq:{name}:*`` for keys, ``&deadq:{name}:*`` for channels). The scripts build the same
names from :func:`prefix`; a test compares the two.
"""

from __future__ import annotations

from urllib.parse import quote

from ..config import text
from ..errors import DeadqError, shown

MAX_NAME_BYTES = 255

STANDING = (
    "due",  # zset: every unfinished job by its latest attached deadline, ms
    "ready",  # zset: "<arrival>:<id>" by latest start, ms (fifo: by arrival)
    "suspects",  # zset: likewise, of jobs that may have killed a worker: to be run alone
    "later",  # zset: job by the ms at which it gets ready (backoff, not_before)
    "delayed",  # zset: the jobs of `later` that their caller put off (not_before)
    "strange",  # zset: jobs that no living worker knows, by deadline
    "stragglers",  # zset: running jobs of hedged tasks, by the ms from which each counts as one
    "hedges",  # zset: those that may yet be started a second time, by the ms at which to decide
    "twice",  # zset: jobs that run twice, by when the second run began
    "probes",  # zset: jobs let through against the estimate, by the end of their span
    "workers",  # zset: child by lease expiry, ms
    "parked",  # zset: child by the end of its wait, ms
    "wake",  # list: tokens for parked workers
    "fleet",  # hash: digest of the workers; the pause mark; whether there may be suspects
    "stats",  # hash: counters
    "service",  # hash: service-time histograms and their digests
    "budget",  # hash: the retry budget: its rule, first attempts, tokens spent and lent
    "fence",  # string: the last fence given
    "dead",  # zset: jobs that failed, by when; bounded in number and age
)
"""Keys of a fixed set for each queue."""

PASSING = (
    "job",  # hash: the record; expires after deadline + unit limit + retention, or retention
    "data",  # string: encoded arguments over 192 bytes; goes when the job ends
    "result",  # string: encoded result or error over 64 bytes; expires with the record
    "run",  # set: the jobs that a child holds; goes with it (no expiry: that would lose them)
    "worker",  # hash: what a child can do, and its last claim number
    "ctl",  # list: messages (cancel, outrun, unit, token, parked) to a child, or to a post
)
"""Keys made as ``<kind>:<id>``."""


def prefix(queue: str) -> str:
    """What all keys of a queue begin with; the name is percent-encoded."""
    return f"deadq:{{{quote(queue, safe='')}}}:"


def key(queue: str, kind: str, ident: str | None = None) -> str:
    """One key, for tests and for looking by hand."""
    if ident is None:
        if kind not in STANDING:
            msg = f"no standing key {shown(kind)}"
            raise DeadqError(msg)
        return prefix(queue) + kind
    if kind not in PASSING:
        msg = f"no key {shown(kind)} for each id"
        raise DeadqError(msg)
    return f"{prefix(queue)}{kind}:{ident}"


def reply_channel(queue: str, channel: str) -> str:
    """Where notices of ended jobs go: one channel for each producer process and queue."""
    return f"{prefix(queue)}reply:{channel}"


def check_name(name: object, what: str) -> str:
    """A queue or task name, or an error that names fault and remedy."""
    return text(name, what, MAX_NAME_BYTES)
