"""What a child tells its supervisor: shared memory made before the fork, one page for each child.

A page says under which id and claim number the child holds which jobs, and until when each may
run. The child writes it before any handler starts and when one has left, the supervisor renews by
it: so a child whose interpreter is busy, stopped or stuck keeps its lease, and nothing that it may
be running is given to somebody else. The other way, the page carries when the last good renewal
was sent.
"""

from __future__ import annotations

import mmap
import struct
import zlib
from collections.abc import Mapping
from typing import Final, NamedTuple

import msgpack

from ...events import Event, log

_DOUBLES: Final = 5
_HEAD: Final = struct.Struct("<II")
_LOOKS: Final = 5
"""Were a page written twice while it is read, it is looked at again, so many times."""

_JOB_BYTES: Final = 96
"""More than any job takes whose id deadq has made."""

_CHILD_BYTES: Final = 256


class Holding(NamedTuple):
    """A job in a child's hands."""

    fence: int
    until: float
    """Monotonic second at which its time is over; ``inf`` once its handler has left."""
    mark: str
    """Why it is over then: ``cut`` (its deadline) or ``timeout`` (the attempt's own limit)."""
    since: float
    """Monotonic second at which it was asked for."""


class Sheet(NamedTuple):
    """What a page says of its child."""

    child: str = ""
    number: int = 0
    """Of the last claim answered."""
    held: Mapping[str, Holding] = {}


class Page:
    """One child's page. Made by the supervisor; both keep the object across the fork.

    The instants are monotonic seconds, of a clock that all processes of a machine share.
    """

    def __init__(self, slots: int) -> None:
        self._room = _HEAD.size + _CHILD_BYTES + slots * _JOB_BYTES
        self._memory = mmap.mmap(-1, 8 * _DOUBLES + 2 * self._room)
        self._doubles = memoryview(self._memory)[: 8 * _DOUBLES].cast("d")
        self._last = Sheet()

    @property
    def good(self) -> float:
        """When the last good renewal, or the registration, was sent."""
        return self._doubles[0]

    @good.setter
    def good(self, sent: float) -> None:
        self._doubles[0] = sent

    @property
    def unit_until(self) -> float:
        """When the limit of the last open unit ends; 0 while none is open."""
        return self._doubles[1]

    @unit_until.setter
    def unit_until(self, at: float) -> None:
        self._doubles[1] = at

    @property
    def unit_due(self) -> float:
        """When the first limit ends of the units whose function still runs; 0 while none does."""
        return self._doubles[3]

    @unit_due.setter
    def unit_due(self, at: float) -> None:
        self._doubles[3] = at

    @property
    def condemned(self) -> bool:
        """Whether the supervisor is about to kill the child: no unit may begin any more."""
        return self._doubles[2] != 0

    def condemn(self) -> None:
        """Forbid new units."""
        self._doubles[2] = 1

    def publish(self, sheet: Sheet) -> None:
        """Write down what the child holds, at most as many jobs as it has slots.

        Should it not fit, the page goes on saying what it said: of what was claimed since then a
        renewal gives nothing back, for it carries the older number.
        """
        body = msgpack.packb((sheet.child, sheet.number, list(sheet.held.items())))
        if _HEAD.size + len(body) > self._room:
            jobs = len(sheet.held)
            log.error("%s: child %s, no page for %d jobs", Event.RENEWAL_FAILED, sheet.child, jobs)
            return
        # the copy that is not read; readers turn to it by one store, which is not seen by halves
        following = self._doubles[4] + 1
        at = self._at(following)
        self._memory[at : at + _HEAD.size + len(body)] = (
            _HEAD.pack(len(body), zlib.crc32(body)) + body
        )
        self._doubles[4] = following

    def _at(self, writing: float) -> int:
        """Where the copy begins that this writing has made; the next one goes to the other."""
        return 8 * _DOUBLES + int(writing) % 2 * self._room

    def read(self) -> Sheet:
        """What the child holds; while it is writing (or was killed at it), what it held before.

        That is safe: a renewal gives back only what was claimed under the number it carries.
        """
        for _ in range(_LOOKS):
            at = self._at(self._doubles[4])
            length, crc = _HEAD.unpack(self._memory[at : at + _HEAD.size])
            body = self._memory[at + _HEAD.size : at + _HEAD.size + length]
            if length and zlib.crc32(body) == crc:
                child, number, held = msgpack.unpackb(body)
                self._last = Sheet(child, number, {job: Holding(*rest) for job, rest in held})
                break
        return self._last

    def close(self) -> None:
        """Give the memory back."""
        self._doubles.release()
        self._memory.close()
