"""What is on record at the end: at the queue's server, at the bank, and in the workers' logs."""

from __future__ import annotations

import contextlib
import re
import sqlite3
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from .. import Queue
from . import jobs
from .bank import open_ledger

_SETTLED_WITHIN_S: Final = 10.0
_LOOK_EVERY_S: Final = 0.05
_SAID: Final = re.compile(
    r" (?P<event>started|finished|stale): job (?P<job>[0-9a-f]+)"
    r"(?:, (?P<end>\w+)| \w+, attempt (?P<attempt>\d+))?"
)


@dataclass(frozen=True)
class Books:
    """What the demo's promises are judged by."""

    unfinished: int
    """Jobs that have no outcome."""
    counters: Mapping[str, int]
    """The server's."""
    paid: Mapping[str, Sequence[str]]
    """The numbers of the payments made for each order, by its key: one, if all is well."""
    refused_late: int
    """Questions that the bank refused, as a later attempt had asked before."""
    runs: Mapping[str, int]
    """How often each job was started, by its id."""
    taken: Mapping[str, int]
    """From how many runs of a job the queue took its result, by its id: one, if all is well."""
    reported_late: int
    """Reports that the queue refused, as the job had been given to somebody else."""


def read_books(url: str, ledger: Path, logs: Iterable[Path]) -> Books:
    """Wait until nothing is under way any more, and read.

    Raises:
        StoreUnavailable: the server is away.
    """
    until = time.monotonic() + _SETTLED_WITHIN_S
    queue = Queue(jobs.queue.name, capacity=jobs.queue.config.capacity, url=url)
    with contextlib.closing(queue):
        while (counted := queue.stats()).unfinished and time.monotonic() < until:
            time.sleep(_LOOK_EVERY_S)
    paid: dict[str, list[str]] = {}
    with contextlib.closing(open_ledger(ledger)) as opened:
        for key, number in opened.execute("SELECT key, number FROM paid ORDER BY rowid"):
            paid.setdefault(key, []).append(number)
        (refused,) = opened.execute("SELECT count(*) FROM asked WHERE answer = 'stale'").fetchone()
    runs, taken, stale = read_logs(logs)
    return Books(counted.unfinished, counted.counters, paid, refused, runs, taken, stale)


def read_logs(logs: Iterable[Path]) -> tuple[Counter[str], Counter[str], int]:
    """How often each job was started, and its result taken; and how many reports were refused."""
    runs, taken, stale = Counter[str](), Counter[str](), 0
    for log in logs:
        for said in _SAID.finditer(log.read_text(errors="replace")):
            match said["event"], said["end"]:
                case "started", _:
                    runs[said["job"]] += 1
                case "finished", "done":
                    taken[said["job"]] += 1
                case "stale", _:
                    stale += 1
    return runs, taken, stale


def payments_late(ledger: sqlite3.Connection, teller: str, since: float) -> int:
    """How many payments somebody wanted to make whom others had overtaken, refused or not, since
    an instant (s since the epoch)."""
    (count,) = ledger.execute(
        "SELECT count(*) FROM asked a WHERE teller = ? AND what = 'capture' AND at > ? AND"
        " fence < (SELECT max(fence) FROM asked b WHERE b.payment = a.payment)",
        (teller, since),
    ).fetchone()
    return int(count)


def reports_late(logs: Iterable[Path], teller: Path) -> int:
    """Of how many jobs a worker, by its log, has reported the end after others had been given them,
    whether that was refused or not."""
    last = Counter[str]()
    for log in logs:
        for said in _SAID.finditer(log.read_text(errors="replace")):
            if said["attempt"]:
                last[said["job"]] = max(last[said["job"]], int(said["attempt"]))
    own, overtaken = dict[str, int](), set[str]()
    for said in _SAID.finditer(teller.read_text(errors="replace")):
        job = said["job"]
        if said["attempt"]:
            own[job] = int(said["attempt"])
        elif own.get(job, 0) < last[job]:
            overtaken.add(job)
    return len(overtaken)
