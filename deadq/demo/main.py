"""Runs the demo from curtain to curtain."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import platform
import random
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, Final

import httpx
from rich.console import Console

from .. import Queue
from ..errors import DeadqError
from . import jobs, report
from .books import Books, read_books
from .load import Answer, content, plan, quantile, send_all, senders
from .report import judge, summarize
from .scenes import Timed, timed
from .screen import Lines, Screen, Silence
from .signals import signals_held_back, signals_interrupt
from .stage import Stage, staged
from .table import show
from .tally import Tally
from .trouble import Troubles
from .view import View, can_draw

WORKERS: Final = 3
SLOTS: Final = 4
CAPACITY: Final = WORKERS * SLOTS / jobs.SERVICE_S
"""What all workers together can book, orders a second."""

_READY_WITHIN_S: Final = 20.0
_LOOK_EVERY_S: Final = 0.05
_DRAW_EVERY_S: Final = 0.25

_STAYS_UP: Final = """
Everything stays up until Ctrl-C. Order something, and look at the queue:

  curl -i {address}/orders -H 'Idempotency-Key: order-1' -H 'X-Timeout-Ms: 2000' \\
    --json '{{"order": "1", "cents": 999}}'
  deadq stats demo --url {url}
"""


def run(*, seconds: float, as_json: bool, serve: bool) -> int:
    """Run the demo with ``seconds`` of load and print what it shows; 0 if all promises held.

    With ``serve`` everything stays up after that, until it is interrupted.

    Raises:
        StoreUnavailable: there is no server to be started.
        DeadqError: one of the demo's processes ended by itself.
    """
    plan, tally = timed(seconds), Tally()
    with signals_interrupt() as interruption, ExitStack() as curtain:
        with signals_held_back():
            screen = curtain.enter_context(_screen(plan, tally, as_json=as_json))
        with staged(WORKERS, SLOTS) as stage:
            with curtain:
                answers, troubles = interruption.run(_perform(stage, plan, tally, screen))
            books = read_books(stage.url, stage.ledger, stage.worker_logs)
            phases = summarize(plan, answers, books, troubles.spans)
            checks = judge(phases, answers, books)
            about = _about(answers, books)
            if serve:
                about |= {"address": stage.address, "url": stage.url}
            if as_json:
                print(json.dumps(report.as_json(phases, checks, about), indent=2), flush=True)
            else:
                show(phases, checks, about, books)
            if serve:
                _serve(stage, silent=as_json)
    return 0 if report.kept(checks, about) else 1


def _screen(plan: Sequence[Timed], tally: Tally, *, as_json: bool) -> Screen:
    if as_json:
        return Silence()
    if can_draw(Console()):
        title = f"{WORKERS} workers with {SLOTS} slots each: {CAPACITY:.0f} orders a second"
        return View(plan, CAPACITY, tally, title)
    print(
        f"deadq demo: a private server, a web app, a bank, and {WORKERS} workers with {SLOTS} "
        f"slots each. An order takes {jobs.SERVICE_S * 1000:.0f} ms, so they can do "
        f"{CAPACITY:.0f} a second. Orders come for {plan[-1].ends:g} s; their senders wait 2.5 to "
        "4 s.",
        flush=True,
    )
    return Lines()


async def _perform(
    stage: Stage, scenes: Sequence[Timed], tally: Tally, screen: Screen
) -> tuple[list[Answer], Troubles]:
    dice = random.Random(17)
    orders = [
        order
        for each in scenes
        for order in plan(each.scene.name, each.scene.load * CAPACITY, each.begins, each.ends, dice)
    ]
    await ready(stage)
    async with senders(stage.address) as clients:
        begin = time.perf_counter()
        troubles = Troubles(stage, begin, screen.tell)
        sending = asyncio.ensure_future(send_all(clients, orders, begin, tally))
        beside = (
            troubles.all(scenes),
            _announce(scenes, begin, screen),
            _watch(sending, stage, begin, screen),
        )
        await _all_or_none([sending, *map(asyncio.ensure_future, beside)], stage)
    return sending.result(), troubles


async def _all_or_none(tasks: Sequence[asyncio.Future[Any]], stage: Stage) -> None:
    """Await them all; the first that raises ends the others.

    Raises:
        DeadqError: one of the demo's processes ended by itself, which explains everything else.
    """
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        stage.check()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled():
            task.result()


async def _watch(sending: asyncio.Future[Any], stage: Stage, begin: float, screen: Screen) -> None:
    """Show how it stands until the last order is answered."""
    queue = Queue(jobs.queue.name, capacity=jobs.queue.config.capacity, url=stage.url)
    try:
        while not sending.done():
            stage.check()
            try:
                stats = await queue.astats()
            except DeadqError:
                stats = None
            screen.update(time.perf_counter() - begin, stats)
            await asyncio.wait({sending}, timeout=_DRAW_EVERY_S)
    finally:
        await queue.aclose()


async def _announce(scenes: Sequence[Timed], begin: float, screen: Screen) -> None:
    for each in scenes:
        await asyncio.sleep(max(0.0, begin + each.begins - time.perf_counter()))
        screen.begin(each)


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


def _about(answers: Sequence[Answer], books: Books) -> dict[str, Any]:
    return {
        "capacity_per_s": CAPACITY,
        "workers": WORKERS,
        "slots": SLOTS,
        "service_ms": jobs.SERVICE_S * 1_000,
        "counters": dict(books.counters),
        "reports_refused": books.reported_late,
        "payments_refused": books.refused_late,
        "python": platform.python_version(),
        "processors": os.cpu_count(),
        "lag_p99_ms": quantile([a.lag * 1_000 for a in answers], 0.99),
        "load_average": os.getloadavg()[0],
    }


def _serve(stage: Stage, *, silent: bool) -> None:
    """Leave everything up until it is interrupted."""
    if not silent:
        print(_STAYS_UP.format(address=stage.address, url=stage.url), flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            stage.check()
            time.sleep(_LOOK_EVERY_S)
