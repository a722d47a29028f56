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
from ..queue import Queue
from .faults import Fault, asked
from .naming import job_named, queue_named, queue_of_module
from .printing import print_json, say

_LOOK_EVERY_S: Final = 0.1
_MOST_DEAD: Final = 1_000
"""As many as a server keeps."""


def cancel(target: str, names: Sequence[str], *, url: str | None, as_json: bool) -> int:
    """Cancel jobs by their ids or keys; the exit code is 1 if one of them had ended already.

    Raises:
        Fault: there is no such module, queue or job.
        StoreUnavailable: the server cannot be reached.
    """
    why = "cancel keeps recorded units as long as the queue's own settings say"
    with queue_of_module(target, url, why) as queue:
        found = [job_named(queue, name) for name in names]
        states = {job.id: queue.cancel(job.id) for job in found}
    if as_json:
        print_json([{"id": j.id, "key": j.key, "state": states[j.id]} for j in found])
    else:
        for job in found:
            state = states[job.id]
            say(f"{job.key or job.id}: {_CANCELLED.get(state, f'too late, it is {state}')}")
    return 0 if all(state in _CANCELLED for state in states.values()) else 1


_CANCELLED: Final = {
    State.CANCELLED: "cancelled, it never starts",
    State.RUNNING: "it runs, and is interrupted outside its units",
}


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
    with asked():
        seconds(within, "within")
    why = "requeue submits, and so needs the queue's own settings"
    with queue_of_module(target, url, why) as queue:
        idents = [job.id for job in queue.dead(_MOST_DEAD)] if everything else []
        idents += [job_named(queue, name).id for name in names]
        refused: dict[str, str] = {}

        def again(ident: str) -> None:
            try:
                queue.replay(ident, within=within)
            except Rejected as refusal:
                refused[ident] = str(refusal)

        _each("requeue", idents, again, shown=not as_json)
    if as_json:
        done = [ident for ident in idents if ident not in refused]
        print_json({"queue": queue.name, "requeued": done, "refused": refused})
    else:
        say(f"requeued {len(idents) - len(refused)} of {len(idents)} jobs, {within:g} s each")
        for ident, reason in refused.items():
            say(f"{ident}: {reason}")
    return 1 if refused else 0


def pause(target: str, *, paused: bool, url: str | None, as_json: bool) -> None:
    """Refuse new submits with reason ``paused``, or take them again.

    Raises:
        Fault: there is no such module or queue.
        StoreUnavailable: the server cannot be reached, or refuses to write.
    """
    with queue_named(target, url) as queue:
        queue.pause() if paused else queue.resume()
    if as_json:
        print_json({"queue": queue.name, "paused": paused})
    else:
        say(f"queue {queue.name} {'refuses' if paused else 'takes'} new jobs")


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
        left = _wait_for_rest(queue, timeout, shown=not as_json)
    if as_json:
        print_json({"queue": queue.name, "paused": True, "unfinished": left})
    elif left:
        say(f"queue {queue.name}: {left} jobs are unfinished after {timeout:g} s")
    else:
        say(f"queue {queue.name} is empty, and refuses new jobs; deadq resume takes them again")
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
    """On stderr, and only where somebody looks; gone at the end."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    return Progress(
        *columns,
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not (shown and console.is_terminal),
    )
