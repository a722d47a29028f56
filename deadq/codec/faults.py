"""What the codec raises, and the walks that look for a fault inside a value."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from itertools import repeat
from types import NoneType
from typing import Any, Final, NamedTuple

from .extensions import WRITERS

MAX_DEPTH: Final = 128
"""How many containers (list, tuple, set, frozenset, dict) may stand inside each other."""

_PLAIN = (
    "None, bool, int, float, complex, str, bytes, list, dict, tuple, set, frozenset, "
    "Decimal, datetime, date, time, timedelta, UUID"
)
_PLACE_LENGTH = 160


class EncodeError(TypeError, ValueError):
    """A value cannot travel unchanged. The message names the place and what to send instead."""


class TooLarge(EncodeError):
    """The encoded value has ``size`` bytes, more than ``limit``."""

    def __init__(self, what: str, size: int, limit: int) -> None:
        super().__init__(what, size, limit)
        self.size = size
        self.limit = limit

    def __str__(self) -> str:
        return (
            f"{self.args[0]}: {self.size} bytes encoded, the limit is {self.limit}; "
            "send a reference to the data instead"
        )


class DecodeError(ValueError):
    """Bytes that ``encode`` did not write, or that this host cannot read unchanged."""


class _KeyAt(NamedTuple):
    position: int


def _members_of_dict(mapping: dict[object, object]) -> Iterator[tuple[object, object]]:
    for position, key in enumerate(mapping):
        yield _KeyAt(position), key
    yield from mapping.items()


_MEMBERS: Final[dict[type, Callable[[Any], Iterable[tuple[object, object]]]]] = {
    list: enumerate,
    tuple: enumerate,
    set: lambda members: zip(repeat(None), members),
    frozenset: lambda members: zip(repeat(None), members),
    dict: _members_of_dict,
}
_ATOMS: Final = frozenset({NoneType, bool, float, bytes})
_PLAIN_TYPES: Final = _ATOMS.union({str}, _MEMBERS, WRITERS)
_BASES: Final = (bool, int, float, str, bytes, list, tuple, dict, set, frozenset, *WRITERS)


def type_name(kind: type) -> str:
    """Return the bare name of a class, also when its metaclass hides it."""
    name: str = type.__dict__["__name__"].__get__(kind)
    return name


def find_fault(root: object, what: str) -> str | None:
    """Return place and reason of the first thing in ``root`` that cannot travel, None without one.

    ``what`` names the root. For "call" the root is a pair (args, kwargs) and places are named so.
    Walks without recursion, so that neither the value's depth nor the caller's matters.
    """
    steps: list[tuple[type, object]] = []
    open_ids: list[int] = []
    trail: list[Iterator[tuple[object, object]]] = [iter(((None, root),))]
    parent: type = NoneType
    while trail:
        for step, child in trail[-1]:
            kind = type(child)
            if kind in _ATOMS:
                continue
            here = (parent, step)
            members = _MEMBERS.get(kind)
            if members is None:
                reason = _fault_of_leaf(kind, child)
            elif id(child) in open_ids:
                reason = f"this {kind.__name__} contains itself"
            elif len(open_ids) >= MAX_DEPTH:
                reason = f"nested more than {MAX_DEPTH} levels deep; send flatter data"
            else:
                reason = None
            if reason:
                return f"{_place(what, [*steps, here])}: {reason}"
            if members is not None:
                steps.append(here)
                open_ids.append(id(child))
                trail.append(iter(members(child)))
                parent = kind
                break
        else:
            trail.pop()
            if steps:
                parent, _ = steps.pop()
                open_ids.pop()
    return None


def has_only_plain_types(root: object) -> bool:
    """Tell whether all that ``root``, already encoded, holds comes back as the same type."""
    level = [root]
    while level:
        kinds = set(map(type, level))
        if not kinds <= _PLAIN_TYPES:
            return False
        if kinds.isdisjoint(_MEMBERS):
            return True
        below: list[object] = []
        for item in level:
            if isinstance(item, dict):
                below += item
                below += item.values()
            elif isinstance(item, list | tuple | set | frozenset):
                below += item
        level = below
    return True


def _fault_of_leaf(kind: type, leaf: Any) -> str | None:
    if kind is str:
        return _fault_of_text(leaf)
    if kind in WRITERS:
        try:
            WRITERS[kind][1](leaf)
        except Exception as exc:  # noqa: BLE001  # whatever a tzinfo raises
            return f"{exc}"
        return None
    if kind in (bytearray, memoryview):
        return f"objects of type {kind.__name__} cannot travel; send bytes"
    for base in _BASES:
        if issubclass(kind, base):
            return (
                f"objects of type {type_name(kind)}, a subclass of {base.__name__}, cannot travel; "
                f"send a plain {base.__name__}"
            )
    return f"objects of type {type_name(kind)} cannot travel; send plain data ({_PLAIN})"


def _fault_of_text(text: str) -> str | None:
    try:
        text.encode()
    except UnicodeEncodeError as exc:
        return (
            f"text with a lone surrogate ({text[exc.start]!r} at {exc.start}) cannot travel; "
            "send bytes or repair the text"
        )
    return None


def _place(what: str, steps: list[tuple[type, object]]) -> str:
    root, rest = what, steps[1:]
    if what == "call" and rest:
        root, rest = ("args", "kwargs")[rest[0][1] == 1], rest[1:]
    place = root + "".join(_step(parent, step) for parent, step in rest)
    if len(place) <= _PLACE_LENGTH:
        return place
    half = _PLACE_LENGTH // 2
    return f"{place[:half]}…{place[-half:]}"


def _step(parent: type, step: object) -> str:
    if parent in (list, tuple):
        return f"[{step}]"
    if parent is not dict:
        return "{member}"
    if type(step) is _KeyAt:
        return f".keys()[{step.position}]"
    if type(step) is str:
        return f"[{step[:40]!r}]"
    # A number of many digits cannot be printed, and the repr of a deep tuple is long.
    if type(step) in (bool, float, NoneType, Decimal) or (
        type(step) is int and step.bit_length() < 64
    ):
        return f"[{step!r}]"
    return f"[<{type(step).__name__}>]"
