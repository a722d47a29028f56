"""``deadq jobs``, ``deadq show`` and ``deadq dead``: what stands where, and why."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from ..job import State
from ..reports import JobReport
from .faults import asked
from .naming import job_named, never_used, queue_named
from .printing import counted, print_json
from .tables import print_block, print_pairs, print_rows


def jobs(target: str, *, state: str | None, limit: int, url: str | None, as_json: bool) -> None:
    """Print unfinished jobs.

    Raises:
        Fault: there is no such module, queue or state, or an odd limit.
        StoreUnavailable: the server cannot be reached.
    """
    with queue_named(target, url) as queue, asked():
        found = queue.jobs(state, limit)
        note = "" if found or as_json else never_used(queue)
    if as_json:
        print_json([job._asdict() for job in found])
        return
    print_rows(
        f"queue {queue.name}: {_count(found, limit, 'unfinished job')}{note}",
        ("key", "task", "state", "time left", "attempt", "worker"),
        [
            (job.key, job.task, job.state, span(job.remaining_s), job.attempts or "", job.worker)
            for job in found
        ],
        folded=("key", "worker"),
    )


def show(target: str, name: str, *, url: str | None, as_json: bool) -> None:
    """Print all that is known of one job, by its id or key.

    Raises:
        Fault: there is no such module, queue or job.
        StoreUnavailable: the server cannot be reached.
    """
    with queue_named(target, url) as queue:
        report = job_named(queue, name)
    if as_json:
        units = [unit._asdict() for unit in report.units]
        print_json({**report._asdict(), "units": units})
        return
    print_pairs(f"job {report.id}", _rows(report))
    if report.error_traceback:
        print_block("where it failed", report.error_traceback)


def dead(target: str, *, limit: int, url: str | None, as_json: bool) -> None:
    """Print jobs that failed for good, the newest first.

    Raises:
        Fault: there is no such module or queue, or an odd limit.
        StoreUnavailable: the server cannot be reached.
    """
    with queue_named(target, url) as queue, asked():
        found = queue.dead(limit)
        note = "" if found or as_json else never_used(queue)
    if as_json:
        print_json([job._asdict() for job in found])
        return
    print_rows(
        f"queue {queue.name}: {_count(found, limit, 'dead job')}{note}",
        ("key", "task", "state", "ended", "attempts", "error"),
        [
            (
                job.key,
                job.task,
                job.state,
                instant(job.ended_ms)[:19],
                job.attempts,
                _error(*job[-2:], job.state, job.attempts),
            )
            for job in found
        ],
        folded=("key", "error"),
    )


def _count(found: Sequence[object], limit: int, what: str) -> str:
    more = ", and perhaps more: see --limit" if found and len(found) == limit else ""
    return f"{counted(len(found), what)}{more}"


def _rows(report: JobReport) -> list[tuple[str, object]]:
    """What there is to say: what does not apply is left out."""
    rows: list[tuple[str, object]] = [
        ("key", report.key),
        ("task", report.task),
        ("state", f"{report.state}, being cancelled" if report.cancelling else report.state),
        ("deadline", f"{instant(report.deadline_ms)} ({span(report.remaining_s)})"),
    ]
    if report.submitted_ms is not None:
        rows.append(("submitted", instant(report.submitted_ms)))
    if report.ended_ms is not None:
        rows.append(("ended", instant(report.ended_ms)))
    rows.append(("attempts", report.attempts))
    if report.retries:
        rows.append(("retries", f"{report.retries_used} of {report.retries}"))
    if report.crashes:
        rows.append(("crashes", report.crashes))
    if report.fence:
        rows.append(("fence", report.fence))
    if report.worker:
        rows.append(("worker", report.worker))
    rows += [
        (f"unit {u.name}", f"{u.state}, begun {instant(u.begun_ms)} by fence {u.fence}")
        for u in report.units
    ]
    rows += [
        ("waiters", report.waiters),
        ("arguments", f"{report.argument_bytes:,} bytes"),
        ("result", f"{report.result_bytes:,} bytes"),
        ("kept for", span(report.kept_s)),
    ]
    if report.error_type is not None:
        error = _error(report.error_type, report.error_message, report.state, report.attempts)
        rows.append(("error", error))
    return rows


def _error(type_name: str | None, message: str | None, state: State, attempts: int) -> str:
    if not type_name:
        return ""
    gave_up = f"gave up after {counted(attempts, 'attempt')}: " if state is State.EXHAUSTED else ""
    return f"{gave_up}{type_name}: {message}"


def instant(ms: int) -> str:
    """An instant of the server's clock, as people read it."""
    return datetime.fromtimestamp(ms / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + "Z"


def span(seconds: float) -> str:
    """A time span, in a unit that suits it; negative: so long ago."""
    size = abs(seconds)
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if size >= 2 * length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.3f} s"
