"""A queue whose workers get killed: handlers that halt where a test wants them, in both worlds.

A job under the key ``"<point>-<anything>"`` halts in its first attempt when it comes to that
point, notes ``at <point>``, and goes on when the test has called :meth:`Depot.go`. The handlers
are written once, as coroutines; for the process runner they are made plain functions, whose waits
block.
"""

import asyncio
import contextlib
import functools
import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from deadq import Queue, current_job
from tests.servers import wait_until
from tests.settings import ALL_RETRIES
from tests.ships import Ships
from tests.shop import Book, Note

POINTS = (
    "claimed",  # the server has given the job out, the child does not know yet
    "taken",  # the child holds it, its handler has not begun
    "handler",
    "begun",  # in the unit, before its effect
    "effect",  # in the unit, after its effect
    "recorded",  # in the handler, after the unit's record
    "returned",  # the handler has returned, nothing is reported yet
    "finished",  # the server has it, and the child has read the answer
)
SERVED = "DEPOT"
"""The environment variable that describes the depot to ``tests.depot_served``."""

_LOOK_S = 0.002
_HOLD_S = 30.0
"""A halt ends at last, should the test have died."""


class Log(Book):
    """A book in which the runtime's own points are noted, too."""

    def write(self, what: str, key: str, attempt: int, fence: int) -> None:
        note = Note(what, key, attempt, fence, time.monotonic(), os.getpid())
        os.write(self._file, json.dumps(note).encode() + b"\n")


class Depot:
    """The queue and its ``tasks``. ``plain``: their handlers are plain functions."""

    def __init__(
        self, url: str | None, folder: Path, *, plain: bool, name: str = "depot", **settings: Any
    ) -> None:
        self.folder = folder
        self.plain = plain
        self.book = Log(folder / "book")
        self.queue = Queue(
            name,
            url=url,
            **{
                "capacity": 20_000,
                "admission": "cap",
                "retry_budget": ALL_RETRIES,
                **settings,
            },
        )
        self._hoard: list[bytes] = []
        self._ships: Ships | None = None
        for handler in (_order, _nap, _tally, _ship, _echo, _whoami, _hog):
            self._declare(handler)
        for handler in (_lethal, _stubborn, _hold):
            self._declare(handler)
        self.queue.task(name="frail", within=20.0, on_crash="fail")(self._made(_lethal))
        self.tasks = SimpleNamespace(**self.queue.tasks)

    def _declare(self, handler: Callable[..., Any]) -> None:
        self.queue.task(name=handler.__name__.strip("_"), within=20.0)(self._made(handler))

    def _made(self, handler: Callable[..., Any]) -> Callable[..., Any]:
        """What the queue takes as a handler, or as a unit."""
        bound = functools.partial(handler, self)

        async def on_a_loop(*args: Any) -> Any:
            return await bound(*args)

        def on_the_main_thread(*args: Any) -> Any:
            return _driven(bound(*args))

        return on_the_main_thread if self.plain else on_a_loop

    # Halting.

    def go(self, key: str) -> None:
        """Let the job with this key go on."""
        (self.folder / f"go {key}").touch()

    def reached(self, point: str, key: str) -> Note:
        """Wait until a job has come to its point."""
        found: Note = wait_until(
            lambda: self.book.notes(f"at {point}", key), f"{key} to be at {point}"
        )[0]
        return found

    async def halt(self, point: str) -> None:
        """In a handler: wait here for the test, if this job is to."""
        job = current_job()
        if self._halts(point, job.key, job.attempt, job.fence):
            until = time.monotonic() + _HOLD_S
            while not self._may_go(job.key) and time.monotonic() < until:
                await self.sleep(_LOOK_S)

    def block(self, point: str, key: str, attempt: int, fence: int) -> None:
        """The same in the runtime's own code, outside of any handler: the whole child stands."""
        if self._halts(point, key, attempt, fence):
            wait_until(lambda: self._may_go(key), "the test to let it go", _HOLD_S)

    def _halts(self, point: str, key: str, attempt: int, fence: int) -> bool:
        halts = attempt == 1 and key.startswith(f"{point}-")
        if halts:
            self.book.write(f"at {point}", key, attempt, fence)
        return halts

    def _may_go(self, key: str) -> bool:
        return (self.folder / f"go {key}").exists()

    # What differs between the two worlds.

    async def sleep(self, seconds: float) -> None:
        if self.plain:
            time.sleep(seconds)  # noqa: ASYNC251  there is no loop then
        else:
            await asyncio.sleep(seconds)

    async def unit(self, name: str, fn: Callable[..., Any], *args: Any, **options: Any) -> Any:
        gave = current_job().unit(name, self._made(fn), *args, **options)
        return gave if self.plain else await gave

    def keep(self, size: int) -> None:
        """Take so much memory for good."""
        self._hoard.append(os.urandom(size))

    def ships(self) -> Ships:
        """This process's connection to the database of effects."""
        if self._ships is None:
            self._ships = Ships(self.folder)
        return self._ships

    def close(self) -> None:
        if self._ships is not None:
            self._ships.close()
        self.queue.close()
        self.book.close()


