"""Every public parameter of the Python API; and one that does nothing, as its tests must notice.

A parameter with a default is deaf when it always has the default, and ``**kwargs`` when there are
none. One that has to be given is deaf when something else arrives in its place. An attribute that
may be set is deaf when it stays as it is.
"""

import contextlib
import functools
import inspect
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import deadq
import deadq.resilience
import deadq.testing
from deadq import DeadJob, Deadline, Prepared, Queue
from deadq.clock import ServerClock
from deadq.options import NO_OPTIONS, Options
from deadq.resilience import BudgetRule

MODULES = (deadq, deadq.testing, deadq.resilience)
HANDED_OUT = {
    *(
        "BoundCall",
        "CurrentJob",
        "JobHandle",
        "Prepared",
        "Task",
        "TiedHandle",
        "testing.SlowProxy",
    ),
    *("DeadJob", "JobReport", "ListedJob", "UnitReport"),
}
"""Classes that users get objects of, and make none: deadq alone calls them."""

ONE_OF_SEVERAL = {
    "Queue.task within",
    *("Queue.replay within", "Queue.replay deadline"),
    *("Queue.areplay within", "Queue.areplay deadline"),
}
"""Left out they are missed, whatever their values do: so they are changed, like what has to be
given."""

DEAF_BY_DESIGN = {
    *("FleetBudget.take throttled", "FleetBudget.succeeded taken"),
    *("resilience.retry misplaced", "resilience.aretry misplaced", "resilience.ahedge misplaced"),
}
"""There for a protocol's sake, or to refuse what does not belong there; documented as such."""
SEAMS = {f"FleetBudget.of_queue {name}" for name in ("backend", "queue", "words")}
"""How a queue makes its own budget: what comes of it is ``Queue.budget``."""

NOTHING_ELSE = "say what else there is of its kind"
"""What :func:`_another` says of a value it does not know. A test that fails by that has noticed
nothing."""


def every_parameter() -> dict[str, tuple[Any, str, inspect.Parameter]]:
    """Parameters by their names, ``Queue.task within``: whose attribute the function is, the
    attribute, and the parameter.

    What a class inherits from another public one is listed there alone.
    """
    found = {}
    for module in MODULES:
        for exported in module.__all__:
            label = f"{module.__name__}.{exported}".removeprefix("deadq.")
            for owner, attribute, name in _functions(module, exported, label):
                for parameter in _signature(owner, attribute).parameters.values():
                    if parameter.name not in {"self", "cls"} and parameter.name[0] != "_":
                        found[f"{name} {parameter.name}"] = owner, attribute, parameter
    return {name: place for name, place in found.items() if name not in DEAF_BY_DESIGN | SEAMS}


def deafen(name: str | None) -> None:
    """Make the parameter of this name one that does nothing, here and from now on; or, with None,
    every function one that passes on what it is given, and does no more."""
    if name is None:
        for owner, attribute, _ in every_parameter().values():
            _replace(owner, attribute, lambda _: None)
        return
    owner, attribute, parameter = every_parameter()[name]
    settable = inspect.getattr_static(owner, attribute)
    if isinstance(settable, property):
        setattr(owner, attribute, settable.setter(lambda _self, _value: None))
    else:
        _replace(owner, attribute, functools.partial(_instead, name, parameter))


def _functions(module: Any, exported: str, label: str) -> Iterator[tuple[Any, str, str]]:
    found = getattr(module, exported)
    if inspect.isfunction(found):
        yield module, exported, label
    if not inspect.isclass(found) or getattr(found, "_is_protocol", False):
        return  # a protocol's methods are others'
    everything = [getattr(module, name) for module in MODULES for name in module.__all__]
    public = set(filter(inspect.isclass, everything))
    maker = next(owner for owner in found.__mro__ if "__init__" in vars(owner))
    of_deadq = maker.__module__.partition(".")[0] == "deadq" and maker not in public - {found}
    if of_deadq and label not in HANDED_OUT:
        yield maker, "__init__", label
    for owner in found.__mro__:
        if owner.__module__.partition(".")[0] != "deadq" or owner in public - {found}:
            continue
        for attribute, value in vars(owner).items():
            settable = isinstance(value, property) and value.fset is not None
            method = isinstance(value, classmethod | staticmethod) or inspect.isfunction(value)
            makes_one = isinstance(value, classmethod) and label in HANDED_OUT
            public_name = attribute[0] != "_" or attribute == "__call__"
            if (settable or method) and public_name and not makes_one:
                yield owner, attribute, f"{label}.{attribute}".removesuffix(".__call__")


def _plain(owner: Any, attribute: str) -> Any:
    """The function itself, of whatever kind it is."""
    value = inspect.getattr_static(owner, attribute)
    if isinstance(value, property):
        return value.fset
    return value.__func__ if isinstance(value, classmethod | staticmethod) else value


def _signature(owner: Any, attribute: str) -> inspect.Signature:
    return inspect.signature(_plain(owner, attribute))


def _replace(owner: Any, attribute: str, change: Callable[[dict[str, Any]], None]) -> None:
    before = inspect.getattr_static(owner, attribute)
    plain, signature = _plain(owner, attribute), _signature(owner, attribute)

    @functools.wraps(plain)
    def deaf(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        change(bound.arguments)
        return plain(*bound.args, **bound.kwargs)

    if isinstance(before, property):
        setattr(owner, attribute, before.setter(deaf))
    elif isinstance(before, classmethod | staticmethod):
        setattr(owner, attribute, type(before)(deaf))
    elif inspect.isclass(owner):
        setattr(owner, attribute, deaf)
    else:
        for module in [m for name, m in sys.modules.items() if name.partition(".")[0] == "deadq"]:
            for alias, value in list(vars(module).items()):
                if value is before:
                    setattr(module, alias, deaf)


def _instead(name: str, parameter: inspect.Parameter, given: dict[str, Any]) -> None:
    optional = parameter.default is not parameter.empty
    if parameter.kind is parameter.VAR_KEYWORD or (optional and name not in ONE_OF_SEVERAL):
        given.pop(parameter.name, None)
    elif parameter.name in given:
        given[parameter.name] = _another(given[parameter.name])


async def _nothing() -> None:
    """What another coroutine does."""


def _another(value: Any) -> Any:
    """Something else of the same kind."""
    match value:
        case None:
            return None
        case str():
            return value[:-1] + chr(ord(value[-1]) ^ 1)
        case int() | float():
            return value + 1
        case datetime():
            return value + timedelta(seconds=1)
        case Path():
            return value.with_name(_another(value.name))
        case Deadline():
            return Deadline.after(3600.0)
        case ServerClock():
            return ServerClock()
        case Prepared(submission=submission):
            another = submission._replace(id="0" * 32, key="another")
            return Prepared(another, value.deadline, value.owner, keyed=value.keyed)
        case DeadJob():
            return value._replace(id=_another(value.id))
        case Queue():
            return deadq.testing.queue("another")
        case Options():
            return NO_OPTIONS
        case Exception():
            return Exception()
        case Coroutine():
            value.close()
            return _nothing()
        case BudgetRule():
            return "finagle"
        case dict():
            return {name: _another(item) for name, item in value.items()}
        case (str(host), int()):
            return host, 1
        case Iterable():
            return tuple(map(_another, value))
        case _ if callable(value):
            return lambda *_, **__: contextlib.nullcontext()
    raise AssertionError(f"{value!r}: {NOTHING_ELSE}")
