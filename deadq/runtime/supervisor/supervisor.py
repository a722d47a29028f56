"""The process that keeps the children: it runs no handler, and does one thing at a time.

It forks the children, renews their leases, hands back the jobs of those that die, and fills their
places. Everything it waits for goes through one selector; signals only leave a byte there.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from ... import clock
from ...errors import DeadqError
from ...events import Event, log
from ...queue import Queue
from ..settings import WorkerConfig
from ..ties.unit_lock import Locks
from ..vitals.vitals import Vitals
from .charge import Charge
from .crew import Crew
from .spawn import Facts, LoadFailed

_STOPS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""A closed terminal ends a worker as gracefully as anybody else."""

_LOOK_S: Final = 0.02
"""How often children are looked at that leave because the supervisor cannot go on."""


class Supervisor:
    """Runs crews until told to stop. ``known`` is called once, when all queues have been loaded
    and before the first job begins.

    Raises:
        DeadqError: this is not the main thread.
    """

    def __init__(
        self,
        crews: Sequence[tuple[Callable[[], Queue], WorkerConfig]],
        *,
        known: Callable[[Sequence[Facts]], None] = lambda _: None,
        vitals: Vitals | None = None,
    ) -> None:
        if threading.current_thread() is not threading.main_thread():
            msg = (
                "a worker's run() belongs on the main thread, where signals arrive; in a thread "
                "use arun() on an event loop, or start a process with `deadq work`"
            )
            raise DeadqError(msg)
        self._vitals = vitals
        self._locks = Locks()
        self._crews = [
            Crew(load, config, locks=self._locks, let_go=self._let_go) for load, config in crews
        ]
        self._known = known
        self._gone = False
        self._failure: LoadFailed | None = None
        self._selector = selectors.DefaultSelector()
        self._watched: dict[Any, int] = {}
        self._signals, self._wakeup = os.pipe()
        self._stops = 0

    def run(self) -> None:
        """Work until SIGTERM, SIGINT or SIGHUP, and every child has ended.

        A second signal hastens the end.

        Raises:
            LoadFailed: a queue could not be loaded.
        """
        with self._hearing_signals():
            try:
                while self._turn():
                    self._watch()
                    self._wait()
            except Exception as error:
                log.critical("%s: the supervisor cannot go on: %r", Event.STOPPING, error)
                raise
            finally:
                self._end()
        if self._failure is not None:
            raise self._failure

    def _turn(self) -> bool:
        """Do what is due; says whether there is anything left to wait for."""
        for crew in self._crews:
            try:
                crew.tick()
            except LoadFailed as failure:
                self._heard()  # a stop that went to the whole group may have ended the child
                if not self._stops:
                    self._failure = failure
                    self._stop()
        facts = [crew.facts for crew in self._crews if crew.facts is not None]
        if not self._gone and len(facts) == len(self._crews):
            self._gone = True
            self._known(facts)
            for crew in self._crews:
                crew.go()
        if self._vitals is not None:
            self._vitals.tick(self._crews, stopping=bool(self._stops))
        return not self._stops or any(crew.charges for crew in self._crews)

    def _wait(self) -> None:
        until = min(crew.next_at for crew in self._crews)
        if self._vitals is not None:
            until = min(until, self._vitals.next_at)
        for key, _ in self._selector.select(max(0.0, until - clock.monotonic())):
            key.data()

    def _watch(self) -> None:
        """Follow what there is to be watched: children come and go, connections too. Each by what
        it is, not by its number: that of a connection is given to the next one."""
        wanted: dict[Any, tuple[int, Callable[[], object]]] = {}
        wanted[self._signals] = self._signals, self._heard
        if self._vitals is not None:
            for file, call in self._vitals.watched().items():
                wanted[file] = file.fileno(), call
        for crew in self._crews:
            for charge in crew.charges:
                if not charge.channel.closed:
                    wanted[charge.channel] = charge.channel.fileno(), _hearing(crew, charge)
            postman = crew.postman
            if postman is not None and postman.waiting:
                wanted[postman, postman.broken] = postman.fileno(), postman.hear
        for gone in self._watched.keys() - wanted.keys():
            self._selector.unregister(self._watched.pop(gone))
        for file in wanted.keys() - self._watched.keys():
            number, call = wanted[file]
            self._selector.register(number, selectors.EVENT_READ, call)
            self._watched[file] = number

    def _heard(self) -> None:
        with contextlib.suppress(BlockingIOError):
            for number in os.read(self._signals, 4096):
                if number in _STOPS:
                    self._stop()

    def _stop(self) -> None:
        """Stop gracefully; again: at once."""
        self._stops += 1
        for crew in self._crews:
            if self._stops == 1:
                crew.stop()
            else:
                crew.hasten()

    def _let_go(self) -> None:
        """In a forked child."""
        self._selector.close()
        os.close(self._signals)
        os.close(self._wakeup)
        for crew in self._crews:
            crew.abandon()
        if self._vitals is not None:
            self._vitals.forget()

    def _end(self) -> None:
        """No child outlives this. None is left, unless something unforeseen has happened: then
        they leave as children of a dead supervisor do, and are killed only if they do not."""
        for crew in self._crews:
            crew.orphan()
        try:
            while [crew for crew in self._crews if crew.see_off()]:
                time.sleep(_LOOK_S)
        finally:
            self._close()

    def _close(self) -> None:
        for crew in self._crews:
            crew.close()
        if self._vitals is not None:
            self._vitals.close()
        self._selector.close()
        os.close(self._signals)
        os.close(self._wakeup)
        self._locks.close()

    @contextlib.contextmanager
    def _hearing_signals(self) -> Iterator[None]:
        for end in (self._signals, self._wakeup):
            os.set_blocking(end, False)
        numbers = {*_STOPS, signal.SIGCHLD}
        if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
            numbers.remove(signal.SIGHUP)  # nohup: this worker is to outlive its terminal
        before = {number: signal.signal(number, _noted) for number in numbers}
        wakeup = signal.set_wakeup_fd(self._wakeup, warn_on_full_buffer=False)
        # whoever started this process may have blocked them, and so in it as well
        mask = signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            signal.set_wakeup_fd(wakeup)
            for number, handler in before.items():
                signal.signal(number, handler)


def _noted(*_: object) -> None:
    """The byte in the pipe says it all."""


def _hearing(crew: Crew, charge: Charge) -> Callable[[], None]:
    return lambda: crew.hear(charge)
