"""The gate that a unit passes before it begins."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Protocol


class UnitGate(Protocol):
    """Asked before a unit begins."""

    def passing(self, until: float) -> contextlib.AbstractContextManager[bool]:
        """Hold the gate until a unit has ended, at ``until`` at the latest (monotonic s); False:
        nothing begins any more."""
        ...

    def running(self, until: float) -> contextlib.AbstractContextManager[None]:
        """Within that, while the unit's function itself runs."""
        ...


class OpenGate:
    """The gate of a child that no supervisor kills."""

    @contextlib.contextmanager
    def passing(self, until: float) -> Iterator[bool]:
        yield True

    @contextlib.contextmanager
    def running(self, until: float) -> Iterator[None]:
        yield
