"""Asks how a worker is: by the file that it writes, or by its endpoint."""

from __future__ import annotations

import http.client
import json
import os
import time
from pathlib import Path
from typing import Final, NamedTuple

from ...errors import shown
from .health import document_in

_PATIENCE_S: Final = 2.0
_MOST_BYTES: Final = 1 << 20


class Answer(NamedTuple):
    """Whether a worker is well, which is to say ready, and what it says of itself."""

    well: bool
    line: str
    """For people: that it is well, or why it is not."""
    status: dict[str, object] | None = None


def ask_file(path: Path, max_age: float) -> Answer:
    """Ask the file that a worker writes: it says that the worker is ready, has said so within
    ``max_age`` seconds, and the worker still runs."""
    found = document_in(path)
    if not isinstance(found, dict):
        return Answer(False, found)
    pid = found.get("pid")
    if not isinstance(pid, int) or not 0 < pid < 2**31 or isinstance(pid, bool):
        return Answer(False, f"{path} names no process: it is no health file")
    if not _lives(pid):
        return Answer(False, f"the worker (pid {pid}) is gone without having removed {path}", found)
    if found.get("ready") is not True:
        return Answer(False, _not_ready(found), found)
    try:
        age_s = time.time() - path.stat().st_mtime
    except OSError as error:
        return Answer(False, f"{path} cannot be read: {error.strerror}", found)
    if abs(age_s) > max_age:  # one that lies ahead was written under another clock
        line = f"the last beat of pid {pid} is {age_s:.1f} s old; {max_age:g} s are allowed"
        return Answer(False, line, found)
    return Answer(True, _ready(found, age_s), found)


def ask_endpoint(host: str, port: int) -> Answer:
    """Ask the endpoint at which a worker answers."""
    connection = http.client.HTTPConnection(host, port, timeout=_PATIENCE_S)
    try:
        connection.request("GET", "/health")
        response = connection.getresponse()
        found = json.loads(response.read(_MOST_BYTES))
    except OSError as error:
        why = error.strerror or type(error).__name__
        return Answer(False, f"nobody answers at {shown(host)}, port {port}: {why}")
    except (http.client.HTTPException, ValueError, RecursionError):
        found = None
    finally:
        connection.close()
    age_s = found.get("age_s") if isinstance(found, dict) else None
    if not isinstance(age_s, float | int) or "pid" not in found:
        return Answer(False, f"what answers at {shown(host)}, port {port} is no worker of deadq")
    if found.get("live") is not True:
        return Answer(False, f"the last beat of pid {found['pid']} is {age_s:.1f} s old", found)
    if response.status != 200:
        return Answer(False, _not_ready(found), found)
    return Answer(True, _ready(found, age_s), found)


def _ready(found: dict[str, object], age_s: float) -> str:
    return f"the worker (pid {found['pid']}) is ready; its last beat is {age_s:.1f} s old"


def _not_ready(found: dict[str, object]) -> str:
    return f"the worker (pid {found['pid']}) is not ready: {found.get('detail') or 'no detail'}"


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True  # somebody else's, but there
    except ProcessLookupError:
        return False
    return True
