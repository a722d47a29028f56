"""Which processors run what.

A round trip between two processes costs several times as much across two processors as on one,
and the kernel puts a client and its server now on one, now on two. Left to it, the same figure
jumps from run to run by half. In production the server has a machine to itself, so here it gets
a processor to itself, where there are two.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

_SETTABLE: Final = hasattr(os, "sched_setaffinity")


@dataclass(frozen=True, slots=True)
class Placement:
    """Processors of the server and of all others; None: wherever the kernel likes."""

    server: frozenset[int] | None = None
    others: frozenset[int] | None = None

    @classmethod
    def apart(cls) -> Placement:
        """The last processor for the server, all others for the rest."""
        processors = _available()
        if len(processors) < 2:
            return cls()
        return cls(frozenset(processors[-1:]), frozenset(processors[:-1]))

    @classmethod
    def together(cls) -> Placement:
        """All on one processor."""
        first = frozenset(_available()[:1])
        return cls(first or None, first or None)

    def __str__(self) -> str:
        if self.server is None or self.others is None:
            return "free"
        if self.server == self.others:
            return "all on one processor"
        return f"server on processor {min(self.server)}, others on {len(self.others)} more"


@contextlib.contextmanager
def on(processors: frozenset[int] | None) -> Iterator[None]:
    """Run this thread, and the processes started meanwhile, on these processors."""
    if processors is None or not _SETTABLE:
        yield
        return
    setter: Any = os
    before = setter.sched_getaffinity(0)
    setter.sched_setaffinity(0, processors)
    try:
        yield
    finally:
        setter.sched_setaffinity(0, before)


def _available() -> list[int]:
    if not _SETTABLE:
        return []
    getter: Any = os
    return sorted(getter.sched_getaffinity(0))
