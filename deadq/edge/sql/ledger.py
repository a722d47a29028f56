"""The unit ledger: a unit's record in the same transaction as its effect.

A unit of :meth:`deadq.CurrentJob.unit` has its record in Redis, its effect elsewhere: a worker that
dies between the two leaves it in doubt. Here both are in one database and become true at one
instant, that of the user's commit::

    with connection(pool) as conn:
        unit("charge", charge, order_id, cents, conn=conn)

Whoever comes second finds the record, waits for it if its transaction is still open, and gets the
recorded result. That goes for a second attempt of the job, and for one that runs at the same time
because its worker was believed dead. Nothing is recorded in Redis: it would be on record there
before the commit.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

from ... import codec
from ...errors import DeadqError, UnitError, shown
from ...resilience.steps import as_unit
from ...runtime.jobs.current import CurrentJob, current_job
from ...runtime.jobs.unit_steps import MAX_RESULT, UnitCall

TABLE: Final = "deadq_units"

INSERT: Final = (
    f"INSERT INTO {TABLE} (job, unit, fence, fingerprint) "  # noqa: S608  of constants alone
    "VALUES (:job, :unit, :fence, :fingerprint) ON CONFLICT (job, unit) DO NOTHING"
)
FIND: Final = f"SELECT fingerprint, result FROM {TABLE} WHERE job = :job AND unit = :unit"  # noqa: S608
KEEP: Final = f"UPDATE {TABLE} SET result = :result WHERE job = :job AND unit = :unit"  # noqa: S608
"""The statements, with their parameters written as SQLAlchemy and sqlite3 do."""


class Begin(NamedTuple):
    """Begin what can be undone by itself, in the user's transaction, or in one that begins now."""


class Run(NamedTuple):
    """Run one of the statements. The answer is a Ran."""

    words: str
    given: dict[str, Any]


class Invoke(NamedTuple):
    """Call the unit's function. The answer is what it returned; what it raised is thrown in."""


class End(NamedTuple):
    """End what was begun; unless ``good``, nothing of it stays."""

    good: bool


class Ran(NamedTuple):
    """What a statement brought about."""

    rows: int
    """How many it has changed."""
    row: tuple[Any, ...] | None


Step = Begin | Run | Invoke | End
Steps = Generator[Step, Any, Any]


class Ledger(Protocol):
    """A connection of some library, as the blocking driver needs it."""

    @property
    def dialect(self) -> str: ...
    def begin(self) -> None: ...
    def run(self, words: str, given: dict[str, Any]) -> Ran: ...
    def end(self, good: bool) -> None: ...


class AsyncLedger(Protocol):
    """The same for an event loop."""

    @property
    def dialect(self) -> str: ...
    async def begin(self) -> None: ...
    async def run(self, words: str, given: dict[str, Any]) -> Ran: ...
    async def end(self, good: bool) -> None: ...


@dataclass(frozen=True, slots=True)
class Entry:
    """One use of a unit by a job."""

    job: CurrentJob
    call: UnitCall

    @classmethod
    def of(
        cls, name: str, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Entry | None:
        """None outside of a job.

        Raises:
            ValueError, TypeError: an odd name or function.
        """
        call = UnitCall(name, fn, args, kwargs, 0.0, 30.0, "rerun")
        try:
            return cls(current_job(), call)
        except DeadqError:
            return None

    def steps(self) -> Steps:
        """What is to be done in which order; returns the unit's result."""
        self.job.check()
        key = {"job": f"{self.job.queue}:{self.job.id}", "unit": self.call.name}
        fingerprint = self.call.fingerprint()
        yield Begin()
        try:
            given = {**key, "fence": self.job.fence, "fingerprint": fingerprint}
            inserted: Ran = yield Run(INSERT, given)
            if inserted.rows == 1:
                value = yield Invoke()
                what = f"result of unit {shown(self.call.name)}"
                encoded = codec.encode(value, limit=MAX_RESULT, what=what)
                yield Run(KEEP, {**key, "result": encoded})
            else:
                found: Ran = yield Run(FIND, key)
                value = self._known(found.row, fingerprint)
        except BaseException:
            yield End(good=False)
            raise
        yield End(good=True)
        return value

    def _known(self, row: tuple[Any, ...] | None, fingerprint: str) -> Any:
        name = shown(self.call.name)
        if row is None:
            # older than the insert that met it: as under REPEATABLE READ, or it was deleted
            msg = f"the record of unit {name} cannot be seen in this transaction; run a new one"
            raise UnitError(msg)
        if row[0] != fingerprint:
            msg = f"unit {name} is on record with other arguments; name it apart"
            raise UnitError(msg)
        if row[1] is None:
            msg = f"unit {name} has not ended: it is called within itself, or its function commits"
            raise UnitError(msg)
        return codec.decode(bytes(row[1]))


def drive(steps: Steps, ledger: Ledger, call: UnitCall) -> Any:
    """Carry the steps out, blocking."""
    answer: Any = None
    error: BaseException | None = None
    while True:
        try:
            step = steps.send(answer) if error is None else steps.throw(error)
        except StopIteration as end:
            return end.value
        answer, leaving, error = None, error, None
        try:
            match step:
                case Begin():
                    ledger.begin()
                case Run():
                    answer = ledger.run(*step)
                case Invoke():
                    with as_unit():
                        answer = call.fn(*call.args, **call.kwargs)
                case End():
                    ledger.end(step.good)
        except BaseException as raised:  # noqa: BLE001  the steps decide
            error = leaving or raised


async def adrive(steps: Steps, ledger: AsyncLedger, call: UnitCall) -> Any:
    """Carry the steps out on an event loop."""
    answer: Any = None
    error: BaseException | None = None
    while True:
        try:
            step = steps.send(answer) if error is None else steps.throw(error)
        except StopIteration as end:
            return end.value
        answer, leaving, error = None, error, None
        try:
            match step:
                case Begin():
                    await ledger.begin()
                case Run():
                    answer = await ledger.run(*step)
                case Invoke():
                    with as_unit():
                        answer = call.fn(*call.args, **call.kwargs)
                        if inspect.isawaitable(answer):
                            answer = await answer
                case End():
                    await ledger.end(step.good)
        except BaseException as raised:  # noqa: BLE001  the steps decide
            error = leaving or raised
