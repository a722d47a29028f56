"""Looking at jobs without touching them: what stands where, and all that is known of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ...job import State
from ...reports import JobReport, ListedJob, UnitReport
from ..loader import load
from .call import STATES, Call, pairs, whole_number


def jobs(state: str, most: int) -> Call[list[ListedJob]]:
    """Unfinished jobs, in one state or in any (``""``), those first that come first."""
    return Call(load("jobs"), [state, most], _read_jobs)


def _read_jobs(reply: list[Any]) -> list[ListedJob]:
    now = whole_number(reply[0])
    return [
        ListedJob(
            _text(ident),
            _text(key),
            _text(task),
            STATES.get(state, State.MALFORMED),
            whole_number(deadline),
            (whole_number(deadline) - now) / 1_000,
            whole_number(attempt),
            _text(worker),
        )
        for ident, key, task, state, deadline, attempt, worker in reply[1:]
    ]


def show(job: str) -> Call[tuple[JobReport, bytes] | None]:
    """All that is known of one job, and its encoded error; None when there is no record."""
    return Call(load("show"), [job, ""], lambda reply: _read_show(job, reply))


def payload(job: str) -> Call[bytes]:
    """A job's encoded arguments; empty where they are not kept (any more)."""
    return Call(load("show"), [job, "1"], lambda reply: bytes(reply[8]))


def _read_show(job: str, reply: list[Any]) -> tuple[JobReport, bytes] | None:
    now, flat, due, ttl, worker, argument_bytes, result_bytes, blob, _ = reply
    record = {_text(name): _text(value) for name, value in pairs(flat)}
    if not record:
        return None
    deadline = whole_number(due or record.get("deadline", "0"))
    report = JobReport(
        id=job,
        key=record.get("key", ""),
        task=record.get("task", ""),
        state=STATES.get(record.get("state", "").encode(), State.MALFORMED),
        deadline_ms=deadline,
        remaining_s=(deadline - whole_number(now)) / 1_000,
        submitted_ms=whole_number(record["born"]) if "born" in record else None,
        ended_ms=whole_number(record["finished"]) if "finished" in record else None,
        attempts=whole_number(record.get("attempt", 0)),
        retries_used=whole_number(record.get("fails", 0)),
        retries=whole_number(record.get("retries", 0)),
        crashes=whole_number(record.get("crashes", 0)),
        fence=whole_number(record.get("fence", 0)),
        worker=_text(worker),
        waiters=sum(name.startswith("w:") for name in record),
        cancelling="cancel" in record,
        units=tuple(_unit(name[2:], value) for name, value in record.items() if name[:2] == "u:"),
        argument_bytes=argument_bytes,
        result_bytes=result_bytes,
        kept_s=whole_number(ttl) / 1_000,
        error_type=None,
        error_message=None,
    )
    return report, blob


def _unit(name: str, value: str) -> UnitReport:
    word, *numbers = value.split(" ")
    fence, begun, limit = ([whole_number(n) for n in numbers] + [0, 0, 0])[:3]
    return UnitReport(name, word, fence, begun, limit)


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


class Survey(NamedTuple):
    """Service times over the queue and of each task (p50, p95), ms; and the commands that the
    user may not run on the queue's keys."""

    mean_ms: int
    refused: list[str]
    tasks: dict[str, tuple[int, int]]


def survey(tasks: Sequence[str]) -> Call[Survey]:
    """What an operator's check wants to know."""
    return Call(load("survey"), [*tasks], lambda reply: _read_survey(tasks, reply))


def _read_survey(tasks: Sequence[str], reply: list[Any]) -> Survey:
    quantiles = zip(map(whole_number, reply[3::2]), map(whole_number, reply[4::2]), strict=True)
    known = {task: both for task, both in zip(tasks, quantiles, strict=True) if both[1] >= 0}
    return Survey(whole_number(reply[1]), [_text(name) for name in reply[2]], known)
