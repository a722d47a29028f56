"""What a process says under a retry budget that it shares."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from ..loader import load
from .call import Arg, Call

LEND: Final = load("lend")


class Deed(NamedTuple):
    """Some first attempts (``f``) or tokens spent (``s``), and how long ago."""

    kind: str
    ago_ms: int
    number: int


class Loan(NamedTuple):
    """Tokens lent, and those left to the others."""

    tokens: int
    left: int


def lend(
    holder: str, number: int, *, rule: str, wanted: int, length_ms: int, deeds: Iterable[Deed]
) -> Call[Loan]:
    """Report, and borrow up to ``wanted`` tokens; the same ``number`` again gets the same loan."""
    args: list[Arg] = [holder, number, rule, wanted, length_ms]
    for deed in deeds:
        args += deed
    return Call(LEND, args, lambda reply: Loan(reply[1], reply[2]))
