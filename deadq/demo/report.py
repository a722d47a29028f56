"""What it all shows: figures for each phase, and the promises that they must bear out."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from .books import Books
from .load import Answer, quantile
from .scenes import Cause, Span, Timed

ON_TIME_SHARE: Final = 0.95
REFUSED_WITHIN_MS: Final = 500.0
"""Generous: a refusal is one round trip, but the machine may be busy with other things."""
RECOVERED_WITHIN_S: Final = 4.0
"""The longest deadline: who waits longer than that waits for nothing of the past."""
QUIET_S: Final = 1.0
"""All is well again when it is so for so long (s)."""
STEP_S: Final = 0.1
USUAL: Final = 0.95
"""Usual is the time that this share of the orders take in the first phase."""

IN_TIME: Final = "calm and overloaded, 95 % of the accepted were booked on time"
AT_ONCE: Final = f"refusals took less than {REFUSED_WITHIN_MS:.0f} ms (p99)"
WELL_AGAIN: Final = f"after each trouble all was well again within {RECOVERED_WITHIN_S:.0f} s"
TIMED: Final = frozenset({IN_TIME, AT_ONCE, WELL_AGAIN})
"""The promises about time."""
UNDISTURBED: Final = frozenset({Cause.NOTHING, Cause.SURGE})
"""What is no fault of the workers'; otherwise some of what they held cannot be on time."""
CROWDED: Final = 2.0
"""A load average over so much for each processor comes from other programs: the demo's own load
is about one for each of two."""
LAGGED_MS: Final = 50.0
"""Nor can anything be said of times if the orders themselves were sent so late (p99)."""


@dataclass(frozen=True)
class Phase:
    """The figures of one phase: of the orders that were sent in it, whenever they were answered.
    Times in ms from the sending; NaN where nothing was measured."""

    name: str
    cause: Cause
    load: float
    seconds: float
    offered: int
    accepted: int
    refused: dict[str, int]
    unanswered: dict[str, int]
    """By what the sender saw instead of an answer."""
    on_time: int
    late: int
    heard_late: int
    runs: int
    orphans: int
    """Runs in vain: no customer was told on time what came of them."""
    duplicate_effects: int
    repeats: int
    repeats_same: int
    goodput: float
    """Orders booked on time, a second, within the phase."""
    success_p50_ms: float
    success_p99_ms: float
    refusal_p99_ms: float
    recovered_s: float | None
    """From the end of the trouble until all was as usual (:func:`recovery`); NaN if it was not
    as long as that could be seen. None: nothing was wrong."""
    seen_s: float
    """For how long it could be seen: until the next trouble began, or the last order was sent."""

    @property
    def well_again(self) -> bool:
        """Whether all was well again in good time, as far as that could be seen."""
        if self.recovered_s is None or self.recovered_s <= RECOVERED_WITHIN_S:
            return True
        return math.isnan(self.recovered_s) and self.seen_s < RECOVERED_WITHIN_S + QUIET_S


def summarize(
    plan: Sequence[Timed],
    answers: Sequence[Answer],
    books: Books,
    troubles: Mapping[str, Span],
) -> list[Phase]:
    """The figures of each phase. ``troubles`` tells from when to when each was disturbed."""
    first = [a for a in answers if a.order.phase == plan[0].scene.name and a.on_time]
    usual_s = quantile([a.took for a in first], USUAL)
    last_in = {a.job: a.order.phase for a in answers if a.accepted and not a.duplicate}
    runs = Counter[str]()
    for job, count in books.runs.items():
        runs[last_in.get(job, "")] += count
    last = max((a.order.at for a in answers), default=0.0)
    phases = []
    for timed in plan:
        name = timed.scene.name
        recovered, seen = None, 0.0
        if name in troubles:
            over = troubles[name].ended
            until = min([span.began for span in troubles.values() if span.began >= over] + [last])
            recovered, seen = recovery(answers, over, until, usual_s), max(0.0, until - over)
        phases.append(_summarize(timed, answers, books, runs[name], recovered, seen))
    return phases


