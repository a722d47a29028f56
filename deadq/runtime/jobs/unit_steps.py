"""What a unit does in which order: the decisions, without any I/O.

:meth:`UnitSteps.of` gives the steps of one unit as a generator. It asks for what has to be done
(:class:`Ask`, :class:`Wait`, :class:`Invoke`), is sent the answers, and returns how the unit
ended. Two drivers carry the steps out: one on an event loop, one on a main thread.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

from ... import clock, codec
from ...clock import ServerClock
from ...config import one_of, text
from ...deadline import seconds
from ...errors import (
    Cancelled,
    DeadlineExceeded,
    DeadqError,
    LeaseLost,
    UnitError,
    UnitInDoubt,
    shown,
)
from ...events import log
from ...job import HEDGED, Claim
from ...store import scripts
from ...store.wire import PAUSES
from ..ties.unit_gate import UnitGate

MAX_RESULT: Final = 262_144
"""Most bytes of a unit's encoded result."""

_RECORD_S: Final = 5.0
"""A unit that ends near its limit waits so long for its record (s), unless its child is killed."""


def interrupted(mark: str, job: str) -> DeadqError:
    """What a handler is told that goes on after the runtime has interrupted it."""
    if mark == "lost":
        return LeaseLost(f"job {job} is no longer this worker's")
    if mark in ("cut", "timeout"):
        return DeadlineExceeded()
    return Cancelled()


class UnitHost(Protocol):
    """The run that a unit belongs to."""

    claim: Claim
    mark: str | None

    def interrupt(self, mark: str) -> None: ...
    def expect_record(self) -> None:
        """What was recorded so far is known: only what comes from now on is news."""
        ...


@dataclass(frozen=True, slots=True)
class UnitCall:
    """One use of a unit, checked at the door."""

    name: str
    fn: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    needs: float
    limit: float
    on_doubt: str

    def __post_init__(self) -> None:
        text(self.name, "unit name", 255)
        if not callable(self.fn):
            msg = f"unit {self.name} must be given a function, not {shown(self.fn)}"
            raise TypeError(msg)
        seconds(self.needs, "needs", positive=False)
        seconds(self.limit, "limit")
        one_of(self.on_doubt, "on_doubt", ("rerun", "fail"))

    def fingerprint(self) -> str:
        """What the arguments are, so that a recorded result is only given out for the same ones.

        Arguments that cannot travel (a connection, say) count by their type alone.
        """
        digest = hashlib.blake2b(self.name.encode(), digest_size=8)
        for value in (*self.args, *sorted(self.kwargs.items())):
            try:
                encoded = codec.encode(value)
                digest.update(codec.fingerprint("", value, encoded))
            except codec.EncodeError:
                digest.update(type(value).__qualname__.encode())
        return digest.hexdigest()


class Ask(NamedTuple):
    """A call to the server. The answer is the server's; None: it is away."""

    call: scripts.Call[Any]
    until: float | None = None
    """Go on until it answers: to this instant at least (monotonic s), and further while it is
    worth it. None: once."""


class Wait(NamedTuple):
    """Wait until another attempt's unit is on record or this run is interrupted; at most so
    long."""

    seconds: float


class Invoke(NamedTuple):
    """Run the function itself, interrupted at ``until`` (monotonic s). The answer is a Ran."""

    call: UnitCall
    until: float


class Ran(NamedTuple):
    """How a unit's function ended."""

    good: bool
    value: Any
    """What it returned, or raised."""
    late: bool
    """Whether it was interrupted at its limit."""


Step = Ask | Wait | Invoke
Steps = Generator[Step, Any, Ran]


def _no_units(claim: Claim) -> str | None:
    """Why a job has no units; None: it may have some."""
    if HEDGED in claim.marks:
        return (
            "a task with hedge=True has no units, for it may run twice at a time; leave hedge out, "
            "or give the step to a job of another task"
        )
    if claim.twin:
        return (
            "a tied job has no units, for its twin in another queue knows nothing of them; give "
            "the step to a job that is not tied"
        )
    return None


