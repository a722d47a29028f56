"""Settings: frozen, checked once, with errors that name fault and remedy. Times in seconds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from .deadline import seconds
from .errors import shown

Order = Literal["deadline", "fifo"]
AdmissionPolicy = Literal["feasible", "cap"]
OnCrash = Literal["rerun", "fail"]

SRE_BUDGET: Final = "0.1 1 10000"
"""A retry budget's rule as a server is told of it: ratio, floor a second, window in ms."""

MAX_CAPACITY: Final = 100_000_000
MAX_RETRIES: Final = 1_000
_TEN_YEARS_S: Final = 10 * 366 * 86_400.0


def whole(value: object, name: str, least: int, most: int) -> int:
    """``value`` as an int within bounds, or an error that names the fault."""
    if isinstance(value, bool) or not isinstance(value, int):
        msg = f"{name} must be a whole number, not {type(value).__name__} {shown(value)}"
        raise TypeError(msg)
    if not least <= value <= most:
        msg = f"{name} must lie between {least} and {most}, not {shown(value)}"
        raise ValueError(msg)
    return value


def text(value: object, name: str, most_bytes: int, *, remedy: str = "") -> str:
    """``value`` as a name of bounded size in UTF-8, or an error that names the fault."""
    if not isinstance(value, str):
        msg = f"{name} must be a str, not {type(value).__name__}"
        raise TypeError(msg)
    if not value:
        msg = f"{name} must not be empty{remedy}"
        raise ValueError(msg)
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        msg = f"{name} {shown(value)} holds a lone surrogate; use valid Unicode text"
        raise ValueError(msg) from None
    if size > most_bytes:
        msg = f"{name} has {size} bytes in UTF-8; at most {most_bytes} are allowed"
        raise ValueError(msg)
    return value


def one_of(value: object, name: str, allowed: tuple[str, ...]) -> str:
    """``value`` if it is one of the words allowed, or an error that lists them."""
    if not isinstance(value, str) or value not in allowed:
        msg = f"{name} must be one of {', '.join(allowed)}, not {shown(value)}"
        raise ValueError(msg)
    return str(value)


@dataclass(frozen=True, slots=True)
class QueueConfig:
    """What a queue promises. See :class:`deadq.Queue` for the meaning of each."""

    name: str
    capacity: int
    order: Order = "deadline"
    admission: AdmissionPolicy = "feasible"
    retention: float = 3600.0
    lease: float = 5.0
    max_payload: int = 262_144
    horizon: float = 7 * 86_400.0
    allow_eviction: bool = False
    budget: str = SRE_BUDGET
    """The retry budget's rule, as ``BudgetRule.words``."""

    def __post_init__(self) -> None:
        whole(self.capacity, "capacity", 1, MAX_CAPACITY)
        one_of(self.order, "order", ("deadline", "fifo"))
        one_of(self.admission, "admission", ("feasible", "cap"))
        whole(self.max_payload, "max_payload", 1, 512 * 1024 * 1024)
        for name in ("retention", "lease", "horizon"):
            if seconds(getattr(self, name), name) > _TEN_YEARS_S:
                msg = f"{name} must be at most ten years in seconds, not {getattr(self, name):g}"
                raise ValueError(msg)
        if self.lease < 0.1:
            msg = f"lease must be at least 0.1 s, not {self.lease}: a renewal takes a round trip"
            raise ValueError(msg)
        if not isinstance(self.allow_eviction, bool):
            msg = f"allow_eviction must be True or False, not {shown(self.allow_eviction)}"
            raise TypeError(msg)

    @property
    def retention_ms(self) -> int:
        return max(1, int(self.retention * 1000))

    @property
    def lease_ms(self) -> int:
        return int(self.lease * 1000)


@dataclass(frozen=True, slots=True)
class TaskConfig:
    """What a task promises by default; a call's options override some of it."""

    name: str
    within: float | None
    retries: int
    timeout: float | None
    retry_on: tuple[type[Exception], ...] | None
    """None: what ``resilience.is_transient`` names."""
    criticality: str
    backoff: Callable[[int], float]
    on_crash: str = "rerun"
    hedge: bool = False
