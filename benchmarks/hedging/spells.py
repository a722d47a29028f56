"""How many second calls are made while all servers are slow."""

from __future__ import annotations

from typing import Final

from deadq.testing import run_in_virtual_time

from .fleet import Fleet

BEFORE_S, SPELL_S = 5.0, 20.0
FACTOR: Final = 5.0
"""How many times as slow as usual all replies are."""
MORE_FACTORS: Final = (1.5, 2.0, 3.0, 20.0)
"""For the series: a fleet that is hardly slower than usual looks usual."""


def hedges_when_slow(way: str, factor: float, seed: int, seconds: float) -> float:
    """Second calls for each first one in a spell that lasts for ``seconds``."""

    async def main() -> float:
        fleet = Fleet(way, f"{seed} {factor}")
        await fleet.work(BEFORE_S, f"{seed} before")
        fleet.firsts = fleet.seconds = 0
        fleet.factor = factor
        await fleet.work(seconds, f"{seed} spell")
        return fleet.seconds / fleet.firsts

    return run_in_virtual_time(main())
