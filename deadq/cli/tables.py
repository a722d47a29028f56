"""What commands print for people, where it is more than a line."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from typing import Final

from rich import box
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from .printing import printable

_TABLE_FROM: Final = 80
"""Columns of a terminal below which each row of a table is shown by itself."""

_UNBOUNDED: Final = 100_000
"""Columns of what is no terminal: more than any line has."""


def _console() -> Console:
    """As wide as its terminal, or as ``$COLUMNS`` says. In a pipe or file nothing is folded: there
    a row is a line, to be searched and to be copied from."""
    bounded = sys.stdout.isatty() or os.environ.get("COLUMNS")
    return Console(width=None if bounded else _UNBOUNDED)


def _print(console: Console, title: str, *below: RenderableType) -> None:
    """Print a title and what belongs below it; no line ends in blanks."""
    with console.capture() as captured:
        console.print(_text(title), *below, sep="\n")
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))


def print_pairs(title: str, pairs: Iterable[tuple[str, object]]) -> None:
    """A table of names and values; numbers stand below each other."""
    console = _console()
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    rows = list(pairs)
    numbers = all(isinstance(value, int) for _, value in rows)
    table.add_column(overflow="fold", max_width=max(24, console.width // 3))
    table.add_column(justify="right" if numbers else "left", overflow="fold")
    for name, value in rows:
        table.add_row(_text(name), _text(value))
    _print(console, title, Padding(table, (0, 0, 0, 2), expand=False))


def print_rows(
    title: str,
    names: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    folded: Sequence[str],
) -> None:
    """A table of things, each a row. Columns that are ``folded`` share the room that the others
    leave, and nothing of them is cut; a task's name that is too long ends in an ellipsis.
    Without rows there is the title alone; a terminal too narrow for that gets a table of each."""
    console = _console()
    rows = list(rows)
    if console.width < _TABLE_FROM:
        _print(console, title)
        for name, *values in rows:
            print_pairs(f"{names[0]} {name}", zip(names[1:], values, strict=True))
        return
    table = Table(box=box.SIMPLE_HEAD)
    table.padding, table.pad_edge = (0, 1, 0, 0), False  # beside the box's own
    for name in names:
        most = console.width // 5 if name == "task" else None
        if name in folded:
            table.add_column(name, overflow="fold")
        else:
            table.add_column(name, overflow="ellipsis", no_wrap=True, max_width=most)
    for row in rows:
        table.add_row(*map(_text, row))
    _print(console, title, *([table] if rows else []))


def print_block(title: str, text: str) -> None:
    """Lines of text below a title, as long as they are."""
    lines = [title, *(f"  {line}" for line in text.splitlines())]
    sys.stdout.write("".join(f"{printable(line)}\n" for line in lines))


def print_points(title: str, points: Iterable[tuple[str, str, str]]) -> None:
    """Lines that each begin with a sign, given with its style; what is long goes on below its
    own beginning."""
    table = Table.grid(padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for sign, style, line in points:
        table.add_row(Text.assemble("  ", (sign, style)), _text(line))
    _print(_console(), title, table)


def _text(value: object) -> Text:
    return Text(printable(str(value)))
