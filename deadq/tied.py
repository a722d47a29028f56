"""Tied jobs: one call in two queues, of which the one that starts first takes the other away.

A request that is sent to two servers waits for the shorter of two queues. If each copy names the
other one, the server that begins cancels it, and hardly any work is done twice (Dean and Barroso,
"The Tail at Scale", CACM 56(2), 2013: tied requests, the second sent after twice the network's
delay, so that two idle servers do not both begin).
"""

from __future__ import annotations

import inspect
from concurrent.futures import Future
from typing import Final, TypeVar

from .deadline import Deadline
from .errors import Rejected, StoreUnavailable, shown
from .handle import JobHandle
from .job import job_id
from .prepared import Prepared
from .soon import apart, soon
from .store.background import background
from .tied_handle import TiedHandle, kept
from .twins import Twin

R = TypeVar("R")

ROUND_TRIPS: Final = 2
"""So many of them after the first submit the second one is sent."""


def tie(first: Prepared[R], second: Prepared[R]) -> TiedHandle[R]:
    """Submit one call to two queues; whichever starts first takes the other away.

    The second one is sent after two round trips, as measured, and not at all if the first has
    started by then; where the first is refused, at once. Both have one key: that of ``first``,
    or of ``second`` where only that was given one. Neither may have units.

    Args:
        first: what ``task.options(...).bind(...)`` has made, for the queue that is preferred.
        second: the same for another queue on the same server.

    Raises:
        Rejected: both refused; the error is that of the first.
        StoreUnavailable: the server cannot be reached.
        ValueError: one queue twice, two servers, or two different keys.
        TypeError: something else than what ``bind`` makes.
    """
    one, other = _pair(first, second)
    fate: Future[JobHandle[R] | None] = Future()
    try:
        begun = one.owner.submit(one)
    except StoreUnavailable:
        raise
    except Rejected as refused:
        fate.set_result(_second_or(refused, other))
        return TiedHandle(None, fate, other.deadline)
    tied = TiedHandle(begun, fate, _later_one(one, other))
    soon(ROUND_TRIPS * one.owner.clock.round_trip_s, lambda: apart(lambda: tied._send(other)))
    return tied


async def atie(first: Prepared[R], second: Prepared[R]) -> TiedHandle[R]:
    """The asyncio twin of :func:`tie`, for what ``abind`` makes."""
    one, other = _pair(first, second)
    fate: Future[JobHandle[R] | None] = Future()
    try:
        begun = await one.owner.asubmit(one)
    except StoreUnavailable:
        raise
    except Rejected as refused:
        fate.set_result(await _asecond_or(refused, other))
        return TiedHandle(None, fate, other.deadline)
    tied = TiedHandle(begun, fate, _later_one(one, other))
    kept(background(tied._asend(other, ROUND_TRIPS * one.owner.clock.round_trip_s)))
    return tied


def _pair(first: Prepared[R], second: Prepared[R]) -> tuple[Prepared[R], Prepared[R]]:
    """Both calls under one key, each naming the other."""
    for call in (first, second):
        if not isinstance(call, Prepared):
            hint = ": await task.abind(...)" if inspect.isawaitable(call) else ""
            msg = f"tie takes what task.bind(...) makes, not {shown(call)}{hint}"
            raise TypeError(msg)
    one, other = first.owner, second.owner
    if one.name == other.name:
        msg = (
            f"tie takes calls for two queues, and both are for {shown(one.name)}: declare the "
            "second task in a queue of another name, with workers of its own"
        )
        raise ValueError(msg)
    if one.backend.place != other.backend.place:
        msg = (
            f"the queues {shown(one.name)} and {shown(other.name)} are not on one server, so that "
            "neither could take a job away from the other: give both the same url= or client="
        )
        raise ValueError(msg)
    keys = {call.submission.key for call in (first, second) if call.keyed}
    if len(keys) > 1:
        msg = "tied jobs have one key: give it to either of the two, or the same one to both"
        raise ValueError(msg)
    key = next(iter(keys), first.submission.key)
    return (
        _named(first, key, Twin("first", job_id(key), other.name)),
        _named(second, key, Twin("second", job_id(key), one.name)),
    )


def _named(call: Prepared[R], key: str, twin: Twin) -> Prepared[R]:
    made = call.submission._replace(id=twin.id, key=key, twin=twin.text)
    return Prepared(made, call.deadline, call.owner, keyed=call.keyed)


def _later_one(first: Prepared[R], second: Prepared[R]) -> Deadline:
    return max(first.deadline, second.deadline, key=lambda deadline: deadline.monotonic)


def _second_or(refused: Rejected, other: Prepared[R]) -> JobHandle[R]:
    """The second one alone, or why there is no first."""
    try:
        return other.owner.submit(other)
    except StoreUnavailable:
        raise
    except Rejected:
        raise refused from None


async def _asecond_or(refused: Rejected, other: Prepared[R]) -> JobHandle[R]:
    try:
        return await other.owner.asubmit(other)
    except StoreUnavailable:
        raise
    except Rejected:
        raise refused from None
