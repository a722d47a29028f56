"""Web apps under uvicorn, and workers, in processes of their own, for tests."""

import contextlib
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from deadq import Queue
from tests.commands import COMMAND, ROOT, environment
from tests.forked import Program, passable
from tests.servers import wait_until


class Served:
    """``uvicorn target`` on a free port; gone at the end of the with block."""

    def __init__(self, target: str, log: Path, **settings: str) -> None:
        self.log = log
        with socket.create_server(("127.0.0.1", 0)) as listener, log.open("wb") as out:
            self.port: int = listener.getsockname()[1]
            door = passable(listener.fileno())
            self.process = Program(
                *("uvicorn", target, f"--fd={door}", "--no-access-log"),
                cwd=ROOT,
                env=environment(**settings),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                pass_fds=(door,),
            )
            os.close(door)
        self.address = f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(20)


@contextlib.contextmanager
def worked(target: str, queue: Queue, log: Path, **settings: str) -> Iterator[None]:
    """``deadq work target`` with four slots, ready for jobs of the queue; stopped at the end."""
    with log.open("wb") as out:
        process = Program(
            *(COMMAND[-1], "work", target, f"--concurrency={SLOTS}"),
            cwd=ROOT,
            env=environment(**settings),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
        )
        try:
            wait_until(lambda: queue.stats().slots == SLOTS, "the worker", 30.0)
            yield
        finally:
            process.terminate()
            process.wait(30)


SLOTS = 4
