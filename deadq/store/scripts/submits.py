"""What producers say: submits, leaving, cancelling, looking."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from ...job import Admission, Sight, State, Submission
from ..loader import load
from .call import STATES, Arg, Call, T, read_words, whole_number


class Rules(NamedTuple):
    """What admission goes by."""

    capacity: int
    order: str
    admission: str
    retention_ms: int


ADMIT: Final = load("admit")


BATCH: Final = 32
"""Most submits in one call: while the server decides on them, the next are made."""


def batches(submissions: Iterable[T]) -> Iterator[list[T]]:
    """Pieces of a size that one script call takes."""
    source = iter(submissions)
    while batch := list(itertools.islice(source, BATCH)):
        yield batch


def admit(rules: Rules, submissions: Iterable[Submission]) -> Call[list[Admission]]:
    """Decide on submits, all in one step."""
    args: list[Arg] = [*rules]
    for submission in submissions:
        args += submission
    return Call(ADMIT, args, _read_admit)


def _read_admit(reply: list[Any]) -> list[Admission]:
    return [
        Admission(reply[i].decode(), reply[i + 1], reply[i + 2]) for i in range(1, len(reply), 3)
    ]


def cancel(job: str, *, retention_ms: int) -> Call[str]:
    """Cancel; the answer is ``cancelled``, ``running``, ``gone``, or the state it ended in."""
    return Call(load("cancel"), [job, retention_ms], lambda reply: str(reply[1], "utf-8"))


def leave(tokens: Iterable[tuple[str, str]], *, retention_ms: int) -> Call[list[str]]:
    """Give up tokens, each an (id, token); the answer is as for :func:`cancel`, or ``awaited``."""
    args: list[Arg] = [retention_ms]
    for job, token in tokens:
        args += (job, token)
    return Call(load("leave"), args, read_words)


def fetch(jobs: Iterable[str]) -> Call[list[Sight]]:
    """Read where jobs are, and how they ended."""
    return Call(load("fetch"), list(jobs), _read_fetch)


def _read_fetch(reply: list[Any]) -> list[Sight]:
    return [
        Sight(
            # no record: the server lost it, or its retention is over
            State.GONE if not state else STATES.get(state, State.MALFORMED),
            whole_number(deadline),
            whole_number(attempt),
            blob,
            tuple(unit.decode("utf-8", "replace") for unit in units),
        )
        for state, deadline, attempt, blob, units in reply[1:]
    ]
