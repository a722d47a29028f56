"""What the answers show: figures for each phase, and the promises that they must bear out."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from rich import box
from rich.console import Console
from rich.table import Table

from .load import Answer, quantile

ON_TIME_SHARE: Final = 0.95
REFUSED_WITHIN_MS: Final = 500.0
"""Generous: a refusal is one round trip, but the machine may be busy with other things."""

IN_TIME: Final = "of the accepted at least 95 % were booked on time"
AT_ONCE: Final = f"refusals took less than {REFUSED_WITHIN_MS:.0f} ms (p99)"
TIMED: Final = frozenset({IN_TIME, AT_ONCE})
"""The promises about time."""
CROWDED: Final = 2.0
"""A load average over so much for each processor comes from other programs: the demo's own load
is about one for each of two."""


@dataclass(frozen=True)
class Phase:
    """The figures of one phase. Times in ms from the sending; NaN where nothing was measured."""

    name: str
    load: float
    seconds: float
    offered: int
    accepted: int
    refused: dict[str, int]
    on_time: int
    late: int
    heard_late: int
    unanswered: dict[str, int]
    """By what the sender saw instead of an answer."""
    duplicates: int
    duplicates_same: int
    goodput: float
    """Orders booked on time, a second, while orders were coming."""
    success_p50_ms: float
    success_p99_ms: float
    refusal_p99_ms: float


@dataclass(frozen=True)
class Books:
    """What the server and the ledger hold at the end: counters, and the receipts of each key."""

    unfinished: int
    counters: Mapping[str, int]
    booked: Mapping[str, Sequence[str]]


def summarize(name: str, load: float, seconds: float, answers: Sequence[Answer]) -> Phase:
    """The figures of one phase, ``load`` being its share of the workers' capacity."""
    firsts = [a for a in answers if a.accepted and not a.duplicate]
    repeats = [a for a in answers if a.duplicate and a.status == 200]
    refused = [a for a in answers if a.status and not a.accepted]
    took_ms = [a.took * 1_000 for a in firsts if a.status == 200]
    on_time = sum(a.on_time for a in firsts)
    receipts = _receipts(answers)
    return Phase(
        name=name,
        load=load,
        seconds=seconds,
        offered=len(answers),
        accepted=len(firsts),
        refused=_by_reason(refused),
        on_time=on_time,
        late=len(firsts) - on_time,
        heard_late=sum(a.heard_late for a in firsts),
        unanswered=_by_reason([a for a in answers if not a.status]),
        duplicates=len(repeats),
        duplicates_same=sum(len(receipts[a.order.key]) == 1 for a in repeats),
        goodput=sum(a.on_time and a.came <= seconds for a in firsts) / seconds,
        success_p50_ms=quantile(took_ms, 0.50),
        success_p99_ms=quantile(took_ms, 0.99),
        refusal_p99_ms=quantile([a.took * 1_000 for a in refused], 0.99),
    )


def _by_reason(answers: Sequence[Answer]) -> dict[str, int]:
    return dict(sorted(Counter(a.reason for a in answers).items()))


def judge(phases: Sequence[Phase], answers: Sequence[Answer], books: Books) -> dict[str, bool]:
    """Each promise, and whether it held."""
    accepted = sum(p.accepted for p in phases)
    on_time = sum(p.on_time for p in phases)
    counters = books.counters
    ended = sum(n for name, n in counters.items() if name.startswith(("finished:", "expired:")))
    booked = {key: set(numbers) for key, numbers in books.booked.items()}
    done = counters.get("finished:done", 0)
    # an order may have been booked a moment before its time was over
    cut = counters.get("finished:exceeded", 0)
    return {
        "every order was answered": not any(p.unanswered for p in phases),
        IN_TIME: 0 < accepted <= on_time / ON_TIME_SHARE,
        AT_ONCE: not any(p.refusal_p99_ms > REFUSED_WITHIN_MS for p in phases),
        "every refusal said why, and when to come back": all(
            a.reason and (a.status != 503 or a.retry_after.isdigit())
            for a in answers
            if a.status and not a.accepted
        ),
        "every repeat got the first receipt": all(
            p.duplicates == p.duplicates_same for p in phases
        ),
        "every accepted order had exactly one outcome": books.unfinished == 0
        and accepted == counters.get("admitted", 0) == ended,
        "every order was booked once at most, and its customer got that receipt": all(
            len(numbers) == 1 for numbers in books.booked.values()
        )
        and all(booked.get(key) == told for key, told in _receipts(answers).items())
        and done <= len(booked) <= done + cut,
    }


