"""How much memory a process takes, and sizes as people write them."""

from __future__ import annotations

import mmap
import os
import re
import sys
from decimal import Decimal
from pathlib import Path
from typing import Final

from ..errors import DeadqError, shown

_PROC: Final = Path("/proc")
_SIZE: Final = re.compile(
    r"(?P<number>\d{1,20}(?:\.\d{1,20})?)\s*(?:(?P<prefix>[KMGT])(?P<binary>I?))?B?",
    re.ASCII | re.IGNORECASE,
)
_POWERS: Final = {"K": 1, "M": 2, "G": 3, "T": 4}
_MOST: Final = 2**63 - 1


def resident_bytes(pid: int | None = None, *, proc: Path = _PROC) -> int:
    """The bytes of memory that a process takes now; by default this one.

    Without a ``/proc``, as on macOS, it is the most that this process has ever taken, and another
    process's cannot be known.

    Raises:
        ProcessLookupError: there is no such process.
        DeadqError: this system does not tell about other processes.
    """
    try:
        statm = (proc / str(os.getpid() if pid is None else pid) / "statm").read_text(
            encoding="ascii"
        )
        return int(statm.split()[1]) * mmap.PAGESIZE
    except (OSError, ValueError, IndexError):
        if pid is None or pid == os.getpid():
            import resource  # not to be had everywhere

            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            return peak if sys.platform == "darwin" else peak * 1024
    if (proc / "self").exists():
        raise ProcessLookupError(f"there is no process {pid}")
    msg = (
        f"the memory of process {pid} cannot be known here: this system has no {proc}; "
        "measure it in that process itself"
    )
    raise DeadqError(msg)


def size_of(text: str, name: str = "max_memory") -> int:
    """A size such as ``"400MB"`` in bytes.

    K, M, G and T are powers of 1000; with an i, as in KiB or Mi, powers of 1024. The B may be left
    out, and a number by itself means bytes.

    Raises:
        TypeError: not a str.
        ValueError: no such size, or none of at least one byte.
    """
    if not isinstance(text, str):
        msg = f"{name} must be a str such as '400MB', not {type(text).__name__} {shown(text)}"
        raise TypeError(msg)
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        msg = f"{name} must be a size such as 400MB, 1.5G or 512MiB, not {shown(text)}"
        raise ValueError(msg)
    power = _POWERS[found["prefix"].upper()] if found["prefix"] else 0
    size = int(Decimal(found["number"]) * (1024 if found["binary"] else 1000) ** power)
    if not 1 <= size <= _MOST:
        msg = f"{name} must be at least 1 byte and less than 8 EiB, not {shown(text)}"
        raise ValueError(msg)
    return size
