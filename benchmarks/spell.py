"""Admission through a slow spell: closed while the handlers are slow, open again right after.

Eight slots, handlers of 10 ms, for five seconds 20 times as slow; deadlines of 0.5 and 0.15 s; at
0.8 and 2 times the capacity. Poisson arrivals, open loop. And a task that takes 10 ms in 99 % of
the cases and 5 s in 1 %, with deadlines of 0.5 s at half load: its rare runs must not close the
queue to the others.

Of each case, such as d500_2x:

before_*       share of the offered jobs that were admitted before the spell
during_*       in the spell, without its first second
regained_*     from two seconds after the spell on: the lowest share, by what it was before
recovery_s_*   from the spell's end until the share is at >= 0.9 of what it was, for good
dips_*         how often the share fell below that again after having reached it
rare_admitted  share admitted of the task with the rare long runs
rare_on_time   share finished in time of those of its accepted jobs that take 10 ms

Shares are taken over windows of 0.25 s, which the series hold; after the spell over two windows
at a time, as a window of so few Poisson arrivals alone swings by a tenth. Windows in which the
machine itself was slow (handlers or answers late outside the spell) are left out, and counted.
"""

from __future__ import annotations

import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from .harness.arrivals import Arrival
from .harness.environment import Environment
from .harness.report import Bar, Options, Report, options, say
from .harness.server import PrivateServer
from .harness.service import Service, Spell
from .policies import Setting
from .policies.deadq_queue import DEADQ
from .policies.trial import Load, Record, Trial, run_all

SLOTS: Final = 8
SERVICE_S: Final = 0.01
CAPACITY: Final = 1000
"""Far more than fits into any deadline here: admission has to know by itself."""
FACTOR: Final = 20.0
SPELL_S: Final = 5.0
WINDOW_S: Final = 0.25
OPEN: Final = 0.9
"""Of what it was before: then admission counts as open."""
SETTLED_S: Final = 2.0
STRETCHED: Final = 1.1
SLOW_S: Final = 0.01
"""A handler that takes so many times its time, or an answer so long: the machine was busy."""
DEADLINES_MS: Final = (500, 150)
LOADS: Final = (0.8, 2.0)

RARE: Final = Service("rare", SERVICE_S, rare_s=5.0, rare_share=0.01)
RARE_WITHIN_S: Final = 0.5
RARE_BUSY_S: Final = 0.99 * SERVICE_S + 0.01 * RARE_WITHIN_S
"""How long a slot is busy with such a job: the rare ones are cut at their deadline."""

CASES: Final = tuple(
    (f"d{within}_{load:g}x".replace(".", ""), within / 1000, load)
    for within in DEADLINES_MS
    for load in LOADS
)
BARS: Final = {
    **{f"recovery_s_{name}": Bar(most=SETTLED_S) for name, *_ in CASES},
    **{f"regained_{name}": Bar(least=OPEN) for name, *_ in CASES},
    **{f"dips_{name}": Bar(most=0) for name, *_ in CASES},
    "rare_admitted": Bar(least=0.98),
}


@dataclass(frozen=True, slots=True)
class Timetable:
    """How long each part lasts (s)."""

    before_s: float
    after_s: float

    @property
    def spell(self) -> tuple[float, float]:
        return self.before_s, self.before_s + SPELL_S

    @property
    def seconds(self) -> float:
        return self.before_s + SPELL_S + self.after_s


QUICK: Final = Timetable(3.0, 4.0)
PRECISE: Final = Timetable(5.0, 10.0)
SEEDS: Final = 3
"""In a precise run."""


def through_a_spell(within_s: float, load: float, seed: int, given: Options) -> Trial[Any]:
    """A trial whose handlers are slow for a while."""
    timetable = _timetable(given)
    setting = _setting(within_s, Service("constant", SERVICE_S), seed, Spell(FACTOR))
    offered = Load(load * SLOTS / SERVICE_S, timetable.seconds)
    return Trial(DEADQ, setting, offered, given.server, admission, timetable.spell)


