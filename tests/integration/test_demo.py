"""``deadq demo`` as a user runs it: what it shows, and what it leaves behind."""

import asyncio
import contextlib
import json
import os
import signal
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from deadq import testing
from deadq.demo import jobs, load, main, report
from deadq.demo.stage import signals_interrupt, staged
from tests.commands import deadq_command, started, traces_of


@pytest.fixture
def stage(short_folder):
    """A folder to run the demo in, and one for its temporary files, to be left empty."""
    (short_folder / "here").mkdir()
    temporary = short_folder / "tmp"
    temporary.mkdir()
    yield short_folder / "here", temporary
    assert traces_of(temporary) == []
    assert list(temporary.iterdir()) == []
    assert list((short_folder / "here").iterdir()) == []


def demo(stage, *args):
    here, temporary = stage
    # a project's own server is none of the demo's business
    settings = {"TMPDIR": str(temporary), "DEADQ_URL": "redis://127.0.0.1:1"}
    return deadq_command("demo", *args, cwd=here, timeout=90, **settings)


def unhurried(stage, *args):
    """One run in which the promises held; other programs' work may spoil a run or two."""
    for _ in range(3):
        done = demo(stage, *args)
        assert done.stderr == ""
        if done.returncode == 0:
            return done.stdout
    pytest.fail(done.stdout)


def test_the_demo_shows_what_it_promises(stage):
    shown = json.loads(unhurried(stage, "--json", "--seconds=8"))
    assert shown["good"]
    assert list(shown["checks"].values()) == [True] * 7
    calm, overload = shown["phases"]["calm"], shown["phases"]["overload"]
    for phase in (calm, overload):
        assert phase["on_time"] >= 0.95 * phase["accepted"] > 0
        refused = sum(phase["refused"].values())
        assert phase["offered"] >= phase["accepted"] + refused
    assert sum(calm["refused"].values()) <= 0.02 * calm["offered"]
    assert sum(overload["refused"].values()) >= 0.3 * overload["offered"]
    assert overload["refusal_p99_ms"] <= 500


@pytest.mark.slow
def test_the_whole_demo_speaks_to_people(stage):
    said = unhurried(stage)
    assert "At 3 times what the workers can do, they went on booking " in said
    for row in ("offered", "accepted", "refused: ", "booked on time", "late", "refusal, p99"):
        assert f"  {row}" in said
    assert said.count("\n  yes  ") == 7
    assert all(len(line) <= 80 for line in said.split("\n")[3:])


def read_until(process, beginning):
    """Read lines until one begins so; a demo that ends before says why."""
    while not (line := process.stdout.readline()).startswith(beginning):
        assert line, process.communicate(timeout=5)


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("moment", ["deadq demo: ", "calm: "])
def test_an_interrupted_demo_leaves_nothing_behind(sign, moment, stage):
    here, temporary = stage
    with started("demo", cwd=here, TMPDIR=str(temporary)) as process:
        try:
            read_until(process, moment)
            process.send_signal(sign)
            _, said = process.communicate(timeout=20)
        finally:
            process.kill()
    # Python itself turns an interrupt that fell into an exec() into the signal's own exit
    assert process.returncode in {130, -signal.SIGINT}
    assert said.strip() == "deadq: interrupted"


def test_a_demo_whose_worker_dies_says_so(stage):
    here, temporary = stage
    settings = {"TMPDIR": str(temporary), "PYTHONUNBUFFERED": "1"}
    with started("demo", "--seconds=2", cwd=here, **settings) as process:
        try:
            read_until(process, "calm: ")
            (worker, *_) = [t for t in traces_of(temporary) if "deadq.demo.jobs:queue" in t]
            os.kill(int(worker.partition(":")[0]), signal.SIGKILL)
            _, said = process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == 1
    assert "deadq: the demo's worker" in said
    assert "ended by itself (exit code -9)" in said


def test_what_was_not_answered_is_told_with_the_cause(capsys):
    order = load.Order(at=0.0, key="k", number="1", cents=1, timeout_ms=1_500)
    lost = load.Answer(order, 0.1, 0, 0.1, accepted=False, duplicate=False, reason="ReadError")
    phase = report.summarize("calm", 0.5, 1.0, [lost])
    books = report.Books(unfinished=0, counters={}, booked={})
    checks = report.judge([phase], [lost], books)
    assert not checks["every order was answered"]

    about = {"capacity_per_s": 40.0, "load_average": 0.0, "processors": 2}
    report.show([phase], checks, about)
    said = capsys.readouterr().out
    assert "not answered: ReadError" in said
    assert "NO   every order was answered" in said


