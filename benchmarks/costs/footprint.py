"""What a job costs the server: commands (those inside scripts included) and bytes."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final, cast

from ..harness.children import Child
from ..harness.report import say
from . import PAYLOAD, Bench, fill, queue_of, task_of
from .work import serve

_PATIENCE_S: Final = 300.0
_JOBS: Final = 1000
"""How many jobs commands are counted over."""


def measure(bench: Bench) -> None:
    """All figures of this kind."""
    size(bench)
    for waiting in levels(quick=bench.quick):
        bench.figures[name_of(waiting)] = commands(bench, waiting)


def levels(*, quick: bool) -> tuple[int, int]:
    """With how many jobs waiting commands are counted: few, and many."""
    return 1000, 100_000 if quick else 1_000_000


def name_of(waiting: int) -> str:
    """The figure's name: commands_per_job_1k, _100k, _1m."""
    millions = waiting // 1_000_000
    return f"commands_per_job_{f'{millions}m' if millions else f'{waiting // 1000}k'}"


def size(bench: Bench) -> None:
    """Bytes that a waiting job takes, and one that is finished and kept for repeats."""
    jobs = bench.times(40_000)
    queue = queue_of(bench.server.url)
    task = task_of(queue)
    fill(task, 1)  # connections and scripts are there before it counts
    bench.flush()
    before = _used(bench)
    fill(task, jobs)
    bench.figures["bytes_per_job"] = (_used(bench) - before) / jobs
    with Child(serve, bench.server.url, jobs) as child:
        child.result(_PATIENCE_S)
    stats = queue.stats()
    if stats.counters.get("finished:done") != jobs or stats.unfinished:
        msg = f"not all of {jobs} jobs were finished: {stats}"
        raise RuntimeError(msg)
    bench.figures["bytes_per_finished_job"] = (_used(bench) - before) / jobs
    queue.close()


def _used(bench: Bench) -> int:
    return int(bench.server.info("memory")["used_memory"])


def commands(bench: Bench, waiting: int) -> float:
    """Commands that a job costs from submit to finish, with about so many others waiting."""
    bench.flush()
    queue = queue_of(bench.server.url)
    task = task_of(queue)
    begin = time.monotonic()
    fill(task, waiting - _JOBS // 2)
    took = time.monotonic() - begin
    if waiting > 10_000:
        say(f"{waiting} jobs submitted in {took:.1f} s")
    submit = _counted(bench, lambda: _submit_one_by_one(task, _JOBS))

    def work() -> int:
        before = queue.stats().counters.get("finished:done", 0)
        with Child(serve, bench.server.url, _JOBS) as child:
            child.result(_PATIENCE_S)
        return queue.stats().counters["finished:done"] - before

    finish = _counted(bench, work)
    queue.close()
    bench.series[f"commands_{waiting}"] = {
        "fill_s": round(took, 2),
        "fill_us_per_job": round(took / waiting * 1e6, 1),
        "submit": submit[1],
        "claim_and_finish": finish[1],
    }
    return submit[0] + finish[0]


def _submit_one_by_one(task: Any, jobs: int) -> int:
    for _ in range(jobs):
        task.enqueue(PAYLOAD)
    return jobs


def _counted(bench: Bench, work: Any) -> tuple[float, dict[str, list[float]]]:
    """Commands for each job that ``work`` says it has done, in all and by name with usec."""
    with bench.server.client() as client:
        client.config_resetstat()
        jobs = work()
        stats = cast("Mapping[str, Mapping[str, float]]", client.info("commandstats"))
    found = {
        name.removeprefix("cmdstat_"): entry
        for name, entry in stats.items()
        if not name.startswith(("cmdstat_info", "cmdstat_config"))  # our own
    }
    by_name = {
        name: [round(entry["calls"] / jobs, 3), round(entry["usec"] / jobs, 2)]
        for name, entry in sorted(found.items(), key=lambda item: -item[1]["usec"])
    }
    return sum(entry["calls"] for entry in found.values()) / jobs, by_name
