"""``deadq check --chain``: what a chain of calls can come to, and what is wrong with it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from ..checks import Finding, Level
from ..resilience.chain import ChainFaultKind, ChainVerdict, counted, judge
from ..resilience.chain_file import read_chain
from .check import print_findings
from .faults import Fault, asked
from .printing import print_json
from .tables import print_rows

_NAMES: Final = ("tier", "receives", "promises", "tries", "calls", "at worst")


_FINE: Final = {
    ChainFaultKind.BUDGET: "the sum is within the edge's budget",
    ChainFaultKind.PROMISE: "no layer promises more than it receives",
    ChainFaultKind.RETRIES: "no two layers retry",
}


def check_chain(path: Path, *, as_json: bool) -> int:
    """Print the figures of each tier, and the faults; the exit code is 1 with a fault.

    Raises:
        Fault: the file cannot be read, or describes no chain.
    """
    try:
        with asked():
            verdict = judge(read_chain(path))
    except OSError as error:
        raise Fault(f"--chain: cannot read {path}: {error.strerror or error}") from error
    if as_json:
        print_json(_as_json(verdict))
    else:
        _show(path, verdict)
    return 1 if verdict.faults else 0


def _as_json(verdict: ChainVerdict) -> dict[str, object]:
    most = verdict.most_amplified
    return {
        "budget_s": verdict.budget_s,
        "worst_s": verdict.worst_s,
        "amplification": most.amplification,
        "most_amplified": most.tier,
        "tiers": [tier._asdict() for tier in verdict.tiers],
        "faults": [fault._asdict() for fault in verdict.faults],
    }


def _show(path: Path, verdict: ChainVerdict) -> None:
    rows = [
        (
            tier.tier,
            f"{tier.receives_s:g} s",
            f"{tier.promises_s:g} s",
            tier.tries,
            counted(tier.calls),
            counted(tier.calls_at_worst),
        )
        for tier in verdict.tiers
    ]
    print_rows(f"chain {path}", _NAMES, rows, folded=("tier",))
    most = verdict.most_amplified
    whose = f" (calls of {most.tier})" if most.amplification > 1 else ""
    print_findings(
        f"worst case end to end: {verdict.worst_s:g} s of {verdict.budget_s:g} s; "
        f"amplification: {most.amplification:.4g}{whose}",
        _findings(verdict),
    )


def _findings(verdict: ChainVerdict) -> list[Finding]:
    found = [Finding(Level.FAULT, str(kind), *told) for kind, _, *told in verdict.faults]
    faulty = {fault.kind for fault in verdict.faults}
    return found + [Finding(Level.OK, *fine) for fine in _FINE.items() if fine[0] not in faulty]