@pytest.mark.slow
def test_an_order_on_an_idle_connection_is_answered(monkeypatch, tmp_path):
    # the moment at which uvicorn, left to itself, and httpx would close it both
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)

    async def ask_twice(client):
        for idle in (load.KEEP_OPEN_S - 0.015, 0):
            assert (await client.get("/health")).status_code == 200
            await asyncio.sleep(idle)

    async def ask_often(address):
        async with load.senders(address) as clients, asyncio.TaskGroup() as group:
            for client in clients * 4:
                group.create_task(ask_twice(client))

    with signals_interrupt(), staged(main.WORKERS, main.SLOTS) as running:
        asyncio.run(main.ready(running))
        asyncio.run(ask_often(running.address))


def test_workers_may_open_the_ledger_at_once(tmp_path):
    both = threading.Barrier(2)

    def open_and_book(file):
        both.wait(10)
        with contextlib.closing(jobs.open_ledger(file)) as ledger:
            ledger.execute("INSERT INTO booked VALUES ('key', 'number')")

    with ThreadPoolExecutor(2) as workers:
        for number in range(100):
            list(workers.map(open_and_book, [tmp_path / str(number)] * 2))


# The web tier alone, on a fake server.


@pytest.fixture
def post(tmp_path, monkeypatch):
    """Sends one request to the web app; nobody works but the test."""
    from deadq.demo import app

    monkeypatch.setenv(jobs.LEDGER_VARIABLE, str(tmp_path / "ledger"))
    monkeypatch.setattr(jobs, "SERVICE_S", 0.0)

    async def send(body, **headers):
        transport = httpx.ASGITransport(app.app)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        async with httpx.AsyncClient(transport=transport, base_url="http://demo") as client:
            return await client.post("/orders", json=body, headers=named)

    with testing.faked(jobs.queue) as queue:
        yield queue, lambda body, **headers: asyncio.run(send(body, **headers))


ORDER = {"order": "17", "cents": 999}


def test_an_order_is_booked(post):
    answer = post[1](ORDER, idempotency_key="order-17", x_timeout_ms="2000")
    assert answer.status_code == 200
    receipt = answer.json()
    assert (receipt["order"], receipt["cents"]) == ("17", 999)
    assert "x-duplicate" not in answer.headers

    again = post[1](ORDER, idempotency_key="order-17", x_timeout_ms="2000")
    assert (again.status_code, again.json()) == (200, receipt)
    assert again.headers["x-job"] == answer.headers["x-job"]
    assert again.headers["x-duplicate"] == "1"


def test_a_key_is_not_used_for_two_orders(post):
    post[1](ORDER, idempotency_key="k")
    other = post[1]({"order": "18", "cents": 1}, idempotency_key="k")
    assert (other.status_code, other.json()["error"]) == (422, "key_reused")


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        ({}, {}),
        ([], {}),
        ({"order": "17"}, {}),
        ({"order": "17", "cents": "many"}, {}),
        (ORDER, {"x_timeout_ms": "soon"}),
        (ORDER, {"x_timeout_ms": "nan"}),
        (ORDER, {"x_timeout_ms": "-1"}),
        (ORDER, {"x_timeout_ms": "1e300"}),
        (ORDER, {"idempotency_key": ""}),
        (ORDER, {"idempotency_key": "k" * 1025}),
    ],
)
def test_what_cannot_be_read_is_400(post, body, headers):
    answer = post[1](body, **headers)
    assert (answer.status_code, answer.json()["error"]) == (400, "malformed")


def test_a_caller_without_time_gets_504(post):
    answer = post[1](ORDER, x_timeout_ms="0")
    assert (answer.status_code, answer.json()["error"]) == (504, "expired")


def test_a_full_queue_says_when_to_come_back(post):
    from deadq.demo.jobs import book

    queue, send = post
    for number in range(queue.config.capacity):
        book.enqueue(str(number), 1)
    answer = send(ORDER)
    assert (answer.status_code, answer.json()["error"]) == (503, "full")
    assert int(answer.headers["retry-after"]) >= 1
    assert "x-job" not in answer.headers


def test_a_paused_queue_is_503(post):
    post[0].pause()
    answer = post[1](ORDER)
    assert (answer.status_code, answer.json()["error"]) == (503, "paused")


def test_a_failed_booking_is_500(post, monkeypatch):
    from deadq.demo import jobs

    monkeypatch.setattr(jobs, "SERVICE_S", "no number")
    answer = post[1](ORDER)
    assert (answer.status_code, answer.json()["error"]) == (500, "JobFailed")
    assert "x-job" in answer.headers
