"""What the cases share: a queue that the test and its worker processes declare alike, records
planted by hand, and looks at the key space.
"""

import asyncio
import contextlib
import importlib
import logging
import re
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import redis

from deadq import Queue, Worker
from deadq.codec import encode
from deadq.job import RECORD_VERSION
from deadq.store import keys
from tests.settings import ALL_RETRIES, heard, told
from tests.shop import Book
from tests.workers import Process, tell

Declare = Callable[[Queue, Book], None]
"""Declares a case's tasks; at the top of its module, so that worker processes find it."""


class Scene:
    """One queue, and the workers on it. All of them are gone at the end of the with block."""

    def __init__(self, url: str, folder: Path, declare: Declare, **settings: Any) -> None:
        self.book = Book(folder / "book")
        self.queue = Queue(
            **{
                "name": "case",
                "capacity": 1000,
                "admission": "cap",
                "url": url,
                "retry_budget": ALL_RETRIES,
                **settings,
            }
        )
        declare(self.queue, self.book)
        self.tasks = SimpleNamespace(**self.queue.tasks)
        self.client = redis.Redis.from_url(url)
        self.prefix = keys.prefix(self.queue.name)
        self._declare = declare
        self._url = url
        self._open = contextlib.ExitStack()

    def key(self, kind: str, ident: str | None = None) -> str:
        return keys.key(self.queue.name, kind, ident)

    def worker(self, declare: Declare | None = None, **given: Any) -> Process:
        """A worker process, registered when this returns.

        ``declare`` names its tasks where they are other ones than the test's own; ``concurrency``,
        ``grace`` and ``url`` are its own too.
        """
        declare = declare or self._declare
        process = Process(
            "tests.cases.support:serve",
            declare=f"{declare.__module__}:{declare.__qualname__}",
            book=str(self.book.path),
            settings={**told(self.queue), "url": given.pop("url", self._url)},
            **{"concurrency": 8, "grace": 5.0, **given},
        )
        self._open.push(process)
        assert process.hear() == "registered"
        return process

    def stat(self, beginning: str) -> int:
        """The sum of all counters whose names begin so."""
        counters = self.client.hgetall(self.key("stats"))
        return sum(int(n) for name, n in counters.items() if name.decode().startswith(beginning))

    def now_ms(self) -> int:
        seconds, micros = self.client.time()
        return int(seconds * 1000 + micros // 1000)

    def calm(self) -> None:
        """Nothing lives, waits, runs or is held by a worker."""
        stats = self.queue.stats()
        held = [k for k in self.client.scan_iter(f"{self.prefix}run:*") if self.client.scard(k)]
        assert (stats.live, stats.ready, stats.later, stats.unfinished, held) == (0, 0, 0, 0, [])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._open.__exit__(*error)
        self.queue.close()
        self.book.close()
        self.client.close()


def serve(
    declare: str, book: str, settings: dict[str, Any], concurrency: int, grace: float
) -> None:
    """A worker process: says "registered", works until SIGTERM."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s %(message)s")
    module, _, name = declare.partition(":")
    queue = Queue(**heard(settings))
    getattr(importlib.import_module(module), name)(queue, Book(Path(book)))

    async def work() -> None:
        worker = Worker(queue, concurrency=concurrency, grace=grace)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
        working = asyncio.ensure_future(worker.arun())
        started = asyncio.ensure_future(worker.started.wait())
        await asyncio.wait({working, started}, return_when=asyncio.FIRST_COMPLETED)
        if started.done():
            tell("registered")
        await working
        await queue.aclose()

    asyncio.run(work())


# What of a large table runs each time.


# Errors at the door.


def says(error: BaseException, *words: str) -> None:
    """One readable line that holds the words."""
    text = str(error)
    assert text, f"{type(error).__name__} says nothing"
    assert text.isprintable(), f"not one line of plain text: {text!r}"
    assert len(text) <= 400, f"{len(text)} characters: {text:.200}..."
    for word in words:
        assert re.search(word, text), f"{word!r} is not in: {text}"


def key_space(client: redis.Redis) -> dict[bytes, bytes]:
    """Every key with its whole value."""
    return {key: client.dump(key) for key in client.scan_iter(count=1000)}


@contextlib.contextmanager
def nothing_stored(client: redis.Redis, *, but: str = "") -> Iterator[None]:
    """The key space is the same before and after, except for the key ``but`` (counters)."""
    before = key_space(client)
    yield
    after = key_space(client)
    for space in (before, after):
        space.pop(but.encode(), None)
    assert after == before


# Records planted by hand.


class Planter:
    """Writes what no producer writes, straight into the server."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.client = scene.client
        self._count = 0

    def new_id(self) -> str:
        self._count += 1
        return f"{self._count:032x}"

    def fields(self, **changes: Any) -> dict[str, Any]:
        """A sound record, but for the changes; None leaves a field out."""
        now = self.scene.now_ms()
        sound = {
            "key": "planted",
            "fingerprint": b"\x01" * 16,
            "task": "echo",
            "deadline": now + 60_000,
            "estimate": 0,
            "retries": 0,
            "born": now,
            "seq": self._count,
            "version": RECORD_VERSION,
            "state": "ready",
            **changes,
        }
        return {name: value for name, value in sound.items() if value is not None}

    def ready(
        self,
        ident: str | bytes | None = None,
        *,
        payload: bytes | None = encode(["planted"]),
        member: bytes | None = None,
        ttl_s: int | None = 100,
        more: Mapping[Any, Any] | None = None,
        **changes: Any,
    ) -> str | bytes:
        """A record in ``ready``, ahead of all others, and in ``due``; returns its id."""
        ident = self.new_id() if ident is None else ident
        fields = self.fields(**changes) | dict(more or {})
        self.put("job", ident, fields, ttl_s)
        if payload is not None:
            self.client.set(self._key("data", ident), payload, ex=ttl_s)
        seq = fields.get("seq", self._count)
        raw = ident if isinstance(ident, bytes) else ident.encode()
        usual = b"%010x:" % (seq if isinstance(seq, int) else self._count) + raw
        self.client.zadd(self.scene.key("ready"), {usual if member is None else member: 1})
        deadline = fields.get("deadline")
        until = deadline if isinstance(deadline, int) else self.scene.now_ms() + 60_000
        self.client.zadd(self.scene.key("due"), {raw: until})
        return ident

    def put(
        self, kind: str, ident: str | bytes, fields: Mapping[Any, Any], ttl_s: int | None = None
    ) -> None:
        key = self._key(kind, ident)
        self.client.hset(key, mapping=fields)
        if ttl_s is not None:
            self.client.expire(key, ttl_s)

    def _key(self, kind: str, ident: str | bytes) -> bytes:
        raw = ident if isinstance(ident, bytes) else ident.encode()
        return self.scene.key(kind, "").encode() + raw


# What the server was asked.


def calls(client: redis.Redis) -> dict[str, int]:
    """How often each command has run, by its name in lower case."""
    stats = client.info("commandstats")
    return {name.removeprefix("cmdstat_"): row["calls"] for name, row in stats.items()}


@contextlib.contextmanager
def counting(client: redis.Redis) -> Iterator[dict[str, int]]:
    """Fills the dict, at the end of the block, with the commands that ran in it, ours left out."""
    found: dict[str, int] = {}
    before = calls(client)
    yield found
    for name, n in calls(client).items():
        if n > before.get(name, 0):
            found[name] = n - before.get(name, 0)
    found.pop("info", None)


def script_calls(found: dict[str, int]) -> int:
    """The scripts among them: what workers and producers send."""
    return found.get("evalsha", 0) + found.get("eval", 0)


def pause(seconds: float) -> None:
    """Let time pass: where the passing of time itself is what is tested, never to await a thing."""
    time.sleep(seconds)