def _summarize(
    timed: Timed,
    answers: Sequence[Answer],
    books: Books,
    runs: int,
    recovered: float | None,
    seen: float,
) -> Phase:
    mine = [a for a in answers if a.order.phase == timed.scene.name]
    firsts = [a for a in mine if a.accepted and not a.duplicate]
    repeats = [a for a in mine if a.duplicate and a.status == 200]
    refused = [a for a in mine if a.status and not a.accepted]
    took_ms = [a.took * 1_000 for a in firsts if a.status == 200]
    on_time = sum(a.on_time for a in firsts)
    receipts = receipts_of(answers)
    in_time = [a for a in answers if a.on_time and not a.duplicate]
    return Phase(
        name=timed.scene.name,
        cause=timed.scene.cause,
        load=timed.scene.load,
        seconds=timed.seconds,
        offered=len(mine),
        accepted=len(firsts),
        refused=_by_reason(refused),
        unanswered=_by_reason([a for a in mine if not a.status]),
        on_time=on_time,
        late=len(firsts) - on_time,
        heard_late=sum(a.heard_late for a in firsts),
        runs=runs,
        orphans=runs - on_time,
        duplicate_effects=sum(
            len(books.paid.get(key, ())) - 1
            for key in {a.order.key for a in firsts}
            if key in books.paid
        ),
        repeats=len(repeats),
        repeats_same=sum(len(receipts[a.order.key]) == 1 for a in repeats),
        goodput=sum(timed.begins < a.came <= timed.ends for a in in_time) / timed.seconds,
        success_p50_ms=quantile(took_ms, 0.50),
        success_p99_ms=quantile(took_ms, 0.99),
        refusal_p99_ms=quantile([a.took * 1_000 for a in refused], 0.99),
        recovered_s=recovered,
        seen_s=seen,
    )


def recovery(answers: Iterable[Answer], since: float, until: float, usual_s: float) -> float:
    """Seconds from ``since`` to the first second in which all is as it was before any trouble.

    That is one of whose orders each was booked on time, and half of them within ``usual_s``. It
    counts by when they were sent, and is looked for in steps of :data:`STEP_S`; NaN if there is
    none that is over at ``until``.
    """
    sent = [a for a in answers if since <= a.order.at < until]
    for step in range(int((until - since - QUIET_S) / STEP_S) + 1):
        begins = since + step * STEP_S
        window = [a for a in sent if begins <= a.order.at < begins + QUIET_S]
        usual = quantile([a.took for a in window], 0.5) <= usual_s
        if begins + QUIET_S <= until and usual and all(a.on_time for a in window):
            return round(begins - since, 3)
    return math.nan


def _by_reason(answers: Iterable[Answer]) -> dict[str, int]:
    return dict(sorted(Counter(a.reason for a in answers).items()))


def judge(phases: Sequence[Phase], answers: Sequence[Answer], books: Books) -> dict[str, bool]:
    """Each promise, and whether it held."""
    accepted = sum(p.accepted for p in phases)
    on_time = sum(p.on_time for p in phases)
    admitted = books.counters.get("admitted", 0)
    ends = ("finished:", "expired:")
    ended = sum(n for name, n in books.counters.items() if name.startswith(ends))
    paid = {key: set(numbers) for key, numbers in books.paid.items()}
    told = receipts_of(answers)
    return {
        "every order was answered": not any(p.unanswered for p in phases),
        IN_TIME: all(
            0 < p.accepted <= p.on_time / ON_TIME_SHARE for p in phases if p.cause in UNDISTURBED
        ),
        AT_ONCE: not any(p.refusal_p99_ms > REFUSED_WITHIN_MS for p in phases),
        WELL_AGAIN: all(p.well_again for p in phases),
        "every refusal said why, and when to come back": all(
            a.reason and (a.status != 503 or a.retry_after.isdigit())
            for a in answers
            if a.status and not a.accepted
        ),
        "every accepted order had exactly one outcome": books.unfinished == 0
        and accepted == admitted == ended
        and all(times == 1 for times in books.taken.values())
        # or the logs tell nothing, neither of that nor of orphans
        and all(a.job in books.runs for a in answers if a.on_time),
        "every order was paid once at most": all(len(n) == 1 for n in books.paid.values()),
        "every customer and every repeat got that payment's receipt": all(
            paid.get(key) == numbers for key, numbers in told.items()
        )
        # who was not told on time may have been booked a moment before, or be in doubt
        and on_time <= len(paid) <= accepted,
    }


def receipts_of(answers: Iterable[Answer]) -> dict[str, set[str]]:
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


def crowded(about: Mapping[str, Any]) -> bool:
    """Whether the machine was too busy with other things for times to say anything."""
    busy = about["load_average"] > CROWDED * about["processors"]
    return bool(busy or about["lag_p99_ms"] > LAGGED_MS)


def kept(checks: Mapping[str, bool], about: Mapping[str, Any]) -> bool:
    """Whether the demo kept its promises. Those about time count on a machine with room only."""
    return all(held for promise, held in checks.items() if promise not in TIMED) and (
        crowded(about) or all(checks.values())
    )
