"""Web apps under uvicorn, in processes of their own, for tests."""

import socket
import subprocess
from pathlib import Path
from typing import Self

from tests.commands import ROOT, environment
from tests.forked import Program


class Served:
    """``uvicorn target`` on a free port; gone at the end of the with block."""

    def __init__(self, target: str, log: Path, **settings: str) -> None:
        self.log = log
        with socket.create_server(("127.0.0.1", 0)) as listener, log.open("wb") as out:
            self.port: int = listener.getsockname()[1]
            self.process = Program(
                *("uvicorn", target, f"--fd={listener.fileno()}", "--no-access-log"),
                cwd=ROOT,
                env=environment(**settings),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                pass_fds=(listener.fileno(),),
            )
        self.address = f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(20)
