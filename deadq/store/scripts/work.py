"""What a child says of itself and its jobs: coming, claiming, settling, going."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from ...config import SRE_BUDGET
from ...job import RECORD_VERSION, Claim, Departure, Settlement
from ...twins import Twin
from .. import keys
from ..loader import load
from .call import Arg, Call, read_words, whole_number

CLAIM: Final = load("claim")
FINISH: Final = load("finish")
EXCHANGE: Final = load("exchange")
UNTIE: Final = load("untie")


class Claimed(NamedTuple):
    """The answer to a claim."""

    known: bool
    """False: this child is not registered (any more)."""
    park_until_ms: int
    more: bool
    """Whether there was more to sweep than one call does."""
    claims: list[Claim]


def register(
    child: str,
    *,
    lease_ms: int,
    slots: int,
    who: str,
    retention_ms: int,
    tasks: Iterable[str],
    rule: str = SRE_BUDGET,
) -> Call[str]:
    """Make ``child`` known. It must be new: an id that has been let go never comes back.

    ``rule``: of the queue's retry budget, as :attr:`BudgetRule.words`.
    """
    args: list[Arg] = [child, lease_ms, slots, RECORD_VERSION, who, retention_ms, rule, *tasks]
    return Call(load("register"), args, lambda reply: str(reply[1], "utf-8"))


def claim(
    child: str,
    number: int,
    want: int,
    *,
    retention_ms: int,
    park: bool,
    tasks: Iterable[str],
    deaf: bool = False,
) -> Call[Claimed]:
    """Take up to ``want`` jobs; the same ``number`` again gets the same jobs.

    ``park``: when slots are left, the child is parked, and gets tokens. ``deaf``: it waits for
    messages alone at present, so it is sent one when it gets parked.
    """
    parking = ("2" if deaf else "1") if park else ""
    args: list[Arg] = [child, retention_ms, number, want, RECORD_VERSION, parking, *tasks]
    return Call(CLAIM, args, _read_claim)


def _read_claim(reply: list[Any]) -> Claimed:
    if reply[1] == b"unknown":
        return Claimed(known=False, park_until_ms=0, more=False, claims=[])
    claims = [
        Claim(
            id=job[0].decode("utf-8", "replace"),
            key=job[1].decode("utf-8", "replace"),
            task=job[2].decode("utf-8", "replace"),
            deadline_ms=int(job[3]),
            attempt=int(job[4]),
            fence=int(job[5]),
            fails=whole_number(job[6]),
            payload=job[7],
            retries=whole_number(job[8]),
            marks=job[9].decode("utf-8", "replace"),
            twin=_twin(job[10].decode("utf-8", "replace")),
        )
        for job in reply[3:]
    ]
    return Claimed(known=True, park_until_ms=reply[1], more=reply[2] == b"1", claims=claims)


def _twin(text: str) -> str:
    """As a record holds it; what no producer wrote names none."""
    return text if Twin.read(text) else ""


def exchange(
    settlements: Sequence[Settlement], claiming: Call[Claimed]
) -> Call[tuple[list[str], Claimed]]:
    """Finish, and then carry out a :func:`claim` of the same child, in one call."""
    child, retention_ms, *rest = claiming.args
    args: list[Arg] = [child, retention_ms, len(settlements), *_told(settlements), *rest]
    return Call(EXCHANGE, args, _read_exchange)


def _read_exchange(reply: list[Any]) -> tuple[list[str], Claimed]:
    return [word.decode() for word in reply[1]], _read_claim(reply[2])


def finish(child: str, settlements: Iterable[Settlement], *, retention_ms: int) -> Call[list[str]]:
    """Settle claims; the answer is each job's new state, ``stale`` or ``gone``."""
    return Call(FINISH, [child, retention_ms, *_told(settlements)], read_words)


def _told(settlements: Iterable[Settlement]) -> list[Arg]:
    args: list[Arg] = []
    for job, fence, outcome, held_us, cut, delay_ms, blob in settlements:
        args += (job, fence, outcome, held_us, "1" if cut else "", delay_ms, blob)
    return args


def untie(claim: Claim, queue: str, *, retention_ms: int) -> Call[bool]:
    """Ask whether a tied job of ``queue`` may start; then its twin, if it waits, is cancelled."""
    twin = Twin.read(claim.twin)
    assert twin is not None  # noqa: S101  for the type checker: the claim is of a tied job
    mine = Twin("second" if twin.role == "first" else "first", claim.id, queue)
    args: list[Arg] = [twin.id, mine.text, twin.role, retention_ms]
    return Call(UNTIE, args, lambda reply: bool(reply[1] == b"start"), keys.prefix(twin.queue))


def release(child: str, *, retention_ms: int, how: Departure = Departure.LEAVES) -> Call[int]:
    """Retire a child's id; what it still holds goes back. The answer: how many suspects wait."""
    return Call(load("release"), [child, retention_ms, how], lambda reply: int(reply[1]))
