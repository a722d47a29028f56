"""What commands print for people, where it is more than a line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from .printing import printable

_TABLE_FROM: Final = 80
"""Columns of a terminal below which each row of a table is shown by itself."""


def print_pairs(title: str, pairs: Iterable[tuple[str, object]]) -> None:
    """A table of names and values; numbers stand below each other."""
    console = Console()
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    rows = list(pairs)
    numbers = all(isinstance(value, int) for _, value in rows)
    table.add_column(overflow="fold", max_width=max(24, console.width // 3))
    table.add_column(justify="right" if numbers else "left", overflow="fold")
    for name, value in rows:
        table.add_row(_text(name), _text(value))
    console.print(_text(title))
    console.print(Padding(table, (0, 0, 0, 2), expand=False))


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
    console = Console()
    rows = list(rows)
    if console.width < _TABLE_FROM:
        console.print(_text(title))
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
    console.print(_text(title))
    if rows:
        console.print(table)


def print_block(title: str, text: str) -> None:
    """Lines of text below a title, as long as they are."""
    console = Console()
    console.print(_text(title))
    for line in text.splitlines():
        console.print(Text("  ").append(_text(line)), soft_wrap=True)


def print_points(title: str, points: Iterable[tuple[str, str, str]]) -> None:
    """Lines that each begin with a sign, given with its style; what is long goes on below its
    own beginning."""
    table = Table.grid(padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for sign, style, line in points:
        table.add_row(Text.assemble("  ", (sign, style)), _text(line))
    console = Console()
    console.print(_text(title))
    console.print(table)


def _text(value: object) -> Text:
    return Text(printable(str(value)))
