"""Backoff with and without jitter: what it spares when many clients contend for one row.

A simulation, seeded, without a server. N clients, each of which has to update one row once, by a
read and then a write on condition that the row is unchanged; who fails backs off with
``deadq.resilience.Backoff``, base 5 ms, cap 2 s. The model, which `benchmarks.contention.race`
tells in full, and the algorithms are those of Marc Brooker's "Exponential Backoff And Jitter"
(AWS Architecture Blog, 2015); only writes are calls.

calls_KIND_N      calls until all N clients have succeeded, mean
ms_KIND_N         time until then (ms), mean
calls_error       largest relative distance of the calls from the reference, of all its cells
time_error        largest relative distance of the times, N >= 50
time_error_small  the same, N < 50
time_error_as_published  as time_error, without the correction below

N = 10, 20 ... 190, with 100 trials each; for the N of the reference (10, 20, 50, 100, 190) 10,000
to 210, which brings the standard error of each of its cells below 1 %. ``--quick``: only these N,
with a fifth of the trials; its errors may miss a bar by chance.

The original publishes graphs, no numbers. The reference is a table of means over 100 trials by
another program for the same model; its own noise (standard errors up to 4 %) is part of each
error. One cell of it is put right: decorrelated, N = 50, has 2,063 ms there, but Brooker's program
itself gives 2,203 ms (10,000 trials, standard error 5 ms). ``time_error_as_published`` leaves that
cell as it was, and is to be expected at 0.068; ``calls_error`` at 0.027, by full jitter, N = 10,
where the table has 38 calls and Brooker's program makes 39.02 (20,000 trials).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any, Final

from .contention.cells import WINDOW_S, Cell, Task, simulate_all
from .contention.chart import picture
from .contention.reference import CLIENTS, KINDS, PUBLISHED, REFERENCE, Reference
from .harness.environment import Environment
from .harness.report import Bar, Report, options

LEVELS: Final = range(10, 200, 10)
"""Numbers of clients."""
TRIALS: Final = 100
MORE_TRIALS: Final = {10: 10_000, 20: 2_000, 50: 800, 100: 400, 190: 210}
"""For the cells that are compared; a fifth of them in a quick run."""
SMALL: Final = 50
"""With fewer clients than these the time varies most from race to race."""
WAVES_OF: Final = 100
"""How many clients it takes to show the waves."""

BARS: Final = {
    "calls_error": Bar(most=0.03),
    "time_error": Bar(most=0.05),
    "time_error_small": Bar(most=0.12),
}


def tasks(seed: int, *, quick: bool) -> list[Task]:
    """Which cells to simulate, and by how many trials."""
    if quick:
        planned = {clients: trials // 5 for clients, trials in MORE_TRIALS.items()}
    else:
        planned = dict.fromkeys(LEVELS, TRIALS) | MORE_TRIALS
    return [
        Task(kind, clients, trials, seed) for clients, trials in planned.items() for kind in KINDS
    ]


def errors(cells: Iterable[Cell]) -> dict[str, float]:
    """How far the cells are from the reference, at most."""
    known = [cell for cell in cells if (cell.kind, cell.clients) in REFERENCE]
    large = [cell for cell in known if cell.clients >= SMALL]
    small = [cell for cell in known if cell.clients < SMALL]
    return {
        "calls_error": max(abs(c.calls / REFERENCE[c.kind, c.clients].calls - 1) for c in known),
        "time_error": max(_off(cell, REFERENCE) for cell in large),
        "time_error_small": max(_off(cell, REFERENCE) for cell in small),
        "time_error_as_published": max(_off(cell, PUBLISHED) for cell in large),
    }


def _off(cell: Cell, reference: Reference) -> float:
    return abs(cell.ms / reference[cell.kind, cell.clients].ms - 1)


def main() -> int:
    """Run it from the command line."""
    given = options(__doc__, server=False)
    environment = Environment(seed=given.seed)
    cells = simulate_all(tasks(given.seed, quick=given.quick))
    cells.sort(key=lambda cell: (cell.clients, KINDS.index(cell.kind)))
    figures = errors(cells)
    for cell in cells:
        if cell.clients in CLIENTS:
            figures[f"calls_{cell.kind}_{cell.clients}"] = cell.calls
            figures[f"ms_{cell.kind}_{cell.clients}"] = cell.ms
    return Report(
        environment, figures, series(cells), lambda: picture(cells, WAVES_OF, REFERENCE)
    ).emit(given, BARS)


def series(cells: Iterable[Cell]) -> dict[str, Any]:
    """All cells with their standard errors, and the waves."""
    found: dict[str, Any] = {"cells": [], "wave_window_s": WINDOW_S, "waves": {}}
    for cell in cells:
        found["cells"].append(
            {
                "kind": cell.kind,
                "clients": cell.clients,
                "trials": cell.trials,
                "calls": round(cell.calls, 2),
                "calls_standard_error": round(cell.calls_standard_error, 3),
                "ms": round(cell.ms, 1),
                "ms_standard_error": round(cell.ms_standard_error, 2),
            }
        )
        if cell.clients == WAVES_OF:
            found["waves"][cell.kind] = [round(calls, 3) for calls in cell.waves]
    return found


if __name__ == "__main__":
    sys.exit(main())
