"""Jobs that stand at every point of their way, each in a child of its own."""

from typing import Any, NamedTuple

import pytest

from deadq import JobHandle
from tests.depot import POINTS
from tests.marks import THOROUGH
from tests.servers import wait_until
from tests.shop import Note
from tests.supervised import SupervisedWorker, Yard

SLOTS = len(POINTS) + 2
IN_UNIT = {"begun", "effect"}
OUTSIDE = set(POINTS) - IN_UNIT - {"finished"}
"""No unit is open, and the job is still somebody's."""


def rounds(fast: int) -> pytest.MarkDecorator:
    """So many rounds each time, and many more among the thorough tests."""
    many = pytest.param(20, marks=(*THOROUGH, pytest.mark.timeout(400)))
    return pytest.mark.parametrize("rounds", [fast, many])


class Halted(NamedTuple):
    """A job that stands at its point, and the note of that."""

    point: str
    job: JobHandle[Any]
    note: Note


def at_work(yard: Yard, slots: int = SLOTS) -> SupervisedWorker:
    """A worker with a child for each point, and some to spare."""
    worker = yard.worker(slots=slots, children=slots)
    yard.ready(worker, children=slots)
    return worker


def halt(yard: Yard, point: str, name: object, *args: Any) -> Halted:
    job = yard.order(f"{point}-{name}", *args)
    return Halted(point, job, yard.depot.reached(point, job.key))


def halt_everywhere(yard: Yard, name: object) -> list[Halted]:
    return [halt(yard, point, name) for point in POINTS]


def go(yard: Yard, jobs: list[Halted]) -> None:
    for halted in jobs:
        yard.depot.go(halted.job.key)


def again(yard: Yard, halted: Halted) -> Note:
    """Wait for its next run. A claim that is given back before its first step, as by a child
    whose supervisor is gone, counts as an attempt and is none."""
    key = halted.job.key

    def later() -> list[Note]:
        return [note for note in yard.book.notes("start", key) if note.attempt > 1]

    found: Note = wait_until(later, f"{key} to start again")[0]
    return found


def begins(yard: Yard, key: str) -> list[Note]:
    """What the unit noted, before it did anything."""
    return [note for note in yard.book.notes(key=key) if note.what.startswith("begun ")]


def check(
    yard: Yard, halted: Halted, *, by: int, runs: int, effects: int = 1, spare: int = 0
) -> None:
    """The job's end, and how often its unit took effect. ``by``: the run whose unit counts, 1 or 2.

    The first may have come to its end before it noted its start. ``spare``: so many more runs may
    there be."""
    key = halted.job.key
    unit, last = halted.job.result()
    attempts = [1] + [n.attempt for n in yard.book.notes("start", key) if n.attempt > 1]
    assert runs <= len(attempts) <= runs + spare, attempts
    assert unit in {f"{key} by {n}" for n in (attempts[:1] if by == 1 else attempts[1:])}
    assert last == attempts[-1]
    assert len(yard.book.notes("effect", key)) == effects, yard.book.notes(key=key)
    assert len({note.what for note in begins(yard, key)}) <= 1  # by the same unit_key each time


def recorded(point: str) -> bool:
    """Whether the first attempt has left the unit's result behind."""
    return POINTS.index(point) >= POINTS.index("recorded")
