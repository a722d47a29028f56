"""What a tracer is told of runs. None is built in: :mod:`deadq.contrib.opentelemetry` is one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from .job import Claim, Settlement


class RunTrace(Protocol):
    """One run under a tracer. No method of it raises anything."""

    def units(self, unit: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """What runs the units of this run, traced."""
        ...

    def end(self, report: Settlement | None) -> None:
        """Its handler has left. Without a report the job is no longer this worker's."""
        ...


class Tracer(Protocol):
    """What a queue's ``tracer`` may be."""

    def begin(self, claim: Claim) -> RunTrace:
        """A handler is about to be called, in the current context, which is the run's own."""
        ...
