"""The live view, in a terminal: what is offered, what becomes of it, and what is wrong just now.

Everything that is drawn fits into the terminal as it is at that moment, in its own colours: those
that can be read on dark and on light.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Self

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from ..store.scripts import Stats
from .scenes import Timed
from .tally import ACCEPTED, LATE, OFFERED, ON_TIME, REFUSED, Tally

_GUTTER: Final = 9
_LEAST_CHART: Final = 3
_MOST_CHART: Final = 16
_EIGHTHS: Final = " ▁▂▃▄▅▆▇█"
_CHART_TOP: Final = 1.2
"""The chart reaches so far beyond the capacity."""
_KEPT: Final = 20
_COLUMNS: Final = (OFFERED, ACCEPTED, "refused", ON_TIME, LATE)
_GOOD, _BAD, _REFUSED, _LOAD = "green", "bold red", "magenta", "cyan"


class View:
    """Draws the tally, again and again, while it is entered."""

    def __init__(self, plan: Sequence[Timed], capacity: float, tally: Tally, title: str) -> None:
        self._plan = plan
        self._capacity = capacity
        self._tally = tally
        self._title = title
        self._told: deque[tuple[float, str]] = deque(maxlen=_KEPT)
        self._now = 0.0
        self._stats: Stats | None = None
        self._live = Live(auto_refresh=False, screen=True, vertical_overflow="crop")

    def begin(self, scene: Timed) -> None:
        """A scene begins: that shows by itself."""

    def tell(self, what: str) -> None:
        """Something was done to the workers, or to the bank."""
        self._told.append((self._now, what))

    def update(self, now: float, stats: Stats | None) -> None:
        """Draw how it stands ``now``, in seconds from the first order."""
        self._now, self._stats = now, stats
        width, height = self._live.console.size
        self._live.update(self.drawn(width, height), refresh=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def drawn(self, width: int, height: int) -> Group:
        """All lines, for a terminal of that size."""
        above = [self._head(width), self._bar(width), Text(), *self._phases(), Text()]
        above += [*self._rates(), self._queue(), Text()]
        free = height - len(above) - 3
        rows = max(_LEAST_CHART, min(_MOST_CHART, free * 2 // 3))
        lines = [*above, *self._chart(width, rows), Text(), *self._last(max(1, free - rows))]
        for line in lines:
            line.no_wrap = True
            line.truncate(width, overflow="ellipsis")
        return Group(*lines[:height])

    def _head(self, width: int) -> Text:
        clock = f"{_clock(self._now)} of {_clock(self._plan[-1].ends)}"
        title = Text("deadq demo", style="bold")
        title.append(f"  {self._title}", style="not bold")
        title.truncate(width - len(clock) - 1, overflow="ellipsis", pad=True)
        return title.append(f" {clock}")

    def _bar(self, width: int) -> Text:
        share = min(1.0, max(0.0, self._now) / self._plan[-1].ends)
        done = round(share * width)
        return Text("━" * done, style=_LOAD).append("─" * (width - done), style="default")

    def _phases(self) -> Iterator[Text]:
        heads = "".join(f"{name:>10}" for name in _COLUMNS)
        yield Text(f"  {'phase':<18}{heads}")
        for timed in self._plan:
            counts = self._tally.of(timed.scene.name)
            refused = sum(n for name, n in counts.items() if name.startswith(REFUSED))
            values = {**counts, "refused": refused}
            current = timed.begins <= self._now < timed.ends
            mark = "▶" if current else "✓" if timed.ends <= self._now else " "
            name = f"{timed.scene.name} {timed.scene.load:g}x"
            line = Text(f"{mark} {name:<18}", style="bold" if current else "")
            for column in _COLUMNS:
                style = _BAD if column == LATE and values.get(column) else ""
                line.append(f"{values.get(column, 0):>10,}", style=style)
            yield line

    def _rates(self) -> Iterator[Text]:
        tally, now = self._tally, self._now
        line = Text("a second   ")
        for what, style in ((OFFERED, _LOAD), (ACCEPTED, ""), (ON_TIME, _GOOD)):
            line.append(f"{what} ").append(f"{tally.rate(what, now):.0f}  ", style=f"bold {style}")
        yield line
        line = Text("refused    ")
        for what in sorted(name for name in tally.total if name.startswith(REFUSED)):
            reason, rate = what.removeprefix(REFUSED), tally.rate(what, now)
            line.append(f"{reason} ").append(f"{rate:.0f}  ", style=f"bold {_REFUSED}")
        yield line

    def _queue(self) -> Text:
        stats = self._stats
        if stats is None:
            return Text("queue      the server does not answer", style=_BAD)
        waiting = stats.ready + stats.later + stats.suspects + stats.strange
        running = max(0, stats.unfinished - waiting)
        line = Text("queue      ").append(f"{waiting}", style="bold").append(" waiting  ")
        line.append(f"{running}", style="bold").append(" running  ")
        return line.append(f"{stats.slots}", style="bold").append(" slots alive")

    def _chart(self, width: int, rows: int) -> Iterator[Text]:
        """Bars of what was booked on time in each second, and what was offered beneath."""
        seconds = max(1, round(self._plan[-1].ends))
        broad = max(1, (width - _GUTTER) // seconds)
        booked = self._tally.each_second(ON_TIME, self._now)
        top = self._capacity * _CHART_TOP
        capacity_row = rows - 1 - int(self._capacity / top * rows)
        for row in range(rows):
            beneath = rows - 1 - row
            bars = "".join(_block(n / top * rows - beneath) * broad for n in booked)
            label = f"{self._capacity:.0f}" if row == capacity_row else ""
            label = "on time" if row == rows - 1 else label
            line = Text(f"{label:>{_GUTTER - 2}} {'┤' if label else '│'}")
            yield line.append(bars, style=_GOOD)
        offered = self._tally.each_second(OFFERED, self._now)
        most = max([*offered, 1])
        line = Text(f"{OFFERED:>{_GUTTER - 2}} ┤")
        yield line.append("".join(_block(n / most) * broad for n in offered), style=_LOAD)
        yield self._names(broad)

    def _names(self, broad: int) -> Text:
        axis = " " * _GUTTER
        for timed in self._plan:
            axis = axis[: _GUTTER + round(timed.begins) * broad]
            axis += timed.scene.name + " " * 200
        return Text(axis.rstrip())

    def _last(self, count: int) -> Iterable[Text]:
        """What was done last."""
        for at, what in list(self._told)[-count:]:
            yield Text(f"{_clock(at)}  ", style="bold").append(what, style="not bold")


def _block(share: float) -> str:
    """A cell filled from beneath by that share of it."""
    return _EIGHTHS[round(min(1.0, max(0.0, share)) * 8)]


def _clock(seconds: float) -> str:
    whole = max(0, int(seconds))
    return f"{whole // 60}:{whole % 60:02}"


def can_draw(console: Console) -> bool:
    """Whether the view can be drawn there."""
    return console.is_terminal and not console.is_dumb_terminal
