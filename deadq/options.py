"""What one submit may set, checked when it is given."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from .config import MAX_RETRIES, one_of, whole
from .deadline import Deadline, epoch_ms, seconds
from .job import CRITICALITY_RANK, check_key


@dataclass(frozen=True, slots=True)
class Options:
    """What one submit may set. Times as given by the caller, checked when they were given."""

    key: str | None = None
    within: float | None = None
    deadline: Deadline | None = None
    not_before: int | Deadline | None = None
    criticality: str | None = None
    retries: int | None = None


NO_OPTIONS: Final = Options()


def checked(
    *,
    horizon: float,
    key: str | None = None,
    within: float | None = None,
    deadline: Deadline | datetime | float | None = None,
    not_before: Deadline | datetime | float | None = None,
    criticality: str | None = None,
    retries: int | None = None,
) -> Options:
    """The options of one submit, to a queue with this ``horizon`` (s); see :meth:`Task.options`.

    Raises:
        ValueError, TypeError: any of them is odd; the message names the fault and the remedy.
    """
    if within is not None and deadline is not None:
        msg = "give within or deadline, not both"
        raise ValueError(msg)
    if deadline is not None and not isinstance(deadline, Deadline):
        deadline = Deadline.at(deadline)
    if deadline is not None and not deadline.exact:
        within_horizon(deadline, horizon)  # an instant is the server's clock's to judge, later
    if not_before is not None and not isinstance(not_before, Deadline):
        not_before = epoch_ms(not_before, "not_before")
    if criticality is not None:
        one_of(criticality, "criticality", tuple(CRITICALITY_RANK))
    if retries is not None:
        whole(retries, "retries", 0, MAX_RETRIES)
    return Options(
        key=None if key is None else check_key(key),
        within=None if within is None else budget(within, "within", horizon),
        deadline=deadline,
        not_before=not_before,
        criticality=criticality,
        retries=retries,
    )


def budget(value: object, name: str, horizon: float) -> float:
    """``value`` as a time budget, which ends before the queue's ``horizon`` (s).

    Raises:
        ValueError: it is no number of seconds, or more than that.
    """
    number = seconds(value, name)
    if number > horizon:
        msg = (
            f"{name}={number:g} s lies past the queue's horizon of {horizon:g} s; milliseconds "
            "given for seconds? Raise horizon= if it is meant"
        )
        raise ValueError(msg)
    return number


def within_horizon(deadline: Deadline, horizon: float) -> Deadline:
    """The deadline, if it lies at most ``horizon`` seconds ahead.

    Raises:
        ValueError: it lies further ahead; the message names the remedy.
    """
    if deadline.remaining() > horizon:
        msg = (
            f"the deadline lies {deadline.remaining():.0f} s ahead, past the queue's "
            f"horizon of {horizon:.0f} s; raise horizon= if that is meant"
        )
        raise ValueError(msg)
    return deadline
