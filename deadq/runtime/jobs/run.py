"""One attempt at a job: its claim, its mark, and how its end is turned into an outcome."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from typing import Any, Final

from ... import clock, codec
from ...config import TaskConfig
from ...deadline import Deadline
from ...errors import Retry, UnitInDoubt
from ...job import Claim, Outcome, Settlement
from ...resilience.backoff import Backoff
from ...resilience.retry_after import hint_of, spread_of
from ...resilience.transient import is_transient
from ...tracing import RunTrace

MARKS: Final[dict[str, Outcome | None]] = {
    "cut": Outcome.CUT,  # the deadline has passed
    "timeout": Outcome.RETRY,  # this attempt's own limit has passed
    "cancelled": Outcome.CANCELLED,  # the last waiter left, or somebody cancelled it
    "stop": Outcome.RELEASE,  # the worker stops
    "doubt": Outcome.FAILED,  # a unit is in doubt that must not be rerun
    "lost": None,  # not ours any more: nothing to report
    "outrun": None,  # the other run of a hedged job has succeeded
}

MARK_OF: Final = {"cancel": "cancelled", "lost": "lost", "outrun": "outrun"}
"""What a run is marked with, by the word that its child is told about it."""

_LONGEST_S: Final = 1e9
"""A longer delay is as good as none: no deadline lies that far ahead."""

BEGINNING_CPU_S: Final = 0.005
"""Whoever cancels a job that runs is told that it has started: so much of it does run."""

_BEGINNING_S: Final = 0.05
"""One that waits for something has begun after so long."""

_OWN_BACKOFF: Final = Backoff()
"""Where the task's own gives no number; and the source of this process's jitter."""

_STOP_ITERATION: Final = "coroutine raised StopIteration"


class Attempt:
    """A claim that is being run. The mark is set once, by the runtime alone."""

    __slots__ = ("claim", "deadline", "mark", "since", "trace")

    def __init__(self, claim: Claim, deadline: Deadline, since: float) -> None:
        self.claim = claim
        self.deadline = deadline
        self.since = since
        """Monotonic seconds at which the claim was asked for: from then on it took up a slot."""
        self.mark: str | None = None
        self.trace: RunTrace | None = None

    def interrupt(self, mark: str) -> None:
        """Set the mark, unless one stands."""
        if self.mark is None:
            self.mark = mark

    def settlement(
        self, outcome: Outcome, *, delay_s: float = 0.0, blob: bytes = b""
    ) -> Settlement:
        """The report of this run."""
        held_us = int((clock.monotonic() - self.since) * 1e6)
        return Settlement(
            self.claim.id,
            self.claim.fence,
            outcome,
            max(0, held_us),
            self.mark is not None,
            int(min(delay_s, _LONGEST_S) * 1000),
            blob,
        )


class Run(Attempt):
    """An attempt on an event loop."""

    __slots__ = (
        "begun",
        "deliver",
        "interrupts",
        "open_units",
        "reported",
        "task",
        "thread",
        "timer",
        "unit_recorded",
    )

    def __init__(self, claim: Claim, deadline: Deadline, since: float) -> None:
        super().__init__(claim, deadline, since)
        self.begun = False
        """Whether its task has taken its first step: before that, nothing could catch a cancel."""
        self.task: asyncio.Task[None] | None = None
        self.thread = False
        self.timer: asyncio.TimerHandle | None = None
        self.open_units = 0
        """While there are any, an interruption waits."""
        self.unit_recorded = asyncio.Event()
        """Set when another attempt's unit, for which this run may be waiting, was recorded."""
        self.deliver: Callable[[], None] = _nothing
        """Interrupts, if a mark stands: called when the last open unit is on record."""
        self.interrupts = 0
        """How often its task has been cancelled."""
        self.reported = False
        """Whether its slot has been given up: it ends once, whatever its handler still does."""

    def interrupt(self, mark: str) -> None:
        """Set the mark, unless one stands."""
        super().interrupt(mark)
        self.unit_recorded.set()  # who waits for another attempt's unit need not any more

    def expect_record(self) -> None:
        """What was recorded so far is known: only what comes from now on is news."""
        self.unit_recorded.clear()


class SyncRun(Attempt):
    """An attempt on the main thread of a child that has no other. Instants are monotonic s."""

    __slots__ = (
        "began",
        "began_cpu",
        "raise_at",
        "raises",
        "stubborn",
        "unit",
        "unit_late",
        "unit_raise_at",
        "unit_recorded",
        "unit_until",
        "until",
        "why",
    )

    def __init__(self, claim: Claim, deadline: Deadline, since: float, config: TaskConfig) -> None:
        super().__init__(claim, deadline, since)
        self.until, self.why = limit_of(deadline, config)
        """When its time is over, and the mark that it then gets."""
        self.began = self.began_cpu = -math.inf
        """When its handler was called, and by the thread's own clock."""
        self.raises = 0
        """How often it has been interrupted."""
        self.raise_at = -math.inf
        """Before this it is not interrupted again: whatever cleans up has its time."""
        self.stubborn = False
        """Whether the supervisor was told that it does not leave."""
        self.unit: Callable[[Any], Any] | None = None
        """Runs a unit; made when the first one is called."""
        self.unit_until = math.inf
        """When the limit of the innermost open unit ends."""
        self.unit_raise_at = math.inf
        """Before this it is not interrupted, or not again."""
        self.unit_late = False
        """Whether that unit was interrupted for it."""
        self.unit_recorded = False
        """Whether another attempt's unit, for which it may be waiting, was recorded."""

    def begins(self) -> bool:
        """Whether its handler has only just been called.

        By its own time, as a busy machine may let it stand still before its first line.
        """
        if clock.monotonic() >= self.began + _BEGINNING_S:
            return False
        return time.thread_time() < self.began_cpu + BEGINNING_CPU_S

    def expect_record(self) -> None:
        """What was recorded so far is known: only what comes from now on is news."""
        self.unit_recorded = False


