"""The producer of C69, in a process of its own."""

import time
from pathlib import Path

from tests.shop import Shop
from tests.workers import tell


def produce(url: str, book: str, queue: str) -> None:
    shop = Shop(url, Path(book), queue, lease=1.0)
    began = time.monotonic()
    first = shop.nap.options(key=f"{queue}-1", within=10.0).enqueue(3.0, "first")
    second = shop.nap.options(key=f"{queue}-2", within=10.0).enqueue(0.01, "second")
    results, seconds = [], []
    for handle in (first, second):
        results.append(handle.result())
        seconds.append(time.monotonic() - began)
    began = time.monotonic()
    third = shop.flaky.options(key=f"{queue}-3", within=10.0).enqueue(2, 0.3, "third")
    left = third.deadline.remaining()
    results.append(third.result())
    tell(
        {
            "results": results,
            "seconds": seconds,
            "backoff": time.monotonic() - began,
            "left": left,
        }
    )
