"""Goodput under overload: deadq, a first-in-first-out queue with an expiry check, and a mere cap.

Eight slots, deadlines of ten service times, Poisson arrivals at 2 and 10 times the capacity,
constant and exponential service by sleeping handlers. Arrivals are open loop. The driver, two
worker processes and the server are processes of their own for each policy.

goodput            on-time service as a share of what the slots could do in the time counted
accepted_on_time   share of the accepted jobs that were finished before their deadline
orphan_share       share of the workers' time that went into runs that were not finished in time

The capacity is slots / mean service time, where the mean is that of the times drawn in the run,
plus what the timers of Python add. A run counts by the part of it that lies in the time counted.
"""

from __future__ import annotations

import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from .harness.environment import Environment
from .harness.report import Bar, Options, Report, options, say
from .harness.rounds import percentile
from .harness.server import PrivateServer
from .harness.service import Service
from .policies import Policy, Setting
from .policies.deadq_queue import CAP_ONLY, DEADQ
from .policies.fifo_expiry import FIFO_EXPIRY
from .policies.trial import Load, Record, Trial, run_all

SLOTS: Final = 8
WORKERS: Final = 2
SERVICE_S: Final = 0.1
"""Finishing one job and claiming the next is a round trip, in which a slot is idle: on two virtual
processors that have to wake up for it, 2 ms, which is 2 % of this (``busy`` in the series)."""
WITHIN_S: Final = 10 * SERVICE_S
WARM_S: Final = 2 * WITHIN_S
COOL_S: Final = WITHIN_S
"""The load goes on while what was accepted last is worked off."""
QUICK: Final = (4.0, 1)
PRECISE: Final = (20.0, 3)
"""Seconds that are counted of each trial, and how many seeds."""
SERVICES: Final = ("constant", "exponential")
LOADS: Final = (2, 10)


@dataclass(frozen=True, slots=True)
class Contender:
    """A policy with a cap, under the name that its figures begin with."""

    name: str
    policy: Policy
    capacity: int


OURS: Final = Contender("deadq", DEADQ, 64)
"""A cap that fits: 64 jobs on eight slots are worked off in eight of the ten service times."""
CAP: Final = Contender("cap_only", CAP_ONLY, 64)
FIFO: Final = Contender("fifo_expiry", FIFO_EXPIRY, 0)
OURS_LOOSE: Final = Contender("loose", DEADQ, 1000)
"""A cap that does not: what it lets in takes 125 service times."""
CAP_LOOSE: Final = Contender("cap_only_loose", CAP_ONLY, 1000)

BARS: Final = {
    **{f"goodput_constant_{load}x": Bar(least=0.97) for load in LOADS},
    **{f"goodput_exponential_{load}x": Bar(least=0.93) for load in LOADS},
    **{f"accepted_on_time_constant_{load}x": Bar(least=0.98) for load in LOADS},
    **{f"accepted_on_time_exponential_{load}x": Bar(least=0.95) for load in LOADS},
    "fifo_expiry_constant_2x": Bar(most=0.2),
}


@dataclass(frozen=True, slots=True)
class Summary:
    """One trial in numbers."""

    goodput: float
    accepted_on_time: float
    orphan_share: float
    refusal_ms: tuple[float, float]
    """p50 and p99."""
    details: dict[str, Any]


def summarise(record: Record) -> Summary:
    """Count what lies between the warm-up and the end of the load."""
    setting, arrivals = record.setting, record.arrivals
    begin, end = record.start + WARM_S, arrivals[-1].due - COOL_S
    runs = record.runs
    useful = lost = on_time = 0.0
    for run in runs:
        inside = max(0.0, min(run.end, end) - max(run.begin, begin))
        if run.job in record.in_time and run.whole:
            useful += inside
            on_time += inside / (run.end - run.begin)
        else:
            lost += inside
    slack = statistics.fmean(run.end - run.begin - run.drawn_s for run in runs if run.whole)
    service_s = statistics.fmean(run.drawn_s for run in runs) + slack
    counted = [a for a in arrivals if begin <= a.due < end]
    accepted = [a for a in counted if a.answer is not None]
    refused = [a.latency for a in counted if a.error is not None]
    reasons = Counter(type(a.error).__name__ for a in counted if a.error is not None)
    good = sum(a.answer in record.in_time for a in accepted)
    return Summary(
        goodput=on_time / (end - begin) * service_s / setting.slots,
        accepted_on_time=good / len(accepted) if accepted else 0.0,
        orphan_share=lost / (lost + useful) if runs else 0.0,
        refusal_ms=_p50_p99_ms(refused),
        details={
            "offered": len(counted),
            "accepted": len(accepted),
            "refused": reasons,
            "runs": len(runs),
            "mean_service_ms": round(service_s * 1000, 2),
            "busy": round((useful + lost) / (end - begin) / setting.slots, 4),
            "accept_p50_p99_ms": _p50_p99_ms([a.latency for a in accepted]),
            "driver_lag_ms_p99": round(record.driver_lag_ms(), 2),
            "cpu": {name: round(share, 3) for name, share in record.cpu.items()},
            "counters": record.counters,
        },
    )


