"""A producer whose outcomes depend on time in every way there is, for tests of wrong clocks."""

import asyncio
import time
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

from deadq import Deadline
from tests.shop import Shop
from tests.workers import hear, tell


def produce(url: str, book: str, name: str, server_ms: int, at: float) -> None:
    """Run all trials, once for each word heard; tell the outcome and the seconds of each.

    ``server_ms`` is the server's clock at the monotonic second ``at``: such an instant may come
    from upstream, whatever this host's own clock shows.
    """

    def in_ms(seconds: float) -> int:
        return server_ms + int((time.monotonic() - at + seconds) * 1000)

    asyncio.run(_produce(Shop(url, Path(book), name, lease=0.5), in_ms))


async def _produce(shop: Shop, in_ms: Any) -> None:
    idle = Shop(shop.queue.backend.url, shop.book.path, f"{shop.queue.name}-idle")
    await shop.queue.aconnect()
    n = 0
    tell("ready")
    while hear() == "go":
        n += 1
        began = time.monotonic()  # some deadlines count from here
        trials = {
            "at once": shop.echo.options(within=3.0).acall("at once"),
            "longer than a lease": shop.nap.options(key=f"long-{n}").acall(1.2, "longer"),
            "too long": shop.nap.options(within=0.5).acall(3.0),
            "too long, by an instant": shop.nap.options(deadline=in_ms(0.5)).acall(3.0),
            "nobody there": idle.echo.options(within=0.4).acall(1),
            "dead on arrival": shop.echo.options(deadline=in_ms(-0.05)).acall(1),
            "retried": shop.flaky.options(within=5.0).acall(2, 0.2, "retried"),
            "put off": shop.echo.options(not_before=Deadline.after(0.6)).acall("put off"),
            "put off, to an instant": shop.echo.options(not_before=in_ms(0.6)).acall("put off"),
            "under a deadline": _under(Deadline.after(2.0), shop.echo.acall("under")),
            "under an instant": _under(Deadline.at(in_ms(2.0)), shop.echo.acall("under")),
            "time left": _rounded(shop.left.options(within=2.0).acall()),
            "time left, by an instant": _rounded(shop.left.options(deadline=in_ms(2.0)).acall()),
            "beyond the horizon": shop.echo.options(deadline=in_ms(7 * 86_400 + 60)).acall(1),
            "within the horizon": shop.echo.options(deadline=in_ms(7 * 86_400 - 60)).acall("far"),
        }
        outcomes = await asyncio.gather(*(_timed(began, trial) for trial in trials.values()))
        tell(dict(zip(trials, outcomes, strict=True)))
    await shop.queue.aclose()
    await idle.queue.aclose()


async def _under(deadline: Deadline, call: Awaitable[Any]) -> Any:
    with deadline.scope():
        return await call


async def _rounded(call: Awaitable[float]) -> str:
    left = await call
    return "about 2 s" if 1.5 < left < 2.2 else f"{left:.3f} s"


async def _timed(began: float, trial: Awaitable[Any]) -> tuple[str, float]:
    try:
        outcome = str(await trial)
    except Exception as error:  # each is an outcome
        outcome = type(error).__name__
    return outcome, time.monotonic() - began
