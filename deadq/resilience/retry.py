"""Trying again, within limits: as a decorator, or as a loop around a block.

::

    @aretry(tries=3, within=2.0, timeout=0.5, budget=FleetBudget("quotes"))
    async def quote(item: str) -> Quote: ...

    for attempt in retry(tries=3, within=2.0):
        with attempt:
            response = httpx.get(url, timeout=attempt.timeout)
            response.raise_for_status()
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import ExitStack
from dataclasses import replace
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

from ..deadline import LONGEST_S, Deadline
from ..errors import shown
from .backoff import Backoff
from .budget import RetryBudget
from .course import Course
from .policy import (
    Key,
    On,
    Policy,
    check_key_of_calls,
    check_no_coroutine,
    check_runs_when_called,
    gives_coroutine,
    key_of,
    name_of,
    policy,
)
from .rules import Rule

P = ParamSpec("P")
R = TypeVar("R")


class Attempt:
    """One attempt of a loop: a context manager for the block that tries.

    ``number`` counts from 1. ``timeout`` is how many seconds this attempt may take, for a client
    that takes a timeout; None: as long as it likes. Inside the block ``Deadline.current()`` ends
    with it.
    """

    def __init__(self, course: Course) -> None:
        self._course = course
        self._stack = ExitStack()
        self.delay = 0.0
        self.timeout = course.begin()
        self.number = course.number
        self.entered = False

    def enter(self) -> None:
        if self.entered:
            raise RuntimeError("an attempt has one block: put all of it under the one 'with'")
        self.entered = True
        self._stack.enter_context(self._course.allowance().scope())
        if self.timeout is not None:
            self._stack.enter_context(Deadline.after(min(self.timeout, LONGEST_S)).scope())

    def leave(self, error: BaseException | None) -> bool:
        """Whether the error is dealt with: then there is another attempt after ``delay``."""
        self._stack.close()
        if error is None:
            self._course.succeeded()
            return False
        if not isinstance(error, Exception):
            self._course.over = True
            return False
        self.delay = self._course.failed(error)
        return True


class SyncAttempt(Attempt):
    """An attempt of a plain loop."""

    def __enter__(self) -> Self:
        self.enter()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> bool:
        return self.leave(error)


class AsyncAttempt(Attempt):
    """An attempt of a loop on an event loop: its block is cancelled when its time is over."""

    def __init__(self, course: Course) -> None:
        super().__init__(course)
        self._limit: asyncio.Timeout | None = None

    async def __aenter__(self) -> Self:
        self.enter()
        if self.timeout is not None:
            self._limit = await asyncio.timeout(self.timeout).__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> bool:
        if self._limit is not None:
            try:
                await self._limit.__aexit__(kind, error, at)
            except TimeoutError as late:
                late.args = (f"the attempt ran longer than its limit of {self.timeout:.3g} s",)
                error = late
        return self.leave(error)


class Retrying:
    """Try again what has failed for a reason that passes, within all limits.

    Args:
        tries: attempts in all.
        on: which failures are worth it: exception classes, or a function of the exception;
            default: those that :func:`is_transient` names.
        backoff: the pause before each retry; default: full jitter from 0.1 s up to 5 s.
        within: seconds for all attempts and pauses together.
        deadline: the instant instead; the ambient one holds in any case.
        timeout: seconds for one attempt. A plain function cannot be stopped: it finds them in
            ``Deadline.current()`` and ``attempt.timeout``, to hand on to its client.
        needs: seconds that an attempt takes at least; otherwise the measured median counts.
        budget: what retries draw on: a ``Budget``, a ``FleetBudget``, or a preset's name, which
            gives a budget of its own.
        writes: whether the call changes state; then it needs a key.
        key: the idempotency key under which the other side recognises a repeat. For a decorator
            a function of the arguments; when it gives None, there is one attempt.
        pass_on: retries that the calls below may make, of those that are left here.
        reraise: raise the last error itself, with a note, instead of ``RetryDenied``.
        name: in the metric; default: that of the function.

    Raises:
        ValueError, TypeError: a setting is odd; the message names the fault and the remedy.

    The calls raise ``RetryDenied`` from the last error when there is to be no other attempt, and
    ``DeadlineExceeded`` when no time is left for the first one.
    """

    _word = "retry"

    def __init__(
        self,
        *misplaced: object,
        tries: int = 3,
        on: On | None = None,
        backoff: Backoff | None = None,
        within: float | None = None,
        deadline: Deadline | None = None,
        timeout: float | None = None,
        needs: float = 0.0,
        budget: str | Rule | RetryBudget = "sre",
        writes: bool = False,
        key: Key | None = None,
        pass_on: int = 0,
        reraise: bool = False,
        name: str | None = None,
    ) -> None:
        if misplaced:
            raise TypeError(
                f"{self._word} takes settings by name alone: write @{self._word}() above a "
                f"function, not {shown(misplaced[0])}"
            )
        self._policy = policy(
            name=name,
            tries=tries,
            on=on,
            backoff=backoff,
            within=within,
            deadline=deadline,
            timeout=timeout,
            needs=needs,
            budget=budget,
            writes=writes,
            key=key,
            pass_on=pass_on,
            reraise=reraise,
        )

    def _of(self, fn: Callable[..., Any]) -> Policy:
        """The policy under the function's own name."""
        check_key_of_calls(self._policy.key, fn)
        return replace(self._policy, name=self._policy.name or name_of(fn))

    def _course(self) -> Course:
        key = self._policy.key
        if callable(key):
            raise TypeError("a loop has no arguments: give it the key itself, a str")
        return Course(self._policy, key)


