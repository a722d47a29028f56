"""A project with its embedded server, and other processes of it, for tests."""

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import redis

import deadq
from deadq.store import embedded
from tests.servers import wait_until

ROOT = Path(deadq.__path__[0]).parent


class Project:
    """A project folder and the data folder of its server, cleaned up at the end."""

    def __init__(self, base: Path) -> None:
        self.folder = base / "shop"
        self.folder.mkdir()
        self.data = base / "data"
        self.said: list[str] = []
        self._children: list[subprocess.Popen[str]] = []

    def ensure(self) -> str:
        return embedded.ensure(self.folder, data_dir=self.data, announce=self.said.append)

    def status(self) -> embedded.ServerStatus:
        return embedded.status(self.folder, data_dir=self.data)

    def stop(self) -> bool:
        return embedded.stop(self.folder, data_dir=self.data)

    def pid(self) -> int:
        pid = self.status().pid
        assert pid is not None
        return pid

    def client(self) -> redis.Redis:
        return redis.Redis.from_url(self.ensure(), decode_responses=True)

    def killed(self) -> None:
        """SIGKILL to the server, and wait until the kernel has freed its lock."""
        os.kill(self.pid(), signal.SIGKILL)
        wait_until(lambda: not self.status().running, "the killed server to be gone")

    def process(self, code: str, **env: str) -> subprocess.Popen[str]:
        """Another process of the project, in a session of its own; it says "ready" and waits."""
        prelude = f"""\
            import os, signal, sys, time
            from pathlib import Path
            from deadq.store import embedded
            data = Path({str(self.data)!r})
            print("ready", flush=True)
            sys.stdin.readline()
        """
        child = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(prelude) + textwrap.dedent(code)],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(ROOT), **env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._children.append(child)
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        return child

    def clean_up(self) -> None:
        for child in self._children:
            child.kill()
            child.communicate()
        pid = self.status().pid
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        self.stop()
        assert not self.status().running


def go(child: subprocess.Popen[str]) -> None:
    """Let a process past its "ready"."""
    assert child.stdin is not None
    child.stdin.write("go\n")
    child.stdin.flush()


def said_by(child: subprocess.Popen[str]) -> tuple[str, str]:
    """Wait for its end; what it wrote to stdout and stderr."""
    return child.communicate(timeout=20)
