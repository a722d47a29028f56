"""Two tied jobs as their caller sees them: one result."""

from __future__ import annotations

import asyncio
import contextlib
from concurrent.futures import Future
from typing import Final, Generic, TypeVar

from .deadline import Deadline
from .errors import Rejected, StoreUnavailable
from .handle import LEAVE_S, JobHandle, wait_ends
from .job import Sight, State
from .prepared import Prepared
from .soon import apart
from .store.background import background
from .store.wire import Forks
from .tied_ends import End, aends, ends

R = TypeVar("R")


class TiedHandle(Generic[R]):
    """One caller's hold on two tied jobs, of which one runs. Every method has an asyncio twin that
    begins with ``a``."""

    __slots__ = ("_deadline", "_fate", "_first", "_forks", "_given_up")

    def __init__(
        self, first: JobHandle[R] | None, fate: Future[JobHandle[R] | None], deadline: Deadline
    ) -> None:
        self._first = first
        self._fate = fate
        """The second one; None where it was not sent, or refused."""
        self._deadline = deadline
        self._given_up = False
        self._forks = Forks.count

    @property
    def key(self) -> str:
        """The idempotency key of both."""
        return self._present()[0].key

    @property
    def deadline(self) -> Deadline:
        """This caller's deadline: the later one of the two."""
        return self._deadline

    def state(self) -> State:
        """Where the job is that runs, or is to run, in place of both.

        Raises:
            StoreUnavailable: the server cannot be reached.
        """
        return _telling([(h, h._producer.look(h.id)) for h in self._present()])[1].state

    async def astate(self) -> State:
        """The asyncio twin of :meth:`state`."""
        seen = [(h, await h._producer.alook(h.id)) for h in self._present()]
        return _telling(seen)[1].state

    def result(self, timeout: float | None = None) -> R:
        """The return value of the one that succeeds; waits as :meth:`JobHandle.result` does.

        That one was cancelled because the other was to start is no outcome. Where both fail, the
        error is that of the first.

        Raises:
            TimeoutError, DeadlineExceeded, Cancelled, JobFailed, JobGone, StoreUnavailable,
            ValueError: as :meth:`JobHandle.result`.
        """
        try:
            seen = ends(self._first, self._fate, wait_ends(self._deadline, timeout))
        except KeyboardInterrupt:
            with contextlib.suppress(StoreUnavailable):  # never in place of the interruption
                self.leave()
            raise
        handle, sight = _telling(seen)
        if sight.state is State.DONE and self._other_left(handle, seen):
            self._given_up = True
            # not to be waited for here, and still less there: that is where it is sent
            self._fate.add_done_callback(lambda _: apart(lambda: self._drop(handle)))
        return handle._read(sight, timeout)

    async def aresult(self, timeout: float | None = None) -> R:
        """The asyncio twin of :meth:`result`. Cancelling the wait gives up the hold."""
        try:
            seen = await aends(self._first, self._fate, wait_ends(self._deadline, timeout))
        except asyncio.CancelledError:
            leaving = kept(background(self.aleave()))
            await asyncio.wait({leaving}, timeout=LEAVE_S)
            raise
        handle, sight = _telling(seen)
        if sight.state is State.DONE and self._other_left(handle, seen):
            kept(background(self._adrop(handle)))
        return handle._read(sight, timeout)

    def leave(self) -> None:
        """Give up the hold on both. The last live one leaving cancels a job."""
        for handle in self._both():
            handle.leave()

    async def aleave(self) -> None:
        """The asyncio twin of :meth:`leave`."""
        for handle in await self._aboth():
            await handle.aleave()

    def cancel(self) -> bool:
        """Cancel both, whoever else waits for them.

        Returns:
            True: neither had started, and neither will. False: too late for one of them.
        """
        words = [handle.cancel() for handle in self._both()]
        return all(words)

    async def acancel(self) -> bool:
        """The asyncio twin of :meth:`cancel`."""
        words = [await handle.acancel() for handle in await self._aboth()]
        return all(words)

    def __repr__(self) -> str:
        return f"<TiedHandle {self._present()}>"

    # --- the second one

    def _send(self, other: Prepared[R]) -> None:
        """Send it, unless the first has started; in a thread of its own."""
        handle = None
        try:
            first = self._first
            if first is not None and not self._given_up and _waits(first._producer.look(first.id)):
                handle = other.owner.submit(other)
        except Rejected:
            pass  # then there is the first
        finally:
            self._fate.set_result(handle)

    async def _asend(self, other: Prepared[R], pause: float) -> None:
        handle = None
        try:
            await asyncio.sleep(pause)
            first = self._first
            if first is not None and not self._given_up:
                sight = await first._producer.alook(first.id)
                handle = await other.owner.asubmit(other) if _waits(sight) else None
        except Rejected:
            pass  # then there is the first
        finally:
            self._fate.set_result(handle)

    def _other_left(self, winner: JobHandle[R], seen: list[End[R]]) -> bool:
        """Whether there may be another one, and nobody has taken it away."""
        if winner is self._first:
            return not self._fate.done() or self._fate.result() is not None
        return self._first is not None and not any(sight.tied_away for _, sight in seen)

    def _drop(self, winner: JobHandle[R]) -> None:
        """Nobody waits for the other one any more."""
        for handle in self._present():
            if handle is not winner:
                with contextlib.suppress(Rejected):
                    handle.leave()

    async def _adrop(self, winner: JobHandle[R]) -> None:
        for handle in await self._aboth():
            if handle is not winner:
                with contextlib.suppress(Rejected):
                    await handle.aleave()

    def _present(self) -> list[JobHandle[R]]:
        """Those that are known to be there."""
        second = self._fate.result() if self._fate.done() else None
        return [handle for handle in (self._first, second) if handle is not None]

    def _both(self) -> list[JobHandle[R]]:
        """Those that there will be; a second one that is not sent yet never is."""
        self._given_up = True
        if self._to_come():
            with contextlib.suppress(TimeoutError):
                self._fate.result(max(0.0, self._deadline.remaining()))
        return self._present()

    async def _aboth(self) -> list[JobHandle[R]]:
        self._given_up = True
        if self._to_come():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, self._deadline.remaining())):
                    await asyncio.shield(asyncio.wrap_future(self._fate))
        return self._present()

    def _to_come(self) -> bool:
        """Whether it will be known here what has become of the second one: what was to send it is
        not in a forked child."""
        return not self._fate.done() and self._forks == Forks.count


def _waits(sight: Sight) -> bool:
    """Whether nothing has become of the first one yet."""
    return sight.tied_away or not (sight.state.final or sight.state is State.RUNNING)


def _telling(seen: list[End[R]]) -> End[R]:
    """The one of both that says how it stands: a success; else what is still open; else the
    first that has ended by itself."""
    success = [pair for pair in seen if pair[1].state is State.DONE]
    own = success or [pair for pair in seen if not pair[1].tied_away] or seen
    return min(own, key=lambda pair: (pair[1].state.final, pair[1].state is State.GONE))


_tasks: Final[set[asyncio.Task[None]]] = set()
"""A loop holds its tasks only weakly."""


def kept(task: asyncio.Task[None]) -> asyncio.Task[None]:
    """The task, which goes on though nobody waits for it."""
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)
    return task