class retry(Retrying):  # noqa: N801  a decorator, as users write it
    """For plain functions: ``@retry(...)``, or a loop. See :class:`Retrying` for the settings.

    ::

        for attempt in retry(tries=3):
            with attempt:
                ...
    """

    def __call__(self, fn: Callable[P, R], /) -> Callable[P, R]:
        """The function, tried again."""
        check_runs_when_called(fn, "@retry tries", "for attempt in retry():")
        if gives_coroutine(fn):
            raise TypeError(f"{name_of(fn)} is a coroutine function: use @aretry")
        limits = self._of(fn)

        @functools.wraps(fn)
        def tried(*args: P.args, **kwargs: P.kwargs) -> R:
            course = Course(limits, key_of(limits.key, args, kwargs))
            while True:
                attempt = SyncAttempt(course)
                with attempt:
                    value = fn(*args, **kwargs)
                if course.over:
                    check_no_coroutine(value, fn, "make it an async def, and use @aretry")
                    return value
                time.sleep(attempt.delay)

        return tried

    def __iter__(self) -> Iterator[SyncAttempt]:
        course = self._course()
        while not course.over:
            attempt = SyncAttempt(course)
            yield attempt
            _check_entered(attempt, "with attempt:")
            if not course.over:
                time.sleep(attempt.delay)


class aretry(Retrying):  # noqa: N801  a decorator, as users write it
    """For coroutines: ``@aretry(...)``, or a loop. See :class:`Retrying` for the settings.

    ::

        async for attempt in aretry(tries=3):
            async with attempt:
                ...
    """

    _word = "aretry"

    def __call__(self, fn: Callable[P, Awaitable[R]], /) -> Callable[P, Coroutine[Any, Any, R]]:
        """The coroutine function, tried again."""
        check_runs_when_called(fn, "@aretry tries", "async for attempt in aretry():")
        if not gives_coroutine(fn):
            raise TypeError(f"{name_of(fn)} is no coroutine function: use @retry")
        limits = self._of(fn)

        @functools.wraps(fn)
        async def tried(*args: P.args, **kwargs: P.kwargs) -> R:
            course = Course(limits, key_of(limits.key, args, kwargs))
            while True:
                attempt = AsyncAttempt(course)
                async with attempt:
                    return await fn(*args, **kwargs)
                await asyncio.sleep(attempt.delay)

        return tried

    async def __aiter__(self) -> AsyncIterator[AsyncAttempt]:
        course = self._course()
        while not course.over:
            attempt = AsyncAttempt(course)
            yield attempt
            _check_entered(attempt, "async with attempt:")
            if not course.over:
                await asyncio.sleep(attempt.delay)


def _check_entered(attempt: Attempt, words: str) -> None:
    if not attempt.entered:
        raise RuntimeError(f"the loop's block must begin with '{words}', which tells how it went")
