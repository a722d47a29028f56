"""``deadq health``: whether a worker is ready, for probes that run a command."""

from __future__ import annotations

from pathlib import Path

from ..deadline import seconds
from ..runtime.vitals.probes import ask_endpoint, ask_file
from .addresses import address_in
from .faults import asked
from .printing import print_json, say


def health(where: str, *, max_age: float, as_json: bool) -> int:
    """Say how the worker is that writes this file or answers at this address; the exit code is 1
    when it is not ready.

    Raises:
        Fault: the age is odd.
    """
    with asked():
        seconds(max_age, "max-age")
    address = address_in(where)
    answer = ask_endpoint(*address) if address else ask_file(Path(where), max_age)
    if as_json:
        print_json({"ready": answer.well, "line": answer.line, "worker": answer.status})
    else:
        say(answer.line)
    return 0 if answer.well else 1
