"""What systemd and Kubernetes ask of a worker: is it alive, is it ready.

The supervisor beats; each beat says how it is. The last beat is shown in a file, for probes that
run a command, and by HTTP (:mod:`.health_server`), for probes that call; :mod:`.probes` reads both.

A worker whose store is away is alive but not ready: starting it anew would not help.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final, Literal

from ... import clock
from ...deadline import seconds
from ...errors import DeadqError
from ...events import log


@dataclass(frozen=True, slots=True)
class Status:
    """How a worker is. It is ``ready`` while every child that it should have is at work, and the
    store answers. ``last_renewal_s`` is how old the last good renewal is, if there was one; of
    several queues' the oldest."""

    ready: bool
    children: int
    slots: int
    queues: tuple[str, ...]
    store: Literal["ok", "away"]
    last_renewal_s: float | None = field(default=None, compare=False)
    detail: str = ""


_STARTING: Final = Status(
    ready=False, children=0, slots=0, queues=(), store="away", detail="starting"
)


class Health:
    """The last beat. ``max_age`` is how many seconds after it the worker still counts as alive;
    the first is that of its making."""

    def __init__(self, *, max_age: float = 30.0, file: HealthFile | None = None) -> None:
        self._max_age = seconds(max_age, "max_age")
        self._file = file
        self._file_failing = False
        self._status = _STARTING
        self._at = clock.monotonic()

    def beat(self, status: Status) -> None:
        """The worker is alive, and so is its status. A file that cannot be written is a warning."""
        self._status, self._at = status, clock.monotonic()
        if self._file is None:
            return
        try:
            self._file.write(asdict(status))
        except OSError as error:
            if not self._file_failing:
                log.warning("the health file %s cannot be written: %s", self._file.path, error)
            self._file_failing = True
        else:
            self._file_failing = False

    def read(self) -> dict[str, object]:
        """What ``HealthServer`` shows: the last status, and whether its beat is fresh."""
        age_s = clock.monotonic() - self._at
        freshness = {"live": age_s <= self._max_age, "age_s": round(age_s, 3)}
        return {"pid": os.getpid(), **freshness, **asdict(self._status)}


class HealthFile:
    """The last beat as JSON. The file's time is that of the last beat at which the worker was
    ready: whoever looks at nothing else sees it grow old while it is not.

    Raises:
        DeadqError: the file cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self._next = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        self._ready_at = 0.0
        try:
            # at once, so that what a killed predecessor has left misleads nobody
            self.write(asdict(_STARTING))
        except OSError as error:
            msg = (
                f"the health file {self.path} cannot be written ({error.strerror}); name a file "
                "in a folder that exists and that this user may write to"
            )
            raise DeadqError(msg) from error

    def write(self, document: Mapping[str, object]) -> None:
        """Replace the file; who reads it sees the old one or the new one, never a part.

        Raises:
            OSError: it could not be written; the old one stays.
        """
        now = time.time()
        if document.get("ready") is True:
            self._ready_at = now
        content = json.dumps({"pid": os.getpid(), "time": now, **document})
        try:
            self._next.unlink(missing_ok=True)  # and then made anew: it may be a link of others
            with self._next.open("x", encoding="utf-8") as file:
                file.write(content)
            os.utime(self._next, (self._ready_at, self._ready_at))
            self._next.replace(self.path)
        except OSError:
            self._next.unlink(missing_ok=True)
            raise

    def remove(self) -> None:
        """At a clean stop: remove the file, unless a successor or another process wrote it."""
        found = document_in(self.path)
        if isinstance(found, dict) and found.get("pid") == os.getpid():
            with contextlib.suppress(OSError):  # gone, or not to be removed: a stop goes on
                self.path.unlink()


def document_in(path: Path) -> dict[str, object] | str:
    """The content of a health file, or what is wrong with it."""
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        return f"there is no {path}: no worker runs that writes it"
    except OSError as error:
        return f"{path} cannot be read: {error.strerror}"
    except (ValueError, RecursionError):
        return f"{path} holds no JSON: it is no health file"
    return found if isinstance(found, dict) else f"{path} is no health file"
