"""What an operator should know before a queue goes to work: findings, each with its remedy.

Pure: from facts to findings. The facts come from :mod:`.store.survey` and the queue's module.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from .config import QueueConfig
from .store.survey import ServerFacts

OLDEST: Final = (6, 2)
"""The oldest Redis that is served."""

CLOCK_S: Final = 1.0
"""Where a host's clock differs by more, instants from its headers are not trusted (s)."""

ROOM: Final = 0.8
"""The part of a server's memory that a queue may be planned to fill."""


class Level(StrEnum):
    """How bad a finding is."""

    OK = "ok"
    WARNING = "warning"
    """It works, and will hurt one day."""
    FAULT = "fault"
    """It does not work, or loses jobs."""


class Finding(NamedTuple):
    """Something that was looked at, and what to do about it."""

    level: Level
    about: str
    found: str
    remedy: str = ""


class TaskFacts(NamedTuple):
    """A task: its default time budget (s; None: each call names one), the p95 of its service time
    (s; None: no sample yet), and the limit of one attempt (s; None: there is none)."""

    within_s: float | None
    p95_s: float | None
    timeout_s: float | None = None

    @property
    def wait_s(self) -> float:
        """How long it can wait and still be finished in time (s); none without a time budget."""
        return 0.0 if self.within_s is None else self.within_s - (self.p95_s or 0.0)


def check_server(server: ServerFacts, *, allow_eviction: bool) -> Iterator[Finding]:
    """Its version, eviction, persistence, clock and rights."""
    name = f"{server.product} {'.'.join(map(str, server.version)) or '(version unknown)'}"
    if server.version and server.version < OLDEST:
        remedy = f"take Redis {'.'.join(map(str, OLDEST))} or later, or Valkey"
        yield Finding(Level.FAULT, "version", f"{name} is too old", remedy)
    else:
        yield Finding(Level.OK, "version", name)
    if server.replica:
        remedy = "name the primary, or use a Sentinel client"
        yield Finding(Level.FAULT, "role", "it is a replica, and refuses writes", remedy)
    yield _eviction(server.policy, allow_eviction=allow_eviction)
    yield _persistence(server.aof, server.fsync)
    yield _clock(server.ahead_s)
    if server.refused:
        remedy = "grant these on ~deadq:{queue}:* and &deadq:{queue}:* (README, The server)"
        refused = f"the user may not run {', '.join(server.refused)}"
        yield Finding(Level.FAULT, "rights", refused, remedy)
    else:
        yield Finding(Level.OK, "rights", "the user may run all commands that it takes")


def _eviction(policy: str | None, *, allow_eviction: bool) -> Finding:
    if policy is None:
        remedy = "see to it that maxmemory-policy is noeviction"
        return Finding(Level.WARNING, "eviction", "the server does not say its policy", remedy)
    if policy == "noeviction":
        return Finding(Level.OK, "eviction", "noeviction: nothing accepted is thrown away")
    remedy = "CONFIG SET maxmemory-policy noeviction, and the same in its configuration file"
    level = Level.WARNING if allow_eviction else Level.FAULT
    return Finding(level, "eviction", f"{policy} may throw accepted jobs away", remedy)


def _persistence(aof: bool | None, fsync: str | None) -> Finding:
    if aof is None:
        remedy = "see to it that appendonly is yes, if jobs must outlive a restart"
        return Finding(Level.WARNING, "persistence", "the server does not say", remedy)
    if not aof:
        remedy = "appendonly yes, with appendfsync everysec or always"
        found = "no append-only file: a restart loses every job since the last snapshot"
        return Finding(Level.WARNING, "persistence", found, remedy)
    lost = {
        "always": "nothing acknowledged is lost",
        "everysec": "a power loss costs about the last second",
        "no": "a power loss costs what the system had not written yet",
    }
    return Finding(Level.OK, "persistence", f"append-only file, {lost.get(fsync or '', 'synced')}")


def _clock(ahead_s: float) -> Finding:
    found = f"this host's clock and the server's differ by {abs(ahead_s):.3f} s"
    if abs(ahead_s) <= CLOCK_S:
        return Finding(Level.OK, "clock", found)
    remedy = "deadq goes by the server's clock alone; instants from elsewhere will be off: run NTP"
    return Finding(Level.WARNING, "clock", found, remedy)


