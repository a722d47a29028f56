"""What a call that succeeds pays for its right to a retry."""

from __future__ import annotations

from typing import Final

from deadq import FleetBudget
from deadq.resilience import Budget, retry

from ..harness.rounds import each, paired
from . import ROUNDS, Bench

_TURNS: Final = 5


def measure(bench: Bench) -> None:
    """All figures of this kind."""
    beside_tenacity(bench)
    commands(bench)


def beside_tenacity(bench: Bench) -> None:
    """``retry`` with a local budget around nothing, against tenacity around the same."""
    import tenacity

    @retry(tries=3, budget=Budget())
    def ours() -> None: ...

    @tenacity.retry(
        stop=tenacity.stop_after_attempt(3),
        wait=tenacity.wait_random_exponential(multiplier=0.1, max=5),
        retry=tenacity.retry_if_exception_type((ConnectionError, TimeoutError)),
    )
    def theirs() -> None: ...

    times = bench.times(20_000)
    pair = paired(
        lambda: each(ours, times), lambda: each(theirs, times), ROUNDS, lambda: None, _TURNS
    )
    bench.figures["retry_vs_tenacity"] = pair.duration
    bench.series["retry"] = pair.microseconds()


def commands(bench: Bench) -> None:
    """Calls of the server that a fleet's budget makes for a hundred calls under it."""
    calls = bench.times(40_000)
    budget = FleetBudget("costs", url=bench.server.url)

    @retry(budget=budget)
    def call() -> None: ...

    call()
    budget.close()  # its connection is made, and its first question answered
    before = _scripts(bench)
    for _ in range(calls):
        call()
    budget.close()
    bench.figures["commands_per_100_calls"] = 100 * (_scripts(bench) - before) / calls


def _scripts(bench: Bench) -> int:
    stats = bench.server.info("commandstats")
    return sum(
        int(stats[name]["calls"]) for name in ("cmdstat_evalsha", "cmdstat_eval") if name in stats
    )
