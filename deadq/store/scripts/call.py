"""A call as such, and what several answers have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

from ...job import State
from ..loader import Script

T = TypeVar("T")


Arg = str | bytes | int


class Call(NamedTuple, Generic[T]):
    """One script call: its arguments after the time, and how to read the reply."""

    script: Script
    args: Sequence[Arg]
    parse: Callable[[list[Any]], T]
    prefix: str | None = None
    """Of another queue's keys, on the same server; None: those of the queue that sends it."""


def whole_number(text: bytes | str | int) -> int:
    """A planted record may hold any text where a number belongs; then it counts as none."""
    try:
        return int(text)
    except ValueError:
        return 0


def pairs(flat: list[bytes]) -> Iterable[tuple[bytes, bytes]]:
    """A flat list of names and values, as the server gives a hash."""
    return zip(flat[::2], flat[1::2], strict=True)


def read_words(reply: list[Any]) -> list[str]:
    """An answer of one word for each thing that was asked about."""
    return [word.decode() for word in reply[1:]]


STATES: Final = {state.value.encode(): state for state in State}
"""By the word that a record holds."""
