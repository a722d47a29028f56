"""What a supervisor says to a child on an event loop."""

from __future__ import annotations

import asyncio
from typing import Protocol

from ..ties.channel import Channel


class Obeying(Protocol):
    """Who does what the words say."""

    def told(self, job: str, word: str, fence: int) -> None:
        """A job is ``lost``, or to ``cancel``."""

    def lapsed(self, child: str) -> None: ...
    def deaf(self) -> None: ...
    def stop(self) -> None: ...
    def hasten(self) -> None: ...
    def leave(self) -> None:
        """Claim nothing more; what runs may run on."""

    def orphaned(self) -> None:
        """There is no supervisor any more."""


class Orders:
    """Hears the words; the callbacks come on the loop."""

    def __init__(self, channel: Channel, child: Obeying) -> None:
        self._channel = channel
        self._child = child
        self._loop = asyncio.get_running_loop()

    def start(self) -> None:
        """Begin to listen, with what was said before."""
        self._loop.add_reader(self._channel.fileno(), self._hear)
        self._hear()

    def stop(self) -> None:
        """Listen no more."""
        self._loop.remove_reader(self._channel.fileno())

    def _hear(self) -> None:
        for line in self._channel.receive():
            self._obey(line.split(" "))
        if self._channel.closed:
            self.stop()
            self._child.orphaned()

    def _obey(self, words: list[str]) -> None:
        child = self._child
        match words:
            case ["cancel" | "lost" as word, job, fence]:
                child.told(job, word, int(fence))
            case ["lapsed", name]:
                child.lapsed(name)
            case ["deaf"]:
                child.deaf()
            case ["stop"]:
                child.stop()
            case ["hasten"]:
                child.hasten()
            case ["leave"]:
                child.leave()
