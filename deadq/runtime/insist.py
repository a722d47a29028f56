"""Sending until answered: decided once, driven on an event loop and on a main thread.

Every call may be repeated, so what has to get through is sent again and again, after pauses that
grow. An outage is said when it is met, and when it is over.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from .. import clock
from ..errors import StoreUnavailable
from ..events import Event, log
from ..store.connect import UnsafeServer
from ..store.wire import PAUSES, AccessRefused

T = TypeVar("T")

Worth = Callable[[StoreUnavailable], bool]
"""Whether it is worth sending again after this failure."""

HOPELESS: Final = (UnsafeServer, AccessRefused)
"""Failures that waiting would not mend."""


def always(_: StoreUnavailable) -> bool:
    """However long the server is away: for what must not be lost."""
    return True


def until(patience: Callable[[], float]) -> Worth:
    """Until an instant (monotonic s), which may come nearer meanwhile."""
    return lambda _: clock.monotonic() <= patience()


async def ainsist(
    send: Callable[[], Awaitable[T]],
    pause: Callable[[float], Awaitable[object]],
    worth: Worth = always,
) -> T:
    """The answer to what ``send`` sends, on an event loop.

    Raises:
        StoreUnavailable: the last failure; it is not worth it any more.
    """
    outage = _Outage(worth)
    while True:
        try:
            answer = await send()
        except StoreUnavailable as error:
            await pause(outage.pause(error))
            outage.bear(error)
        else:
            outage.over()
            return answer


def insist(send: Callable[[], T], pause: Callable[[float], object], worth: Worth = always) -> T:
    """The answer to what ``send`` sends, in blocking code.

    Raises:
        StoreUnavailable: the last failure; it is not worth it any more.
    """
    outage = _Outage(worth)
    while True:
        try:
            answer = send()
        except StoreUnavailable as error:
            pause(outage.pause(error))
            outage.bear(error)
        else:
            outage.over()
            return answer


class _Outage:
    """The failures of one call so far."""

    def __init__(self, worth: Worth) -> None:
        self._worth = worth
        self._failures = 0

    def pause(self, error: StoreUnavailable) -> float:
        """One more; the pause before the next try (s), if there is to be one."""
        self.bear(error)
        self._failures += 1
        if self._failures == 1:
            log.warning("%s: %s; trying again", Event.STORE_AWAY, error)
        return PAUSES.delay(self._failures)

    def bear(self, error: StoreUnavailable) -> None:
        """Go on, unless it is not worth it: a stop may have come during the pause."""
        if not self._worth(error):
            raise error

    def over(self) -> None:
        if self._failures:
            log.warning("%s after %d failures", Event.STORE_BACK, self._failures)
