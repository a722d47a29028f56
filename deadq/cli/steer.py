"""What an operator does to a queue: cancel, requeue, pause, resume, drain."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ..deadline import seconds
from ..errors import Rejected
from ..job import State
from ..options import budget
from ..queue import Queue
from ..reports import JobReport
from .faults import Fault, asked
from .naming import job_named, never_used, queue_named, queue_of_module
from .printing import counted, print_json, say

_LOOK_EVERY_S: Final = 0.1
_MOST_DEAD: Final = 1_000
"""As many as a server keeps."""


def cancel(target: str, names: Sequence[str], *, url: str | None, as_json: bool) -> int:
    """Cancel jobs by their ids or keys; the exit code is 1 if one of them had ended already.

    Raises:
        Fault: there is no such module, queue or job.
        StoreUnavailable: the server cannot be reached.
    """
    why = "cancel needs the queue's own settings, which say how long recorded units are kept"
    with queue_of_module(target, url, why) as queue:
        found = _named(queue, names)
        states = {ident: queue.cancel(ident) for ident in found}
    if as_json:
        print_json([{"id": j.id, "key": j.key, "state": states[j.id]} for j in found.values()])
    else:
        for job in found.values():
            say(f"{job.key or job.id}: {_cancelled(job, states[job.id])}")
    in_time = {State.CANCELLED, State.RUNNING}
    return 0 if in_time.issuperset(states.values()) else 1


def _cancelled(before: JobReport, state: State) -> str:
    """What a cancel has done to a job, which was so before, by the state that was its answer."""
    match state:
        case State.RUNNING:
            return "it runs, and is interrupted outside its units"
        case State.CANCELLED if before.state is State.CANCELLED:
            return "it was cancelled before"
        case State.CANCELLED if before.attempts:
            return "cancelled, it does not start again"
        case State.CANCELLED:
            return "cancelled, it never starts"
    return f"too late, it is {state}"


def _named(queue: Queue, names: Sequence[str]) -> dict[str, JobReport]:
    """Jobs by their ids, each once."""
    found = (job_named(queue, name) for name in names)
    return {job.id: job for job in found}


def requeue(
    target: str,
    names: Sequence[str],
    *,
    everything: bool,
    within: float,
    url: str | None,
    as_json: bool,
) -> int:
    """Submit dead jobs once more, each with ``within`` seconds; the exit code is 1 if one of them
    was refused.

    Raises:
        Fault: there is no such module, queue or job, or nothing was asked for.
        StoreUnavailable: the server cannot be reached.
    """
    if everything == bool(names):
        raise Fault("name the jobs to requeue by id or key, or give --all for all dead ones")
    why = "requeue submits, and so needs the queue's own settings"
    with queue_of_module(target, url, why) as queue:
        with asked():
            budget(within, "within", queue.horizon)
        found = queue.dead(_MOST_DEAD) if everything else _named(queue, names).values()
        keys = {job.id: job.key for job in found}
        refused: dict[str, str] = {}

        def again(ident: str) -> None:
            try:
                queue.replay(ident, within=within)
            except Rejected as refusal:
                refused[ident] = str(refusal)

        _each("requeue", list(keys), again, shown=not as_json)
    if as_json:
        done = [ident for ident in keys if ident not in refused]
        print_json({"queue": queue.name, "requeued": done, "refused": refused})
    else:
        taken = len(keys) - len(refused)
        say(f"requeued {taken} of {counted(len(keys), 'job')}, {within:g} s each")
        for ident, reason in refused.items():
            say(f"{keys[ident] or ident}: {reason}")
    return 1 if refused else 0


def pause(target: str, *, paused: bool, url: str | None, as_json: bool) -> None:
    """Refuse new submits with reason ``paused``, or take them again.

    Raises:
        Fault: there is no such module or queue.
        StoreUnavailable: the server cannot be reached, or refuses to write.
    """
    with queue_named(target, url) as queue:
        queue.pause() if paused else queue.resume()
        note = "" if as_json else never_used(queue)
    if as_json:
        print_json({"queue": queue.name, "paused": paused})
    else:
        say(f"queue {queue.name} {'refuses' if paused else 'takes'} new jobs{note}")


def drain(target: str, *, timeout: float | None, url: str | None, as_json: bool) -> int:
    """Pause a queue and wait until nothing in it is unfinished; the exit code is 1 if that took
    longer than ``timeout`` seconds.

    Raises:
        Fault: there is no such module or queue, or an odd timeout.
        StoreUnavailable: the server cannot be reached, or refuses to write.
    """
    if timeout is not None:
        with asked():
            seconds(timeout, "timeout")
    with queue_named(target, url) as queue:
        queue.pause()
        note = "" if as_json else never_used(queue)
        left = _wait_for_rest(queue, timeout, shown=not as_json)
    if as_json:
        print_json({"queue": queue.name, "paused": True, "unfinished": left})
    elif left:
        jobs = counted(left, "unfinished job")
        say(f"queue {queue.name}: {jobs} after {timeout:g} s; it stays paused until deadq resume")
    else:
        say(f"queue {queue.name} is empty, and stays paused until deadq resume{note}")
    return 1 if left else 0


def _wait_for_rest(queue: Queue, timeout: float | None, *, shown: bool) -> int:
    until = None if timeout is None else time.monotonic() + timeout
    most = left = queue.stats().unfinished
    with _bar(shown=shown) as bar:
        task = bar.add_task("drain", total=most)
        while left and (until is None or time.monotonic() < until):
            time.sleep(_LOOK_EVERY_S)
            left = queue.stats().unfinished
            most = max(most, left)
            bar.update(task, total=most, completed=most - left)
    return left


def _each(what: str, idents: Sequence[str], do: Callable[[str], None], *, shown: bool) -> None:
    with _bar(shown=shown) as bar:
        for ident in bar.track(idents, description=what):
            do(ident)


def _bar(*, shown: bool) -> Progress:
    """On stderr, and only where somebody looks and it can be drawn; gone at the end."""
    console = Console(stderr=True)
    seen = shown and console.is_terminal and not console.is_dumb_terminal
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    return Progress(
        *columns,
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not seen,
    )
