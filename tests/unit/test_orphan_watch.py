"""A child without a supervisor whose loop gets no turn any more ends; one that is well does not."""

import asyncio
import contextlib
import os
import threading
import time

import pytest

from deadq.runtime.loop import orphan_watch
from deadq.runtime.loop.orphan_watch import OrphanWatch
from deadq.runtime.ties.board import Page
from deadq.runtime.ties.channel import Channel

ALONE_S = 0.3


class Orphan:
    """Watched from within this process, which is only noted to have ended."""

    def __init__(self) -> None:
        self.ended = threading.Event()
        self.page = Page(1)
        self._supervisors, self._channel = Channel.pair()

    def watched(self) -> None:
        """On a loop: from now on, and alone."""
        OrphanWatch(self._channel, self.page).start()
        self._supervisors.close()

    def close(self) -> None:
        self.ended.wait(10.0)  # not later, when the process would really end
        self._channel.close()
        self.page.close()


@pytest.fixture
def orphan(monkeypatch):
    monkeypatch.setattr(orphan_watch, "ALONE_S", ALONE_S)
    monkeypatch.setattr(orphan_watch, "_LOOK_S", 0.02)
    made = Orphan()
    monkeypatch.setattr(os, "_exit", lambda _: made.ended.set())
    with contextlib.closing(made):
        yield made


def test_it_ends_when_its_loop_gets_no_turn_and_not_while_it_only_takes_its_time(orphan, caplog):
    async def main():
        orphan.watched()
        await asyncio.sleep(3 * ALONE_S)  # as lifespans may
        assert not orphan.ended.is_set()
        held_up = time.monotonic()
        assert orphan.ended.wait(10.0)
        assert time.monotonic() - held_up > 0.8 * ALONE_S

    asyncio.run(main())
    assert "stubborn: this child ends: the supervisor is gone" in caplog.text


def test_a_unit_that_holds_up_the_loop_ends_first(orphan):
    async def main():
        over = orphan.page.unit_until = time.monotonic() + 2 * ALONE_S
        orphan.watched()
        assert orphan.ended.wait(10.0)
        assert time.monotonic() > over + 0.9 * ALONE_S

    asyncio.run(main())


def test_a_log_that_is_held_up_too_does_not_keep_it(orphan, monkeypatch):
    monkeypatch.setattr(orphan_watch, "_SAY_S", 0.1)
    released = threading.Event()
    monkeypatch.setattr(OrphanWatch, "_say", lambda _: released.wait(10.0))

    async def main():
        orphan.watched()
        assert orphan.ended.wait(5.0)

    asyncio.run(main())
    released.set()
