"""What deadq's steps cost beside plain Redis commands: submits, workers, refusals, memory.

enqueue_vs_raw          submits a second, one at a time / LPUSH one at a time
enqueue_many_vs_raw     100 a call / pipelined LPUSH by 100
aenqueue_vs_raw         100 concurrent / awaited LPUSH one at a time
worker_async_vs_raw     jobs a second, one child, 64 slots, no-op / LPUSH+BRPOP pairs
worker_process_vs_raw   jobs a second, one child of the process runner, no-op / the same
startup_s               from the start of `deadq work` to its first claim, p50 of both runners
idle_child_mb           resident memory of an idle child, the larger of both runners
start_latency_vs_raw    idle worker, submit to handler start, p50 / BRPOP wake-up, p50
refuse_vs_accept        duration of a refused submit / of an accepted one, p50
commands_per_job_1k     commands that the server runs for a job (in scripts too), 1,000 waiting
commands_per_job_1m     the same with 1,000,000 waiting (--quick: 100,000, named _100k)
retry_vs_tenacity       duration of a no-op under `retry` with a local budget / under tenacity
commands_per_100_calls  script calls that a fleet's budget makes for 100 calls under it
bytes_per_job           memory of a waiting job with a payload of 100 bytes
bytes_per_finished_job  memory of a finished job, kept for repeats of its key

Raw is redis-py with hiredis on the same server, with the same payload, in the same run; ratios
are medians of five interleaved rounds. The server has a processor to itself where there are two
(``--free``: wherever the kernel likes); the series hold some on one processor as well.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from typing import Any, Final

from .costs import Bench, footprint, presence, retrying, submit, work
from .harness.environment import Environment
from .harness.placement import Placement, on
from .harness.report import Bar, Options, Report, options, rounded
from .harness.server import PrivateServer

BARS: Final = {
    "enqueue_vs_raw": Bar(least=0.55),
    "enqueue_many_vs_raw": Bar(least=0.30),
    "aenqueue_vs_raw": Bar(least=2.5),
    "worker_async_vs_raw": Bar(least=1.2),
    "worker_process_vs_raw": Bar(least=0.4),
    "startup_s": Bar(most=0.5),
    "idle_child_mb": Bar(most=45.0),
    "start_latency_vs_raw": Bar(most=3.0),
    "refuse_vs_accept": Bar(most=1.0),
    "retry_vs_tenacity": Bar(most=1.0),
    "commands_per_100_calls": Bar(most=1.0),
    "bytes_per_job": Bar(most=850),
    "bytes_per_finished_job": Bar(most=450),
}


def picture(figures: Mapping[str, float]) -> Any:
    """All ratios, and what each has to reach."""
    from plotly.graph_objects import Bar as Column
    from plotly.graph_objects import Figure, Scatter

    names = [name for name in reversed(BARS) if "_vs_" in name]
    measured = Column(
        x=[figures[name] for name in names],
        y=names,
        orientation="h",
        name="measured",
        hovertemplate="%{x:.3g}",
    )
    least = {name: BARS[name].least for name in names if BARS[name].least > -math.inf}
    most = {name: BARS[name].most for name in names if BARS[name].most < math.inf}
    limits = [
        Scatter(
            x=list(values.values()),
            y=list(values),
            name=label,
            mode="markers",
            marker={"symbol": symbol, "size": 14},
        )
        for label, symbol, values in (
            ("at least", "triangle-right", least),
            ("at most", "triangle-left", most),
        )
    ]
    return Figure([measured, *limits]).update_layout(
        title_text="What deadq's steps cost, beside plain Redis commands",
        xaxis_title="ratio (1: the same)",
        yaxis_title="figure",
    )


def main() -> int:
    """Run it from the command line."""
    given = options(__doc__)
    place = Placement() if given.free else Placement.apart()
    with PrivateServer(given.server, place.server) as server, on(place.others):
        environment = Environment(server, placement=str(place))
        bench = Bench(server, given.quick)
        submit.measure(bench)
        work.measure(bench)
        presence.measure(bench)
        retrying.measure(bench)
        footprint.measure(bench)
    if not given.free:
        bench.series["on_one_processor"] = _together(given)
    few, many = (footprint.name_of(waiting) for waiting in footprint.levels(quick=given.quick))
    # what a job costs must not depend on how many wait
    alike = Bar(0.95 * bench.figures[few], 1.05 * bench.figures[few])
    return Report(environment, bench.figures, bench.series, lambda: picture(bench.figures)).emit(
        given, {**BARS, many: alike}
    )


def _together(given: Options) -> dict[str, float]:
    """Some once more with client and server on one processor: there pure work counts."""
    place = Placement.together()
    with PrivateServer(given.server, place.server) as server, on(place.others):
        bench = Bench(server, quick=True)
        submit.measure(bench)
        work.throughput(bench)
    return {name: rounded(name, figure) for name, figure in bench.figures.items()}


if __name__ == "__main__":
    sys.exit(main())
