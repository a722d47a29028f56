"""A caller hangs up, at any moment: web app, queue, worker, a service that the worker calls, and
the statement that it runs in PostgreSQL are given up; nothing is half written."""

import contextlib
import random
import socket
import time

import pytest

from deadq import Queue, State
from deadq.job import job_id
from tests.edge_crossing import NAME, STEP_S
from tests.patience import slack_s
from tests.served import Served, worked
from tests.servers import wait_until

GONE_S = 0.2
"""So long after it nothing runs on the database's server any more."""


class Crossing:
    """All the tiers, each in a process of its own."""

    def __init__(self, folder, url, postgres):
        self._open = contextlib.ExitStack()
        self.notes_file = folder / "notes"
        self.sql = self._open.enter_context(postgres.connect())
        self.sql.execute("DROP TABLE IF EXISTS crossed")
        self.sql.execute("CREATE TABLE crossed (number int, what text)")
        settings = {
            "DEADQ_URL": url,
            "EDGE_NOTES": str(self.notes_file),
            "CROSSING_DATABASE": postgres.url,
        }
        service = Served("tests.edge_crossing:service", folder / "service.log", **settings)
        settings["CROSSING_SERVICE"] = self._open.enter_context(service).address
        web = Served("tests.edge_crossing:web", folder / "web.log", **settings)
        self.port = self._open.enter_context(web).port
        self.queue = Queue("crossing", capacity=64, url=url)
        self.free = self.queue.task(within=20.0, name="free")(lambda: None)
        self._open.callback(self.queue.close)
        worker = worked("tests.edge_crossing:queue", self.queue, folder / "worker.log", **settings)
        self._open.enter_context(worker)

    def close(self):
        self._open.close()

    def round(self, number, after_s):
        """Ask, and hang up after so long; returns the instant at which it did."""
        with socket.create_connection(("127.0.0.1", self.port)) as line:
            head = f"GET /start?n={number} HTTP/1.1\r\nhost: x\r\nidempotency-key: {number}"
            line.sendall(f"{head}\r\n\r\n".encode())
            time.sleep(after_s)
        return time.monotonic()

    def running(self):
        return self.sql.execute(
            "SELECT query FROM pg_stat_activity WHERE application_name = %s AND state <> 'idle'",
            [NAME],
        ).fetchall()

    def state(self, number):
        shown = self.queue.show(job_id(str(number)))
        return None if shown is None else shown.state

    def written(self, number):
        rows = self.sql.execute("SELECT count(*) FROM crossed WHERE number = %s", [number])
        return rows.fetchone()[0]


@pytest.fixture
def crossing(tmp_path, valkey_server, postgres):
    with valkey_server.client() as client:
        client.flushall()
    made = Crossing(tmp_path, valkey_server.url, postgres)
    yield made
    made.close()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("rounds", [12, pytest.param(200, marks=pytest.mark.slow)])
def test_a_caller_that_hangs_up_takes_all_of_it_along(crossing, rounds):
    chance, states, cancelled = random.Random(rounds), [], 0
    for number in range(rounds):
        gone = crossing.round(number, chance.uniform(0.0, 3.2 * STEP_S))
        wait_until(lambda: not crossing.running(), "the database to be idle", 5.0)
        assert time.monotonic() - gone < GONE_S + slack_s()
        state = crossing.state(number)
        if state is None:
            continue  # it hung up before anything was submitted
        wait_until(lambda n=number: crossing.state(n).final, "the job to end", 5.0)
        states.append(crossing.state(number))
        cancelled += states[-1] is State.CANCELLED
        # both rows or none; where it was over when the caller hung up, they are there
        assert crossing.written(number) == (2 if states[-1] is State.DONE else 0), states[-1]
    assert cancelled >= rounds / 3
    assert set(states) <= {State.CANCELLED, State.DONE}
    assert crossing.free.call() == [2, 2]
    noted = crossing.notes_file.read_text().split("\n")
    assert sum(line.startswith("worker") for line in noted) >= rounds / 4
    assert any(line.startswith("service") for line in noted), "the service heard of one at least"
