"""The page of a child, as its supervisor reads it."""

import os
import random
import signal
import time

from deadq.runtime.ties.board import Holding, Page, Sheet
from tests.servers import wait_until
from tests.shifts import state_of

SLOTS = 64


def sheet(number):
    """One that changes in every byte that may change."""
    holding = Holding(number, number + 0.5, "cut", number + 0.25)
    return Sheet(
        "post.child", number, {f"{number:032x}"[:-2] + f"{n:02x}": holding for n in range(SLOTS)}
    )


def write_for_ever(page):
    number = 2
    while True:
        page.publish(sheet(number))
        number += 1


def test_a_child_that_is_stopped_while_it_writes_is_still_read():
    """The supervisor may never have looked before: what stood there must still be whole."""
    chance = random.Random(7)
    for _ in range(100):
        page = Page(SLOTS)
        page.publish(sheet(1))
        child = os.fork()
        if child == 0:
            write_for_ever(page)
        try:
            time.sleep(chance.uniform(0.001, 0.003))
            os.kill(child, signal.SIGSTOP)
            wait_until(lambda pid=child: state_of(pid) == "T", "the writer to stop")
            found = page.read()
            assert found == sheet(found.number)
            assert found.number >= 1
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            page.close()


def test_a_child_that_goes_on_writing_is_still_read():
    page = Page(SLOTS)
    page.publish(sheet(1))
    child = os.fork()
    if child == 0:
        write_for_ever(page)
    try:
        seen = []
        for _ in range(2_000):
            found = page.read()
            assert found == sheet(found.number)
            seen.append(found.number)
        assert seen == sorted(seen)
        assert len(set(seen)) > 10
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        page.close()
