"""What a user calls a queue or a job on the command line."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

from ..queue import Queue
from ..reports import JobReport
from ..store import embedded
from ..store.whereabouts import server_of
from .faults import Fault, asked
from .loading import is_target, load_queue, settle
from .server import none_runs


@contextlib.contextmanager
def queue_named(target: str, url: str | None) -> Iterator[Queue]:
    """The queue ``MODULE:QUEUE``, or just a queue's name, for what needs none of its settings.

    Raises:
        Fault: there is no such module or queue, or its name or URL is odd.
    """
    if is_target(target):
        queue = _loaded(target, url)
    else:
        with asked():
            queue = Queue(target, capacity=1, url=url)
        settle(queue)
    with contextlib.closing(_within_reach(queue)):
        yield queue


@contextlib.contextmanager
def queue_of_module(target: str, url: str | None, why: str) -> Iterator[Queue]:
    """The queue ``MODULE:QUEUE``, with all its settings.

    Raises:
        Fault: there is no such module or queue, or only a queue's name was given.
    """
    if not is_target(target):
        raise Fault(f"{why}: give MODULE:QUEUE, such as shop.jobs:queue, not `{target}`")
    with contextlib.closing(_within_reach(_loaded(target, url))) as queue:
        yield queue


def _loaded(target: str, url: str | None) -> Queue:
    """What the module itself prints is no part of the answer."""
    with contextlib.redirect_stdout(sys.stderr):
        return load_queue(target, url)


def _within_reach(queue: Queue) -> Queue:
    """The queue, if its server is not the private one of this folder, or that runs: a new one would
    have nothing to look at, and nothing to steer.

    Raises:
        Fault: it does not run.
    """
    if queue.backend.private:
        found = embedded.status()
        if not found.running:
            raise Fault(f"{none_runs(found)}; --url or $DEADQ_URL name another", code=1)
    return queue


def never_used(queue: Queue) -> str:
    """What to add of a queue to which nothing was ever submitted, as its name may be mistyped; of
    any other nothing."""
    if queue.stats().counters:
        return ""
    return f"; nothing was ever submitted to it on {server_of(queue.backend)}"


def job_named(queue: Queue, name: str) -> JobReport:
    """The job with this id or, if there is none, with this key.

    Raises:
        Fault: there is neither.
    """
    with asked():
        found = queue.show(name)
    if found is not None:
        return found
    why = never_used(queue) or "; it may have been forgotten"
    msg = f"queue {queue.name} has no job with the id or key `{name}`{why}"
    raise Fault(msg, code=1)
