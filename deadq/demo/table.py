"""What it all shows, said to people: a table, a sentence for each trouble, and the promises."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from .books import Books
from .report import Phase, crowded
from .scenes import Cause


def show(
    phases: Sequence[Phase], checks: Mapping[str, bool], about: Mapping[str, Any], books: Books
) -> None:
    """Print everything."""
    console = Console(highlight=False)
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("")
    for phase in phases:
        table.add_column(f"{phase.name}\n{phase.load:g}x", justify="right", overflow="fold")
    for name, cells in rows(phases):
        table.add_row(name, *cells)
    console.print(table)
    for moral in morals(phases, books, about["capacity_per_s"]):
        console.print(moral)
    console.print()
    for promise, held in checks.items():
        console.print(f"  {'yes' if held else 'NO '}  {promise}")
    if not all(checks.values()) and crowded(about):
        console.print(
            f"The load average is {about['load_average']:.1f} on {about['processors']} processors, "
            f"and orders were sent up to {about['lag_p99_ms']:.0f} ms too late (p99): other "
            "programs want the machine too, so the times above are not held against anybody."
        )


def rows(phases: Sequence[Phase]) -> Iterator[tuple[str, list[str]]]:
    """What is measured, and its value in each phase."""

    def each(value: Callable[[Phase], str]) -> list[str]:
        return [value(phase) for phase in phases]

    yield "offered", each(lambda p: f"{p.offered:,}")
    yield "accepted", each(lambda p: f"{p.accepted:,}")
    yield from _counts("refused", [p.refused for p in phases])
    yield from _counts("not answered", [p.unanswered for p in phases])
    yield "booked on time", each(lambda p: f"{p.on_time:,}")
    yield "  of the accepted", each(lambda p: _percent(p.on_time, p.accepted))
    yield "  a second", each(lambda p: f"{p.goodput:.0f}")
    if any(p.heard_late for p in phases):
        yield "  but answered late", each(lambda p: f"{p.heard_late:,}")
    yield "orphans (runs in vain)", each(lambda p: f"{p.orphans:,}")
    yield "duplicate effects", each(lambda p: f"{p.duplicate_effects:,}")
    yield "success, p50", each(lambda p: _seconds(p.success_p50_ms))
    yield "success, p99", each(lambda p: _seconds(p.success_p99_ms))
    yield "refusal, p99", each(lambda p: _seconds(p.refusal_p99_ms))
    yield "recovered within", each(_recovered)


def morals(phases: Sequence[Phase], books: Books, capacity: float) -> Iterator[str]:
    """What each trouble has shown."""
    for phase in phases:
        if phase.cause is Cause.SURGE:
            refused = sum(phase.refused.values())
            within = f"{phase.refusal_p99_ms:.0f} ms (p99)"
            told = f" The other {refused:,} were told so within {within}." if refused else ""
            yield (
                f"At {phase.load:g} times what the workers can do, they booked "
                f"{phase.goodput:.0f} orders a second of the {capacity:.0f} that they can, "
                f"{_percent(phase.on_time, phase.accepted)} of the accepted on time."
                f"{told}"
            )
        if phase.cause is Cause.DEATH:
            yield (
                "One worker was killed with -9; another one stood still until its jobs had been "
                "given away, and came back. The queue refused "
                f"{_count(books.reported_late, 'report')} that came too late, the bank "
                f"{_count(books.refused_late, 'payment')}."
            )


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _counts(what: str, by_phase: Sequence[Mapping[str, int]]) -> Iterator[tuple[str, list[str]]]:
    for reason in sorted({reason for counts in by_phase for reason in counts}):
        yield f"{what}: {reason}", [f"{counts.get(reason, 0):,}" for counts in by_phase]


def _percent(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "-"


def _seconds(ms: float) -> str:
    if math.isnan(ms):
        return "-"
    return f"{ms:.0f} ms" if ms < 1_000 else f"{ms / 1_000:.2f} s"


def _recovered(phase: Phase) -> str:
    if phase.recovered_s is None:
        return ""
    if math.isnan(phase.recovered_s):
        return f"> {phase.seen_s:.1f} s"
    return f"{phase.recovered_s:.1f} s"
