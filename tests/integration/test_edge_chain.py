"""One deadline for a chain of real services, on hosts whose clocks are wrong.

Google, "Site Reliability Engineering", chapter 22: of 30 s the first spends 7, which leaves 23 to
the second; that spends 4, which leaves 19 to the third.
"""

import asyncio
import itertools
from contextlib import ExitStack

import httpx
import pytest

from tests.patience import slack_s
from tests.served import Served

WRONG_S = (0.3, 5.0, 50.0, 600.0)
CLOCKS = (0.0, *WRONG_S, *(-wrong for wrong in WRONG_S))
HOP_S = 0.005


def chained(folder, clocks, spent, within):
    """By how much the middle one's clock is wrong, and what each of the three was given."""
    with ExitStack() as opened:

        def served(name, wrong=0.0):
            log = folder / f"{name}.log"
            return opened.enter_context(
                Served("tests.edge_tiers:app", log, WALL_OFFSET_S=str(wrong))
            )

        first, last = served("first"), served("last")
        middle = [served(f"middle{wrong}", wrong) for wrong in clocks]

        async def main():
            async with httpx.AsyncClient(timeout=60.0) as client:
                # the first call of a process imports and connects: not what is measured
                await asyncio.gather(*(ask(client, one, "0,0,0", 20.0) for one in middle))
                return await asyncio.gather(*(ask(client, one, spent, within) for one in middle))

        async def ask(client, one, seconds, within):
            answer = await client.get(
                f"{first.address}/spend",
                params={"s": seconds, "then": f"{one.address},{last.address}"},
                headers={"x-timeout-ms": str(int(within * 1000))},
            )
            assert answer.status_code == 200, (answer.text, one.log.read_text()[-2000:])
            return answer.json()

        return list(zip(clocks, asyncio.run(main()), strict=True))


def check(found, within, spent):
    for wrong, tiers in found:
        given = [tier["left"] for tier in tiers]
        instants = [tier["deadline"] for tier in tiers]
        # with right clocks it is one instant; a wrong one costs no more than it may be wrong by
        near = HOP_S if wrong == 0.0 else 1.0
        for above, below in itertools.pairwise(instants):
            assert abs(below - above) <= near, (wrong, given)
        for left, gone in zip(given, (0.0, spent[0], sum(spent)), strict=True):
            assert abs(left - (within - gone)) <= near + slack_s(), (wrong, given)
    assert len(found) > 1


def test_a_chain_keeps_to_one_instant_whatever_the_clocks_say(tmp_path):
    check(chained(tmp_path, (0.0, 0.3, 50.0, -50.0), "0.7,0.4,0", 3.0), 3.0, (0.7, 0.4))


@pytest.mark.slow
def test_thirty_seconds_leave_twenty_three_and_nineteen(tmp_path):
    check(chained(tmp_path, CLOCKS, "7,4,0", 30.0), 30.0, (7.0, 4.0))