def check_memory(
    server: ServerFacts, config: QueueConfig, rate: float, size: float | None
) -> Finding:
    """Whether the outcomes of ``rate`` jobs a second, ``size`` bytes each, fit for as long as they
    are kept, with a full queue beside them."""
    if size is None:
        remedy = "run some jobs, or give --bytes"
        return Finding(Level.WARNING, "memory", "no job tells what one takes", remedy)
    need = rate * config.retention * size + config.capacity * size
    told = (
        f"{rate:g} jobs a second, {size:,.0f} bytes each, kept for {config.retention:g} s: "
        f"{need / 1e6:,.0f} MB"
    )
    if server.most is None:
        return Finding(Level.OK, "memory", f"{told}; the server does not say what it has")
    if need <= ROOM * server.most:
        return Finding(Level.OK, "memory", f"{told} of {server.most / 1e6:,.0f} MB")
    room = ROOM * server.most / size - config.capacity  # for outcomes, beside a full queue
    if room > 0:
        fits = room / rate
        less = f"let retention be {fits:,.0f} s" if fits >= 1 else "keep fewer jobs a second"
    else:
        less = f"let capacity be less: {config.capacity} jobs alone fill it"
    remedy = f"give the server more memory, or {less}"
    return Finding(Level.FAULT, "memory", f"{told} of {server.most / 1e6:,.0f} MB", remedy)


def check_queue(
    config: QueueConfig, tasks: Mapping[str, TaskFacts], slots: int, mean_s: float
) -> Iterator[Finding]:
    """Its tasks, and its capacity against what its workers can do in the time that callers wait."""
    if not tasks:
        remedy = "declare one with @queue.task"
        yield Finding(Level.FAULT, "tasks", "the queue has no tasks", remedy)
    for name, task in tasks.items():
        yield from _task(name, task)
    if not slots:
        remedy = "start a worker: deadq work MODULE:QUEUE"
        yield Finding(Level.WARNING, "workers", "nobody works on the queue", remedy)
        return
    yield Finding(Level.OK, "workers", _slots(slots))
    wait_s = max((task.wait_s for task in tasks.values()), default=0.0)
    if mean_s > 0 and wait_s > 0:  # else the tasks' own findings say what is wrong
        yield _capacity(config.capacity, slots, wait_s, mean_s)


def _task(name: str, task: TaskFacts) -> Iterator[Finding]:
    if task.within_s is None:
        found = f"{name} has no time budget of its own: a call without a deadline is an error"
        yield Finding(Level.WARNING, "tasks", found, "@queue.task(within=...)")
    elif task.p95_s is not None and task.p95_s >= task.within_s:
        found = (
            f"{name} takes {task.p95_s:.3f} s (p95), and has {task.within_s:g} s: an idle slot "
            "tries it all the same, and while none is idle it is refused"
        )
        yield Finding(Level.FAULT, "tasks", found, "give it more time, or make it faster")
    else:
        took = "not measured yet" if task.p95_s is None else f"p95 {task.p95_s:.3f} s"
        yield Finding(Level.OK, "tasks", f"{name}: within {task.within_s:g} s, {took}")
    if task.within_s is not None and task.timeout_s is not None and task.timeout_s > task.within_s:
        found = (
            f"{name} may take {task.timeout_s:g} s an attempt, and has {task.within_s:g} s in all: "
            "the limit is of use only to calls that give it more time"
        )
        remedy = "@queue.task(timeout=...) below within, or without it"
        yield Finding(Level.WARNING, "tasks", found, remedy)


def _capacity(capacity: int, slots: int, wait_s: float, mean_s: float) -> Finding:
    """More than twice what can be done in the time that a job can wait is never of use: by
    Little's law the rest of it would be waiting too long."""
    useful = 2 * slots * wait_s / mean_s
    if capacity > max(useful, slots):
        found = (
            f"{capacity} jobs are more than twice what {_slots(slots)} can do in the "
            f"{wait_s:.3f} s that a job can wait, {mean_s:.3f} s each"
        )
        remedy = f"let it be {max(slots, round(useful / 2))}: what waits longer is of no use"
        return Finding(Level.WARNING, "capacity", found, remedy)
    if capacity < slots:
        found = f"{capacity} jobs cannot keep {_slots(slots)} busy"
        return Finding(Level.WARNING, "capacity", found, f"let it be {slots} or more")
    return Finding(Level.OK, "capacity", f"{capacity} jobs for {_slots(slots)}")


def _slots(number: int) -> str:
    return f"{number} slot{'' if number == 1 else 's'}"
