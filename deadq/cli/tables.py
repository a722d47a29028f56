"""What commands print for people, where it is more than a line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .printing import printable


def print_pairs(title: str, pairs: Iterable[tuple[str, object]]) -> None:
    """A table of names and values."""
    table = Table(title=_text(title), title_justify="left", box=box.SIMPLE, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(justify="right", overflow="fold")
    for name, value in pairs:
        table.add_row(name, _text(value))
    Console().print(table)


def print_rows(title: str, names: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table of things, each a row; long keys and errors are folded, never cut."""
    table = Table(title=_text(title), title_justify="left", box=box.SIMPLE_HEAD)
    for name in names:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*(_text(value) for value in row))
    Console().print(table)


def _text(value: object) -> Text:
    return Text(printable(str(value)))