def with_rare_long_runs(seed: int, given: Options) -> Trial[Any]:
    """A trial whose task takes 5 s now and then, at a load that keeps half of the slots busy."""
    setting = _setting(RARE_WITHIN_S, RARE, seed, None)
    offered = Load(0.5 * SLOTS / RARE_BUSY_S, _timetable(given).seconds)
    return Trial(DEADQ, setting, offered, given.server, rare)


def _timetable(given: Options) -> Timetable:
    return QUICK if given.quick else PRECISE


def _setting(within_s: float, service: Service, seed: int, spell: Spell | None) -> Setting:
    return Setting(
        url="",
        slots=SLOTS,
        workers=1,
        within_s=within_s,
        service=service,
        capacity=CAPACITY,
        seed=seed,
        spell=spell,
    )


def share_admitted(arrivals: Sequence[Arrival[str]]) -> float:
    """Of those offered; 1 when there was nobody to refuse."""
    if not arrivals:
        return 1.0
    return sum(a.answer is not None for a in arrivals) / len(arrivals)


def windows(record: Record) -> list[float]:
    """The share admitted in each window, by when the jobs were due."""
    found: dict[int, list[Arrival[str]]] = defaultdict(list)
    for arrival in record.arrivals:
        found[_window(record, arrival.due)].append(arrival)
    return [share_admitted(found[number]) for number in range(max(found))]


def disturbed(record: Record) -> set[int]:
    """Windows in which not the queue but the machine was slow, and the two after each.

    There handlers took much longer than they were meant to, or answers did: something else had
    the processors. To the queue that is a slow spell like any other, but not the one we made.
    """
    stretch: dict[int, list[float]] = defaultdict(list)
    waits: dict[int, list[float]] = defaultdict(list)
    for run in record.runs:
        if run.whole:
            stretch[_window(record, run.end)].append((run.end - run.begin) / run.drawn_s)
    for arrival in record.arrivals:
        waits[_window(record, arrival.due)].append(arrival.answered - arrival.due)
    hit = {number for number, values in stretch.items() if statistics.fmean(values) > STRETCHED}
    hit |= {number for number, values in waits.items() if statistics.fmean(values) > SLOW_S}
    return {number + later for number in hit for later in range(3)}


def _window(record: Record, at: float) -> int:
    return int((at - record.start) / WINDOW_S)


def admission(record: Record) -> tuple[dict[str, float], dict[str, Any]]:
    """How admission went before, in and after the spell."""
    spell = record.spell
    assert spell is not None  # noqa: S101  for the type checker
    shares = windows(record)
    first, last = (round((at - record.start) / WINDOW_S) for at in spell)
    warm, settled = round(1.0 / WINDOW_S), round(SETTLED_S / WINDOW_S)
    left_out = disturbed(record)
    before = statistics.fmean(_steady(shares, range(warm, first), left_out).values())
    raw = _steady(shares, range(last, len(shares)), left_out)
    values = list(raw.values())
    smooth = [statistics.fmean(two) for two in pairwise([values[0], *values])]
    after = dict(zip(raw, smooth, strict=True))
    opened = [share >= OPEN * before for share in smooth]
    late = [share for number, share in after.items() if number >= last + settled]
    closed = [number for number, share in after.items() if share < OPEN * before]
    figures = {
        "before": before,
        "during": statistics.fmean(shares[first + warm : last]),
        "regained": min(late or smooth[-1:]) / before,
        "recovery_s": WINDOW_S * (closed[-1] + 1 - last if closed else 0),
        "dips": float(sum(a and not b for a, b in pairwise(opened))),
    }
    details = {
        "shares": [round(share, 3) for share in shares],
        "left_out": sorted(left_out & {*range(warm, first), *range(last, len(shares))}),
        "driver_lag_ms_p99": round(record.driver_lag_ms(), 2),
        "cpu": {name: round(share, 3) for name, share in record.cpu.items()},
        "counters": record.counters,
    }
    return figures, details


