"""The plan of the demo: which scenes there are, and when each begins and ends."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Cause(StrEnum):
    """What goes wrong in a scene."""

    NOTHING = "nothing"
    SURGE = "surge"
    """More orders than the workers can do."""
    DEATH = "death"
    """One worker is killed, and another one's machine stands still for longer than its lease."""
    SLOW_BANK = "slow bank"
    """What the task depends on takes five times as long."""


@dataclass(frozen=True, slots=True)
class Scene:
    """A part of the demo, whose orders come at a rate of its own."""

    name: str
    load: float
    """What is ordered, as a multiple of what all workers can do."""
    share: float
    """Of the whole time."""
    cause: Cause = Cause.NOTHING
    least_s: float = 0.0
    """It takes so long at least, however short the whole is."""


SCENES: Final = (
    Scene("calm", 0.5, 0.14),
    Scene("overload", 3.0, 0.20, Cause.SURGE),
    Scene("killed", 0.5, 0.28, Cause.DEATH, 6.0),
    Scene("slow", 0.5, 0.18, Cause.SLOW_BANK),
    Scene("recovery", 0.5, 0.20),
)


@dataclass(frozen=True, slots=True)
class Timed:
    """A scene with its beginning and its end, in seconds from the first."""

    scene: Scene
    begins: float
    ends: float

    @property
    def seconds(self) -> float:
        return self.ends - self.begins


def timed(seconds: float) -> list[Timed]:
    """All scenes, one after the other, ``seconds`` long together or hardly more."""
    plan: list[Timed] = []
    begins = 0.0
    for scene in SCENES:
        ends = begins + max(scene.least_s, scene.share * seconds)
        plan.append(Timed(scene, begins, ends))
        begins = ends
    return plan


@dataclass(frozen=True, slots=True)
class Span:
    """From when to when something was wrong: seconds from the beginning."""

    began: float
    ended: float
