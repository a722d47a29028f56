"""What keeps a run safe: renewals of leases, and the records of units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ..loader import load
from .call import Arg, Call


class Renewed(NamedTuple):
    """The answer to a renewal, for one child: whether it is known, what to tell its jobs, and the
    number of the last claim that was carried out for it."""

    known: bool
    words: dict[str, str]
    number: int


class RenewalReply(NamedTuple):
    """The answer to a renewal: when the fleet's first lease ends (ms; 0: none), how many suspects
    wait, how many tokens nobody had taken, and what there is for each child."""

    first_lapse_ms: int
    suspects: int
    tokens: int
    children: list[Renewed]


class Renewal(NamedTuple):
    """What to renew, for one child."""

    child: str
    number: int
    held: Mapping[str, int]


def renew(renewals: Sequence[Renewal], *, lease_ms: int, retention_ms: int) -> Call[RenewalReply]:
    """Prolong leases."""
    args: list[Arg] = [lease_ms, retention_ms, len(renewals)]
    for renewal in renewals:
        args += (renewal.child, renewal.number, len(renewal.held))
        for job, fence in renewal.held.items():
            args += (job, fence)
    return Call(load("renew"), args, _read_renew)


def _read_renew(reply: list[Any]) -> RenewalReply:
    renewed = [
        Renewed(
            reply[i] == b"ok",
            {job.decode("utf-8", "replace"): word.decode() for job, word in reply[i + 1]},
            reply[i + 2],
        )
        for i in range(4, len(reply), 3)
    ]
    return RenewalReply(reply[1], reply[2], reply[3], renewed)


class Begun(NamedTuple):
    """The answer to a unit that wants to begin; the words are those of ``begin.lua``."""

    word: str
    result: bytes
    until_ms: int


def begin(
    child: str,
    job: str,
    fence: int,
    unit: str,
    fingerprint: str,
    *,
    needs_ms: int,
    limit_ms: int,
    on_doubt: str,
    retention_ms: int,
) -> Call[Begun]:
    """Open a unit, or learn why not."""
    args: list[Arg] = [child, job, fence, unit, fingerprint]
    args += (needs_ms, limit_ms, on_doubt, retention_ms)
    return Call(load("begin"), args, _read_begin)


def _read_begin(reply: list[Any]) -> Begun:
    word = reply[1].decode()
    result = reply[2] if word == "done" else b""
    return Begun(word, result, reply[2] if word == "open" else 0)


def record(job: str, fence: int, unit: str, end: str, ran_us: int, result: bytes) -> Call[str]:
    """Record how a unit ended (``done`` or ``raised``): ``ok``, ``stale`` or ``gone``."""
    args: list[Arg] = [job, fence, unit, end, ran_us, result]
    return Call(load("record"), args, lambda reply: str(reply[1], "utf-8"))
