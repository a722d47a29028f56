"""Making a child: the fork, what the child does before its first claim, and how it ends.

The child of ``deadq work`` imports the user's module itself, after the fork: nothing that the
module starts or opens (threads, connections) is shared between processes. That holds as long as the
supervisor can reach the server by itself: see :class:`Facts`. Signals are held back across the
fork, so that none meets a handler that was meant for the supervisor.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Final

from ...errors import DeadqError
from ...events import log
from ...queue import Queue
from ...store.likeness import likeness
from ...store.whereabouts import server_of
from ..jobs.forks import ForkHooks
from ..loop.child import Child
from ..loop.persevering import run_to_end
from ..process import sync_child
from ..settings import ChildSettings, Plan, Ties, WorkerConfig, plan_for
from .parting import forget_parents, take_leave

_CLEAN_UP_S: Final = 1.0
"""How long tasks that were left behind may take to leave, at the very end (s)."""


class LoadFailed(DeadqError):
    """The queue could not be loaded. ``code`` is the exit code that a command should give."""

    def __init__(self, line: str, code: int = 1) -> None:
        super().__init__(line)
        self.code = code


@dataclass(frozen=True, slots=True)
class Facts:
    """What a child tells its supervisor of the queue.

    By ``url``, or else by the ``likeness`` of the user's own client, the supervisor reaches the
    server. Both are None where nothing but the user's code can: then it has to load that, too.
    ``server`` is the same for people, and holds no password.
    """

    name: str
    server: str
    url: str | None
    likeness: dict[str, Any] | None
    lease: float
    retention_ms: int
    tasks: list[str]
    process: bool
    slots: list[int]

    @classmethod
    def read(cls, text: str) -> Facts:
        """From a child's word."""
        return cls(**json.loads(text))


@dataclass(frozen=True, slots=True)
class Birth:
    """What a new child is to be. ``post`` is where its supervisor listens for messages to it;
    ``number`` is which of the plan's children it takes the place of, None: a one-slot child.
    ``waits``: it says what the queue is, and begins once the supervisor has said what it works on.
    """

    load: Callable[[], Queue]
    config: WorkerConfig
    post: str
    number: int | None
    waits: bool = False


def fork(work: Callable[[], int]) -> int:
    """Run ``work`` in a new process, to end with its return value; returns the process id."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, ValueError, OSError):
            stream.flush()  # or both processes would write what waits in it
    held_back = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        pid = os.fork()
        if pid == 0:
            _end(work)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, held_back)
    return pid


def _end(work: Callable[[], int]) -> None:
    """In the child: never returns, whatever happens."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        forget_parents()
        # A closed terminal and Ctrl-C are the supervisor's to judge; until there is something to
        # lose, SIGTERM simply ends the process.
        for number in (signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        for number in (signal.SIGTERM, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        code = work()
    except BaseException:  # noqa: BLE001  it is logged
        log.exception("a child ended by an error of the worker's own")
    finally:
        with contextlib.suppress(BaseException):
            take_leave()
            logging.shutdown()
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def live(birth: Birth, ties: Ties) -> int:
    """A child's life: load the queue, tell the supervisor, work, say good-bye."""
    channel = ties.channel
    try:
        queue, plan = _loaded(birth)
        if birth.waits:
            channel.send("hello", json.dumps(asdict(_facts(queue, plan))))
            channel.await_line("go")
        code = _work(queue, plan, birth, ties)
    except LoadFailed as fault:
        channel.send("fault", fault.code, fault)
        return fault.code
    except DeadqError as error:
        channel.send("fault", 1, error)
        return 1
    channel.send("bye")
    return code


def _loaded(birth: Birth) -> tuple[Queue, Plan]:
    try:
        queue = birth.load()
        return queue, plan_for(queue, birth.config)
    except (ValueError, TypeError) as odd:
        raise LoadFailed(str(odd), 2) from odd


def _work(queue: Queue, plan: Plan, birth: Birth, ties: Ties) -> int:
    settings = _settings(birth, plan)
    if not plan.process:
        return _on_a_loop(queue, settings, ties)
    return sync_child.serve(
        queue,
        post=birth.post,
        ties=ties,
        settings=settings,
        started=_nothing,
    )


def _facts(queue: Queue, plan: Plan) -> Facts:
    backend, config = queue.backend, queue.config
    return Facts(
        name=queue.name,
        server=server_of(backend),
        url=backend.url if backend.given is None else None,
        likeness=likeness(backend.given),
        lease=config.lease,
        retention_ms=config.retention_ms,
        tasks=sorted(queue.tasks),
        process=plan.process,
        slots=list(plan.slots),
    )


def _settings(birth: Birth, plan: Plan) -> ChildSettings:
    config = birth.config
    slots = 1 if birth.number is None else plan.slots[birth.number]
    return ChildSettings(slots, config.grace, config.max_jobs, config.max_memory)


def _on_a_loop(queue: Queue, settings: ChildSettings, ties: Ties) -> int:
    """Not by asyncio.run(): that would wait without end for a task that does not leave."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    run_to_end(loop, _serve(queue, settings, ties))
    run_to_end(loop, _clean_up(loop))
    for thread in threading.enumerate():
        if thread.name.startswith("deadq-handler"):
            log.warning("leaving a plain handler behind that does not stop: %s", thread.name)
    return 0


async def _serve(queue: Queue, settings: ChildSettings, ties: Ties) -> None:
    child = Child(queue, settings, started=asyncio.Event(), ties=ties)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, child.stop)
    # a process that a handler forks, as multiprocessing does, is ended by SIGTERM like any other
    ForkHooks((signal.SIGTERM,), signal.getsignal(signal.SIGTERM)).start()
    async with queue.opened():
        await child.run()


async def _clean_up(loop: asyncio.AbstractEventLoop) -> None:
    """What asyncio.run() does at the end, for a second at most."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    if left:
        await asyncio.wait(left, timeout=_CLEAN_UP_S)
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(loop.shutdown_asyncgens(), _CLEAN_UP_S)


def _nothing() -> None:
    """Nobody waits for the start in this process."""
