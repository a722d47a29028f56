"""The children of one queue: started, renewed, replaced, and accounted for when they end."""

from __future__ import annotations

import os
import secrets
import signal
from collections.abc import Callable, Mapping
from typing import Final

from ... import clock
from ...events import Event, log
from ...job import Departure
from ...queue import Queue
from ..settings import WorkerConfig
from ..ties.unit_lock import Locks
from .charge import Charge
from .killing import Killing
from .places import Places
from .postman import Postman
from .renewals import Departed, Renewals
from .report import report_for
from .spawn import Birth, Facts, LoadFailed

_LEAVE_S: Final = 7.0
"""Beyond the grace, a stopping child may take so long; then it is killed."""

_LINGER_S: Final = 5.0
"""A child for suspects stays so long after the last of them."""

_MIND_EVERY_S: Final = 0.25
"""How often it is seen to that suspects have a child."""


class Crew:
    """All children on one queue; ``let_go`` is called in each, to close what it inherited."""

    def __init__(
        self,
        load: Callable[[], Queue],
        config: WorkerConfig,
        *,
        locks: Locks,
        let_go: Callable[[], None],
    ) -> None:
        self._load = load
        self._config = config
        self._locks = locks
        self._let_go = let_go
        self._post = secrets.token_hex(8)
        self._places = Places()
        self._alone_until = 0.0
        self._minded_at = 0.0
        self._stop_until: float | None = None
        self._going = False
        self.charges: list[Charge] = []
        self._killing = Killing(lambda: self.charges)
        self.facts: Facts | None = None
        self.renewals: Renewals | None = None
        self.postman: Postman | None = None

    @property
    def ready(self) -> bool:
        """Whether every place is filled by a child that is registered."""
        places = {c.number for c in self.charges if c.child and not c.leaving}
        return self.facts is not None and places >= set(range(len(self.facts.slots)))

    @property
    def next_at(self) -> float:
        """When :meth:`tick` has something to do, if nothing happens before (monotonic s)."""
        times = [self._killing.next_at]
        if self._stop_until is None:
            times.append(self._places.next_at)
        elif self._stop_until > clock.monotonic():
            times.append(self._stop_until)
        times += [self._minded_at + _MIND_EVERY_S] if self.charges else []
        times += [role.next_at for role in (self.renewals, self.postman) if role is not None]
        return min([*times, clock.monotonic() + 60.0])

    def tick(self) -> None:
        """Do what is due.

        Raises:
            LoadFailed: the first child could not load the queue.
        """
        now = clock.monotonic()
        self._bury()
        if self._stop_until is None:
            self._fill(now)
        if self.renewals is not None and self.renewals.next_at <= now:
            self.renewals.beat()
            if self.postman is not None:
                self.postman.renewed(now, tokens=self.renewals.tokens)
        if self._minded_at + _MIND_EVERY_S <= now:
            self._mind_suspects(now)
        if self.postman is not None and self.postman.next_at <= now:
            self.postman.tick()
        self._kill(now)

    def hear(self, charge: Charge) -> None:
        """A child has said something."""
        for line in charge.channel.receive():
            word, _, rest = line.partition(" ")
            match word:
                case "hello":
                    self._learn(Facts.read(rest))
                case "registered":
                    charge.child = rest
                    self._places.works()
                case "leaving":
                    self._replace(charge)
                case "stubborn":
                    job, fence, mark = rest.split(" ")
                    self._killing.stubborn(charge, job, int(fence), mark)
                case "fault":
                    code, _, text = rest.partition(" ")
                    charge.fault = int(code), text
                case "bye":
                    charge.said_bye = True

    def go(self) -> None:
        """Whatever there is to be said before the first job has been said."""
        self._going = True
        self._say("go")

    def stop(self) -> None:
        """Tell every child to stop, and start none any more. One that is still at loading the
        user's module, which may take long, hears nothing and has nothing to lose."""
        if self._stop_until is None:
            self._stop_until = clock.monotonic() + self._config.grace + _LEAVE_S
            self._say("stop")
            for charge in self.charges:
                if not charge.child:
                    os.kill(charge.pid, signal.SIGTERM)  # not reaped yet, so it is still this one

    def hasten(self) -> None:
        """Tell every child to interrupt its handlers now."""
        self._stop_until = clock.monotonic() + _LEAVE_S
        self._say("hasten")

    def orphan(self) -> None:
        """The supervisor cannot go on: its children hear that it is gone, end their units, and
        leave."""
        self._stop_until = clock.monotonic() + _LEAVE_S
        for charge in self.charges:
            charge.channel.hang_up()

    def see_off(self) -> bool:
        """After :meth:`orphan`: bury those that have left, kill those that do not. Whether any is
        left."""
        self._bury()
        self._kill(clock.monotonic())
        return bool(self.charges)

    def abandon(self) -> None:
        """In a forked child: let go of what is the supervisor's."""
        for charge in self.charges:
            charge.channel.close()
        for role in [r for r in (self.postman, self.renewals) if r is not None]:
            role.abandon()

    def close(self) -> None:
        """When every child has ended."""
        for role in [r for r in (self.postman, self.renewals) if r is not None]:
            role.close()

    def _say(self, word: str) -> None:
        for charge in self.charges:
            charge.channel.send(word)

    # Beginnings.

    def _fill(self, now: float) -> None:
        for number in self._places.due(now):
            birth = Birth(self._load, self._config, self._post, number, waits=not self._going)
            # before the first child has loaded the queue nobody knows how many slots it will have
            slots = max(self.facts.slots) if self.facts else self._config.concurrency or 1024
            try:
                self.charges.append(Charge(birth, slots, self._locks, self._let_go))
            except OSError as error:
                pause = self._places.put_off()
                log.warning("%s: %s; next try in %.1f s", Event.CHILD_MISSING, error, pause)
                return
            self._places.filled(number)

    def _learn(self, facts: Facts) -> None:
        if self.facts is not None:
            return
        self.facts = facts
        self._places.add(range(1, len(facts.slots)))
        self.renewals = Renewals(facts, self._load, lambda: self.charges)
        if facts.process:
            self.postman = Postman(
                self.renewals.mailbox(self._post),
                lambda: self.charges,
                sweep=self.renewals.soon,
                interval=self.renewals.interval,
            )

    def _replace(self, charge: Charge) -> None:
        """Its place is free from now on; what it runs may run to its end."""
        if not charge.leaving:
            charge.leaving = True
            if not charge.suspect:
                self._places.add([charge.number])

    def _mind_suspects(self, now: float) -> None:
        """Jobs that may have killed a child are run by one that runs nothing else."""
        self._minded_at = now
        if self.renewals is None or self.facts is None or self.facts.process:
            return  # every child of the process runner runs one job alone
        if self.renewals.suspects:
            self._alone_until = now + _LINGER_S
            if not any(c.suspect and not c.leaving for c in self.charges):
                self._places.add([None])
        elif self._alone_until <= now:
            for charge in self.charges:
                if charge.suspect and not charge.leaving and not charge.sheet().held:
                    charge.channel.send("leave")

    # Ends.

    def _bury(self) -> None:
        for charge in list(self.charges):
            code = charge.reap()
            if code is None:
                continue
            self.hear(charge)  # its last words
            self.charges.remove(charge)
            marks = self._killing.ended(charge)
            said_why = charge.said_bye or charge.fault is not None
            if charge.sheet().child or not said_why:
                self._account(charge, code, marks, left=said_why)
            charge.close()
            if self._stop_until is None:
                self._refill(charge)

    def _kill(self, now: float) -> None:
        if self._stop_until is not None and self._stop_until <= now:
            self._killing.spare_none()
        self._killing.tick(now)

    def _account(
        self, charge: Charge, code: int, marks: Mapping[tuple[str, int], str], *, left: bool
    ) -> None:
        """Give back what it held. Whether it died by itself, was killed, or ``left`` and only could
        not give it back itself makes the difference."""
        sheet = charge.sheet()
        how = Departure.DIED
        if left:
            how = Departure.LEAVES
        elif charge.killed and code == -signal.SIGKILL:
            how = Departure.KILLED
        event = Event.CHILD_KILLED if how is Departure.KILLED else Event.CHILD_ENDED
        log.warning("%s: child %s (pid %d), exit code %d", event, sheet.child, charge.pid, code)
        if not sheet.child or self.renewals is None:
            return
        settlements = [
            settlement
            for (job, fence), mark in marks.items()
            if (holding := sheet.held.get(job)) is not None
            and holding.fence == fence
            and (settlement := report_for(job, holding, mark)) is not None
        ]
        self.renewals.departed(Departed(sheet.child, how, settlements))
        self._mind_suspects(clock.monotonic())

    def _refill(self, charge: Charge) -> None:
        if charge.fault is not None and self.facts is None:
            raise LoadFailed(charge.fault[1], charge.fault[0])
        if self.facts is None:
            msg = "the first child ended before it had loaded the queue; what it said stands above"
            raise LoadFailed(msg)
        if charge.fault is not None:
            log.error("%s: %s", Event.CHILD_ENDED, charge.fault[1])
        if charge.leaving:
            return  # its place has been somebody else's since
        if not charge.child:
            self._places.vacated(charge.number)
        elif not charge.suspect:
            self._places.add([charge.number])
