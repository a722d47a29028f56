"""The command line that all benchmarks share, and what they print."""

from __future__ import annotations

import argparse
import json
import math
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .environment import Environment
from .picture import obstacle, save
from .server import find_server


@dataclass(frozen=True, slots=True)
class Options:
    """How a benchmark was called."""

    json: bool
    quick: bool
    check: bool
    free: bool
    seed: int
    binary: Path | None = None
    picture: Path | None = None

    @property
    def server(self) -> Path:
        """The server to measure on: the one named, else the one found.

        Raises:
            FileNotFoundError: there is none.
        """
        return self.binary or find_server()


def options(text: str | None, argv: Sequence[str] | None = None, *, server: bool = True) -> Options:
    """Read the command line; ``text`` is the benchmark's docstring.

    A benchmark that needs no ``server`` has no options for one.
    """
    parser = argparse.ArgumentParser(
        description=text, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--quick", action="store_true", help="less precise, within a minute")
    parser.add_argument(
        "--check", action="store_true", help="exit with 1 when a figure misses its bar"
    )
    parser.add_argument("--seed", type=int, default=1, help="of all that is drawn by chance")
    parser.add_argument(
        "--picture", type=Path, metavar="FILE", help="draw the figures as a web page (.html)"
    )
    if server:
        parser.add_argument("--server", type=Path, help="the valkey-server or redis-server to use")
        parser.add_argument(
            "--free", action="store_true", help="let the kernel place processes on processors"
        )
    else:
        parser.set_defaults(server=None, free=False)
    given = parser.parse_args(argv)
    if given.picture and (fault := obstacle(given.picture)):
        # before the minutes that measuring takes
        parser.error(f"argument --picture: {fault}")
    # a terminated benchmark must still end its children and its servers
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    return Options(
        given.json,
        given.quick,
        given.check,
        given.free,
        given.seed,
        given.server,
        given.picture,
    )


@dataclass(frozen=True, slots=True)
class Bar:
    """What a figure has to reach: at least, or at most, so much."""

    least: float = -math.inf
    most: float = math.inf

    def met(self, figure: float) -> bool:
        """Whether the figure does. NaN never does."""
        return self.least <= figure <= self.most

    def __str__(self) -> str:
        low = f">= {self.least:g}" if self.least > -math.inf else ""
        high = f"<= {self.most:g}" if self.most < math.inf else ""
        return f"{low} {high}".strip()


@dataclass(slots=True)
class Report:
    """One object for ``--json``; a table otherwise.

    ``picture`` makes the plotly figure that ``--picture`` saves; it is called only then.
    """

    environment: Environment
    figures: dict[str, float]
    series: dict[str, Any] = field(default_factory=dict)
    picture: Callable[[], Any] | None = None

    def emit(self, options: Options, bars: Mapping[str, Bar]) -> int:
        """Print, draw, and return the exit code."""
        environment = self.environment.block()
        self.figures = {name: rounded(name, figure) for name, figure in self.figures.items()}
        if options.json:
            shown = {"environment": environment, "figures": self.figures, "series": self.series}
            print(json.dumps(shown))
        else:
            rows = [("environment", str(k), str(v), "") for k, v in environment.items()]
            for name, figure in self.figures.items():
                rows.append(("figure", name, f"{figure:.4g}", _verdict(bars.get(name), figure)))
            _print_table(rows)
        if options.picture:
            if self.picture is None:
                say("this benchmark draws no picture: run it without --picture")
                return 2
            save(self.picture(), options.picture, environment)
            say(f"drawn: {options.picture}")
        missed = [n for n, bar in bars.items() if not bar.met(self.figures.get(n, math.nan))]
        if missed and options.check:
            say(f"missed: {', '.join(missed)}")
            return 1
        return 0


def rounded(name: str, figure: float) -> float:
    """The figure to four significant digits.

    Raises:
        ValueError: it is no number: there was nothing to measure it by.
    """
    if not math.isfinite(figure):
        msg = f"{name} could not be measured"
        raise ValueError(msg)
    return float(f"{figure:.4g}")


def say(line: str) -> None:
    """Progress, on stderr."""
    print(line, file=sys.stderr, flush=True)


def _verdict(bar: Bar | None, figure: float) -> str:
    if bar is None:
        return ""
    return f"{bar}  {'ok' if bar.met(figure) else 'MISSED'}"


def _print_table(rows: list[tuple[str, str, str, str]]) -> None:
    try:
        from rich.console import Console
        from rich.table import Table
    except ImportError:
        _print_plain(rows)
        return
    for kind in ("environment", "figure"):
        table = Table("name", kind if kind == "figure" else "value", "bar", box=None)
        table.columns[1].justify = "right"
        for row in rows:
            if row[0] == kind:
                table.add_row(*row[1:])
        Console().print(table)


def _print_plain(rows: list[tuple[str, str, str, str]]) -> None:
    width = max(len(row[1]) for row in rows)
    for _, name, value, bar in rows:
        print(f"{name:<{width}}  {value:>12}  {bar}".rstrip())
