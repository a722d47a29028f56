"""What operators say: pausing, counting, the dead list."""

from __future__ import annotations

from typing import Any, NamedTuple

from ...job import DeadJob, State
from ..loader import load
from .call import STATES, Call, pairs, whole_number


class Stats(NamedTuple):
    """Depths and counters of a queue at one instant. All are numbers of jobs, except for
    ``workers``, ``slots``, ``counters`` and ``paused``."""

    live: int
    """Accepted, not ended, and not past their deadline: what the capacity bounds."""
    ready: int
    """Wait to be claimed, perhaps past their deadline and not swept yet."""
    suspects: int
    """Wait to be run alone, since a worker died running them, or twice lost its lease over them."""
    later: int
    """Put off by their caller, or by a retry."""
    strange: int
    """Known to no living worker, by their task or the version of their record."""
    unfinished: int
    """Accepted and not ended, also those past their deadline that nobody has settled yet."""
    workers: int
    """Children with a lease."""
    slots: int
    """How many jobs these can run at a time."""
    dead: int
    """On the dead list."""
    counters: dict[str, int]
    """Since the queue came to be: ``offered``, ``admitted``, ``duplicate``,
    ``rejected:<reason>``, ``started``, ``retried``, ``finished:<state>``, ``expired:<where>`` and
    a few more; what never happened is left out."""
    paused: bool = False
    """Whether new submits are refused."""


def pause(*, paused: bool) -> Call[None]:
    """Refuse new submits, or take them again."""
    return Call(load("pause"), ["1" if paused else ""], lambda _: None)


def stats() -> Call[Stats]:
    """Depths and counters."""
    return Call(load("stats"), [], _read_stats)


def _read_stats(reply: list[Any]) -> Stats:
    counters = {name.decode("utf-8", "replace"): whole_number(n) for name, n in pairs(reply[10])}
    return Stats._make([*map(whole_number, reply[1:10]), counters, bool(whole_number(reply[11]))])


def dead(most: int, job: str = "") -> Call[list[tuple[DeadJob, bytes]]]:
    """List jobs that have failed for good, each with its encoded error; or look at one by its id,
    whether it is dead or not."""
    return Call(load("dead"), [most, job], _read_dead)


def _read_dead(reply: list[Any]) -> list[tuple[DeadJob, bytes]]:
    return [
        (
            DeadJob(
                ident.decode("utf-8", "replace"),
                key.decode("utf-8", "replace"),
                task.decode("utf-8", "replace"),
                STATES.get(state, State.MALFORMED),
                whole_number(ended),
                whole_number(attempts),
                None,
                None,
            ),
            blob,
        )
        for ident, key, task, state, ended, attempts, blob in reply[1:]
    ]
