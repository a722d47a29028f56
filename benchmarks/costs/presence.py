"""What a worker costs before it works: the time until its first claim, and memory while idle."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Final

from deadq import Queue

from . import Bench, queue_of

_MODULE: Final = """
import time
from deadq import Queue

queue = Queue("costs", capacity=1000)

@queue.task(within=3600.0)
{kind}def started() -> float:
    return time.monotonic()
"""
_KINDS: Final = ("async ", "")
_STARTS: Final = 7
_PATIENCE_S: Final = 30.0
_PAUSE_S: Final = 0.005


def measure(bench: Bench) -> None:
    """Both figures, for both runners; starts take turns."""
    seconds: dict[str, list[float]] = {kind: [] for kind in _KINDS}
    megabytes: dict[str, float] = {}
    for _ in range(bench.times(4 * _STARTS) // 4):
        for kind in _KINDS:
            bench.flush()
            took, resident = _start(bench.server.url, kind)
            seconds[kind].append(took)
            megabytes[kind] = resident
    bench.figures["startup_s"] = max(median(found) for found in seconds.values())
    bench.figures["idle_child_mb"] = max(megabytes.values())
    bench.series["startup_s"] = {kind.strip() or "plain": found for kind, found in seconds.items()}


def _start(url: str, kind: str) -> tuple[float, float]:
    """Start a worker on a queue with one job; seconds to its start, and the child's megabytes."""
    queue = queue_of(url)

    @queue.task(within=3600.0)
    def started() -> float:
        return time.monotonic()  # as in the worker's module

    job = started.enqueue()
    with _worker(url, kind) as (pid, since):
        took = float(job.result()) - since
        _await_idle(queue)
        resident = _resident_mb(pid)
    queue.close()
    return took, resident


@contextmanager
def _worker(url: str, kind: str) -> Iterator[tuple[int, float]]:
    """The supervisor's process id, and when it was started."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "jobs.py").write_text(_MODULE.format(kind=kind))
        command = [sys.executable, "-m", "deadq.cli", "work", "jobs:queue", "--concurrency=1"]
        since = time.monotonic()
        worker = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, "DEADQ_URL": url, "PYTHONPATH": os.pathsep.join(sys.path)},
            stderr=subprocess.DEVNULL,
        )
        try:
            yield worker.pid, since
        finally:
            worker.send_signal(signal.SIGTERM)
            worker.wait(_PATIENCE_S)


def _await_idle(queue: Queue) -> None:
    until = time.monotonic() + _PATIENCE_S
    while queue.stats().unfinished:
        if time.monotonic() > until:
            msg = "the worker does not finish its job"
            raise TimeoutError(msg)
        time.sleep(_PAUSE_S)


def _resident_mb(supervisor: int) -> float:
    """Resident memory of its one child."""
    children = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
    pages = int(Path(f"/proc/{children[0]}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
