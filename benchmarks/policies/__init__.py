"""Ways to treat jobs with deadlines, behind one face: what overload benchmarks compare.

A policy is a module with a ``serve`` (the body of a worker process) and a ``Door`` (the
driver's side). Every worker records what it ran; whether a job counts as done in time is for
the door to say, from the store where there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from ..harness.service import Service, Spell


@dataclass(frozen=True, slots=True)
class Setting:
    """What a run is about. Times in seconds."""

    url: str
    slots: int
    """Of all workers together."""
    workers: int
    """Processes."""
    within_s: float
    service: Service
    capacity: int
    seed: int
    spell: Spell | None = None


class Ran(NamedTuple):
    """One start of a handler. Instants in monotonic seconds."""

    job: str
    begin: float
    end: float
    drawn_s: float
    """How long it was meant to take."""
    whole: bool
    """Whether it ran to its end."""
    timely: bool
    """Whether its end lay before the deadline, by the worker's own clock."""


class Served(NamedTuple):
    """What a worker process has to report."""

    runs: list[Ran]
    cpu_share: float


class Door(Protocol):
    """The driver's side of a policy."""

    async def slots(self) -> int:
        """How many slots of workers are there now."""
        ...

    async def submit(self, index: int) -> str:
        """Submit one job; its name. Raises what a refusal raises."""
        ...

    async def done_in_time(self, jobs: Sequence[str], runs: Sequence[Ran]) -> set[str]:
        """Which of the jobs were finished before their deadline."""
        ...

    async def counters(self) -> dict[str, int]:
        """What else there is to know, for the series."""
        ...

    async def aclose(self) -> None:
        """Disconnect."""
        ...


@dataclass(frozen=True, slots=True)
class Policy:
    """A name, the body of a worker process, and the driver's side."""

    name: str
    serve: Callable[[Setting, int], Served]
    door: Callable[[Setting], Door]
