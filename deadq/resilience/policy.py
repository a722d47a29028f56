"""What a retry may do, checked once when it is declared."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..config import MAX_RETRIES, whole
from ..deadline import Deadline, duration, seconds
from ..errors import shown
from .backoff import Backoff
from .budget import RetryBudget, budget_of
from .latency import Latencies
from .rules import Rule
from .transient import is_transient

On = type[Exception] | Sequence[type[Exception]] | Callable[[Exception], bool]
Key = str | Callable[..., str | None]


@dataclass(frozen=True, slots=True)
class Policy:
    """The settings of one ``retry``; see there for the meaning of each. Times in seconds."""

    name: str
    tries: int
    wanted: Callable[[Exception], bool]
    backoff: Backoff
    within: float | None
    deadline: Deadline | None
    timeout: float | None
    needs: float
    budget: RetryBudget
    writes: bool
    key: Key | None
    pass_on: int
    reraise: bool
    latencies: Latencies = field(default_factory=Latencies)

    def overall(self) -> Deadline | None:
        """The instant at which a call that begins now is over: the earliest of all that hold."""
        found = Deadline.current() if self.deadline is None else self.deadline
        if self.deadline is not None:
            found = self.deadline.tighten(Deadline.current())
        if self.within is not None:
            return Deadline.after(self.within).tighten(found)
        return found


def policy(
    *,
    name: str | None,
    tries: int,
    on: On | None,
    backoff: Backoff | None,
    within: float | None,
    deadline: Deadline | None,
    timeout: float | None,
    needs: float,
    budget: str | Rule | RetryBudget,
    writes: bool,
    key: Key | None,
    pass_on: int,
    reraise: bool,
) -> Policy:
    """The settings, or an error that names the fault and the remedy.

    Raises:
        ValueError, TypeError: a setting is odd.
    """
    check_repeats("retry", name, writes, key)
    if backoff is not None and not isinstance(backoff, Backoff):
        raise TypeError(f"backoff must be a Backoff, such as Backoff('full'), not {shown(backoff)}")
    if deadline is not None and not isinstance(deadline, Deadline):
        raise TypeError(f"deadline must be a Deadline, not {shown(deadline)}; within takes seconds")
    if not isinstance(reraise, bool):
        raise TypeError(f"reraise must be True or False, not {shown(reraise)}")
    return Policy(
        name=name or "",
        tries=whole(tries, "tries", 1, MAX_RETRIES + 1),
        wanted=is_transient if on is None else _wanted(on),
        backoff=backoff or Backoff(),
        within=None if within is None else duration(within, "within"),
        deadline=deadline,
        timeout=None if timeout is None else duration(timeout, "timeout"),
        needs=seconds(needs, "needs", positive=False),
        budget=budget_of(budget),
        writes=writes,
        key=key,
        pass_on=whole(pass_on, "pass_on", 0, MAX_RETRIES),
        reraise=reraise,
    )


def check_repeats(what: str, name: object, writes: object, key: object) -> None:
    """Raise unless calls may be repeated under these settings.

    Raises:
        ValueError, TypeError: one is odd, or a call that changes state has no key.
    """
    if name is not None and (not isinstance(name, str) or not name):
        raise TypeError(f"{what} name must be a str that is not empty, not {shown(name)}")
    if not isinstance(writes, bool):
        raise TypeError(f"writes must be True or False, not {shown(writes)}")
    if key is not None and not callable(key) and (not isinstance(key, str) or not key):
        raise TypeError(f"key must be a str, or a function of the arguments, not {shown(key)}")
    if writes and key is None:
        raise ValueError(
            "a call that changes state is repeated only under an idempotency key: give key=..., "
            "which the other side uses to recognise a repeat"
        )


def check_key_of_calls(key: Key | None, fn: Callable[..., Any]) -> None:
    """Raise unless each call of ``fn`` would have a key of its own.

    Raises:
        TypeError: the key is the same for all.
    """
    if isinstance(key, str):
        raise TypeError(
            f"one key for all calls of {name_of(fn)} would make them one call: "
            "give key=lambda ...: ..., a function of the arguments"
        )


def name_of(fn: Callable[..., Any]) -> str:
    """By which a function is known: a ``partial``, or an object that is called, has none itself."""
    return str(getattr(fn, "__qualname__", type(fn).__qualname__))


def check_runs_when_called(fn: object, what: str, remedy: str) -> None:
    """Raise for what is no function, and for a generator, whose body runs only after the call, so
    that none of it fails there.

    Raises:
        TypeError: it is one of these.
    """
    if not callable(fn):
        raise TypeError(f"{what} a function, not {shown(fn)}")
    body = _body(fn)
    if inspect.isgeneratorfunction(body) or inspect.isasyncgenfunction(body):
        raise TypeError(f"{name_of(fn)} is a generator: put `{remedy}` into its body")


def gives_coroutine(fn: Callable[..., Any]) -> bool:
    """Whether it is a coroutine function, or what is called like one."""
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(_body(fn))


def check_no_coroutine(value: object, fn: Callable[..., Any], remedy: str) -> None:
    """Raise for a call that has only made a coroutine, as that of a lambda: nothing of it has run,
    and what fails in it would be seen by nobody.

    Raises:
        TypeError: it is one.
    """
    if inspect.iscoroutine(value):
        value.close()
        raise TypeError(f"{name_of(fn)} gave a coroutine, which has not run yet: {remedy}")


def _body(fn: Any) -> Any:
    """What runs when ``fn`` is called: that of a partial, a static method, an object."""
    while isinstance(fn, functools.partial | staticmethod):
        fn = fn.func if isinstance(fn, functools.partial) else fn.__func__
    if inspect.isroutine(fn) or isinstance(fn, type):
        return fn
    return type(fn).__call__


def key_of(key: Key | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """The key of one call; None: it has none.

    Raises:
        TypeError: the key's function gave something else.
    """
    if not callable(key):
        return key
    found = key(*args, **kwargs)
    if found is not None and (not isinstance(found, str) or not found):
        raise TypeError(f"the key of a call must be a str that is not empty, not {shown(found)}")
    return found


def _wanted(on: On) -> Callable[[Exception], bool]:
    if isinstance(on, type) and issubclass(on, Exception):
        kinds: tuple[type[Exception], ...] = (on,)
    elif callable(on) and not isinstance(on, type):
        return on
    else:
        kinds = tuple(on) if isinstance(on, Sequence) else (_not_a_kind(on),)
    for kind in kinds:
        if not (isinstance(kind, type) and issubclass(kind, Exception)):
            _not_a_kind(kind)
    return lambda error: isinstance(error, kinds)


def _not_a_kind(value: Any) -> type[Exception]:
    raise TypeError(
        f"on takes exception classes, or a function of the exception, not {shown(value)}"
    )
