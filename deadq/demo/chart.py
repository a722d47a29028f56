"""A chart in cells: what was done in each second, against what can be done."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from rich.text import Text

_GUTTER: Final = 12
_EIGHTHS: Final = " ▁▂▃▄▅▆▇█"
_BEYOND: Final = 1.2
"""It reaches so far beyond the capacity."""


class Chart:
    """As wide as the terminal, for a plan of so many seconds: one bar for each, or for several
    where there is little room."""

    def __init__(self, seconds: float, width: int) -> None:
        room = max(1, width - _GUTTER)
        self._per_cell = max(1, math.ceil(seconds / room))
        self._cells = math.ceil(seconds / self._per_cell)
        self._broad = max(1, room // self._cells)

    def bars(
        self, what: str, values: Sequence[int], capacity: float, rows: int, style: str
    ) -> Iterator[Text]:
        """Of one value for each second, with a line at the capacity."""
        top = capacity * _BEYOND
        at_capacity = int(capacity / top * rows)
        shares = [value / top * rows for value in self._gathered(values)]
        for beneath in reversed(range(rows)):
            cells = "".join(_block(share - beneath) * self._broad for share in shares)
            label = what if beneath == 0 else ""
            if beneath == at_capacity:
                label = f"can do {capacity:.0f}"
                cells = cells.ljust(self._cells * self._broad).replace(" ", "┄")
            yield _labelled(label).append(cells, style=style)

    def profile(self, what: str, values: Sequence[int], style: str) -> Text:
        """One line, as high as the highest value."""
        gathered = self._gathered(values)
        most = max([*gathered, 1])
        cells = "".join(_block(value / most) * self._broad for value in gathered)
        return _labelled(what).append(cells, style=style)

    def axis(self, names: Mapping[str, float]) -> Text:
        """Names, each at its second."""
        axis = ""
        for name, at in names.items():
            column = _GUTTER + round(at / self._per_cell) * self._broad
            axis = axis[: column - 1].ljust(column) + name
        return Text(axis)

    def _gathered(self, values: Sequence[int]) -> list[float]:
        per = self._per_cell
        return [sum(values[i : i + per]) / per for i in range(0, len(values), per)]


def _labelled(label: str) -> Text:
    return Text(f"{label:>{_GUTTER - 2}} {'┤' if label else '│'}")


def _block(share: float) -> str:
    """A cell filled from beneath by that share of it."""
    return _EIGHTHS[round(min(1.0, max(0.0, share)) * 8)]
