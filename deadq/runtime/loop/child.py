"""One child on an event loop: wires the roles, starts them, and stops them in the right order."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Final

from ... import clock
from ...events import Event, log
from ...job import Settlement
from ...queue import Queue
from ...store.aio import AsyncStore
from ...store.park import Parking
from ..jobs.run import MARK_OF, Run
from ..jobs.said import say_given_up
from ..lease.heartbeat import Heartbeat, Lease, SharedLease
from ..lease.ledger import Ledger
from ..memory import resident_bytes
from ..settings import ChildSettings, Ties
from ..ties.board import Page
from ..ties.unit_gate import OpenGate
from .async_runner import AsyncRunner
from .claimer import Claimer
from .ending import Ending
from .enrol import connect, register, retire
from .orders import Orders
from .orphan_watch import OrphanWatch
from .settler import Settler
from .units import Units
from .untying import untying
from .waits import in_own_thread, shielded

_LOOK_S: Final = 0.05
"""How often, at most, the lease is looked at (s)."""

_MEMORY_EVERY_S: Final = 1.0


class Child:
    """One registered child of the fleet, from its first claim to its retirement.

    With ``ties`` to a supervisor: that renews the lease, hears that the child is to be replaced,
    and its death ends the child.
    """

    def __init__(
        self,
        queue: Queue,
        settings: ChildSettings,
        *,
        started: asyncio.Event,
        ties: Ties | None = None,
    ) -> None:
        self._queue = queue
        self._settings = settings
        self._started = started
        self._ties = ties
        self._ledger = Ledger(ties.page if ties else None)
        self._ending = Ending(settings.grace)
        self._unattended = False
        self._loop = asyncio.get_running_loop()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._lease: Lease = (
            SharedLease(ties.page, queue.config.lease) if ties else self._heartbeat()
        )

    def stop(self) -> None:
        """Stop gracefully."""
        self._ending.stop()

    def hasten(self) -> None:
        """Stop, and interrupt the handlers now."""
        self._ending.hasten()

    def leave(self) -> None:
        """Claim nothing more, let what runs run to its end, and go: somebody takes this place."""
        if self._ties is not None and not self._ending.leaving.is_set():
            self._ties.channel.send("leaving")
        self._ending.leaving.set()

    async def run(self) -> None:
        """Work until told to stop or to leave."""
        orders = None
        if self._ties is not None:
            OrphanWatch(self._ties.channel, self._ties.page).start()
            orders = Orders(self._ties.channel, self)
            orders.start()
        try:
            store = await connect(self._queue, self._ending)
            if store is not None:
                self._wire(store)
                await self._work()
        finally:
            if orders is not None:
                orders.stop()

    def _wire(self, store: AsyncStore) -> None:
        queue, config, slots = self._queue, self._queue.config, self._settings.slots
        ledger, gate = self._ledger, self._ties.gate if self._ties else OpenGate()
        replaced = self.leave if self._ties else None
        self._store = store
        self._runner = AsyncRunner(
            queue.tasks,
            queue.clock,
            self._ended,
            lambda run: Units(
                run,
                store,
                lambda: ledger.child,
                config.retention_ms,
                gate,
                hung=replaced,
                patience=self._ending.patience,
            ),
            slots,
            untie=untying(store, config),
            left=ledger.ended,
            stubborn=replaced,
        )
        self._parking = Parking(
            queue.backend.async_client(reply_timeout=None), store.wire, queue.name
        )
        self._settler = Settler(
            store,
            self._ledger,
            slots=slots,
            retention_ms=config.retention_ms,
            tasks=tuple(queue.tasks),
            take=self._runner.take,
            start=self._runner.start,
            anew=self._register,
            most=self._settings.max_jobs,
            worn=self.leave,
        )
        self._claimer = Claimer(
            self._parking,
            self._ledger,
            queue.clock,
            self._settler,
            interrupt=self._runner.interrupt,
            recorded=self._runner.recorded,
        )

    async def _work(self) -> None:
        try:
            await self._register()
            if not self._ledger.child:
                return  # stopped before the server answered
            self._lease.start()
            self._guard()
            self._weigh()
            self._started.set()
            await self._until_stopped()
        finally:
            for timer in self._timers.values():
                timer.cancel()
            await in_own_thread(self._lease.stop)
            self._runner.close()
            await self._parking.aclose()
            await retire(self._queue, self._store, self._ledger)

    async def _until_stopped(self) -> None:
        settling = asyncio.ensure_future(self._settler.run())
        claiming = asyncio.ensure_future(self._claimer.run())
        told = asyncio.ensure_future(self._ending.told())
        try:
            await asyncio.wait({settling, claiming, told}, return_when=asyncio.FIRST_COMPLETED)
            for role in (settling, claiming):
                if role.done():
                    role.result()  # a role never ends by itself: raise what ended it
        finally:
            for waiting in (told, claiming):
                waiting.cancel()
            await asyncio.wait({claiming})
            if settling.done():
                # cancelled with everything else: outcomes must get out all the same
                settling = asyncio.ensure_future(self._settler.run())
            jobs = len(self._runner.runs)
            log.info("%s: child %s, %d jobs", Event.STOPPING, self._ledger.child, jobs)
            await shielded(self._ending.drain(self._settler, self._runner, self._ledger))
            settling.cancel()
            await asyncio.wait({settling})

    def _ended(self, run: Run, settlement: Settlement | None) -> None:
        if settlement is None:
            say_given_up(run.claim, run.mark)
            self._ledger.let_go([(run.claim.id, run.claim.fence)])
        self._settler.settle(settlement)

    async def _register(self) -> None:
        """Take up a new id, and call off what ran under an old one."""
        self._runner.interrupt_all("lost")
        if await register(
            self._queue,
            self._store,
            self._ledger,
            self._lease,
            slots=self._settings.slots,
            ending=self._ending,
        ):
            if self._ties is not None:
                self._ties.channel.send("registered", self._ledger.child)
            await self._give_up_wait()
            if self._ties is not None and self._unattended:
                self._unattended = False
                await self._attended(self._ties.page)

    async def _attended(self, page: Page) -> None:
        """A supervisor that did not renew may stand still, and what is claimed now would be lost in
        its turn, and charged for it. Its next renewal shows that it is there."""
        sent, child = page.good, self._ledger.child
        while page.good <= sent and self._ledger.child == child:
            if self._ending.stopping.is_set() or self._ending.leaving.is_set():
                return
            await self._ending.pause(_LOOK_S)

    def _heartbeat(self) -> Heartbeat:
        return Heartbeat(
            self._queue,
            self._ledger,
            told=lambda job, word, fence: self._soon(self.told, job, word, fence),
            lapsed=lambda child: self._soon(self.lapsed, child),
            deaf=lambda: self._soon(self.deaf),
        )

    def _guard(self) -> None:
        """Whoever renews, and why ever it fails: past the safe part of the lease handlers stop."""
        left = self._lease.safe_until - clock.monotonic()
        if left <= 0:
            self._unattended = self._ties is not None
            self.lapsed(self._ledger.child)
        self._timers["guard"] = self._loop.call_later(max(left, _LOOK_S), self._guard)

    def _weigh(self) -> None:
        """Leave when the process has grown too large."""
        most = self._settings.max_memory
        if most is None:
            return
        if resident_bytes() > most:
            self.leave()
        self._timers["weigh"] = self._loop.call_later(_MEMORY_EVERY_S, self._weigh)

    def _soon(self, call: Any, *args: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has just been closed
            self._loop.call_soon_threadsafe(call, *args)

    # What a renewal brought, by the supervisor's word or by the heartbeat's.

    def told(self, job: str, word: str, fence: int) -> None:
        self._runner.interrupt(job, MARK_OF[word], fence)

    def lapsed(self, child: str) -> None:
        """The lease is over, or nearly: stop what runs. The id is given up for good, so that
        whoever still runs under it when the server is back cannot report; the next claim, under
        no id, is refused and registers anew."""
        if child and child == self._ledger.child:
            log.warning("%s: child %s, its lease lapsed", Event.LOST, child)
            self._ledger.begin("")
            self._runner.interrupt_all("lost")
            self.deaf()

    def deaf(self) -> None:
        """Give the parked connection up and claim on the other one. Under the number whose answer
        was lost, if one was: that gives the same jobs."""
        giving_up = asyncio.ensure_future(self._give_up_wait())
        giving_up.add_done_callback(lambda _: self._settler.ask())

    def orphaned(self) -> None:
        """The supervisor is gone: end the open units under a lease of our own, and leave."""
        assert self._ties is not None  # noqa: S101  for the type checker
        log.warning("%s: the supervisor is gone", Event.STOPPING)
        heartbeat = self._heartbeat()
        heartbeat.renewed(self._ledger.child, self._ties.page.good)
        heartbeat.start()
        self._lease = heartbeat
        self.hasten()

    async def _give_up_wait(self) -> None:
        """A wait under an id that is given up is of no use: the connection goes, and it ends."""
        self._settler.unpark()
        await self._parking.aclose()