def _driven(steps: Any) -> Any:
    """Run a coroutine that never waits for anything."""
    try:
        steps.send(None)
    except StopIteration as end:
        return end.value
    raise RuntimeError("a plain handler has no loop to wait on")


# The handlers.


async def _order(depot: Depot, on_doubt: str = "rerun", nap: float = 0.0) -> list[Any]:
    """One unit, with every point to halt at. Returns what the unit gave, and the attempt."""
    depot.book.note("start")
    await depot.halt("handler")
    await depot.sleep(nap)
    gave = await depot.unit("post", _post, nap, on_doubt=on_doubt)
    await depot.halt("recorded")
    await depot.sleep(nap)
    depot.book.note("end")
    return [gave, current_job().attempt]


async def _post(depot: Depot, nap: float) -> str:
    job = current_job()
    depot.book.note(f"begun {job.unit_key('post')}")
    await depot.halt("begun")
    await depot.sleep(nap)
    depot.book.note("effect")
    await depot.halt("effect")
    await depot.sleep(nap)
    return f"{job.key} by {job.attempt}"


async def _nap(depot: Depot, seconds: float, value: Any = None) -> Any:
    """Sleep, and note how that ended."""
    depot.book.note("start")
    try:
        await depot.sleep(seconds)
    except BaseException:
        depot.book.note("interrupted")
        raise
    depot.book.note("end")
    return value


async def _tally(depot: Depot, seconds: float, limit: float = 30.0) -> str:
    """A unit that takes so long."""
    depot.book.note("start")
    counted: str = await depot.unit("tally", _slowly, seconds, limit=limit)
    depot.book.note("recorded")
    return counted


async def _slowly(depot: Depot, seconds: float) -> str:
    depot.book.note("begun")
    await depot.sleep(seconds)
    depot.book.note("effect")
    return "counted"


async def _ship(depot: Depot, nap: float) -> int:
    """Naps before, in and after a unit; the fence of the attempt that took effect."""
    await depot.sleep(nap)
    fence: int = await depot.unit("ship", _shipped, nap, limit=1.0)
    depot.ships().note(current_job().key, fence)
    await depot.sleep(nap)
    return fence


async def _shipped(depot: Depot, nap: float) -> int:
    job = current_job()
    await depot.sleep(nap)
    fence = depot.ships().ship(job.key, job.fence)
    await depot.sleep(nap)
    return fence


async def _echo(depot: Depot, value: Any) -> Any:
    depot.book.note("start")
    return value


async def _whoami(depot: Depot) -> int:
    return os.getpid()


async def _hog(depot: Depot, size: int) -> int:
    """Keep so many bytes."""
    depot.keep(size)
    return os.getpid()


async def _lethal(depot: Depot, deaths: int) -> str:
    """Kill the child in the first so many attempts."""
    depot.book.note("start")
    await depot.halt("lethal")
    if current_job().attempt <= deaths:
        os.kill(os.getpid(), signal.SIGKILL)
    return "survived"


async def _stubborn(depot: Depot, seconds: float) -> None:
    """Not leave, however often it is interrupted, and wherever."""
    until = time.monotonic() + seconds
    depot.book.note("start")
    while time.monotonic() < until:
        try:
            while time.monotonic() < until:
                with contextlib.suppress(BaseException):
                    await depot.sleep(_LOOK_S)
        except BaseException:
            continue
    depot.book.note("end")


async def _hold(depot: Depot, seconds: float, in_unit: bool) -> None:
    """Keep the loop to itself, or the thread, however often it is interrupted."""
    depot.book.note("start")
    if in_unit:
        await depot.unit("hold", _holding, seconds)
    else:
        await _holding(depot, seconds)


async def _holding(depot: Depot, seconds: float) -> None:
    depot.book.note("holds")
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        with contextlib.suppress(BaseException):
            time.sleep(_LOOK_S)  # noqa: ASYNC251  that is the point
    depot.book.note("effect")