def _p50_p99_ms(latencies_s: Sequence[float]) -> tuple[float, float]:
    return percentile(latencies_s, 0.5) * 1000, percentile(latencies_s, 0.99) * 1000


@dataclass(frozen=True, slots=True)
class Case:
    """A contender under so many times the capacity."""

    one: Contender
    service: str
    load: int

    def __str__(self) -> str:
        return f"{self.service}_{self.load}x"


def trial(case: Case, seconds: float, given: Options, seed: int) -> Trial[Summary]:
    """What is to be done for a case."""
    setting = Setting(
        url="",
        slots=SLOTS,
        workers=WORKERS,
        within_s=WITHIN_S,
        service=Service(case.service, SERVICE_S),
        capacity=case.one.capacity,
        seed=seed,
    )
    offered = Load(case.load * SLOTS / SERVICE_S, WARM_S + seconds + COOL_S)
    return Trial(case.one.policy, setting, offered, given.server, summarise)


def plan(*, quick: bool) -> Iterator[list[Case]]:
    """Which trials go side by side: so few that nobody waits for a processor."""
    for service in SERVICES:
        if quick:
            yield [Case(one, service, 2) for one in (OURS, CAP, FIFO)]
            yield [Case(one, service, 10) for one in (OURS, CAP)]
        else:
            yield [Case(one, service, 2) for one in (OURS, CAP)]
            yield [Case(one, service, 2) for one in (FIFO, OURS_LOOSE, CAP_LOOSE)]
            yield from ([Case(one, service, 10)] for one in (OURS, CAP, FIFO))
    if quick:
        loose = [Case(one, "constant", 2) for one in (OURS_LOOSE, CAP_LOOSE)]
        yield [*loose, *(Case(FIFO, service, 10) for service in SERVICES)]


def measure(given: Options) -> Iterator[tuple[Case, Summary]]:
    """Each trial and its summary."""
    seconds, seeds = QUICK if given.quick else PRECISE
    for seed in range(given.seed, given.seed + seeds):
        for cases in plan(quick=given.quick):
            trials = [trial(case, seconds, given, seed) for case in cases]
            for case, summary in zip(cases, run_all(trials), strict=True):
                say(f"{case.one.name} {case}, seed {seed}: goodput {summary.goodput:.3f}")
                yield case, summary


def figures_of(case: Case, summary: Summary) -> dict[str, float]:
    """A trial's figures by their names."""
    if case.one is not OURS:
        return {f"{case.one.name}_{case}": summary.goodput}
    return {
        f"goodput_{case}": summary.goodput,
        f"accepted_on_time_{case}": summary.accepted_on_time,
        f"orphan_share_{case}": summary.orphan_share,
        f"refusal_p50_ms_{case}": summary.refusal_ms[0],
        f"refusal_p99_ms_{case}": summary.refusal_ms[1],
    }


def closed_forms() -> dict[str, float]:
    """What theory gives for first in, first out with an expiry check, when runs end even if late.

    Constant service: nothing above the capacity, as each job that passes starts with no time
    left. Exponential: a share of 1 / (slots (load - 1) + 1) of the capacity.
    """
    return {
        f"fifo_expiry_{service}_{load}x": round(1 / (SLOTS * (load - 1) + 1), 4)
        if service == "exponential"
        else 0.0
        for service in SERVICES
        for load in LOADS
    }


def picture(figures: Mapping[str, float]) -> Any:
    """The goodput of each policy in each case."""
    from plotly.graph_objects import Bar, Figure

    cases = [f"{service}_{load}x" for service in SERVICES for load in LOADS]
    names = {"deadq": "goodput", "a mere cap": CAP.name, "first in, first out": FIFO.name}
    bars = [
        Bar(
            x=[case.replace("_", ", ") for case in cases],
            y=[figures[f"{name}_{case}"] for case in cases],
            name=policy,
            hovertemplate="%{y:.3f}",
        )
        for policy, name in names.items()
    ]
    return Figure(bars).update_layout(
        title_text="Goodput at 2 and at 10 times the capacity, by policy",
        xaxis_title="service time, and load in multiples of the capacity",
        yaxis_title="goodput (share of the capacity)",
    )


def main() -> int:
    """Run it from the command line."""
    given = options(__doc__)
    with PrivateServer(given.server) as server:
        environment = Environment(server, capacity_per_s=SLOTS / SERVICE_S)
    found: dict[str, list[float]] = defaultdict(list)
    series: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for case, summary in measure(given):
        series[f"{case.one.name}_{case}"].append(summary.details)
        for name, figure in figures_of(case, summary).items():
            found[name].append(figure)
    figures = {name: statistics.median(values) for name, values in sorted(found.items())}
    shown = {"closed_form": closed_forms(), **series}
    return Report(environment, figures, shown, lambda: picture(figures)).emit(given, BARS)


if __name__ == "__main__":
    sys.exit(main())
