"""The error tree. Every error that deadq raises on purpose hangs under :class:`DeadqError`.

::

    DeadqError
    ├── Rejected                a submit that was refused; nothing was stored, except
    │   │                       perhaps under StoreUnavailable
    │   ├── QueueFull           the cap (or this criticality's share of it) is reached
    │   ├── Unmeetable          the job could not be finished before its deadline
    │   ├── DeadlineExpired     dead on arrival: the deadline had passed already
    │   ├── KeyReused           the key belongs to another task or other arguments
    │   ├── PayloadTooLarge     the encoded arguments exceed ``max_payload``
    │   ├── Paused              an operator paused the queue
    │   └── StoreUnavailable    the server could not be reached, or refused to write
    ├── DeadlineExceeded        an accepted job did not finish before its deadline
    ├── Cancelled               the job was cancelled
    ├── JobFailed               the handler failed for good
    ├── JobGone                 the server holds no record of the job (any more)
    ├── LeaseLost               this worker no longer owns the job
    ├── RetryDenied             a retry was not allowed
    ├── BreakerOpen             a circuit breaker refused a call
    ├── UnitError               a unit's name used twice, or with other arguments, or too many
    └── UnitInDoubt             whether a unit took effect is not known

Bad arguments are plain ``ValueError`` and ``TypeError``, as everywhere in Python. Two more stand
outside: :class:`Retry`, which handlers raise, and :class:`Interrupt`, which is raised in them.
"""

from __future__ import annotations

from functools import partial
from typing import ClassVar


def shown(value: object, size: int = 60) -> str:
    """``value`` as it may stand in a message: one short line, whatever its own repr does."""
    try:
        text = repr(value)[:size]
    except Exception:  # noqa: BLE001  10**5000, or a repr that raises
        text = f"<{type(value).__name__}>"
    return text if text.isprintable() else ascii(text)[1:-1][:size]


class DeadqError(Exception):
    """The root of deadq's own errors."""


class Rejected(DeadqError):
    """A submit was refused. Nothing was stored, except perhaps where the server went away
    in mid-call (:class:`StoreUnavailable`).

    ``reason`` is the word used in metrics. ``retry_after`` is a hint in seconds, spread over
    one drain time so that refused callers do not return as a wave; ``None`` where waiting
    would not help.
    """

    reason: ClassVar[str] = "rejected"

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after

    def __reduce__(self) -> tuple[object, ...]:
        # the keyword must survive pickling: web servers carry errors between processes
        return (partial(type(self), retry_after=self.retry_after), (str(self),))


class QueueFull(Rejected):
    """The queue holds as many live jobs as its capacity allows."""

    reason = "full"


class Unmeetable(Rejected):
    """By what the queue has measured, the job could not finish before its deadline."""

    reason = "unmeetable"


class DeadlineExpired(Rejected):
    """The deadline had passed before the job could be stored."""

    reason = "expired"


class KeyReused(Rejected):
    """The idempotency key belongs to a job with another task or other arguments."""

    reason = "key_reused"


class PayloadTooLarge(Rejected):
    """The encoded arguments are larger than the queue's ``max_payload``."""

    reason = "too_large"


class Paused(Rejected):
    """An operator paused the queue; new jobs are refused until it is resumed."""

    reason = "paused"


class StoreUnavailable(Rejected):
    """The server could not be reached in time, or refuses to write.

    When the connection broke in mid-call, or while a result was awaited, the job may have been
    stored, and may be running: submitting again with the same key is always safe.
    """

    reason = "unavailable"


class DeadlineExceeded(DeadqError):
    """An accepted job did not finish before its deadline.

    ``units`` names the units whose effects are recorded all the same.
    """

    def __init__(self, message: str = "", *, units: tuple[str, ...] = ()) -> None:
        super().__init__(message or "the deadline passed before the job finished")
        self.units = units


class Cancelled(DeadqError):
    """The job was cancelled before it finished."""

    def __init__(self, message: str = "the job was cancelled") -> None:
        super().__init__(message)


class JobFailed(DeadqError):
    """The handler failed for good.

    ``type_name`` is the qualified name of the remote exception, ``message`` its text and
    ``traceback`` a bounded rendering of where it was raised.
    """

    def __init__(self, type_name: str, message: str, traceback: str = "") -> None:
        super().__init__(type_name, message, traceback)
        self.type_name = type_name
        self.message = message
        self.traceback = traceback

    def __str__(self) -> str:
        return f"{self.type_name}: {self.message}"


class JobGone(DeadqError):
    """The server holds no record of the job: its retention is over, or the server lost data."""


class LeaseLost(DeadqError):
    """This worker's lease lapsed; the job belongs to somebody else, or to nobody."""


class RetryDenied(DeadqError):
    """A retry was not allowed; ``reason`` says which limit refused it."""

    def __init__(self, message: str, *, reason: str) -> None:
        super().__init__(message)
        self.reason = reason

    def __reduce__(self) -> tuple[object, ...]:
        return (partial(type(self), reason=self.reason), (str(self),))


class BreakerOpen(DeadqError):
    """A circuit breaker refused a call, which was not made; see :class:`deadq.resilience.Breaker`.

    ``retry_after`` is a hint in seconds, spread so that refused callers do not return as a wave.
    """

    def __init__(self, message: str, *, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after

    def __reduce__(self) -> tuple[object, ...]:
        return (partial(type(self), retry_after=self.retry_after), (str(self),))


class UnitError(DeadqError):
    """A unit was used in a way that cannot be kept: its name twice, or with other arguments, or
    more than 1,000 of them in one job."""


class UnitInDoubt(DeadqError):
    """Whether the unit took effect is not known: it outlived its ``limit`` and was interrupted, or
    an earlier attempt left no end and ``on_doubt="fail"`` forbids a rerun."""


class Retry(Exception):
    """Raised by a handler that asks to be run again, after ``after`` seconds or the usual backoff.

    Raises:
        ValueError: ``after`` is negative, NaN or infinite.
    """

    def __init__(self, after: float | None = None) -> None:
        if after is not None and not 0 <= after < float("inf"):
            msg = f"Retry(after=...) must be 0 or more seconds, not {shown(after)}"
            raise ValueError(msg)
        super().__init__(after)
        self.after = after

    def __str__(self) -> str:
        when = "" if self.after is None else f" in {float(self.after):g} s"
        return f"the handler asked to be run again{when}"


class Interrupt(BaseException):
    """Raised by the runtime in a plain handler that runs in a process of its own and must stop.

    Its deadline or the limit of this attempt has passed, somebody cancelled the job, its lease is
    lost, or the worker stops. It comes even inside blocking I/O, never inside a unit, and again
    every 50 ms until the handler has left; one that does not leave costs its process. What
    becomes of the job follows from why it was interrupted, whatever the handler does then::

        try:
            work()
        except deadq.Interrupt:
            clean_up()
            raise

    Like ``asyncio.CancelledError`` it is no ``Exception``: a broad handler does not swallow it.
    """
