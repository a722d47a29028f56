"""Where the demo shows what goes on: as lines, or not at all. A terminal gets the ``view``."""

from __future__ import annotations

from typing import Protocol, Self

from ..store.scripts import Stats
from .scenes import Timed


class Screen(Protocol):
    """Shows what goes on, from entering it to leaving it."""

    def begin(self, scene: Timed) -> None:
        """A scene begins."""

    def tell(self, what: str) -> None:
        """Something was done to the workers, or to the bank."""

    def update(self, now: float, stats: Stats | None) -> None:
        """So it stands ``now``, in seconds from the first order; None: the server is away."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...


class Silence:
    """With ``--json`` nothing but JSON is printed."""

    def begin(self, scene: Timed) -> None: ...
    def tell(self, what: str) -> None: ...
    def update(self, now: float, stats: Stats | None) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...


class Lines(Silence):
    """For a pipe or a log."""

    def begin(self, scene: Timed) -> None:
        load = f"{scene.scene.load:g}x capacity for {scene.seconds:g} s"
        print(f"{scene.scene.name}: {load} ...", flush=True)

    def tell(self, what: str) -> None:
        print(f"  {what}", flush=True)