def limit_of(deadline: Deadline, config: TaskConfig) -> tuple[float, str]:
    """When the time of a run that begins now is over (monotonic s), and the mark it then gets."""
    limit = config.timeout
    if limit is not None and clock.monotonic() + limit < deadline.monotonic:
        return clock.monotonic() + limit, "timeout"
    return deadline.monotonic, "cut"


def ended(run: Attempt, config: TaskConfig, *, good: bool, value: object) -> Settlement | None:
    """The report of a handler that has left, by return (``good``) or by raising ``value``.

    None: there is nothing to report.
    """
    if run.mark is not None:
        return marked(run, config)
    if good:
        return returned(run, value)
    assert isinstance(value, BaseException)  # noqa: S101  for the type checker
    return raised(run, config, value)


def marked(run: Attempt, config: TaskConfig) -> Settlement | None:
    """The report of a run that the runtime interrupted, whatever its handler did then."""
    assert run.mark is not None  # noqa: S101  for the type checker
    outcome = MARKS[run.mark]
    if outcome is None:
        return None
    if outcome is Outcome.RETRY:
        error = TimeoutError(f"the attempt ran longer than its limit of {config.timeout} s")
        blob = codec.describe_exception(error)
        return run.settlement(outcome, delay_s=_backoff(run, config), blob=blob)
    if outcome is Outcome.FAILED:
        doubt = UnitInDoubt("an earlier attempt began a unit and left no end; on_doubt='fail'")
        return run.settlement(outcome, blob=codec.describe_exception(doubt))
    return run.settlement(outcome)


def returned(run: Attempt, value: object) -> Settlement:
    """The report of a handler that returned ``value``."""
    try:
        return run.settlement(Outcome.DONE, blob=codec.encode(value, what="result"))
    except codec.EncodeError as error:
        return run.settlement(Outcome.FAILED, blob=codec.describe_exception(error))


def raised(run: Attempt, config: TaskConfig, error: BaseException) -> Settlement:
    """The report of a handler that raised ``error`` by itself."""
    error = _own(error)
    blob = _described(error)
    try:
        delay = _retry_after(run, config, error)
    except BaseException:  # noqa: BLE001  its own methods were asked, which may raise anything
        delay = None
    if delay is None:
        return run.settlement(Outcome.FAILED, blob=blob)
    return run.settlement(Outcome.RETRY, delay_s=delay, blob=blob)


def _retry_after(run: Attempt, config: TaskConfig, error: BaseException) -> float | None:
    """Seconds until the next attempt that ``error`` asks for; None: it asks for none."""
    if isinstance(error, Retry) and error.after is not None:
        delay = float(min(error.after, _LONGEST_S))
        return delay if delay >= 0 else _backoff(run, config)
    if isinstance(error, Retry):
        return _backoff(run, config)
    if config.retry_on is None:
        wanted = run.claim.retries > 0 and is_transient(error)
    else:
        wanted = isinstance(error, config.retry_on)
    if not wanted:
        return None
    delay, hint = _backoff(run, config), hint_of(error)
    if hint is None:
        return delay
    pause = max(delay, hint)
    room = max(0.0, run.deadline.remaining() - pause)
    return pause + min(spread_of(hint, delay, _OWN_BACKOFF.rng), room / 2)


def _own(error: BaseException) -> BaseException:
    """What the handler raised itself, where Python has wrapped it. By exact types alone, as any
    other exception has methods of its own."""
    if type(error) is not RuntimeError or len(error.args) != 1:
        return error
    said = error.args[0]
    wrapped = type(said) is str and said == _STOP_ITERATION
    return (error.__cause__ or error) if wrapped else error


def _described(error: BaseException) -> bytes:
    try:
        return codec.describe_exception(error)
    except BaseException:  # noqa: BLE001  its own methods may raise SystemExit: not the worker's end
        stand_in = RuntimeError(f"{type(error).__qualname__}, whose text cannot be made")
        return codec.describe_exception(stand_in)


def _nothing() -> None:
    """Until the runner has armed the run there is nothing to deliver."""


def _backoff(run: Attempt, config: TaskConfig) -> float:
    try:
        delay = float(config.backoff(run.claim.fails + 1))
    except BaseException:  # noqa: BLE001  the user's own function must not lose the job
        delay = math.nan
    return delay if delay >= 0 else _OWN_BACKOFF.delay(run.claim.fails + 1)
