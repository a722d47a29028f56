"""The embedded server: a private Valkey for everybody who works in one project folder.

Its data folder holds the append-only file and these, of which only the data matters when no
server runs::

    server.lock     locked (flock) for as long as the server lives
    server.socket   where the server listens: a path, written before it starts
    server.pid      its process id, written and removed by the server
    server.log      what it says, and its previous volume server.log.1

The lock is the truth about life and death. Whoever gets it starts a server, which inherits the
locked descriptor; so the kernel frees it when the server is gone, however it went, and no stale
socket, recycled pid or slow answer can lead to a second server on the same data. The folder must
be on a local disk: over a network file system the lock does not reach the server.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ...errors import StoreUnavailable
from .home import Home
from .place import data_folder, make_private, server_binary, socket_path

_ANSWER_WITHIN_S = 15.0
_LOAD_WITHIN_S = 60.0
"""A server that answers "loading" is well, and gets longer."""
_STOP_WITHIN_S = 30.0
_LOOK_EVERY_S = 0.01
_LOG_VOLUME_BYTES = 1 << 20

_OPTIONS = (
    *("--port", "0", "--unixsocketperm", "700"),
    # it leaves its starter at once: no zombie, no child that a host program would have to know
    *("--daemonize", "yes", "--pidfile", "server.pid", "--logfile", "server.log"),
    *("--appendonly", "yes", "--appendfsync", "everysec", "--aof-load-truncated", "yes"),
    *("--save", "", "--maxmemory-policy", "noeviction"),
)


def to_stderr(line: str) -> None:
    """Announce on stderr; a program without one stays silent."""
    with contextlib.suppress(AttributeError, ValueError, OSError):
        sys.stderr.write(f"{line}\n")


@dataclass(frozen=True)
class ServerStatus:
    """What is known of a project's server. ``running`` without ``url``: alive, but silent."""

    running: bool
    pid: int | None
    url: str | None
    folder: Path
    version: str | None


def ensure(
    project: Path | None = None,
    *,
    data_dir: Path | None = None,
    announce: Callable[[str], None] | None = to_stderr,
) -> str:
    """Join the project's server, or start it, and return its ``unix://`` URL.

    Without ``project`` the folder of the project around the current one counts. The data folder
    is ``data_dir``, else ``$DEADQ_DATA_DIR``, else one of the user's, named after the project.
    Only the process that starts the server announces it. Blocks until the server answers, for
    15 s at most, or 60 s while it loads its data; then, or when it cannot be started, raises
    :class:`StoreUnavailable`.
    """
    with _told_plainly("start or join"):
        home = Home(data_folder(project, data_dir))
        make_private(home.folder)
        return _join_or_start(home, announce)


def status(project: Path | None = None, *, data_dir: Path | None = None) -> ServerStatus:
    """Say how the project's server is, without starting or creating anything."""
    with _told_plainly("look for"):
        home = Home(data_folder(project, data_dir))
        answer = home.ask()
        if answer is None:
            held = home.held()
            pid = home.pid() if held else None
            return ServerStatus(held, pid, url=None, folder=home.folder, version=None)
        return ServerStatus(True, answer.pid, home.url(), home.folder, answer.version)


def stop(project: Path | None = None, *, data_dir: Path | None = None) -> bool:
    """Stop the project's server, its data flushed to disk, and wait until it is gone.

    False when none was running. Raises :class:`StoreUnavailable` when it is still there after
    30 s.
    """
    with _told_plainly("stop"):
        home = Home(data_folder(project, data_dir))
        if not home.held():
            return False
        until = time.monotonic() + _STOP_WITHIN_S
        first = home.pid()
        while home.held():
            pid = home.pid()
            first = first or pid
            if pid not in {None, first}:
                break  # ours is gone, and somebody has already started the next one
            if time.monotonic() > until:
                raise StoreUnavailable(
                    f"the private server (pid {pid}) in {home.folder} does not stop:"
                    f" see {home.log}, or kill it by its pid"
                )
            home.ask_to_leave(pid)
            time.sleep(_LOOK_EVERY_S)
        return True


@contextlib.contextmanager
def _told_plainly(verb: str) -> Iterator[None]:
    try:
        yield
    except (OSError, RuntimeError) as fault:  # the latter: a user without a home
        raise StoreUnavailable(
            f"cannot {verb} the private server: {fault};"
            " set DEADQ_DATA_DIR to a local folder of yours, or DEADQ_URL to a server"
        ) from fault


def _join_or_start(home: Home, announce: Callable[[str], None] | None) -> str:
    since = time.monotonic()
    loading = False
    start: _Start | None = None
    while True:
        answer = home.ask()
        if answer is not None and not answer.loading:
            if start is not None and announce is not None:
                announce(
                    f"deadq: started a private {answer.version} in {home.folder}"
                    f" (socket {home.socket()}); stop it with 'deadq server stop'"
                )
            return home.url()
        loading = loading or answer is not None
        with home.lock_if_free() as lock:
            if lock is not None:
                if start is not None:
                    raise StoreUnavailable(f"the private server ended at once: {start.why(home)}")
                start = _start(home, lock)
                since = time.monotonic()
        if time.monotonic() - since > (_LOAD_WITHIN_S if loading else _ANSWER_WITHIN_S):
            raise StoreUnavailable(home.silence(loading=loading))
        time.sleep(_LOOK_EVERY_S)


@dataclass(frozen=True)
class _Start:
    log_offset: int

    def why(self, home: Home) -> str:
        """The last thing that the server said since this start, and where to read the rest."""
        with contextlib.suppress(OSError), home.log.open("rb") as log:
            log.seek(self.log_offset)
            lines = log.read()[-4096:].decode(errors="replace").split("\n")
            # servers mark with # what went wrong; the last line may be a mere good-bye
            said = [line.strip() for line in lines if line.strip()]
            said = [line for line in said if " # " in line] or said
            if said:
                return f"{said[-1][:300]} (all of it: {home.log})"
        return f"it left no word in {home.log}"


def _start(home: Home, lock: int) -> _Start:
    """Start the server, which takes the lock over; the caller only closes its own descriptor."""
    binary = server_binary(home.folder)
    home.publish(socket_path(home.folder))
    home.forget_pid()
    with contextlib.suppress(FileNotFoundError):
        if home.log.stat().st_size > _LOG_VOLUME_BYTES:
            home.log.replace(home.log.with_suffix(".log.1"))
    with home.log.open("ab") as log:
        start = _Start(log.tell())
        # the folder is the working directory, so that no path in it can be misread as options
        child = subprocess.Popen(
            [binary, *_OPTIONS, "--unixsocket", str(home.socket())],
            cwd=home.folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            pass_fds=[lock],
        )
        try:
            code = child.wait(_ANSWER_WITHIN_S)
        except subprocess.TimeoutExpired:
            child.kill()
            code = child.wait()
    if code:
        raise StoreUnavailable(
            f"the private server could not start ({binary}, exit {code}): {start.why(home)}"
        )
    return start
