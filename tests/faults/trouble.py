"""A server that gets into trouble, the workers on it, callers that never let up, and what their
book must say afterwards.
"""

import asyncio
import contextlib
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self

import pytest
import redis

from deadq import DeadqError, JobHandle, StoreUnavailable
from tests.faults.kinds import WORKERS
from tests.servers import Server, binaries, wait_until
from tests.shop import Book, Shop
from tests.workers import Process

DURABLE = {"appendfsync": "always"}
LIMITED = {"maxmemory-policy": "noeviction"}
_BALLAST = 8 * 1024 * 1024


class Trouble:
    """One server of the test's own, a shop on it, and workers; all gone at the end of the block."""

    def __init__(
        self,
        version: str,
        folder: Path,
        kind: str = "one_loop",
        *,
        config: Mapping[str, str] | None = None,
        aof: bool = False,
        port: int | None = None,
        **settings: Any,
    ) -> None:
        self.server = Server(binaries()[version], port=port, aof=aof, config=config or {})
        self.shop = Shop(self.server.url, folder / "book", **settings)
        self.book = self.shop.book
        self._kind = WORKERS[kind]
        self._settings = settings
        self._children = 0
        self._open = contextlib.ExitStack()

    def worker(self, **given: Any) -> Process:
        """A worker, registered when this returns."""
        made = self._kind(self.server.url, self.book.path, **{**self._settings, **given})
        self._children += getattr(made, "children", 1)
        return self._open.enter_context(made)

    def coming_worker(self) -> Future[Process]:
        """A worker that is started now, and registers when the server lets it."""
        pool = self._open.enter_context(ThreadPoolExecutor(1))
        return pool.submit(self.worker)

    def another_shop(self) -> Shop:
        """The same shop for another thread or process; it is closed at the end."""
        made = Shop(self.server.url, self.book.path, **self._settings)
        self._open.callback(made.close)
        return made

    def ballast(self) -> None:
        """Let the server hold something that can be thrown away later."""
        with self.server.client() as client:
            client.set("ballast", bytes(_BALLAST))

    @contextlib.contextmanager
    def memory_full(self) -> Iterator[None]:
        """The server's memory is at its limit; at the end of the block the ballast is let go."""
        with self.server.client() as client:
            client.config_set("maxmemory", client.info("memory")["used_memory"] - _BALLAST // 4)
            with pytest.raises(redis.exceptions.OutOfMemoryError):
                client.set("elsewhere", "x")
            yield
            client.delete("ballast")

    def all_registered(self) -> None:
        """Wait until the server knows each child of each worker, and no others."""
        known = self.shop.queue.stats
        wait_until(lambda: known().workers == self._children, "the workers to register")

    def calm(self) -> None:
        """Wait until nothing lives, waits or runs, and no worker holds anything."""
        with self.server.client() as client:

            def at_rest() -> bool:
                stats = self.shop.queue.stats()
                held = [k for k in client.scan_iter("deadq:{shop}:run:*") if client.scard(k)]
                return not (stats.live or stats.ready or stats.later or stats.unfinished or held)

            wait_until(at_rest, "the queue to come to rest")

    def __enter__(self) -> Self:
        self._open.callback(self.shop.close)
        self._open.enter_context(self.server)
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()


class Load:
    """Callers that submit one job after the other until the block ends.

    Most wait for each job before the next; one submits all the time. They live on the running
    loop, but for one, a thread with the blocking client. A submit that the server did not answer
    is repeated under its key, as the error says it may be.
    """

    def __init__(self, trouble: Trouble, callers: int = 8, within: float = 30.0) -> None:
        self._trouble = trouble
        self._callers = callers
        self._within = within
        self._stop = threading.Event()
        self.accepted: dict[str, JobHandle[Any]] = {}
        self.outcomes: dict[str, Any] = {}
        """What each caller got in the end: the value, or the error."""
        self.refused = 0
        """Submits that the server did not take, or not answer."""
        self.wanted: dict[str, Any] = {}
        self.runs: dict[str, int] = {}
        """How often each job has to start."""

    @property
    def failed(self) -> dict[str, BaseException]:
        """The outcomes that are no results."""
        return {k: o for k, o in self.outcomes.items() if isinstance(o, BaseException)}

    async def served(self, more: int, within_s: float = 20.0) -> None:
        """Wait until so many more callers have got a result."""
        good = self._good()
        until = time.monotonic() + within_s
        while self._good() < good + more:
            assert time.monotonic() < until, f"{self._good() - good} of {more}: {self.failed}"
            await asyncio.sleep(0.002)

    async def noticed(self, within_s: float = 20.0) -> None:
        """Wait until a caller has been refused once more."""
        before, until = self.refused, time.monotonic() + within_s
        while self.refused == before:
            assert time.monotonic() < until, "nobody was refused"
            await asyncio.sleep(0.002)

    def _good(self) -> int:
        return sum(not isinstance(o, BaseException) for o in list(self.outcomes.values()))

    def _job(self, shop: Shop, key: str, n: int) -> tuple[Any, tuple[Any, ...]]:
        """The n-th job of a caller: every kind in turn."""
        task, args, value, runs = (
            (shop.echo, (key,), key, 1),
            (shop.nap, (0.03, key), key, 1),
            (shop.flaky, (1, 0.01, key), key, 2),
            (shop.pay, (0.01, 8), "r" * 8, 1),
        )[n % 4]
        self.wanted[key], self.runs[key] = value, runs
        return task.options(key=key, within=self._within), args

    async def _call(self, caller: int) -> None:
        n = caller
        while not self._stop.is_set():
            key = f"{caller}-{n}"
            await self._submit(key, n)
            await self._wait(key)
            n += 1

    async def _call_without_waiting(self) -> None:
        n, waits = 0, []
        while not self._stop.is_set():
            key = f"eager-{n}"
            await self._submit(key, n)
            waits.append(asyncio.ensure_future(self._wait(key)))
            await asyncio.sleep(0.01)
            n += 1
        await asyncio.gather(*waits)

    async def _submit(self, key: str, n: int) -> None:
        bound, args = self._job(self._trouble.shop, key, n)
        while key not in self.accepted and not self._stop.is_set():
            try:
                self.accepted[key] = await bound.aenqueue(*args)
            except StoreUnavailable:
                self.refused += 1
                await asyncio.sleep(0.01)

    async def _wait(self, key: str) -> None:
        if key in self.accepted:
            try:
                self.outcomes[key] = await self.accepted[key].aresult()
            except DeadqError as error:
                self.outcomes[key] = error

    def _call_blocking(self, shop: Shop) -> None:
        n = 0
        while not self._stop.is_set():
            key = f"blocking-{n}"
            bound, args = self._job(shop, key, n)
            while key not in self.accepted and not self._stop.is_set():
                try:
                    self.accepted[key] = bound.enqueue(*args)
                except StoreUnavailable:
                    self.refused += 1
                    self._stop.wait(0.01)
            if key in self.accepted:
                try:
                    self.outcomes[key] = self.accepted[key].result()
                except DeadqError as error:
                    self.outcomes[key] = error
            n += 1

    async def __aenter__(self) -> Self:
        shop = self._trouble.another_shop()
        self._calls = [asyncio.ensure_future(self._call(n)) for n in range(self._callers)]
        self._calls.append(asyncio.ensure_future(self._call_without_waiting()))
        self._calls.append(asyncio.ensure_future(asyncio.to_thread(self._call_blocking, shop)))
        return self

    async def __aexit__(self, *error: object) -> None:
        self._stop.set()
        await asyncio.gather(*self._calls)
        await self._trouble.shop.queue.aclose()


def passed(seconds: float, since: float) -> None:
    """Wait for an instant: where the length of an outage is what is tested."""
    until = since + seconds
    wait_until(lambda: time.monotonic() > until, "the outage to last", seconds + 10.0)


def overlaps(book: Book) -> list[str]:
    """Jobs of which a run began before the one before it had ended or been interrupted."""
    running: defaultdict[str, set[int]] = defaultdict(set)
    found = []
    for note in book.notes():
        if note.what == "start":
            if running[note.key]:
                found.append(note.key)
            running[note.key].add(note.fence)
        elif note.what in ("end", "interrupted"):
            running[note.key].discard(note.fence)
    return found


def fences_grow(book: Book) -> bool:
    """Whether every later start of a job has a higher fence."""
    last: defaultdict[str, int] = defaultdict(int)
    for note in book.notes("start"):
        if note.fence <= last[note.key]:
            return False
        last[note.key] = note.fence
    return True
