"""One clock, the server's: what the hosts' wall clocks show, or how they step, changes nothing."""

import contextlib
import time

import pytest

from tests.servers import wait_until
from tests.shop import Book
from tests.workers import Process, WorkerProcess

HOUR = 3600
CLOCKS = {
    # queue: (producer's wall clock, worker's), seconds wrong, before and after the step
    "right": ((0, 0), (0, 0)),
    "ahead-behind": ((HOUR, HOUR), (-HOUR, -HOUR)),
    "behind-ahead": ((-HOUR, -HOUR), (HOUR, HOUR)),
    "step-on-back": ((0, 90), (0, -90)),
    "step-back-on": ((0, -90), (0, 90)),
}
EXPECTED = {
    # outcome, and between which seconds it must come
    "at once": ("at once", 0, 1),
    "longer than a lease": ("longer", 1.15, 2.5),
    "too long": ("DeadlineExceeded", 0.45, 1.2),
    "too long, by an instant": ("DeadlineExceeded", 0.4, 1.2),
    "nobody there": ("DeadlineExceeded", 0.35, 1.2),
    "dead on arrival": ("DeadlineExpired", 0, 1),
    "retried": ("retried", 0.38, 2),
    "put off": ("put off", 0.55, 1.5),
    "put off, to an instant": ("put off", 0.5, 1.5),
    "under a deadline": ("under", 0, 1),
    "under an instant": ("under", 0, 1),
    "time left": ("about 2 s", 0, 1),
    "time left, by an instant": ("about 2 s", 0, 1),
    "beyond the horizon": ("ValueError", 0, 1),
    "within the horizon": ("far", 0, 1),
}


def unexpected(outcomes):
    """Which trials came out otherwise, or at another time."""
    return {
        title: outcomes[title]
        for title, (outcome, least, most) in EXPECTED.items()
        if outcomes[title][0] != outcome or not least <= outcomes[title][1] <= most
    }


@pytest.mark.parametrize("again", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_wrong_and_stepping_clocks_of_hosts_change_no_outcome(valkey_server, tmp_path, again):
    url, book = valkey_server.url, tmp_path / "book"
    with valkey_server.client() as client:
        client.flushall()
        at = time.monotonic()
        seconds, micros = client.time()
    given = {"url": url, "book": str(book), "server_ms": seconds * 1000 + micros // 1000, "at": at}

    def walls(queue, step):
        for host, offsets in zip(("producer", "worker"), CLOCKS[queue], strict=True):
            yield host, tmp_path / f"{queue}-{host}", str(offsets[step])

    with contextlib.ExitStack() as stack:
        producers = {}
        for queue in CLOCKS:
            wall = {}
            for host, file, offset in walls(queue, 0):
                file.write_text(offset)
                wall[host] = file
            stack.enter_context(
                WorkerProcess(url, book, concurrency=20, wall=wall["worker"], name=queue, lease=0.5)
            )
            producers[queue] = stack.enter_context(
                Process(
                    "tests.integration.timekeeper:produce",
                    wall=wall["producer"],
                    name=queue,
                    **given,
                )
            )
        for producer in producers.values():
            assert producer.hear() == "ready"
        for producer in producers.values():
            producer.tell("go")
        kept = Book(book)
        # in mid-run, with jobs running and waiting, the clocks step
        wait_until(lambda: len(kept.notes("start", "long-1")) == len(CLOCKS), "the long jobs")
        for queue in CLOCKS:
            for _, file, offset in walls(queue, 1):
                file.write_text(offset)
        wrong = {queue: unexpected(producer.hear()) for queue, producer in producers.items()}
        assert wrong == {queue: {} for queue in CLOCKS}
        assert kept.starts()["long-1"] == len(CLOCKS)
        if again:  # with clocks that have stepped already
            for producer in producers.values():
                producer.tell("go")
            wrong = {queue: unexpected(producer.hear()) for queue, producer in producers.items()}
            assert wrong == {queue: {} for queue in CLOCKS}
            assert kept.starts()["long-2"] == len(CLOCKS)
        kept.close()
