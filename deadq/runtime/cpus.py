"""How many CPUs this process may really use: what a container allows, not what the host has."""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

_ROOT: Final = Path("/")
_V1, _V2 = "cgroup", "cgroup2"


class _Mount(NamedTuple):
    """Where a hierarchy of control groups can be read, and which group stands there."""

    kind: str
    group: PurePosixPath
    folder: Path


def available(root: Path = _ROOT) -> int:
    """The CPUs that this process may use at once: its affinity, less what its control groups allow.

    A quota that is no whole number of CPUs is rounded up. ``root`` is where the machine's files
    are: ``/proc`` and what it names are looked up there.
    """
    return max(1, min([_by_affinity(), *map(math.ceil, quotas(root))]))


def quotas(root: Path = _ROOT) -> list[float]:
    """Every limit, in CPUs, that a control group sets: this process's own and all above it."""
    mounts = list(_mounts(root))
    found: list[float] = []
    for kind, group in _groups(root):
        same = [mount for mount in mounts if mount.kind == kind]
        holding = [mount for mount in same if group.is_relative_to(mount.group)]
        # a container may see the host's name for its group, and nothing but that group mounted
        for mount in holding or same[:1]:
            below = group.relative_to(mount.group).parts if holding else ()
            for depth in range(len(below) + 1):
                limit = _limit(kind, mount.folder.joinpath(*below[:depth]))
                if limit is not None:
                    found.append(limit)
    return found


def _by_affinity() -> int:
    count: int | None
    if sys.version_info >= (3, 13):
        count = os.process_cpu_count()
    elif hasattr(os, "sched_getaffinity"):
        count = len(os.sched_getaffinity(0))
    else:
        count = os.cpu_count()
    return count or 1


def _groups(root: Path) -> Iterator[tuple[str, PurePosixPath]]:
    """This process's groups that can limit its CPUs, by kind of hierarchy."""
    for line in _read(root / "proc/self/cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if not path.startswith("/"):
            continue
        if "cpu" in controllers.split(","):
            yield _V1, PurePosixPath(path)
        elif (number, controllers) == ("0", ""):
            yield _V2, PurePosixPath(path)


def _mounts(root: Path) -> Iterator[_Mount]:
    """The hierarchies that can be looked into; see ``man 5 proc_pid_mountinfo``."""
    for line in _read(root / "proc/self/mountinfo").splitlines():
        before, _, after = line.partition(" - ")
        fields, rest = before.split(" "), after.split(" ")
        if len(fields) < 6 or len(rest) < 3:
            continue
        if rest[0] == _V2 or (rest[0] == _V1 and "cpu" in rest[2].split(",")):
            group, place = map(_unescaped, fields[3:5])
            yield _Mount(rest[0], PurePosixPath(group), root / place.lstrip("/"))


def _limit(kind: str, folder: Path) -> float | None:
    """One group's limit in CPUs, if it has any."""
    if kind == _V2:
        words = _read(folder / "cpu.max").split()
    else:
        words = [
            *_read(folder / "cpu.cfs_quota_us").split(),
            *_read(folder / "cpu.cfs_period_us").split(),
        ]
    try:
        quota, period = map(int, words)
    except ValueError:  # "max", nothing, or nothing that we know
        return None
    # a quota of -1 means none
    return quota / period if quota > 0 and period > 0 else None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:  # not there, or not for us: then it says nothing
        return ""


def _unescaped(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)
