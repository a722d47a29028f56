"""Web apps under uvicorn, in processes of their own, for tests."""

import os
import socket
import subprocess
from pathlib import Path
from typing import Self

from tests.commands import ROOT, environment
from tests.forked import Program, passable


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
