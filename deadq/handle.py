"""A submitted job as its caller sees it: state, result, leaving, cancelling."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final, Generic, TypeVar, cast

from . import clock, codec
from .deadline import Deadline, seconds
from .errors import Cancelled, DeadlineExceeded, JobFailed, JobGone, StoreUnavailable, shown
from .job import Sight, State
from .producer import Producer

LEAVE_S: Final = 0.1
"""How long an interrupted wait lasts on to see its leave through (s); it goes on by itself."""

NEVER_STARTED: Final = (
    "the deadline passed before the job was started: no worker took it in time; "
    "deadq check MODULE:QUEUE says whether one is at work"
)

R = TypeVar("R")
T = TypeVar("T")


class JobHandle(Generic[R]):
    """One caller's hold on a job. Every method has an asyncio twin that begins with ``a``.

    Each handle waits to its own deadline, whatever deadline other callers of the same key have.
    """

    __slots__ = ("_deadline", "_duplicate", "_id", "_key", "_producer", "_token")

    def __init__(
        self,
        producer: Producer,
        job: str,
        key: str,
        token: str,
        deadline: Deadline,
        *,
        duplicate: bool,
    ) -> None:
        self._producer = producer
        self._id = job
        self._key = key
        self._token = token
        self._deadline = deadline
        self._duplicate = duplicate

    @property
    def id(self) -> str:
        """The job's id: a digest of its key."""
        return self._id

    @property
    def key(self) -> str:
        """The idempotency key, given or made."""
        return self._key

    @property
    def duplicate(self) -> bool:
        """Whether the key was known: this handle shares an earlier submit's job."""
        return self._duplicate

    @property
    def deadline(self) -> Deadline:
        """This caller's deadline."""
        return self._deadline

    def state(self) -> State:
        """Where the job is now.

        Raises:
            StoreUnavailable: the server cannot be reached.
        """
        return self._producer.look(self._id).state

    async def astate(self) -> State:
        """Where the job is now."""
        return (await self._producer.alook(self._id)).state

    def result(self, timeout: float | None = None) -> R:
        """The handler's return value; waits at most ``timeout`` seconds, or to the deadline.

        A ``timeout`` that merely runs out keeps the hold; 0 only looks. An interrupted wait
        (``KeyboardInterrupt``) gives it up.

        Raises:
            TimeoutError: not ready within ``timeout``.
            DeadlineExceeded: not finished before the deadline.
            Cancelled: the job was cancelled.
            JobFailed: the handler failed for good.
            JobGone: the server holds no record of the job.
            StoreUnavailable: the server cannot be reached.
            ValueError: ``timeout`` is negative, NaN or infinite.
        """
        until = wait_ends(self._deadline, timeout)
        try:
            sight = self._producer.wait(self._id, until)
        except KeyboardInterrupt:
            with contextlib.suppress(StoreUnavailable):  # never in place of the interruption
                self._producer.leave(self._id, self._token)
            raise
        return self._read(sight, timeout)

    async def aresult(self, timeout: float | None = None) -> R:
        """The asyncio twin of :meth:`result`. Cancelling the wait gives up the hold."""
        until = wait_ends(self._deadline, timeout)
        try:
            sight = await self._producer.await_end(self._id, until)
        except asyncio.CancelledError:
            await self._leave_behind()
            raise
        return self._read(sight, timeout)

    async def _leave_behind(self) -> None:
        """Give up the hold; waited for only briefly, so that an interruption stays one."""
        leaving = self._producer.aleave(self._id, self._token)
        leaving.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.wait({leaving}, timeout=LEAVE_S)

    def leave(self) -> None:
        """Give up this hold. The last live one leaving cancels the job."""
        self._producer.leave(self._id, self._token)

    async def aleave(self) -> None:
        """Give up this hold. The last live one leaving cancels the job."""
        await self._producer.aleave(self._id, self._token)

    def cancel(self) -> bool:
        """Cancel the job, whoever else waits for it.

        Returns:
            True: it had not started, and never will. False: too late; one that runs is
            interrupted outside its units, one that has ended stays as it is.
        """
        return self._producer.cancel(self._id) == State.CANCELLED

    async def acancel(self) -> bool:
        """The asyncio twin of :meth:`cancel`."""
        return await self._producer.acancel(self._id) == State.CANCELLED

    def __repr__(self) -> str:
        return f"<JobHandle {self._id} key={shown(self._key)}>"

    def _read(self, sight: Sight, timeout: float | None) -> R:
        state = sight.state
        if state is State.DONE:
            return cast("R", _decoded(codec.decode, sight.blob))
        failed = failure(state, sight.blob)
        if failed is not None:
            raise failed
        if state is State.CANCELLED:
            raise Cancelled
        if state in (State.EXPIRED, State.EXCEEDED) or self._deadline.expired:
            waited = state is not State.GONE and not sight.attempt
            raise DeadlineExceeded(NEVER_STARTED if waited else "", units=sight.units)
        if state is State.GONE:
            msg = f"the server holds no record of job {self._id}"
            raise JobGone(msg)
        left = self._deadline.remaining()
        msg = f"the job is {state} after {timeout} s; its deadline is {left:.3f} s away"
        raise TimeoutError(msg)


def wait_ends(deadline: Deadline, timeout: float | None) -> float:
    """When a wait to the deadline is over that may be cut short (monotonic s).

    Raises:
        ValueError, TypeError: ``timeout`` is no number of seconds.
    """
    if timeout is None:
        return deadline.monotonic
    until = clock.monotonic() + seconds(timeout, "timeout", positive=False)
    return min(until, deadline.monotonic)


def failure(state: State, blob: bytes) -> JobFailed | None:
    """What a job in this state has failed with for good; None when it has not failed."""
    if state in (State.FAILED, State.EXHAUSTED):
        try:
            return JobFailed(*_decoded(codec.read_exception, blob))
        except JobFailed as unreadable:
            return unreadable
    if state is State.CRASHED:
        died = "1 worker" if blob == b"1" else f"{blob.decode('utf-8', 'replace')} workers"
        return JobFailed("WorkerDied", f"{died} died running it, or lost its lease")
    if state is State.MALFORMED:
        return JobFailed("deadq.MalformedRecord", "the stored record cannot be read")
    return None


def _decoded(decode: Callable[[bytes], T], blob: bytes) -> T:
    try:
        return decode(blob)
    except codec.DecodeError as error:
        msg = f"the stored outcome cannot be read here: {error}"
        raise JobFailed("deadq.MalformedRecord", msg) from None
