"""Which children have to be killed, and when: one whose handler does not leave, one that does not
hear its timer any more, one that does not stop in time, one that has given up its id and does not
go. None of them inside a unit."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from ... import clock
from .charge import Charge

_PATIENCE_S: Final = 0.15
"""A handler that does not leave, and says so, gets so much more before its child is killed."""

_UNHEARD_S: Final = 1.0
"""A child that lets a job run so much beyond its time does not hear its own timer any more."""

_FAREWELL_S: Final = 10.0
"""A child that is replaced, and holds nothing any more, may take so long to end: lifespans close,
and a handler that did not leave may keep the process busy for ever."""

_OVERDUE_EVERY_S: Final = 0.25
"""How often children are looked at that may not hear any more."""

_LOOK_S: Final = 0.02
"""How often the killing of a child inside a unit is tried again."""


class Killing:
    """Kills when it is time, and knows for which jobs: their end is the supervisor's to report."""

    def __init__(self, charges: Callable[[], Sequence[Charge]]) -> None:
        self._charges = charges
        self._at: dict[Charge, float] = {}
        self._decided: dict[Charge, dict[tuple[str, int], str]] = {}
        """Marks of the jobs for which a child has to be killed."""
        self._retired: dict[Charge, float] = {}
        """Since when children that are replaced hold nothing any more (monotonic s)."""
        self._overdue_at = 0.0
        self._sparing = True
        """Whether a child is let live that has done in the end what it was to be killed for."""

    @property
    def next_at(self) -> float:
        """When :meth:`tick` has something to do (monotonic s)."""
        looks = [self._overdue_at] if self._charges() else []
        return min([*looks, *self._at.values()], default=math.inf)

    def stubborn(self, charge: Charge, job: str, fence: int, mark: str) -> None:
        """A handler that does not leave costs its child."""
        self._decided.setdefault(charge, {})[job, fence] = mark
        self._at.setdefault(charge, clock.monotonic() + _PATIENCE_S)

    def spare_none(self) -> None:
        """The time is over in which children could leave by themselves."""
        self._sparing = False
        for charge in self._charges():
            self._at.setdefault(charge, clock.monotonic())

    def ended(self, charge: Charge) -> Mapping[tuple[str, int], str]:
        """A child has ended, killed or not; the marks of the jobs for which it had to."""
        self._at.pop(charge, None)
        self._retired.pop(charge, None)
        return self._decided.pop(charge, {})

    def tick(self, now: float) -> None:
        """Find those that hear nothing, and kill those whose time has come."""
        if self._overdue_at <= now:
            self._overdue_at = now + _OVERDUE_EVERY_S
            self._find_overdue(now)
        for charge in [c for c, at in self._at.items() if at <= now]:
            if self._sparing and not self._still_wrong(charge, now):
                del self._at[charge]
            elif charge.kill():
                self._at[charge] = math.inf  # it remains to be buried
            else:
                self._at[charge] = now + _LOOK_S

    def _find_overdue(self, now: float) -> None:
        for charge in self._charges():
            if charge.retired:
                self._retired.setdefault(charge, now)
            if charge.unit_over(now - _UNHEARD_S) or self._lingers(charge, now):
                self._at.setdefault(charge, now)
            for job, holding in charge.sheet().held.items():
                if holding.until + _UNHEARD_S < now:
                    self._decided.setdefault(charge, {})[job, holding.fence] = holding.mark
                    self._at.setdefault(charge, now)

    def _still_wrong(self, charge: Charge, now: float) -> bool:
        # what has no end any more has left, and is only not reported yet
        running = [(j, h.fence) for j, h in charge.sheet().held.items() if h.until < math.inf]
        stays = not self._decided.get(charge, {}).keys().isdisjoint(running)
        return stays or charge.unit_over(now - _UNHEARD_S) or self._lingers(charge, now)

    def _lingers(self, charge: Charge, now: float) -> bool:
        return self._retired.get(charge, math.inf) + _FAREWELL_S < now
