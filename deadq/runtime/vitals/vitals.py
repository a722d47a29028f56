"""How a worker is, for those who keep it: a file, an HTTP endpoint, systemd."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from ... import clock
from ..supervisor.crew import Crew
from .health import Health, HealthFile, Status
from .health_server import HealthConnection, HealthServer
from .notify import Notifier

_BEAT_S: Final = 5.0


class Vitals:
    """Beats every five seconds, for the watchdog as often as it wants, and at every change.

    Args:
        file: for probes that run a command; kept fresh while the worker is ready, removed at the
            end.
        address: host and port of an HTTP endpoint.

    Raises:
        DeadqError: the file or the address is not to be had.
    """

    def __init__(self, *, file: Path | None = None, address: tuple[str, int] | None = None) -> None:
        self._notifier = Notifier.from_environment()
        self._file = HealthFile(file) if file else None
        self._health = Health(file=self._file)
        self._server = HealthServer(*address, self._health.read) if address else None
        self._connections: list[HealthConnection] = []
        self._interval = min(_BEAT_S, (self._notifier.watchdog_s or math.inf) / 2)
        self._status: Status | None = None
        self._stopping = False
        self._next_beat = 0.0

    @property
    def address(self) -> tuple[str, int] | None:
        """Where the endpoint listens."""
        return self._server.address if self._server else None

    @property
    def next_at(self) -> float:
        """When something is due (monotonic s)."""
        return min(self._next_beat, self._server.until if self._server else math.inf)

    def watched(self) -> dict[Any, Callable[[], object]]:
        """What a selector must watch, and what to do when it can be read."""
        if self._server is None:
            return {}
        self._connections = [one for one in self._connections if not one.closed]
        return {self._server: self._accept, **{one: one.on_readable for one in self._connections}}

    def tick(self, crews: Sequence[Crew], *, stopping: bool) -> None:
        """Beat, if it is time or something has changed."""
        if self._server is not None and self._server.until <= clock.monotonic():
            self._server.expire()
        status = _status(crews, stopping=stopping)
        before, self._status = self._status, status
        if clock.monotonic() < self._next_beat and before == status:
            return
        self._next_beat = clock.monotonic() + self._interval
        self._health.beat(status)
        self._notifier.watchdog()
        if stopping and not self._stopping:
            self._stopping = True
            self._notifier.stopping()
        elif before != status:
            tell = self._notifier.ready if status.ready else self._notifier.status
            tell(f"{status.children} children, {status.slots} slots, store {status.store}")

    def forget(self) -> None:
        """In a forked child: what is open is the supervisor's."""
        if self._server is not None:
            self._server.forget()

    def close(self) -> None:
        """The worker has ended."""
        if self._server is not None:
            self._server.close()
        if self._file is not None:
            self._file.remove()

    def _accept(self) -> None:
        connection = self._server.accept() if self._server else None
        if connection is not None:
            self._connections.append(connection)


def _status(crews: Sequence[Crew], *, stopping: bool) -> Status:
    facts = [crew.facts for crew in crews if crew.facts]
    renewals = [crew.renewals for crew in crews if crew.renewals]
    away = any(one.away for one in renewals)
    last = [one.last_good for one in renewals if one.last_good is not None]
    detail = ""
    if stopping:
        detail = "stopping"
    elif away:
        detail = "the server does not answer"
    elif not all(crew.ready for crew in crews):
        detail = "not every child is at work"
    return Status(
        ready=not detail,
        children=sum(len(crew.charges) for crew in crews),
        slots=sum(sum(one.slots) for one in facts),
        queues=tuple(one.name for one in facts),
        store="away" if away else "ok",
        last_renewal_s=round(clock.monotonic() - min(last), 3) if last else None,
        detail=detail,
    )
