"""Deadlines: instants, not durations; they never grow on the way down."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Final, NoReturn

from . import clock
from .ambient import Ambient
from .errors import shown

NETWORK_MARGIN_S: Final = 0.150
"""What a caller keeps back from a callee's deadline, so that the answer still arrives (s)."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SMALLEST_MS: Final = 100_000_000_000
"""March 1973. A smaller number of milliseconds is a number of seconds in disguise."""
LONGEST_S: Final = 10 * 366 * 86_400.0
_MAX_MS: Final = 253_402_300_800_000  # the year 10000

AMBIENT: Final[Ambient[Deadline]] = Ambient("deadq_deadline")


def seconds(value: object, name: str, *, positive: bool = True) -> float:
    """``value`` as a number of seconds, or an error that names the fault.

    Raises:
        TypeError: not a number (``bool`` counts as none).
        ValueError: NaN, infinite, negative, or zero where ``positive``.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        msg = f"{name} must be a number of seconds, not {type(value).__name__} {shown(value)}"
        # every odd time is one kind of fault to a caller, whatever its type: see DESIGN 4
        raise ValueError(msg)  # noqa: TRY004
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        msg = f"{name} must be finite, not {shown(value)}; give a number of seconds"
        raise ValueError(msg)
    if number < 0 or (positive and number == 0):
        bound = "more than 0" if positive else "0 or more"
        msg = f"{name} must be {bound} seconds, not {shown(value)}"
        raise ValueError(msg)
    return number


def duration(value: object, name: str) -> float:
    """``value`` as seconds that a deadline may lie ahead, or an error that names the fault.

    Raises:
        ValueError: as :func:`seconds`, or more than ten years.
    """
    number = seconds(value, name)
    if number > LONGEST_S:
        msg = f"{name} {number:g} s is more than ten years: milliseconds given for seconds?"
        raise ValueError(msg)
    return number


def epoch_ms(instant: object, name: str = "deadline") -> int:
    """An aware datetime, or whole milliseconds since 1970, as milliseconds.

    Raises:
        ValueError: naive, NaN, infinite, ``bool``, seconds instead of milliseconds, not an instant.
    """
    if isinstance(instant, datetime):
        if instant.utcoffset() is None:
            msg = (
                f"{name} is a naive datetime ({instant.isoformat()}): which zone it means is "
                "anybody's guess; pass an aware one, such as datetime.now(UTC) + timedelta(...)"
            )
            raise ValueError(msg)
        return (instant - _EPOCH) // timedelta(milliseconds=1)
    if isinstance(instant, bool) or not isinstance(instant, int | float):
        msg = (
            f"{name} must be an aware datetime or milliseconds since 1970, "
            f"not {type(instant).__name__} {shown(instant)}"
        )
        raise ValueError(msg)  # noqa: TRY004  one kind of fault, see seconds()
    if isinstance(instant, float) and not math.isfinite(instant):
        msg = f"{name} must be finite, not {shown(instant)}"
        raise ValueError(msg)
    if instant < _SMALLEST_MS:
        msg = (
            f"{name} = {shown(instant)} is before 1973 when read as milliseconds since 1970; "
            "seconds given for milliseconds? For a duration use Deadline.after(seconds)"
        )
        raise ValueError(msg)
    if instant > _MAX_MS:
        msg = f"{name} lies past the year 9999; give milliseconds since 1970"
        raise ValueError(msg)
    return int(instant)


class Deadline:
    """An instant until which somebody waits. Immutable.

    A deadline made with :meth:`after` counts on this process's monotonic clock. One made with
    :meth:`at` keeps its exact millisecond, which is compared with the server's clock alone.
    """

    __slots__ = ("_instant_ms", "_monotonic")

    _instant_ms: int | None
    _monotonic: float

    def __init__(self) -> None:
        msg = "use Deadline.after(seconds) or Deadline.at(instant)"
        raise TypeError(msg)

    @classmethod
    def _make(cls, monotonic: float, instant_ms: int | None) -> Deadline:
        self = object.__new__(cls)
        object.__setattr__(self, "_monotonic", monotonic)
        object.__setattr__(self, "_instant_ms", instant_ms)
        return self

    def __setattr__(self, name: str, value: object) -> None:
        msg = f"a Deadline is immutable: cannot set {name} to {shown(value)}"
        raise AttributeError(msg)

    @classmethod
    def after(cls, seconds_from_now: float) -> Deadline:
        """The instant ``seconds_from_now`` from now; zero is an instant that is just passing.

        Raises:
            ValueError: negative, NaN, infinite, ``bool``, not a number, or beyond ten years.
        """
        if type(seconds_from_now) is not float or not 0.0 < seconds_from_now < LONGEST_S:
            seconds_from_now = seconds(seconds_from_now, "Deadline.after()", positive=False)
            if seconds_from_now > LONGEST_S:
                msg = (
                    f"Deadline.after({seconds_from_now:g}) lies more than ten years ahead; "
                    "milliseconds given for seconds?"
                )
                raise ValueError(msg)
        return cls._make(clock.monotonic() + seconds_from_now, None)

    @classmethod
    def at(cls, instant: datetime | float) -> Deadline:
        """An absolute instant: an aware datetime, or milliseconds since 1970.

        An instant in the past is allowed here, and refused on submit.

        Raises:
            ValueError: naive datetime, NaN, infinite, ``bool``, seconds given for milliseconds.
        """
        return cls.from_server(epoch_ms(instant), None)

    @classmethod
    def from_server(cls, instant_ms: int, server: clock.ServerClock | None) -> Deadline:
        """An instant of the server's clock. Without ``server`` the host's wall clock stands in
        for ``remaining()``; the stored instant is exact either way."""
        if server is not None and server.known:
            return cls._make(server.monotonic_at(instant_ms), instant_ms)
        now = clock.current()
        return cls._make(now.monotonic() + (instant_ms - now.wall_ms()) / 1000.0, instant_ms)

    def remaining(self) -> float:
        """Seconds left; negative once it has passed."""
        return self._monotonic - clock.monotonic()

    @property
    def expired(self) -> bool:
        """Whether no time is left. The instant itself counts as expired."""
        return self._monotonic <= clock.monotonic()

    @property
    def exact(self) -> bool:
        """Whether it is an instant (:meth:`at`), which the server's clock alone can judge."""
        return self._instant_ms is not None

    @property
    def monotonic(self) -> float:
        """The instant on this process's monotonic clock, for timers (s)."""
        return self._monotonic

    def server_ms(self, server: clock.ServerClock) -> int:
        """The instant as the server's clock will show it, in whole milliseconds."""
        if self._instant_ms is not None:
            return self._instant_ms
        return int(server.stamp_ms(self._monotonic))

    def on(self, server: clock.ServerClock) -> Deadline:
        """The same instant; one made by :meth:`at` counts by the server's clock from here on."""
        return self if self._instant_ms is None else self.from_server(self._instant_ms, server)

    def child(self, reserve: float = NETWORK_MARGIN_S) -> Deadline | None:
        """What a callee may have: this deadline less ``reserve`` seconds; None if that is no time.

        Raises:
            ValueError: a reserve that is negative or not finite.
        """
        reserve = seconds(reserve, "reserve", positive=False)
        if self.remaining() <= reserve:
            return None
        instant = self._instant_ms
        return self._make(
            self._monotonic - reserve,
            None if instant is None else instant - math.ceil(reserve * 1000),
        )

    def tighten(self, other: Deadline | None) -> Deadline:
        """The earlier of the two; with None, this one."""
        if other is None or self._monotonic <= other._monotonic:
            return self
        return other

    @contextmanager
    def scope(self) -> Iterator[Deadline]:
        """Make this the ambient deadline of the block; an earlier ambient one stays in force."""
        with AMBIENT.held(self.tighten(AMBIENT.get())) as inner:
            yield inner

    @staticmethod
    def current() -> Deadline | None:
        """The ambient deadline, if there is one."""
        return AMBIENT.get()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Deadline):
            return NotImplemented
        return (self._monotonic, self._instant_ms) == (other._monotonic, other._instant_ms)

    def __hash__(self) -> int:
        return hash((self._monotonic, self._instant_ms))

    def __copy__(self) -> Deadline:
        return self

    def __deepcopy__(self, memo: object) -> Deadline:
        return self

    def __reduce__(self) -> NoReturn:
        msg = "a Deadline counts on this process's clock; send its instant instead"
        raise TypeError(msg)

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, Deadline):
            return NotImplemented
        return self._monotonic < other._monotonic

    def __repr__(self) -> str:
        return f"<Deadline in {self.remaining():.3f} s>"


def lifted() -> AbstractContextManager[None]:
    """There is no ambient deadline in the block: for what no time is too late."""
    return AMBIENT.lifted()


def set_ambient(deadline: Deadline) -> None:
    """Make ``deadline`` the ambient one of the current context for good (a job's own context)."""
    AMBIENT.set(deadline)
