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
from .chart import Chart
from .scenes import Timed
from .tally import ACCEPTED, LATE, OFFERED, ON_TIME, REFUSED, Tally

_NAME: Final = 16
_MOST_CELL: Final = 16
_LEAST_CHART: Final = 3
_MOST_CHART: Final = 16
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
        self.update(0.0, None)
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def drawn(self, width: int, height: int) -> Group:
        """All lines, for a terminal of that size."""
        above = [self._head(width), self._bar(width), Text(), *self._phases(width), Text()]
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
        title.truncate(max(0, width - len(clock) - 1), overflow="ellipsis", pad=True)
        return title.append(f" {clock}")

    def _bar(self, width: int) -> Text:
        share = min(1.0, max(0.0, self._now) / self._plan[-1].ends)
        done = round(share * width)
        return Text("━" * done, style=_LOAD).append("─" * (width - done), style="default")

    def _phases(self, width: int) -> Iterator[Text]:
        cell = max(1, min(_MOST_CELL, (width - _NAME - 2) // len(_COLUMNS)))
        yield Text(" " * (_NAME + 2) + "".join(f"{name[: cell - 1]:>{cell}}" for name in _COLUMNS))
        for timed in self._plan:
            counts = self._tally.of(timed.scene.name)
            refused = sum(n for name, n in counts.items() if name.startswith(REFUSED))
            values = {**counts, "refused": refused}
            current = timed.begins <= self._now < timed.ends
            mark = "▶" if current else "✓" if timed.ends <= self._now else " "
            name = f"{timed.scene.name} {timed.scene.load:g}x"
            line = Text(f"{mark} {name:<{_NAME}}", style="bold" if current else "")
            for column in _COLUMNS:
                style = _BAD if column == LATE and values.get(column) else ""
                line.append(f"{values.get(column, 0):>{cell},}", style=style)
            yield line

    def _rates(self) -> Iterator[Text]:
        tally, now = self._tally, self._now
        line = Text("a second   ")
        for what, style in ((OFFERED, _LOAD), (ACCEPTED, ""), (ON_TIME, _GOOD)):
            line.append(f"{what} ").append(f"{tally.rate(what, now):.0f}  ", style=f"bold {style}")
        yield line
        line = Text("refused    ")
        reasons = sorted(name for name in tally.total if name.startswith(REFUSED))
        for what in reasons:
            reason, rate = what.removeprefix(REFUSED), tally.rate(what, now)
            line.append(f"{reason} ").append(f"{rate:.0f}  ", style=f"bold {_REFUSED}")
        yield line if reasons else line.append("none")

    def _queue(self) -> Text:
        stats = self._stats
        if self._now <= 0:
            return Text("queue      starting")
        if stats is None:
            return Text("queue      the server does not answer", style=_BAD)
        waiting = stats.ready + stats.later + stats.suspects + stats.strange
        running = max(0, stats.unfinished - waiting)
        line = Text("queue      ").append(f"{waiting}", style="bold").append(" waiting  ")
        line.append(f"{running}", style="bold").append(" running  ")
        return line.append(f"{stats.slots}", style="bold").append(" slots alive")

    def _chart(self, width: int, rows: int) -> Iterator[Text]:
        """What was booked on time in each second, and what was offered beneath."""
        tally, now = self._tally, self._now
        chart = Chart(self._plan[-1].ends, width)
        booked, offered = tally.each_second(ON_TIME, now), tally.each_second(OFFERED, now)
        yield from chart.bars(ON_TIME, booked, self._capacity, rows, _GOOD)
        yield chart.profile(OFFERED, offered, _LOAD)
        yield chart.axis({timed.scene.name: timed.begins for timed in self._plan})

    def _last(self, count: int) -> Iterable[Text]:
        """What was done last."""
        for at, what in list(self._told)[-count:]:
            yield Text(f"{_clock(at)}  ", style="bold").append(what, style="not bold")


def _clock(seconds: float) -> str:
    whole = max(0, int(seconds))
    return f"{whole // 60}:{whole % 60:02}"


def can_draw(console: Console) -> bool:
    """Whether the view can be drawn there: it takes a terminal, and signs beyond ASCII."""
    drawable = console.is_terminal and not console.is_dumb_terminal
    return drawable and not console.options.ascii_only
