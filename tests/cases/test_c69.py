"""C69: a clock step makes a negative sleep."""

import contextlib
import time

import pytest
import redis

from tests.servers import wait_until
from tests.shifts import RUNNERS
from tests.shop import Book
from tests.workers import Process, WorkerProcess


def working(kind, url, book, wall, queue):
    """A worker whose wall clock is the file's; its queue knows it when this returns."""
    if kind == "loop":
        return WorkerProcess(url, book, concurrency=1, wall=wall, name=queue, lease=1.0)
    worker = Process(
        "tests.shop:serve_supervised",
        wall=wall,
        url=url,
        book=str(book),
        concurrency=1,
        grace=5.0,
        runner=kind,
        settings={"name": queue, "lease": 1.0},
    )
    with redis.Redis.from_url(url) as client:
        wait_until(lambda: client.zcard(f"deadq:{{{queue}}}:workers"), "the worker to register")
    return worker


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", ["loop", *(pytest.param(kind, marks=pytest.mark.slow) for kind in RUNNERS)]
)
def test_wall_clocks_that_step_while_a_job_runs_and_another_waits(valkey_server, tmp_path, kind):
    """By -90 s on one queue's hosts, by +90 s on another's; body 3 s, lease 1 s."""
    url, book = valkey_server.url, tmp_path / "book"
    with valkey_server.client() as client:
        client.flushall()
    walls = {"back": tmp_path / "back", "on": tmp_path / "on"}
    with contextlib.ExitStack() as stack:
        workers, producers = [], {}
        for queue, wall in walls.items():
            wall.write_text("0")
            workers.append(stack.enter_context(working(kind, url, book, wall, queue)))
            producers[queue] = stack.enter_context(
                Process("tests.cases.c69:produce", wall=wall, url=url, book=str(book), queue=queue)
            )
        kept = Book(book)
        wait_until(lambda: {"back-1", "on-1"} <= set(kept.starts()), "both first jobs to run")
        stepped = time.monotonic()
        walls["back"].write_text("-90")
        walls["on"].write_text("90")
        outcomes = {queue: producer.hear(15) for queue, producer in producers.items()}
        said = [worker.errors for worker in workers]
        exits = [worker.stop() for worker in workers]

    for queue, outcome in outcomes.items():
        assert outcome["results"] == ["first", "second", "third"], queue
        first, second = outcome["seconds"]
        # each counted by its producer's monotonic clock: 3 s, then the short one behind it
        assert 2.9 < first < 4
        assert 2.9 < second < 4.5
        # two retries, 0.3 s apart
        assert 0.6 < outcome["backoff"] < 2
        assert 5 < outcome["left"] <= 10
        notes = {note.what: note.at for note in kept.notes(key=f"{queue}-1")}
        assert notes["start"] < stepped < notes["end"]
        assert 2.9 < notes["end"] - notes["start"] < 3.5
    # no second start, but for the retries that were asked for
    assert kept.starts() == {
        f"{queue}-{job}": starts for queue in walls for job, starts in ((1, 1), (2, 1), (3, 3))
    }
    kept.close()
    assert exits == [0, 0]
    assert not any("Traceback" in text or "lost" in text for text in said), said
