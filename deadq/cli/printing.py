"""What commands print, and how: names and messages may be anybody's."""

from __future__ import annotations

import json
import sys
from typing import Final

_MOST: Final = 800
"""Characters of a message."""


def printable(text: str) -> str:
    """``text`` with what would steer a terminal, or is no character at all, written out."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def one_line(text: str) -> str:
    """``text`` as a message: what was typed, and stands in it, may be of any length."""
    text = printable(text)
    half = _MOST // 2
    return text if len(text) <= _MOST else f"{text[:half]} [...] {text[-half:]}"


def counted(number: int, what: str) -> str:
    """``1 job``, ``2 jobs``."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def say(line: str) -> None:
    """One line on stdout."""
    sys.stdout.write(f"deadq: {one_line(line)}\n")


def print_json(value: object) -> None:
    """One JSON value on stdout."""
    sys.stdout.write(json.dumps(value, indent=2) + "\n")
