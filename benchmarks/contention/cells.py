"""Cells of a table: means over many races of one algorithm and one number of clients."""

from __future__ import annotations

import os
import random
import statistics
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from deadq.resilience import Backoff, BackoffKind

from ..harness.children import Child
from ..harness.report import say
from .race import race

BASE_S: Final = 0.005
CAP_S: Final = 2.0
WINDOW_S: Final = 0.05
"""Of the waves."""
PATIENCE_S: Final = 3600.0


@dataclass(frozen=True, slots=True)
class Task:
    """What to simulate."""

    kind: BackoffKind
    clients: int
    trials: int
    seed: int


@dataclass(frozen=True, slots=True)
class Cell:
    """Means over the trials, and the standard errors of these."""

    kind: BackoffKind
    clients: int
    trials: int
    calls: float
    calls_standard_error: float
    ms: float
    ms_standard_error: float
    waves: tuple[float, ...]
    """Calls in each window of ``WINDOW_S``."""


def simulate(task: Task) -> Cell:
    """Run the trials. Each cell has a source of its own, so that none depends on the others."""
    source = random.Random(f"{task.seed} {task.kind} {task.clients}")
    backoff = Backoff(task.kind, base=BASE_S, cap=CAP_S, rng=source)
    calls: list[int] = []
    ms: list[float] = []
    waves: list[int] = []
    for _ in range(task.trials):
        run = race(task.clients, backoff, source)
        calls.append(run.calls)
        ms.append(run.end * 1000)
        waves += [0] * (int(run.end / WINDOW_S) + 1 - len(waves))
        for write in run.writes:
            waves[int(write / WINDOW_S)] += 1
    return Cell(
        task.kind,
        task.clients,
        task.trials,
        statistics.fmean(calls),
        _standard_error(calls),
        statistics.fmean(ms),
        _standard_error(ms),
        tuple(count / task.trials for count in waves),
    )


def _standard_error(values: Sequence[float]) -> float:
    return statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else float("nan")


def simulate_all(tasks: Iterable[Task]) -> list[Cell]:
    """All cells, on all processors; which one a cell gets does not change it."""
    # the longest first, dealt in turn
    ranked = sorted(tasks, key=lambda task: task.trials * task.clients**2, reverse=True)
    processors = min(os.cpu_count() or 1, len(ranked))
    hands = [ranked[number::processors] for number in range(processors)]
    with ExitStack() as stack:
        children = [stack.enter_context(Child(_simulate_each, hand)) for hand in hands]
        return [cell for child in children for cell in child.result(within=PATIENCE_S)]


def _simulate_each(tasks: list[Task]) -> list[Cell]:
    cells = []
    for task in tasks:
        cell = simulate(task)
        say(f"{cell.kind}, {cell.clients} clients: {cell.calls:.0f} calls, {cell.ms:.0f} ms")
        cells.append(cell)
    return cells