def _steady(shares: Sequence[float], numbers: range, left_out: set[int]) -> dict[int, float]:
    """The windows to go by; all of them where too few would be left."""
    kept = {number: shares[number] for number in numbers if number not in left_out}
    return kept if len(kept) >= len(numbers) / 2 else {number: shares[number] for number in numbers}


def rare(record: Record) -> tuple[dict[str, float], dict[str, Any]]:
    """How admission went for the task with the rare long runs."""
    begin = record.start + 1.0
    counted = [a for a in record.arrivals if a.due >= begin]
    typical = [run for run in record.runs if run.drawn_s < 1.0 and run.begin >= begin]
    figures = {
        "admitted": share_admitted(counted),
        "on_time": sum(run.job in record.in_time for run in typical) / len(typical),
    }
    details = {
        "offered": len(counted),
        "long_runs": sum(run.drawn_s >= 1.0 for run in record.runs),
        "driver_lag_ms_p99": round(record.driver_lag_ms(), 2),
        "cpu": {name: round(share, 3) for name, share in record.cpu.items()},
        "counters": record.counters,
    }
    return figures, details


def plan(given: Options) -> Iterator[list[tuple[str, Trial[Any]]]]:
    """Which trials go side by side: those that leave the processors room."""
    for seed in range(given.seed, given.seed + (1 if given.quick else SEEDS)):
        spells = {name: through_a_spell(within, load, seed, given) for name, within, load in CASES}
        busy = [name for name, _, load in CASES if load > 1]
        yield [
            *((name, trial) for name, trial in spells.items() if name not in busy),
            ("rare", with_rare_long_runs(seed, given)),
        ]
        yield from ([(name, spells[name])] for name in busy)


def picture(series: dict[str, list[dict[str, Any]]], timetable: Timetable) -> Any:
    """The share admitted in each case over time, the mean of the seeds."""
    from plotly.graph_objects import Figure, Scatter

    figure = Figure()
    for name, within_s, load in CASES:
        seeds = [details["shares"] for details in series[name]]
        # Poisson arrivals may leave the last window empty
        shares = [statistics.fmean(at) for at in zip(*seeds, strict=False)]
        times = [WINDOW_S * (number + 0.5) for number in range(len(shares))]
        label = f"within {within_s:g} s, load {load:g}"
        figure.add_trace(Scatter(x=times, y=shares, name=label, hovertemplate="%{y:.2f}"))
    begin, end = timetable.spell
    figure.add_vrect(begin, end, fillcolor="grey", opacity=0.2, line_width=0)
    return figure.update_layout(
        title_text="Jobs admitted before, in and after a slow spell (shaded)",
        xaxis_title="time (s)",
        yaxis_title=f"admitted (share of the jobs offered in {WINDOW_S:g} s)",
        yaxis_range=[0, 1.05],
        hovermode="x unified",
    )


def main() -> int:
    """Run it from the command line."""
    given = options(__doc__)
    with PrivateServer(given.server) as server:
        environment = Environment(server, capacity_per_s=SLOTS / SERVICE_S)
    found: dict[str, list[float]] = defaultdict(list)
    series: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for group in plan(given):
        answers = run_all([trial for _, trial in group])
        for (case, _), (figures, details) in zip(group, answers, strict=True):
            say(f"{case}: {', '.join(f'{name} {x:.3g}' for name, x in figures.items())}")
            series[case].append(details)
            for name, figure in figures.items():
                found[f"rare_{name}" if case == "rare" else f"{name}_{case}"].append(figure)
    summed = {name: _over_seeds(name, values) for name, values in sorted(found.items())}
    return Report(
        environment, summed, dict(series), lambda: picture(series, _timetable(given))
    ).emit(given, BARS)


def _over_seeds(name: str, values: list[float]) -> float:
    """The median; of what must never happen, the worst."""
    if name.startswith(("dips_", "recovery_s_")):
        return max(values)
    return min(values) if name.startswith("regained_") else statistics.median(values)


if __name__ == "__main__":
    sys.exit(main())
