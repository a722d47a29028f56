"""Hedging: what a second call takes off the slow end, what it costs, and when it stays away.

deadq's own ``ahedge`` in virtual time, seeded: requests that fan out to 100
servers, of which 2 % of the replies take over 10 ms and 0.1 % stall for 1 s. The setting follows
the experiment in Jeffrey Dean and Luiz André Barroso, "The Tail at Scale" (CACM 2013): reading
1,000 keys of a BigTable over 100 servers, a second call after 10 ms brought the p99.9 from 1,800
to 74 ms (24 times less) for 2 % more requests.

p999_cut              p99.9 of the requests without / with a second call after 10 ms
extra_requests        second calls / calls in that run
hedges_when_slow      second calls / calls while all servers are 5 times as slow
*_p95                 the same three with the measured p95 as the delay (the default)
p999_ms_*             the p99.9 itself (ms): unhedged, fixed, p95
http_p99_cut          p99 without / with, over HTTP on real sockets: fan-out to 5 servers, 2 % of
                      the replies stall for 1 s, a second call after 100 ms
http_extra_requests   requests that the servers saw / needed, less 1
tied_p99_cut          jobs in two queues on a real server, two workers: p99 tied / untied, from 1
tied_duplicates       runs started / jobs, less 1
tied_left             jobs that are left in either queue in the end

Of 10,000 requests each, which is a million calls (``--quick``: 1,000), and 500 over HTTP (200).
Where every stall gets its second call, 1 request in 10,000 still stalls, as both calls did.
"""

from __future__ import annotations

import contextlib
import sys
from typing import Any, Final

from .harness.children import Child
from .harness.environment import Environment
from .harness.report import Bar, Options, Report, options, say
from .harness.server import PrivateServer
from .hedging.chart import picture
from .hedging.fleet import HEDGES, PATIENCE_S, simulate_all
from .hedging.over_http import over_http
from .hedging.spells import FACTOR, MORE_FACTORS, SPELL_S, hedges_when_slow
from .hedging.tied import tied

REQUESTS, REQUESTS_QUICK = 10_000, 1_000
OVER_HTTP, OVER_HTTP_QUICK = 500, 200
TIED_S, TIED_S_QUICK = 60.0, 15.0
SHOWN: Final = (0.5, 0.9, 0.99, 0.999, 0.9999)
"""Percentiles in the series."""

BARS: Final = {
    "p999_cut": Bar(least=20.0),
    "extra_requests": Bar(most=0.025),
    "hedges_when_slow": Bar(most=0.01),
    "p999_cut_p95": Bar(least=20.0),
    "extra_requests_p95": Bar(most=0.05),
    "hedges_when_slow_p95": Bar(most=0.01),
    "http_p99_cut": Bar(least=3.0),
    "http_extra_requests": Bar(most=0.05),
    "tied_p99_cut": Bar(least=0.35),
    "tied_duplicates": Bar(most=0.01),
    "tied_left": Bar(most=0),
}


def suffix(way: str) -> str:
    """Of a figure's name."""
    return "" if way == "fixed" else f"_{way}"


def in_spells(given: Options) -> tuple[dict[str, float], dict[str, Any]]:
    """Second calls while all servers are slow; in the series more or less slow ones."""
    ways = [way for way in HEDGES if way != "unhedged"]
    seconds = SPELL_S / 3 if given.quick else SPELL_S
    factors = () if given.quick else MORE_FACTORS
    with contextlib.ExitStack() as stack:
        asked = {
            (way, factor): stack.enter_context(
                Child(hedges_when_slow, way, factor, given.seed, seconds)
            )
            for way in ways
            for factor in (FACTOR, *factors)
        }
        found = {case: child.result(PATIENCE_S) for case, child in asked.items()}
    figures = {f"hedges_when_slow{suffix(way)}": found[way, FACTOR] for way in ways}
    series = {
        f"by_factor{suffix(way)}": {
            f"{factor:g}": round(found[way, factor], 5) for factor in factors
        }
        for way in ways
        if factors
    }
    for name, figure in figures.items():
        say(f"{name}: {figure:.3%}")
    return figures, series


def main() -> int:
    """Run it from the command line."""
    given = options(__doc__)
    with PrivateServer(given.server) as server:
        environment = Environment(server, seed=given.seed)
    with Child(over_http, OVER_HTTP_QUICK if given.quick else OVER_HTTP, given.seed) as child:
        ties, ties_ms = tied(given.server, TIED_S_QUICK if given.quick else TIED_S, given.seed)
        http, http_ms = child.result(PATIENCE_S)
    found = simulate_all(REQUESTS_QUICK if given.quick else REQUESTS, given.seed)
    plain = found["unhedged"]
    figures: dict[str, float] = {}
    for way, seen in found.items():
        if way != "unhedged":
            figures[f"p999_cut{suffix(way)}"] = plain.p(0.999) / seen.p(0.999)
            figures[f"extra_requests{suffix(way)}"] = seen.extra
        figures[f"p999_ms_{way}"] = seen.p(0.999) * 1000
    spells, by_factor = in_spells(given)
    series = {
        "percentiles_ms": {
            way: {f"{q:g}": round(seen.p(q) * 1000, 2) for q in SHOWN}
            for way, seen in found.items()
        },
        "calls": {way: [seen.firsts, seen.seconds] for way, seen in found.items()},
        "hedges_when_slow": by_factor,
        "http": http_ms,
        "tied": ties_ms,
    }
    report = Report(
        environment, {**figures, **spells, **http, **ties}, series, lambda: picture(found)
    )
    return report.emit(given, BARS)


if __name__ == "__main__":
    sys.exit(main())
