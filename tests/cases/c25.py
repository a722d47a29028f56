"""The blocking caller of C25, in a process of its own."""

import os
import random
import signal
import threading
from pathlib import Path

from tests.shop import Shop
from tests.workers import tell


def interrupted(url: str, book: str, rounds: int, within: float) -> None:
    """Each round: wait for job A until SIGINT comes, then for job B, and look around."""
    shop = Shop(url, Path(book))
    chance = random.Random(25)
    wrong, hit = [], 0
    for n in range(rounds):
        calls = [
            shop.nap.options(key=f"{job}-{n}").bind(seconds, f"{job}{n}")
            for job, seconds in (("A", 0.03), ("B", 0.005))
        ]
        a, b = shop.queue.enqueue_many(calls)
        try:
            with _CtrlC(chance.uniform(0, within)):
                if (value := a.result()) != f"A{n}":
                    wrong.append((n, "A", value))
        except KeyboardInterrupt:
            hit += 1
        if (value := b.result()) != f"B{n}":
            wrong.append((n, "B", value))
        client = shop.queue.backend.sync().client
        if n % 2:
            if (echoed := client.echo(f"ping-{n}")) != b"ping-%d" % n:
                wrong.append((n, "ping", repr(echoed)))
        elif (workers := shop.queue.stats().workers) != 1:
            wrong.append((n, "stats", workers))
    tell({"wrong": wrong, "interrupted": hit})


class _CtrlC:
    """SIGINT after a while, and none once the block has ended."""

    def __init__(self, after: float) -> None:
        self._timer = threading.Timer(after, os.kill, (os.getpid(), signal.SIGINT))
        self._armed = False

    def __enter__(self) -> None:
        signal.signal(signal.SIGINT, self._interrupt)
        self._timer.start()
        self._armed = True

    def __exit__(self, *_: object) -> None:
        self._armed = False
        self._timer.cancel()
        self._timer.join()

    def _interrupt(self, *_: object) -> None:
        if self._armed:
            raise KeyboardInterrupt
