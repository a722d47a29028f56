"""Runs the demo from curtain to curtain."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import platform
import random
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

import httpx

from ..errors import DeadqError
from . import jobs, report
from .books import Books, read_books
from .load import Answer, content, plan, send_all, senders
from .report import Phase, judge, summarize
from .scenes import Timed, timed
from .stage import Stage, signals_interrupt, staged
from .table import show
from .tally import Tally
from .trouble import Troubles

WORKERS: Final = 3
SLOTS: Final = 4
CAPACITY: Final = WORKERS * SLOTS / jobs.SERVICE_S
"""What all workers together can book, orders a second."""

_READY_WITHIN_S: Final = 20.0
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
            f"a second. Orders come for {seconds:g} s, their senders wait 2.5 to 4 s."
        )
        with staged(WORKERS, SLOTS) as stage:
            scenes = timed(seconds)
            answers, troubles = asyncio.run(_perform(stage, scenes, tell))
            logs = [stage.log(f"worker {number}") for number in range(1, WORKERS + 1)]
            books = read_books(stage.url, stage.ledger, logs)
            phases = summarize(scenes, answers, books, troubles.spans)
    return _report(phases, answers, books, as_json=as_json)


async def _perform(
    stage: Stage, scenes: Sequence[Timed], tell: Callable[[str], None]
) -> tuple[list[Answer], Troubles]:
    dice = random.Random(17)
    orders = [
        order
        for each in scenes
        for order in plan(
            each.scene.name, each.scene.load * CAPACITY, each.begins, each.ends, dice
        )
    ]
    await ready(stage)
    tally = Tally()
    async with senders(stage.address) as clients:
        begin = time.perf_counter()
        troubles = Troubles(stage, begin, tell)
        answers, *_ = await _together(
            send_all(clients, orders, begin, tally),
            troubles.all(scenes),
            _narrate(scenes, begin, tell),
        )
    stage.check()
    return answers, troubles


async def _together(*all_: Coroutine[Any, Any, Any]) -> list[Any]:
    """Await them all; the first that raises ends the others."""
    tasks = [asyncio.ensure_future(each) for each in all_]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def _narrate(scenes: Sequence[Timed], begin: float, tell: Callable[[str], None]) -> None:
    for each in scenes:
        await asyncio.sleep(max(0.0, begin + each.begins - time.perf_counter()))
        tell(f"{each.scene.name}: {each.scene.load:g}x capacity for {each.seconds:g} s ...")


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


def _report(phases: list[Phase], answers: list[Answer], books: Books, *, as_json: bool) -> int:
    checks = judge(phases, answers, books)
    about = {
        "capacity_per_s": CAPACITY,
        "workers": WORKERS,
        "slots": SLOTS,
        "service_ms": jobs.SERVICE_S * 1_000,
        "counters": dict(books.counters),
        "reports_refused": books.reported_late,
        "payments_refused": books.refused_late,
        "python": platform.python_version(),
        "processors": os.cpu_count(),
        "load_average": os.getloadavg()[0],
    }
    if as_json:
        print(json.dumps(report.as_json(phases, checks, about), indent=2))
    else:
        show(phases, checks, about, books)
    return 0 if report.kept(checks, about) else 1


def _say(line: str) -> None:
    print(line, flush=True)


def _nothing(_: str) -> None:
    """With ``--json`` nothing but JSON is printed."""
