"""Runs the demo from curtain to curtain."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import platform
import random
import time
from collections.abc import Callable
from typing import Final

import httpx

from .. import Queue
from ..errors import DeadqError
from . import jobs, report
from .load import Answer, content, plan, send_all, senders
from .report import Books, Phase, judge, show, summarize
from .stage import Stage, signals_interrupt, staged

WORKERS: Final = 2
SLOTS: Final = 4
CAPACITY: Final = WORKERS * SLOTS / jobs.SERVICE_S
"""What all workers together can book, orders a second."""

PHASES: Final = (("calm", 0.5, 0.4), ("overload", 3.0, 0.6))
"""Name, load as a multiple of the capacity, and share of the whole time."""

_READY_WITHIN_S: Final = 20.0
_SETTLED_WITHIN_S: Final = 10.0
_LOOK_EVERY_S: Final = 0.05


def run(*, seconds: float, as_json: bool) -> int:
    """Run the demo with ``seconds`` of load and print what it shows; 0 if all promises held.

    Raises:
        StoreUnavailable: there is no server to be started.
        DeadqError: one of the demo's processes ended by itself.
    """
    tell = _nothing if as_json else _say
    with signals_interrupt():
        tell(
            f"deadq demo: a private server, a web app and {WORKERS} workers with {SLOTS} slots "
            f"each; an order takes {jobs.SERVICE_S * 1000:.0f} ms, so they can do {CAPACITY:.0f} "
            f"a second. Orders come for {seconds:g} s, their senders wait 1.5 to 2.5 s."
        )
        with staged(WORKERS, SLOTS) as stage:
            answers, phases = asyncio.run(_perform(stage, seconds, tell))
            books = _close(stage)
    return _report(phases, answers, books, as_json=as_json)


async def _perform(
    stage: Stage, seconds: float, tell: Callable[[str], None]
) -> tuple[list[Answer], list[Phase]]:
    dice = random.Random(17)
    phases: list[Phase] = []
    answers: list[Answer] = []
    await ready(stage)
    async with senders(stage.address) as clients:
        for name, load, share in PHASES:
            tell(f"{name}: {load:g}x capacity for {share * seconds:g} s ...")
            orders = plan(name, load * CAPACITY, share * seconds, dice)
            some = await send_all(clients, orders)
            stage.check()
            phases.append(summarize(name, load, share * seconds, some))
            answers += some
    return answers, phases


async def ready(stage: Stage) -> None:
    """Wait until the web app answers and sees all slots."""
    until = time.monotonic() + _READY_WITHIN_S
    async with httpx.AsyncClient(base_url=stage.address, timeout=_READY_WITHIN_S) as client:
        while True:
            stage.check()
            with contextlib.suppress(httpx.HTTPError):
                if content(await client.get("/health")).get("slots") == WORKERS * SLOTS:
                    return
            if time.monotonic() > until:
                msg = (
                    f"the demo's processes were not ready within {_READY_WITHIN_S:.0f} s; "
                    f"the web app says: {stage.last_words('web app')}"
                )
                raise DeadqError(msg)
            await asyncio.sleep(_LOOK_EVERY_S)


def _close(stage: Stage) -> Books:
    """Wait until nothing is under way any more, and read the books."""
    until = time.monotonic() + _SETTLED_WITHIN_S
    queue = Queue(jobs.queue.name, capacity=jobs.queue.config.capacity, url=stage.url)
    with contextlib.closing(queue), contextlib.closing(jobs.open_ledger(stage.ledger)) as ledger:
        while (counted := queue.stats()).unfinished and time.monotonic() < until:
            time.sleep(_LOOK_EVERY_S)
        booked: dict[str, list[str]] = {}
        for key, number in ledger.execute("SELECT key, number FROM booked"):
            booked.setdefault(key, []).append(number)
    return Books(counted.unfinished, counted.counters, booked)


def _report(phases: list[Phase], answers: list[Answer], books: Books, *, as_json: bool) -> int:
    checks = judge(phases, answers, books)
    about = {
        "capacity_per_s": CAPACITY,
        "workers": WORKERS,
        "slots": SLOTS,
        "service_ms": jobs.SERVICE_S * 1_000,
        "counters": dict(books.counters),
        "python": platform.python_version(),
        "processors": os.cpu_count(),
        "load_average": os.getloadavg()[0],
    }
    if as_json:
        print(json.dumps(report.as_json(phases, checks, about), indent=2))
    else:
        show(phases, checks, about)
    return 0 if report.kept(checks, about) else 1


def _say(line: str) -> None:
    print(line, flush=True)


def _nothing(_: str) -> None:
    """With ``--json`` nothing but JSON is printed."""
