"""How a worker works: what its user chose, and what follows from it for each child."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args

from ..config import one_of, whole
from ..deadline import seconds
from ..errors import shown
from ..queue import Queue
from .cpus import available
from .ties.board import Page
from .ties.channel import Channel
from .ties.unit_gate import UnitGate

RunnerName = Literal["auto", "async", "process"]

ASYNC_SLOTS: Final = 64
"""Jobs at a time on an event loop, unless told otherwise: they mostly wait."""

LEAST_MEMORY: Final = 50_000_000
"""Bytes below which every child would be replaced after its first job: so much is its own."""

_MOST: Final = 100_000


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """What the user chose.

    Args:
        concurrency: jobs at a time; default: 64 on event loops, and for plain handlers the CPUs
            that are really available (affinity, cgroup).
        grace: seconds that handlers get at a stop before they are interrupted.
        runner: ``async`` runs handlers on event loops, plain ones in threads; ``process`` runs
            plain handlers, each in a process of its own; ``auto`` takes ``process`` where no
            handler is a coroutine function.
        children: processes that share the slots, under the async runner; default 1. The process
            runner has one for each slot.
        max_jobs: jobs after which a child is replaced by a fresh one.
        max_memory: resident bytes above which a child is replaced by a fresh one, when it is next
            looked at.

    Raises:
        ValueError, TypeError: a setting is odd; the message names the fault and the remedy.
    """

    concurrency: int | None = None
    grace: float = 30.0
    runner: RunnerName = "auto"
    children: int | None = None
    max_jobs: int | None = None
    max_memory: int | None = None

    def __post_init__(self) -> None:
        one_of(self.runner, "runner", get_args(RunnerName))
        seconds(self.grace, "grace", positive=False)
        for name, most in (("concurrency", _MOST), ("children", 1000)):
            if getattr(self, name) is not None:
                whole(getattr(self, name), name, 1, most)
        for name, least in (("max_jobs", 1), ("max_memory", LEAST_MEMORY)):
            if getattr(self, name) is not None:
                whole(getattr(self, name), name, least, 1 << 50)


@dataclass(frozen=True, slots=True)
class ChildSettings:
    """How one child works."""

    slots: int
    grace: float
    max_jobs: int | None = None
    max_memory: int | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """What a worker on one queue consists of: the slots of each child, and their runner."""

    process: bool
    slots: Sequence[int]


@dataclass(frozen=True, slots=True)
class Ties:
    """What ties a child to its supervisor."""

    page: Page
    gate: UnitGate
    channel: Channel


def plan_for(queue: Queue, config: WorkerConfig) -> Plan:
    """How many children a worker needs, and what each can do.

    Raises:
        ValueError: the queue has no tasks, or not such as the runner can run.
    """
    if not queue.tasks:
        msg = f"queue {shown(queue.name)} has no tasks; declare handlers with @queue.task first"
        raise ValueError(msg)
    of_loops = [name for name, task in queue.tasks.items() if task.is_async]
    process = config.runner == "process" or (config.runner == "auto" and not of_loops)
    if not process:
        total, children = config.concurrency or ASYNC_SLOTS, config.children or 1
        if children > total:
            msg = f"{children} children cannot share a concurrency of {total}; raise it"
            raise ValueError(msg)
        return Plan(False, [len(range(i, total, children)) for i in range(children)])
    if of_loops:
        msg = (
            f"task {shown(of_loops[0])} is a coroutine function, and the process runner runs plain"
            " functions: use runner='async', or declare it in a queue of its own"
        )
        raise ValueError(msg)
    total = config.concurrency or available()
    if config.children not in {None, total}:
        msg = (
            f"under the process runner every slot is a child: children={config.children} and a "
            f"concurrency of {total} do not go together; leave children out"
        )
        raise ValueError(msg)
    return Plan(True, [1] * total)


def shares(total: int, weights: Sequence[int]) -> list[int]:
    """``total`` slots divided by weight, at least one for each; largest remainders first.

    Raises:
        ValueError: fewer slots than weights.
    """
    if total < len(weights):
        msg = f"a concurrency of {total} is too little for {len(weights)} queues; one each at least"
        raise ValueError(msg)
    exact = [total * weight / sum(weights) for weight in weights]
    found = [max(1, int(share)) for share in exact]
    while sum(found) != total:
        step = 1 if sum(found) < total else -1
        able = [i for i, share in enumerate(found) if share + step >= 1]
        i = max(able, key=lambda i: step * (exact[i] - found[i]))
        found[i] += step
    return found