def _receipts(answers: Sequence[Answer]) -> dict[str, set[str]]:
    """The receipts that customers got, by key: one each, if all is well."""
    receipts: dict[str, set[str]] = {}
    for answer in answers:
        if answer.status == 200:
            receipts.setdefault(answer.order.key, set()).add(answer.receipt)
    return receipts


def as_json(phases: Sequence[Phase], checks: Mapping[str, bool], about: Mapping[str, Any]) -> Any:
    """Everything, for programs; what was not measured is null."""
    return {
        "about": dict(about),
        "phases": {
            p.name: {
                name: None if isinstance(value, float) and math.isnan(value) else value
                for name, value in asdict(p).items()
            }
            for p in phases
        },
        "checks": dict(checks),
        "good": kept(checks, about),
    }


def show(phases: Sequence[Phase], checks: Mapping[str, bool], about: Mapping[str, Any]) -> None:
    """A table, what it shows, and how each promise fared."""
    console = Console(highlight=False)
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("")
    for phase in phases:
        table.add_column(f"{phase.name}, {phase.load:g}x capacity", justify="right")
    capacity = about["capacity_per_s"]
    for name, cells in _rows(phases, capacity):
        table.add_row(name, *cells)
    console.print(table)
    console.print(_moral(phases[-1], capacity))
    for promise, held in checks.items():
        console.print(f"  {'yes' if held else 'NO '}  {promise}")
    if not all(checks.values()) and crowded(about):
        console.print(
            f"The load average is {about['load_average']:.1f} on {about['processors']} processors:"
            " other programs want them too, so the times above are not held against anybody."
        )


def crowded(about: Mapping[str, Any]) -> bool:
    """Whether the machine was too busy with other things for times to say anything."""
    return bool(about["load_average"] > CROWDED * about["processors"])


def kept(checks: Mapping[str, bool], about: Mapping[str, Any]) -> bool:
    """Whether the demo kept its promises. Those about time count on a machine with room only."""
    return all(held for promise, held in checks.items() if promise not in TIMED) and (
        crowded(about) or all(checks.values())
    )


def _rows(phases: Sequence[Phase], capacity: float) -> Iterator[tuple[str, list[str]]]:
    yield "offered", [f"{p.offered:,}" for p in phases]
    yield "accepted", [f"{p.accepted:,}" for p in phases]
    yield from _counts("refused", [p.refused for p in phases])
    yield from _counts("not answered", [p.unanswered for p in phases])
    yield "booked on time", [f"{p.on_time:,}" for p in phases]
    yield "late", [f"{p.late:,}" for p in phases]
    if any(p.heard_late for p in phases):
        yield "on time, answered late", [f"{p.heard_late:,}" for p in phases]
    yield "on time, of the accepted", [_percent(p.on_time, p.accepted) for p in phases]
    yield "on time, a second", [f"{p.goodput:.0f} of {capacity:.0f}" for p in phases]
    yield "repeats with the same receipt", [_of(p.duplicates_same, p.duplicates) for p in phases]
    yield "success, p50", [_ms(p.success_p50_ms) for p in phases]
    yield "success, p99", [_ms(p.success_p99_ms) for p in phases]
    yield "refusal, p99", [_ms(p.refusal_p99_ms) for p in phases]


def _counts(what: str, by_phase: Sequence[Mapping[str, int]]) -> Iterator[tuple[str, list[str]]]:
    for reason in sorted({reason for counts in by_phase for reason in counts}):
        yield f"{what}: {reason}", [f"{counts.get(reason, 0):,}" for counts in by_phase]


def _moral(worst: Phase, capacity: float) -> str:
    refused = sum(worst.refused.values())
    return (
        f"At {worst.load:g} times what the workers can do, they went on booking "
        f"{worst.goodput / capacity:.0%} of what they can, "
        f"{_percent(worst.on_time, worst.accepted)} of the accepted orders on time; "
        f"the other {refused:,} were refused within {_ms(worst.refusal_p99_ms)} (p99), "
        "with a reason and a time to come back."
    )


def _of(part: int, whole: int) -> str:
    return f"{part} of {whole}"


def _percent(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "-"


def _ms(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.0f} ms"
