"""Retries in a total outage: a fleet under one budget, without one, and three layers that retry.

Twenty processes call one dependency, five times a second each; after five seconds it answers 503
to everything. Each call is tried up to four times, with full jitter.

amplification        outbound / inbound of the fleet, the highest of all windows of ten seconds that
                     begin ten seconds after the outage or later; at most 1.10 + floor / rate
amplification_first  the same for those that begin earlier, the first window among them
rate                 first attempts a second, of the fleet
unbounded            the same without a budget, the lowest
alone_worst          the server of the budget is killed: of each process by itself, the highest,
                     in windows that begin ten seconds after that or later; at most 1.10 +
                     floor / rate of one process
alone_median         the same, of the process in the middle
layers               calls at the lowest of three layers for a request at the top, each with three
                     retries, over real HTTP: one budget and one layer that retries
layers_naive         the same where each layer retries by itself
"""

from __future__ import annotations

import statistics
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from .harness.environment import Environment
from .harness.report import Bar, Options, Report, options, say
from .harness.server import PrivateServer
from .storming.layers import calls_for_a_request
from .storming.outage import (
    PROCESSES,
    RATE,
    RULE,
    TRIES,
    WINDOW_S,
    Scene,
    Seen,
    ratios,
    run,
    together,
)

ALONE_S: Final = 2 * WINDOW_S + 2.0
QUICK_S: Final = 2 * WINDOW_S + 2.0
PRECISE_S: Final = 5 * WINDOW_S
"""Of outage."""

BOUND: Final = 1.0 + RULE.ratio + RULE.floor / (PROCESSES * RATE)
BOUND_ALONE: Final = 1.0 + RULE.ratio + RULE.floor / RATE

BARS: Final = {
    "amplification": Bar(most=BOUND),
    "unbounded": Bar(least=3.0),
    "alone_worst": Bar(most=BOUND_ALONE),
    "layers": Bar(most=1.1),
    "layers_naive": Bar(least=64.0, most=64.0),
}


def fleet(seen: Seen, begin: float, end: float) -> list[tuple[float, float]]:
    """The fleet's windows in the time given."""
    return list(ratios(together(seen.calls), begin, end))


def outages(given: Options) -> tuple[dict[str, float], dict[str, Any]]:
    """With a budget, until its server is killed and on from there; and without."""
    seconds = QUICK_S if given.quick else PRECISE_S
    scenes = (
        Scene(budget=True, seconds=seconds, alone=ALONE_S),
        Scene(budget=False, seconds=2 * WINDOW_S + 1.0),
    )
    with ThreadPoolExecutor() as side_by_side:
        seen, free = side_by_side.map(lambda scene: run(scene, given.server, given.seed), scenes)
    windows = fleet(seen, seen.outage, seen.death)
    later = [ratio for at, ratio in windows if at >= seen.outage + WINDOW_S]
    first = [ratio for at, ratio in windows if at < seen.outage + WINDOW_S]
    each = [
        max(ratio for _, ratio in ratios(one, seen.death + WINDOW_S, one.first[-1]))
        for one in seen.calls
    ]
    calls = together(seen.calls).first
    say(f"with a budget {max(later):.3f}, each process alone {max(each):.3f}")
    without = fleet(free, free.outage, free.death)
    say(f"without {min(ratio for _, ratio in without):.3f}")
    figures = {
        "amplification": max(later),
        "amplification_first": max(first),
        "rate": (len(calls) - 1) / (calls[-1] - calls[0]),
        "unbounded": min(ratio for at, ratio in without if at >= free.outage + WINDOW_S),
        "alone_worst": max(each),
        "alone_median": statistics.median(each),
    }
    series: dict[str, Any] = {
        "with_budget": _rounded(windows, seen.outage),
        "without": _rounded(without, free.outage),
        "bound": BOUND,
        "bound_alone": BOUND_ALONE,
    }
    return figures, series


def picture(series: dict[str, Any]) -> Any:
    """Outbound by inbound in each window, with a budget and without."""
    from plotly.graph_objects import Figure, Scatter

    figure = Figure()
    for name, label in (("with_budget", "with a budget"), ("without", "without")):
        times, ratios_ = zip(*series[name], strict=True)
        figure.add_trace(Scatter(x=times, y=ratios_, name=label, hovertemplate="%{y:.3f}"))
    figure.add_hline(series["bound"], line_dash="dot", annotation_text=f"{series['bound']:.2f}")
    return figure.update_layout(
        title_text="Calls that a dependency gets for each first attempt, in a total outage",
        xaxis_title=f"begin of the window of {WINDOW_S:g} s, since the outage began (s)",
        yaxis_title="outbound / inbound",
        yaxis_range=[0, TRIES + 0.2],
        hovermode="x unified",
    )


def _rounded(pairs: list[tuple[float, float]], since: float) -> list[tuple[float, float]]:
    return [(round(at - since, 2), round(ratio, 4)) for at, ratio in pairs]


def main() -> int:
    """Run it from the command line."""
    given = options(__doc__)
    with PrivateServer(given.server) as server:
        environment = Environment(server, processes=PROCESSES, rate_per_process=RATE)
    figures, series = outages(given)
    figures["layers"] = calls_for_a_request(100 if given.quick else 400, deadq=True)
    figures["layers_naive"] = calls_for_a_request(3 if given.quick else 10, deadq=False)
    return Report(environment, figures, series, lambda: picture(series)).emit(given, BARS)


if __name__ == "__main__":
    sys.exit(main())
