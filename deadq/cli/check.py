"""``deadq check``: whether queue and server are fit for work, and what to change."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from ..checks import Finding, Level, TaskFacts, check_memory, check_queue, check_server
from ..deadline import seconds
from ..queue import Queue
from ..store.connect import Backend
from ..store.survey import survey
from .faults import asked
from .naming import queue_of_module
from .printing import print_json
from .tables import print_points

_MEASURED_S: Final = 1.0
"""So long the rate of submits is measured where none is given."""

_SIGNS: Final = {Level.OK: "ok", Level.WARNING: "warning", Level.FAULT: "FAULT"}
_STYLES: Final = {
    Level.OK: "green",
    Level.WARNING: "black on yellow",  # yellow alone is not seen on white
    Level.FAULT: "bold white on red",
}


def check(
    target: str, *, rate: float | None, size: float | None, url: str | None, as_json: bool
) -> int:
    """Print what was looked at, and what to do about it; the exit code is 1 with a fault.

    Raises:
        Fault: there is no such module or queue, or an odd rate or size.
        StoreUnavailable: the server cannot be reached.
    """
    with asked():
        for name, value in (("rate", rate), ("bytes", size)):
            if value is not None:
                seconds(value, name)
    why = "check looks at the queue's own settings"
    with queue_of_module(target, url, why) as queue:
        findings = _findings(queue, rate, size)
    if as_json:
        found = [{**finding._asdict(), "level": finding.level.value} for finding in findings]
        print_json({"queue": queue.name, "findings": found})
    else:
        print_findings(f"queue {queue.name}", findings)
    return 1 if any(finding.level is Level.FAULT for finding in findings) else 0


def _findings(queue: Queue, rate: float | None, size: float | None) -> list[Finding]:
    config, given = queue.config, queue.backend.given
    url = None if given is not None else queue.backend.url
    # one that may evict is looked at too, whatever the queue would say to it
    backend = Backend(config.name, url, given, allow_eviction=True)
    try:
        server = survey(backend, config.name, list(queue.tasks))
    finally:
        backend.close()
    findings = list(check_server(server, allow_eviction=config.allow_eviction))
    if any(finding.level is Level.FAULT for finding in findings):
        return findings  # the rest asks the server by the queue itself
    tasks = {
        name: TaskFacts(
            task.config.within,
            server.tasks[name][1] / 1_000 if name in server.tasks else None,
            task.config.timeout,
        )
        for name, task in queue.tasks.items()
    }
    findings += check_queue(config, tasks, queue.stats().slots, server.mean_ms / 1_000)
    weight = server.record_bytes if size is None else size
    findings.append(check_memory(server, config, _rate(queue) if rate is None else rate, weight))
    return findings


def _rate(queue: Queue) -> float:
    """Submits that are accepted, a second, at present."""
    before, at = queue.stats().counters.get("admitted", 0), time.monotonic()
    time.sleep(_MEASURED_S)
    return (queue.stats().counters.get("admitted", 0) - before) / (time.monotonic() - at)


def print_findings(title: str, findings: Sequence[Finding]) -> None:
    """Each with its level, and what to do about it."""
    points: list[tuple[str, str, str]] = []
    for finding in findings:
        line = f"{finding.about}: {finding.found}"
        points.append((_SIGNS[finding.level], _STYLES[finding.level], line))
        if finding.remedy:
            points.append(("", "", f"-> {finding.remedy}"))
    print_points(title, points)
