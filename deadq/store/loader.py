"""Lua scripts from their files.

A line ``--! use: <part> ...`` stands for the parts ``lua/lib/<part>.lua``. At the top of a script
they are at hand throughout; inside a function they are made only when that function runs, which
matters: a server makes every top-level function anew for each call.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

_FOLDER: Final = Path(__file__).parent / "lua"
_USE: Final = re.compile(r"^\s*--! use: ([a-z_ ]+)$")
_LINE: Final = re.compile(r"user_script:(\d+)")


@dataclass(frozen=True, slots=True)
class Script:
    """One transition. ``places`` tells file and line that each line of ``source`` comes from."""

    name: str
    source: bytes
    sha: str
    places: tuple[tuple[str, int], ...]

    def locate(self, message: str) -> str:
        """A server's error message with the script's own file and line in place of the joined."""

        def place(found: re.Match[str]) -> str:
            line = int(found[1])
            if not 0 < line <= len(self.places):
                return found[0]
            return "{}:{}".format(*self.places[line - 1])

        return _LINE.sub(place, message)


@cache
def load(name: str) -> Script:
    """The script ``lua/<name>.lua``, its parts in their places.

    Raises:
        FileNotFoundError: no such script or part.
    """
    lines, places = _read(f"{name}.lua")
    source = "\n".join(lines).encode()
    sha = hashlib.sha1(source, usedforsecurity=False).hexdigest()
    return Script(name, source, sha, tuple(places))


def _read(file: str) -> tuple[list[str], list[tuple[str, int]]]:
    lines: list[str] = []
    places: list[tuple[str, int]] = []
    for number, line in enumerate((_FOLDER / file).read_text(encoding="utf-8").splitlines(), 1):
        lines.append(line)
        places.append((file, number))
        use = _USE.match(line)
        for part in use[1].split() if use else ():
            inner = _read(f"lib/{part}.lua")
            lines += inner[0]
            places += inner[1]
    return lines, places


def names() -> list[str]:
    """Every script there is, so that tests can enumerate them."""
    return sorted(file.stem for file in _FOLDER.glob("*.lua"))
