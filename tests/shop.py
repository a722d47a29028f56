"""A queue with handlers that fault tests need, the same in every process, and a book of its own
in which the handlers note what they do.
"""

import asyncio
import contextlib
import functools
import inspect
import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from deadq import Interrupt, Queue, Retry, Worker, current_job
from tests.settings import ALL_RETRIES
from tests.workers import tell


class Note(NamedTuple):
    """One line of a book."""

    what: str
    key: str
    attempt: int
    fence: int
    at: float
    """Monotonic seconds: the same clock in every process of a machine."""
    pid: int


class Book:
    """A file to which every process appends: no server's fault can lose or double a line."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = os.open(path, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o600)

    def note(self, what: str) -> None:
        """Write down what the job that is running here does."""
        job = current_job()
        note = Note(what, job.key, job.attempt, job.fence, time.monotonic(), os.getpid())
        os.write(self._file, json.dumps(note).encode() + b"\n")

    def notes(self, what: str | None = None, key: str | None = None) -> list[Note]:
        """All lines, in order, or those of one kind or job."""
        text = self.path.read_text(encoding="utf-8")
        whole = text[: text.rfind("\n") + 1]  # the last line may still be on its way
        found = [Note(*json.loads(line)) for line in whole.splitlines()]
        return [n for n in found if what in (None, n.what) and key in (None, n.key)]

    def starts(self) -> Counter[str]:
        """How often each job's body began."""
        return Counter(note.key for note in self.notes("start"))

    def close(self) -> None:
        os.close(self._file)


class Shop:
    """A queue and its tasks. Each handler notes its start first, and how it ended.

    ``plain``: all handlers are plain functions, for the process runner.
    """

    def __init__(
        self,
        url: str,
        book: Path,
        name: str = "shop",
        *,
        forget: Sequence[str] = (),
        plain: bool = False,
        **settings: Any,
    ) -> None:
        self.book = Book(book)
        queue = Queue(
            name,
            url=url,
            **{
                "capacity": 1000,
                "admission": "cap",
                "retry_budget": ALL_RETRIES,
                **settings,
            },
        )
        self.queue = queue
        self._plain = plain

        def task(**options: Any) -> Callable[[Callable[..., Any]], Any]:
            return lambda fn: queue.task(**options)(self._made(fn))

        @task(within=10.0)
        async def echo(value: Any) -> Any:
            """Return the value at once."""
            self.book.note("start")
            self.book.note("end")
            return value

        @task(within=10.0)
        async def nap(seconds: float, value: Any = None) -> Any:
            """Sleep on the loop."""
            with self._watched():
                await self._sleep(seconds)
            return value

        @task(within=10.0, retries=20)
        async def flaky(fails: int, pause: float, value: Any = None) -> Any:
            """Ask for a retry after ``pause`` seconds so many times."""
            self.book.note("start")
            if current_job().attempt <= fails:
                raise Retry(after=pause)
            self.book.note("end")
            return value

        @task(within=10.0)
        async def doomed(pause: float) -> None:
            """Ask for a retry, whatever comes."""
            self.book.note("start")
            raise Retry(after=pause)

        @task(within=10.0)
        async def broken(text: str) -> None:
            self.book.note("start")
            raise LookupError(text)

        @task(within=10.0)
        def block(seconds: float, value: Any = None) -> Any:
            """Sleep in a thread."""
            self.book.note("start")
            time.sleep(seconds)
            self.book.note("end")
            return value

        @task(within=10.0)
        async def left() -> float:
            """Seconds to the deadline, as the handler sees them."""
            self.book.note("start")
            return current_job().deadline.remaining()

        @task(within=10.0)
        async def fenced(seconds: float) -> int:
            """Sleep on the loop; the fence of the run that came to its end."""
            with self._watched():
                await self._sleep(seconds)
            return current_job().fence

        @task(within=10.0)
        async def bulk(seconds: float, size: int) -> str:
            """Sleep on the loop; a result of so many bytes."""
            with self._watched():
                await self._sleep(seconds)
            return "r" * size

        @task(within=10.0)
        async def pay(seconds: float, size: int = 0) -> str:
            """One unit, which notes its effect and then sleeps on the loop."""

            async def effect() -> str:
                self.book.note("effect")
                await self._sleep(seconds)
                return "r" * size

            with self._watched():
                gave = current_job().unit("pay", self._made(effect), limit=3.0)
                return gave if plain else await gave

        self.left = left
        self.fenced, self.bulk, self.pay = fenced, bulk, pay
        self.echo, self.nap, self.flaky, self.doomed = echo, nap, flaky, doomed
        self.broken, self.block = broken, block
        for task in forget:  # an older worker does not know it yet
            del queue.tasks[task]

    @contextlib.contextmanager
    def _watched(self) -> Any:
        self.book.note("start")
        try:
            yield
        except (asyncio.CancelledError, Interrupt):
            self.book.note("interrupted")
            raise
        self.book.note("end")

    async def _sleep(self, seconds: float) -> None:
        if self._plain:
            time.sleep(seconds)  # noqa: ASYNC251  no loop is there
        else:
            await asyncio.sleep(seconds)

    def _made(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """What the queue takes as a handler, or as a unit."""
        if not self._plain or not inspect.iscoroutinefunction(fn):
            return fn

        @functools.wraps(fn)
        def run(*args: Any, **kwargs: Any) -> Any:
            try:
                fn(*args, **kwargs).send(None)
            except StopIteration as end:
                return end.value
            raise RuntimeError("a plain handler has no loop to wait on")

        return run

    def close(self) -> None:
        self.queue.close()
        self.book.close()


def serve(url: str, book: str, concurrency: int, grace: float, settings: dict[str, Any]) -> None:
    """A worker process: says "registered", works until SIGTERM."""
    shop = Shop(url, Path(book), **settings)

    async def work() -> None:
        worker = Worker(shop.queue, concurrency=concurrency, grace=grace)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
        working = asyncio.ensure_future(worker.arun())
        started = asyncio.ensure_future(worker.started.wait())
        await asyncio.wait({working, started}, return_when=asyncio.FIRST_COMPLETED)
        if started.done():
            tell("registered")
        await working
        await shop.queue.aclose()

    asyncio.run(work())


def serve_supervised(
    url: str, book: str, concurrency: int, grace: float, runner: str, settings: dict[str, Any]
) -> None:
    """A supervisor and its children; works until SIGTERM."""
    plain = runner == "process"
    shop = Shop(url, Path(book), plain=plain, **settings)
    Worker(shop.queue, concurrency=concurrency, grace=grace, runner=runner).run()
