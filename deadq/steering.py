"""A queue as its operators use it: depths, pause and resume, the dead and their replay."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from .budgets import FleetBudget
from .config import MAX_CAPACITY, QueueConfig, whole
from .deadline import Deadline
from .errors import Rejected, shown
from .handle import JobHandle, failure
from .job import (
    CRITICALITY_RANK,
    Admission,
    Criticality,
    DeadJob,
    State,
    Submission,
    Verdict,
    ids_for,
)
from .options import checked, within_horizon
from .producer import Producer
from .refusals import refusal
from .reports import JobReport, ListedJob
from .store import scripts
from .store.connect import Backend


class Steering:
    """Looking at a queue and steering it. What asks the server has an asyncio twin, ``a…``."""

    config: QueueConfig
    backend: Backend
    producer: Producer
    _budget: FleetBudget | None = None

    @property
    def budget(self) -> FleetBudget:
        """The retry budget on which this queue's own retries draw, for calls that are made around
        it: ``retry(budget=queue.budget)``."""
        if self._budget is None:
            config = self.config
            self._budget = FleetBudget.of_queue(self.backend, config.name, config.budget)
        return self._budget

    def relocate(self, url: str) -> None:
        """Be on the server at ``url``, tasks and all: for a queue that nobody has used yet.

        Raises:
            ValueError, TypeError: the URL is odd.
        """
        config = self.config
        self.backend = Backend(config.name, url, None, allow_eviction=config.allow_eviction)
        self.producer = Producer(config, self.backend)
        self._budget = None

    def stats(self) -> scripts.Stats:
        """Depths and counters at this instant.

        Raises:
            StoreUnavailable: the server cannot be reached.
        """
        return self.backend.sync().run(scripts.stats())

    async def astats(self) -> scripts.Stats:
        """The asyncio twin of :meth:`stats`."""
        return await (await self.backend.aio()).run(scripts.stats())

    def pause(self) -> None:
        """Refuse new submits with :class:`Paused`; what was accepted goes on.

        Raises:
            StoreUnavailable: the server cannot be reached, or refuses to write.
        """
        self.backend.sync().run(scripts.pause(paused=True))

    def resume(self) -> None:
        """Take new submits again.

        Raises:
            StoreUnavailable: the server cannot be reached, or refuses to write.
        """
        self.backend.sync().run(scripts.pause(paused=False))

    async def apause(self) -> None:
        """The asyncio twin of :meth:`pause`."""
        await (await self.backend.aio()).run(scripts.pause(paused=True))

    async def aresume(self) -> None:
        """The asyncio twin of :meth:`resume`."""
        await (await self.backend.aio()).run(scripts.pause(paused=False))

    def jobs(self, state: State | str | None = None, limit: int = 100) -> list[ListedJob]:
        """Unfinished jobs, those first that come first: of all by their deadlines, of one state as
        they wait there.

        Args:
            state: ``ready``, ``suspect``, ``later``, ``strange`` or ``running``; None for all.
            limit: how many at most.

        Raises:
            StoreUnavailable: the server cannot be reached.
            ValueError, TypeError: an odd ``limit``, or a state in which no job is unfinished.
        """
        return self.backend.sync().run(_listing(state, limit))

    async def ajobs(self, state: State | str | None = None, limit: int = 100) -> list[ListedJob]:
        """The asyncio twin of :meth:`jobs`."""
        return await (await self.backend.aio()).run(_listing(state, limit))

    def show(self, job: str) -> JobReport | None:
        """All that is known of the job with this id or key but its arguments and its result; None
        when there is no record of it.

        Raises:
            StoreUnavailable: the server cannot be reached.
            ValueError, TypeError: this can be neither an id nor a key.
        """
        store = self.backend.sync()
        found = (_reported(store.run(scripts.show(ident))) for ident in ids_for(job))
        return next((report for report in found if report is not None), None)

    async def ashow(self, job: str) -> JobReport | None:
        """The asyncio twin of :meth:`show`."""
        store = await self.backend.aio()
        for ident in ids_for(job):
            report = _reported(await store.run(scripts.show(ident)))
            if report is not None:
                return report
        return None

    def cancel(self, job: str) -> State:
        """Cancel the job with this id or key, whoever waits for it.

        Returns:
            CANCELLED: it never starts. RUNNING: too late for that, it is interrupted outside its
            units. Else the state that it has ended in; GONE: there is no record of it.

        Raises:
            StoreUnavailable: the server cannot be reached, or refuses to write.
            ValueError, TypeError: this can be neither an id nor a key.
        """
        states = (State(self.producer.cancel(ident)) for ident in ids_for(job))
        return next((state for state in states if state is not State.GONE), State.GONE)

    async def acancel(self, job: str) -> State:
        """The asyncio twin of :meth:`cancel`."""
        for ident in ids_for(job):
            state = State(await self.producer.acancel(ident))
            if state is not State.GONE:
                return state
        return State.GONE

    def dead(self, limit: int = 100) -> list[DeadJob]:
        """Jobs that failed for good, the newest first: failed, out of retries, crashed, cut short.

        A thousand are kept at most, each for the queue's ``retention``.

        Raises:
            StoreUnavailable: the server cannot be reached.
            ValueError, TypeError: ``limit`` is odd.
        """
        call = scripts.dead(whole(limit, "limit", 0, MAX_CAPACITY))
        return [_described(*found) for found in self.backend.sync().run(call)]

    async def adead(self, limit: int = 100) -> list[DeadJob]:
        """The asyncio twin of :meth:`dead`."""
        call = scripts.dead(whole(limit, "limit", 0, MAX_CAPACITY))
        return [_described(*found) for found in await (await self.backend.aio()).run(call)]

    def replay(
        self,
        job: str | DeadJob,
        *,
        within: float | None = None,
        deadline: Deadline | datetime | float | None = None,
    ) -> JobHandle[Any]:
        """Submit a dead job once more under its key: the same arguments, its recorded units kept.

        Args:
            job: its id or key, or what :meth:`dead` gave.
            within: time budget in seconds from now.
            deadline: the instant itself; give one of the two.

        Raises:
            Rejected: refused like any submit; or the job is not among the dead (any more).
            StoreUnavailable: the server cannot be reached; perhaps it was submitted all the same.
            ValueError: neither ``within`` nor ``deadline``, both, or an odd one.
            TypeError: ``job`` is neither an id or key nor a :class:`DeadJob`.
        """
        store = self.backend.sync()
        until = self._replay_until(within, deadline)
        found: list[tuple[DeadJob, bytes]] = []
        for ident in _dead_ids(job):
            found = found or store.run(scripts.dead(1, ident))
        submission = self._replay(job, found, until)
        return self._replayed(submission, until, self.producer.admit(submission), found)

    async def areplay(
        self,
        job: str | DeadJob,
        *,
        within: float | None = None,
        deadline: Deadline | datetime | float | None = None,
    ) -> JobHandle[Any]:
        """The asyncio twin of :meth:`replay`."""
        store = await self.backend.aio()
        until = self._replay_until(within, deadline)
        found: list[tuple[DeadJob, bytes]] = []
        for ident in _dead_ids(job):
            found = found or await store.run(scripts.dead(1, ident))
        submission = self._replay(job, found, until)
        answer = await self.producer.aadmit(submission)
        return self._replayed(submission, until, answer, found)

    def _replay_until(
        self, within: float | None, deadline: Deadline | datetime | float | None
    ) -> Deadline:
        given = checked(within=within, deadline=deadline, horizon=self.config.horizon)
        clock = self.backend.clock
        if given.deadline is not None:
            until = given.deadline.on(clock)
        elif given.within is not None:
            until = Deadline.after(given.within)
        else:
            msg = "a replay needs a deadline of its own: give within or deadline"
            raise ValueError(msg)
        ambient = Deadline.current()
        until = until.tighten(None if ambient is None else ambient.on(clock))
        return within_horizon(until, self.config.horizon)

    def _replay(
        self, job: str | DeadJob, found: list[tuple[DeadJob, bytes]], until: Deadline
    ) -> Submission:
        """The submit of a replay, which leaves to the server what is in the record."""
        ident = found[0][0].id if found else _dead_ids(job)[-1]
        rank = CRITICALITY_RANK[Criticality.CRITICAL]
        at, token = until.server_ms(self.backend.clock), self.producer.new_token()
        return Submission(ident, "", b"", "", at, 0, rank, 0, token, b"")

    def _replayed(
        self,
        submission: Submission,
        until: Deadline,
        answer: Admission,
        found: list[tuple[DeadJob, bytes]],
    ) -> JobHandle[Any]:
        if answer.verdict == Verdict.NOT_DEAD:
            state = f"it is {found[0][0].state}" if found else "the server holds no record of it"
            msg = f"the job is not among the dead: {state}"
            raise Rejected(msg)
        if answer.verdict not in (Verdict.ADMITTED, Verdict.DUPLICATE):
            raise refusal(answer.verdict, self.config, answer.retry_after_ms)
        return JobHandle(
            self.producer,
            submission.id,
            next((dead.key for dead, _ in found), ""),
            submission.token,
            until,
            duplicate=answer.verdict == Verdict.DUPLICATE,
        )


def _dead_ids(job: object) -> tuple[str, ...]:
    return (job.id,) if isinstance(job, DeadJob) else ids_for(job)


def _described(job: DeadJob, blob: bytes) -> DeadJob:
    error = failure(job.state, blob)
    if error is None:
        return job
    return job._replace(error_type=error.type_name, error_message=error.message)


def _listing(state: State | str | None, limit: int) -> scripts.Call[list[ListedJob]]:
    open_states = [s.value for s in State if not s.final]
    if state is not None and state not in open_states:
        msg = f"no job is unfinished in state {shown(state)}: name one of {', '.join(open_states)}"
        raise ValueError(msg)
    return scripts.jobs(str(state or ""), whole(limit, "limit", 0, MAX_CAPACITY))


def _reported(found: tuple[JobReport, bytes] | None) -> JobReport | None:
    if found is None:
        return None
    report, blob = found
    error = failure(report.state, blob)
    if error is None:
        return report
    return report._replace(
        error_type=error.type_name,
        error_message=error.message,
        error_traceback=error.traceback,
    )
