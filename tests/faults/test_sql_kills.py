"""Processes are killed in and around a unit of the ledger: its effect takes place once, whatever
the instant."""

import json
from collections import Counter

import pytest

from deadq import DeadqError
from tests import ledger_served
from tests.marks import THOROUGH
from tests.supervised import SupervisedWorker

WORST_S = 0.04
"""From its start a job takes about half of that, unless it is killed."""


@pytest.fixture
def database(kind, request, tmp_path):
    if kind == "postgresql":
        return request.getfixturevalue("postgres").url
    return str(tmp_path / "bank.db")


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "instants",
    [6, pytest.param(40, marks=pytest.mark.slow), pytest.param(500, marks=THOROUGH)],
)
@pytest.mark.parametrize(
    ("kind", "runner"),
    [("postgresql", "process"), ("postgresql", "async"), ("sqlite", "process")],  # sqlite3 blocks
)
def test_every_finished_job_has_its_effect_once(
    database, runner, instants, valkey_server, tmp_path
):
    valkey_server.client().flushall()
    ledger_served.prepare(database)
    queue = ledger_served.make(valkey_server.url)
    described = {"database": database, "runner": runner, "worst_s": WORST_S}
    ledger_served.declare(queue, **described)
    jobs = [
        queue.tasks["pay"].options(key=f"{runner}-{number}").enqueue() for number in range(instants)
    ]
    worker = SupervisedWorker(
        *("tests.ledger_served:queue", "--runner", runner, "--concurrency", "2", "-v"),
        cwd=tmp_path,
        DEADQ_URL=valkey_server.url,
        **{ledger_served.SERVED: json.dumps(described)},
    )
    try:
        paid = {}
        for job in jobs:
            try:
                paid[job.key] = job.result(timeout=600)["attempt"]
            except DeadqError as error:  # killed by others' delays, three times
                paid[job.key] = repr(error)
    finally:
        worker.close()
        queue.close()
    found = ledger_served.effects(database)
    times = Counter(job for job, _ in found)
    done = [key for key, attempt in paid.items() if isinstance(attempt, int)]
    assert {key: times[key] for key in done} == dict.fromkeys(done, 1)
    assert max(times.values()) == 1
    assert len(done) >= 0.95 * instants, paid
    # the result that came is that of the attempt that took effect, the first or a later one
    assert {key: attempt for key, attempt in found if key in done} == {
        key: paid[key] for key in done
    }
    print(Counter(paid[key] for key in done), len(done))
    if instants >= 40:
        assert len({paid[key] == 1 for key in done}) == 2
