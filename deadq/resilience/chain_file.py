"""The description of a chain in a file, TOML or JSON."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any, Final

from ..errors import shown
from .chain import Chain
from .chain_description import chain_of

_MOST_BYTES: Final = 1_000_000


def read_chain(path: Path) -> Chain:
    """The chain that a file describes: in JSON where its name ends with ``.json``, or it begins
    with a brace, else in TOML.

    Raises:
        OSError: it cannot be read.
        ValueError: in one line the file, what is odd in it and what to do about it.
    """
    try:
        return chain_of(_parsed(path, _text(path)))
    except RecursionError:
        raise ValueError(f"{path}: its lists are nested too deeply") from None
    except ValueError as odd:
        raise ValueError(f"{path}: {odd}") from None


def _text(path: Path) -> str:
    with path.open("rb") as file:  # which may be a pipe, or go on for ever
        content = file.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise ValueError(f"larger than {_MOST_BYTES:,} bytes: is it the description of a chain?")
    return content.decode("utf-8-sig")


def _parsed(path: Path, text: str) -> object:
    if path.suffix == ".json" or text.lstrip().startswith("{"):
        try:
            return json.loads(text, object_pairs_hook=_without_repeats)
        except json.JSONDecodeError as odd:
            raise ValueError(f"no JSON: {odd}") from None
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as odd:
        raise ValueError(f"no TOML: {odd}") from None


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{shown(twice)} stands there twice: leave one out")
    return table
