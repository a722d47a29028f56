"""The producer's line to the store: submitting, looking, waiting, leaving, cancelling.

Blocking and asyncio callers may use one queue side by side; each event loop gets its own
connections and listener, and all blocking threads of a process share one listener.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import threading
import weakref
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from . import clock
from .config import QueueConfig
from .errors import StoreUnavailable
from .job import Admission, Sight, Submission, Verdict
from .store import keys, scripts
from .store.background import background, warn_on_a_loop
from .store.connect import Backend
from .store.lane import Lane
from .store.listen import AsyncListener, Beside, Listener, set_within
from .store.wire import PAUSES, WINDOW, Forks

GATHERED: Final = 200
"""Most calls that share a round trip."""


@dataclass(slots=True)
class _Desk:
    """What one event loop uses."""

    admits: Lane[Submission, Admission]
    looks: Lane[str, Sight]
    leaves: Lane[tuple[str, str], str]
    cancels: Lane[str, str]
    listener: AsyncListener


class Producer:
    """One queue as its submitters and waiters use it."""

    def __init__(self, config: QueueConfig, backend: Backend) -> None:
        self.config = config
        self.backend = backend
        self.rules = scripts.Rules(
            config.capacity, config.order, config.admission, config.retention_ms
        )
        self._forks = Forks.count
        self._lock = threading.Lock()
        self._listener: Listener | None = None
        self._desks: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Desk] = (
            weakref.WeakKeyDictionary()
        )
        self._count = itertools.count()

    def new_token(self) -> str:
        """A token for one submit: its reply channel, and a number unique on it."""
        backend = self.backend
        if self._forks != Forks.count:
            self._start_afresh()
        kind = "s" if backend.sharded else "p"
        return f"w:{kind}{backend.channel}.{backend.nonces + next(self._count):x}"

    def _start_afresh(self) -> None:
        """In a forked child: its parent's listener thread and loops do not exist here."""
        Forks.inherited.append((self._listener, dict(self._desks)))
        self.backend.check_fork()
        self._forks = Forks.count
        self._lock = threading.Lock()
        self._listener = None
        self._desks = weakref.WeakKeyDictionary()

    # --- blocking callers

    def admit(self, submission: Submission) -> Admission:
        """Submit one."""
        try:
            return self.backend.sync().run(scripts.admit(self.rules, (submission,)))[0]
        except KeyboardInterrupt:
            with contextlib.suppress(StoreUnavailable):  # nobody will hold the token
                self.leave(submission.id, submission.token)
            raise

    def admit_many(self, batches: Iterable[Sequence[Submission]]) -> list[Admission]:
        """Submit many; each batch leaves while the next one is being made."""
        rules = self.rules
        answers = self.backend.sync().stream(scripts.admit(rules, batch) for batch in batches)
        return [answer for some in answers for answer in some]

    def look(self, job: str) -> Sight:
        """Where the job is now."""
        return self.backend.sync().run(scripts.fetch([job]))[0]

    def wait(self, job: str, until: float, beside: Beside | None = None) -> Sight:
        """Where the job is when it ends, when ``beside`` came, or at ``until`` (monotonic s)."""
        warn_on_a_loop()
        self.backend.reach(until)
        listener = self.listener()
        seen = listener.watch(job, None if beside is None else beside.news)
        failures = 0
        try:
            while True:
                seen.clear()
                pause = threading.TIMEOUT_MAX
                try:
                    sight = self.look(job)
                    over = sight.state.final or (beside is not None and beside.came())
                    failures = 0
                except StoreUnavailable:
                    if clock.monotonic() >= until:
                        raise
                    failures += 1  # an outage shorter than the wait is waited out
                    pause = PAUSES.delay(failures)
                else:
                    if over or clock.monotonic() >= until:
                        return sight
                seen.wait(max(0.0, min(until - clock.monotonic(), pause)))
        finally:
            listener.unwatch(job, seen)

    def leave(self, job: str, token: str) -> str:
        """Give up a token; the last live one cancels the job."""
        call = scripts.leave([(job, token)], retention_ms=self.config.retention_ms)
        return self.backend.sync().run(call)[0]

    def cancel(self, job: str) -> str:
        """Cancel the job, whoever waits for it."""
        return self.backend.sync().run(scripts.cancel(job, retention_ms=self.config.retention_ms))

    def close(self) -> None:
        """Close what blocking callers opened."""
        with self._lock:
            listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()
        self.backend.close()

    def listener(self) -> Listener:
        """What hears of ends for blocking callers."""
        if self._forks != Forks.count:
            self._start_afresh()
        backend = self.backend
        backend.sync()
        with self._lock:
            if self._listener is None:
                client = backend.sync_client()
                self._listener = Listener(client, self._channel(), lambda: backend.sharded)
            return self._listener

    def _channel(self) -> str:
        return keys.reply_channel(self.config.name, self.backend.channel)

    # --- asyncio callers

    async def aadmit(self, submission: Submission) -> Admission:
        """Submit; calls that gather while one is in flight share the next round trip. The token of
        a caller that is cancelled meanwhile is given up."""
        desk = self._desk()
        answering = desk.admits.put(submission)
        try:
            return await answering
        except asyncio.CancelledError:
            # answered in the same moment; to an answer that is still to come the lane sees
            if answering.done() and not answering.cancelled() and not answering.exception():
                _leave(desk.leaves, submission, answering.result())
            raise

    async def aadmit_many(self, submissions: Sequence[Submission]) -> list[Admission]:
        """Submit many, in one round trip for every few hundred."""
        work = background(self._admit_many(submissions))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            desk = self._desk()
            work.add_done_callback(lambda done: _leave_all(desk, submissions, done))
            raise

    async def _admit_many(self, submissions: Sequence[Submission]) -> list[Admission]:
        store = await self.backend.aio()
        calls = [scripts.admit(self.rules, batch) for batch in scripts.batches(submissions)]
        answers: list[Admission] = []
        for i in range(0, len(calls), WINDOW):
            for some in await store.run_all(calls[i : i + WINDOW]):
                answers += some
        return answers

    async def alook(self, job: str) -> Sight:
        """Where the job is now."""
        return await self._desk().looks.put(job)

    async def await_end(self, job: str, until: float) -> Sight:
        """Where the job is when it ends, or at ``until`` (monotonic seconds)."""
        await self.backend.areach(until)
        desk = self._desk()
        seen = desk.listener.watch(job)
        failures = 0
        try:
            while True:
                seen.clear()
                pause = None
                try:
                    sight = await desk.looks.put(job)
                    failures = 0
                except StoreUnavailable:
                    if clock.monotonic() >= until:
                        raise
                    failures += 1  # an outage shorter than the wait is waited out
                    pause = PAUSES.delay(failures)
                else:
                    if sight.state.final or clock.monotonic() >= until:
                        return sight
                await set_within(seen, until, pause)
        finally:
            desk.listener.unwatch(job, seen)

    def aleave(self, job: str, token: str) -> asyncio.Future[str]:
        """Give up a token; the last live one cancels the job. Cancelling this does not stop it."""
        return self._desk().leaves.put((job, token))

    async def acancel(self, job: str) -> str:
        """Cancel the job, whoever waits for it."""
        return await self._desk().cancels.put(job)

    async def aclose(self) -> None:
        """Close what the running loop opened, after what is under way."""
        desk = self._desks.pop(asyncio.get_running_loop(), None)
        if desk is not None:
            for lane in (desk.admits, desk.looks, desk.leaves, desk.cancels):
                await lane.aclose()
            await desk.listener.aclose()
        await self.backend.aclose()

    def _desk(self) -> _Desk:
        loop = asyncio.get_running_loop()
        if self._forks != Forks.count:
            self._start_afresh()
        desk = self._desks.get(loop)
        if desk is None:
            desk = self._open_desk()
            self._desks[loop] = desk
        return desk

    def _open_desk(self) -> _Desk:
        backend, retention = self.backend, self.config.retention_ms

        async def admit(gathered: list[Submission]) -> AsyncIterator[list[Admission]]:
            store = await backend.aio()
            calls = [scripts.admit(self.rules, batch) for batch in scripts.batches(gathered)]
            async for answers in store.stream(calls):
                yield answers

        async def look(jobs: list[str]) -> AsyncIterator[list[Sight]]:
            store = await backend.aio()
            yield await store.run_here(scripts.fetch(jobs))

        async def leave(tokens: list[tuple[str, str]]) -> AsyncIterator[list[str]]:
            store = await backend.aio()
            yield await store.run_here(scripts.leave(tokens, retention_ms=retention))

        async def cancel(jobs: list[str]) -> AsyncIterator[list[str]]:
            store = await backend.aio()
            calls = [scripts.cancel(job, retention_ms=retention) for job in jobs]
            async for word in store.stream(calls):
                yield [word]

        leaves = Lane(leave, GATHERED)
        return _Desk(
            admits=Lane(admit, GATHERED, functools.partial(_leave, leaves)),
            looks=Lane(look, GATHERED),
            leaves=leaves,
            cancels=Lane(cancel, GATHERED),
            listener=AsyncListener(
                functools.partial(backend.async_client, reply_timeout=None),
                self._channel(),
                lambda: backend.sharded,
            ),
        )


def _leave(leaves: Lane[tuple[str, str], str], submission: Submission, answer: Admission) -> None:
    """Give up the token of an accepted submit whose caller is gone."""
    if answer.verdict in (Verdict.ADMITTED, Verdict.DUPLICATE):
        leaving = leaves.put((submission.id, submission.token))
        leaving.add_done_callback(lambda done: done.cancelled() or done.exception())


def _leave_all(
    desk: _Desk, submissions: Sequence[Submission], done: asyncio.Future[list[Admission]]
) -> None:
    if not done.cancelled() and not done.exception():
        for submission, answer in zip(submissions, done.result(), strict=True):
            _leave(desk.leaves, submission, answer)
