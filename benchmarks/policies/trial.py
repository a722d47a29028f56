"""One trial: a policy under a load, each part in a process of its own, on a server of its own."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from ..harness.arrivals import Arrival, drive, poisson
from ..harness.children import Child
from ..harness.environment import machine_busy_seconds, share_of
from ..harness.rounds import percentile
from ..harness.server import PrivateServer
from . import Door, Policy, Ran, Served, Setting

S = TypeVar("S")

_LEAD_S: Final = 0.1
"""Between the decision to start and the first arrival."""
_PATIENCE_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Load:
    """Poisson arrivals of ``rate`` a second for ``seconds``."""

    rate: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Trial(Generic[S]):
    """What to do, and how to sum it up; it travels to the driver's process."""

    policy: Policy
    setting: Setting
    load: Load
    server: Path
    summarise: Callable[[Record], S]
    spell: tuple[float, float] | None = None
    """From when to when service is slow: seconds after the first arrival is due."""


@dataclass(frozen=True, slots=True)
class Record:
    """All that happened. Instants in monotonic seconds."""

    setting: Setting
    start: float
    arrivals: list[Arrival[str]]
    runs: list[Ran]
    in_time: set[str]
    """Jobs that were finished before their deadline."""
    cpu: dict[str, float]
    """Shares of one processor."""
    counters: dict[str, int]
    spell: tuple[float, float] | None
    """From when to when service was slow."""

    def driver_lag_ms(self) -> float:
        """p99 of how late arrivals were sent."""
        return percentile([a.lag for a in self.arrivals], 0.99) * 1000


def run_all(trials: Sequence[Trial[S]]) -> list[S]:
    """Run trials side by side; each has a driver process of its own."""
    with contextlib.ExitStack() as stack:
        children = [stack.enter_context(Child(_run, trial)) for trial in trials]
        patience = 60.0 + max(trial.load.seconds for trial in trials)
        return [child.result(patience) for child in children]


def _run(trial: Trial[S]) -> S:
    """The driver's process: it owns the server and the workers."""
    with PrivateServer(trial.server) as server:
        setting = replace(trial.setting, url=server.url)
        with _workers(trial.policy, setting) as workers:
            record = asyncio.run(_drive(trial, setting, server, workers))
    return trial.summarise(record)


@contextlib.contextmanager
def _workers(policy: Policy, setting: Setting) -> Iterator[list[Child[Served]]]:
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(Child(policy.serve, setting, part))
            for part in range(setting.workers)
        ]


async def _all_slots(door: Door, setting: Setting, workers: list[Child[Served]]) -> None:
    until = time.monotonic() + _PATIENCE_S
    while await door.slots() < setting.slots:
        for worker in workers:
            worker.check()
        if time.monotonic() > until:
            msg = "the workers do not come up"
            raise TimeoutError(msg)
        await asyncio.sleep(0.02)


async def _drive(
    trial: Trial[Any], setting: Setting, server: PrivateServer, workers: list[Child[Served]]
) -> Record:
    door = trial.policy.door(setting)
    await _all_slots(door, setting, workers)
    shares = {
        "driver": share_of(time.process_time),
        "server": share_of(server.cpu_seconds),
        "machine": share_of(machine_busy_seconds),
    }
    start = time.monotonic() + _LEAD_S
    spell = None
    if setting.spell and trial.spell:
        spell = start + trial.spell[0], start + trial.spell[1]
        setting.spell.set(*spell)
    offsets = poisson(trial.load.rate, trial.load.seconds, setting.seed)
    arrivals = await drive(offsets, door.submit, start=start)
    cpu = {name: used() for name, used in shares.items()}
    await asyncio.sleep(setting.within_s * 1.1)  # the last deadline passes: all is settled
    for worker in workers:
        worker.stop()
    served = [await asyncio.to_thread(worker.result) for worker in workers]
    runs = [run for part in served for run in part.runs]
    accepted = [a.answer for a in arrivals if a.answer is not None]
    in_time = await door.done_in_time(accepted, runs)
    counters = await door.counters()
    await door.aclose()
    cpu["workers"] = sum(part.cpu_share for part in served)
    return Record(setting, start, arrivals, runs, in_time, cpu, counters, spell)