class UnitSteps:
    """The units of one run."""

    def __init__(
        self,
        host: UnitHost,
        server: ServerClock,
        child: Callable[[], str],
        retention_ms: int,
        gate: UnitGate,
    ) -> None:
        self._host = host
        self._server = server
        self._child = child
        self._retention_ms = retention_ms
        self._gate = gate
        self._used: set[str] = set()

    def of(self, call: UnitCall) -> Steps:
        """The steps of one unit.

        Raises:
            UnitError: its name was used in this attempt, or the job may not have units.
        """
        why = _no_units(self._host.claim)
        if why is not None:
            msg = f"unit {shown(call.name)}: {why}"
            raise UnitError(msg)
        if call.name in self._used:
            msg = f"unit {shown(call.name)} was used already in this attempt; name each use apart"
            raise UnitError(msg)
        self._used.add(call.name)
        return self._through(call)

    def _through(self, call: UnitCall) -> Steps:
        """Open the unit, waiting while the server is away or an earlier attempt is in it."""
        host, fingerprint, failures = self._host, call.fingerprint(), 0
        while True:
            if host.mark is not None:
                raise interrupted(host.mark, host.claim.id)  # nothing begins any more
            host.expect_record()
            until = clock.monotonic() + call.limit
            with self._gate.passing(until) as may:
                if not may:
                    host.interrupt("stop")  # the child is about to be killed
                    continue
                begun = yield Ask(self._begin(call, fingerprint))
                if begun is not None and begun.word == "run":
                    if clock.monotonic() < until:
                        return (yield from self._run(call, until))
                    # another attempt may hold it to be in doubt by now: it begins anew, or not
                    yield self._record(call, until, "raised")
                    begun = None
            if begun is None:
                failures += 1
                yield Wait(PAUSES.delay(failures))
            elif begun.word == "open":
                yield self._wait(begun.until_ms)
            else:
                return Ran(True, self._known(call, begun), False)

    def _begin(self, call: UnitCall, fingerprint: str) -> scripts.Call[scripts.Begun]:
        claim = self._host.claim
        return scripts.begin(
            self._child(),
            claim.id,
            claim.fence,
            call.name,
            fingerprint,
            needs_ms=int(call.needs * 1000),
            limit_ms=int(call.limit * 1000),
            on_doubt=call.on_doubt,
            retention_ms=self._retention_ms,
        )

    def _wait(self, until_ms: int) -> Wait:
        """Until the other attempt's unit is recorded, its limit is over, or our time is."""
        host = self._host
        last = min(until_ms, host.claim.deadline_ms)
        left = (last - self._server.now_ms()) / 1000
        if left <= 0 and host.claim.deadline_ms <= until_ms:
            host.interrupt("cut")
            raise DeadlineExceeded
        return Wait(max(0.001, left))

    def _known(self, call: UnitCall, begun: scripts.Begun) -> Any:
        """The result on record, or why the unit does not run."""
        host, name = self._host, shown(call.name)
        if begun.word == "done" and begun.result:
            return codec.decode(begun.result)
        if begun.word == "done":
            msg = f"unit {name} took effect, but its result could not be kept"
            raise UnitError(msg)
        if begun.word == "mismatch":
            msg = f"unit {name} is on record with other arguments; name it apart"
            raise UnitError(msg)
        if begun.word == "many":
            msg = f"unit {name} is one too many: a job may have 1,000; give the rest to other jobs"
            raise UnitError(msg)
        if begun.word == "short":
            host.interrupt("cut")
            msg = f"too little time is left to begin unit {name}"
            raise DeadlineExceeded(msg)
        if begun.word == "cancelled":
            host.interrupt("cancelled")
            raise Cancelled
        if begun.word == "doubt":
            host.interrupt("doubt")
            msg = f"an earlier attempt began unit {name} and left no end"
            raise UnitInDoubt(msg)
        host.interrupt("lost")
        raise interrupted("lost", host.claim.id)

    def _run(self, call: UnitCall, until: float) -> Steps:
        """The function, and the record of its end."""
        name, since = shown(call.name), clock.monotonic()
        with self._gate.running(until):
            ran: Ran = yield Invoke(call, until)
        if ran.late and not ran.good:
            msg = f"unit {name} ran longer than its limit of {call.limit} s; in doubt"
            raise UnitInDoubt(msg) from ran.value
        end, result = "done" if ran.good else "raised", b""
        if ran.good:
            try:
                result = codec.encode(ran.value, limit=MAX_RESULT, what=f"result of unit {name}")
            except codec.EncodeError as error:
                # it took effect, only its result cannot be kept: never run it again
                ran = Ran(False, error, False)
        ran_us = int((clock.monotonic() - since) * 1e6)
        answer = yield self._record(call, until, end, ran_us, result)
        if answer != "ok":
            job, why = self._host.claim.id, answer or "the server is away"
            log.warning("unit %s of job %s: end not recorded: %s", call.name, job, why)
        return ran

    def _record(
        self, call: UnitCall, until: float, end: str, ran_us: int = 0, result: bytes = b""
    ) -> Ask:
        # However near a stop may be: no child is killed in a unit before its limit is over, and an
        # effect that is not on record takes place again.
        claim, least = self._host.claim, max(until, clock.monotonic() + _RECORD_S)
        return Ask(scripts.record(claim.id, claim.fence, call.name, end, ran_us, result), least)
