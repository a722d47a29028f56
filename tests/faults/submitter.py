"""A process that submits, many at a time, for the tests of the cap."""

import asyncio
import random
import time
from collections import Counter
from pathlib import Path

from deadq import DeadqError, JobHandle, QueueFull
from tests.shop import Shop
from tests.workers import hear, tell


def in_rounds(url: str, book: str, capacity: int, lines: int, each: int) -> None:
    """In every round: ``each`` submits at once, over so many connections; tells what came of
    them by kind, and after the next word cancels what was accepted.
    """
    asyncio.run(_in_rounds(url, book, capacity, lines, each))


async def _in_rounds(url: str, book: str, capacity: int, lines: int, each: int) -> None:
    shops = [Shop(url, Path(book), capacity=capacity) for _ in range(lines)]
    await asyncio.gather(*(shop.queue.aconnect() for shop in shops))
    tell("ready")
    while hear() == "submit":
        calls = [shops[n % lines].nap.options(within=60.0).aenqueue(5.0) for n in range(each)]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        tell(Counter(type(outcome).__name__ for outcome in outcomes))
        assert hear() == "clear"
        accepted = [outcome for outcome in outcomes if isinstance(outcome, JobHandle)]
        tell([await handle.acancel() for handle in accepted])


def for_a_while(url: str, book: str, capacity: int, name: str, seconds: float, seed: int) -> None:
    """Submit all kinds of work, with keys that come back, and wait for each as its caller would;
    tells what became of them by kind.
    """
    asyncio.run(_for_a_while(url, book, capacity, name, seconds, seed))


async def _for_a_while(
    url: str, book: str, capacity: int, name: str, seconds: float, seed: int
) -> None:
    # a short retention, so that keys come back as new jobs, too
    shop = Shop(url, Path(book), name, capacity=capacity, lease=0.3, retention=0.2)
    chance = random.Random(seed)
    until = time.monotonic() + seconds
    became: Counter[str] = Counter()

    async def caller() -> None:
        while time.monotonic() < until:
            key = f"k{chance.randrange(40)}"
            within = chance.choice((0.15, 0.4, 1.5))
            bound, arguments = chance.choice(
                (
                    (shop.echo.options(key=f"{key}-echo", within=within), (key,)),
                    (shop.nap.options(key=f"{key}-nap", within=within), (0.08, key)),
                    (shop.flaky.options(key=f"{key}-flaky", within=within), (2, 0.02, key)),
                    (shop.doomed.options(key=f"{key}-doomed", within=within), (0.03,)),
                )
            )
            try:
                async with asyncio.timeout(chance.choice((0.05, 5, 5))):
                    assert await bound.acall(*arguments) == key
            except QueueFull:
                became["full"] += 1
                await asyncio.sleep(chance.uniform(0, 0.005))
            except (DeadqError, TimeoutError) as error:
                became[type(error).__name__] += 1
            else:
                became["done"] += 1

    await shop.queue.aconnect()
    tell("ready")
    assert hear() == "go"
    until = time.monotonic() + seconds
    await asyncio.gather(*(caller() for _ in range(12)))
    await shop.queue.aclose()
    tell(became)
