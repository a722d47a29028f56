"""workers/checkout as its callers meet it: the real web app and worker, over real HTTP."""

import contextlib
import os
import socket
import sqlite3
import statistics
import struct
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from deadq import Queue, State
from deadq.job import job_id
from tests.commands import COMMAND, ROOT, environment
from tests.forked import Program, passable
from tests.servers import wait_until
from tests.shop import Book

ORDER = {"order": "17", "cents": 999}


class Checkout:
    """The web app, its queue as an operator sees it, and workers on demand."""

    def __init__(self, folder, url):
        self.folder = folder
        self.ledger, self.gate = folder / "ledger.sqlite", folder / "gate"
        self.book = Book(folder / "book")
        self.settings = {"DEADQ_URL": url, "CHECKOUT_LEDGER": str(self.ledger)}
        self.queue = Queue("checkout", capacity=64, url=url)
        self._open = contextlib.ExitStack()
        with socket.create_server(("127.0.0.1", 0)) as listener:
            door = passable(listener.fileno())
            self.run("uvicorn", "workers.checkout.web:app", f"--fd={door}", fds=(door,))
            os.close(door)
            self.address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        self.client = self._open.enter_context(httpx.Client(base_url=self.address, timeout=20.0))
        self._open.callback(self.queue.close)
        self._open.callback(self.book.close)

    def run(self, *args, fds=(), **settings):
        process = Program(
            *args,
            cwd=ROOT,
            env=environment(**self.settings, **settings),
            stdin=subprocess.DEVNULL,
            stdout=(self.folder / "log").open("ab"),
            stderr=subprocess.STDOUT,
            pass_fds=fds,
        )
        self._open.callback(process.wait, 30)
        self._open.callback(process.terminate)
        return process

    def worker(self, target="workers.checkout.jobs:queue", slots=4, **settings):
        worker = self.run(COMMAND[-1], "work", target, f"--concurrency={slots}", **settings)
        wait_until(lambda: self.queue.stats().slots == slots, "the worker", 30.0)
        return worker

    def timed_worker(self, **settings):
        """One whose jobs write down what they do."""
        settings = {"CHECKOUT_BOOK": str(self.book.path), **settings}
        return self.worker("tests.timed_checkout:queue", **settings)

    def post(self, body=ORDER, key="k", caller="shop", timeout_ms=5_000, **headers):
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        named |= {"x-api-key": caller, "x-timeout-ms": str(timeout_ms)}
        if key is not None:
            named["idempotency-key"] = key
        return self.client.post("/orders", json=body, headers=named)

    def job(self, key="k", caller="shop"):
        return self.queue.show(job_id(f"{caller}:{key}"))

    def charges(self):
        if not self.ledger.exists():
            return []
        with contextlib.closing(sqlite3.connect(self.ledger)) as ledger:
            return list(ledger.execute("SELECT what, cents FROM charges"))

    def close(self):
        self._open.close()


@pytest.fixture
def checkout(tmp_path, valkey_server):
    with valkey_server.client() as client:
        client.flushall()
    made = Checkout(tmp_path, valkey_server.url)
    yield made
    made.close()


@pytest.fixture
def staffed(checkout):
    checkout.worker()
    return checkout


def test_an_order_is_paid_once_and_a_repeat_gets_the_same_receipt(staffed):
    first, again = staffed.post(), staffed.post()
    assert (first.status_code, first.json()["order"], first.json()["cents"]) == (200, "17", 999)
    assert "idempotency-replayed" not in first.headers
    assert (again.status_code, again.json()) == (200, first.json())
    assert again.headers["idempotency-replayed"] == "true"
    assert staffed.charges() == [("17", 999)]


def test_repeats_while_it_runs_get_the_same_receipt(checkout):
    checkout.worker(CHECKOUT_REVIEW_S="0.5")
    with ThreadPoolExecutor(5) as callers:
        answers = [answer.result() for answer in [callers.submit(checkout.post) for _ in range(5)]]
    assert [answer.status_code for answer in answers] == [200] * 5
    assert len({answer.json()["charge"] for answer in answers}) == 1
    assert sum("idempotency-replayed" in answer.headers for answer in answers) == 4
    assert checkout.charges() == [("17", 999)]


def test_each_caller_has_keys_of_its_own(staffed):
    receipts = [
        staffed.post(key=key, caller=caller)
        for caller, key in (("a", "k"), ("b", "k"), ("a:b", "c"), ("a", "b:c"))
    ]
    assert [receipt.status_code for receipt in receipts] == [200] * 4
    assert len({receipt.json()["charge"] for receipt in receipts}) == 4


def test_a_caller_of_any_bytes_is_a_caller(checkout):
    headers = {"idempotency-key": "k", "x-api-key": b"\xff\xfe", "prefer": "respond-async"}
    assert checkout.client.post("/orders", json=ORDER, headers=headers).status_code == 202


def test_a_key_belongs_to_one_order(staffed):
    assert staffed.post().status_code == 200
    other = staffed.post({"order": "18", "cents": 1})
    assert (other.status_code, other.json()["error"]) == (422, "key_reused")


def test_a_payment_that_is_declined_is_not_charged(staffed):
    answer = staffed.post({"order": "17", "cents": 2_000_000})
    assert (answer.status_code, answer.json()["error"]) == (402, "declined")
    assert staffed.charges() == []


@pytest.mark.parametrize(
    ("body", "key", "headers"),
    [
        ({}, "k", {}),
        ([], "k", {}),
        ({"order": "17"}, "k", {}),
        ({"order": "17", "cents": -1}, "k", {}),
        (ORDER, None, {}),
        (ORDER, "", {}),
        (ORDER, "k" * 2_000, {}),
        (ORDER, "k", {"timeout_ms": "soon"}),
        (ORDER, "k", {"timeout_ms": "nan"}),
        (ORDER, "k", {"x_deadline_ms": "tomorrow"}),
        (ORDER, "k", {"x_deadline_ms": "17"}),
        (ORDER, "k", {"timeout_ms": "1e30"}),
        (ORDER, "k", {"timeout_ms": "", "x_deadline_ms": "4102444800000"}),  # the year 2100
    ],
)
def test_what_cannot_be_understood_is_400(checkout, body, key, headers):
    answer = checkout.post(body, key, **headers)
    assert (answer.status_code, answer.json()["error"]) == (400, "malformed")


def test_one_that_does_not_wait_gets_202_and_later_the_receipt(checkout):
    accepted = checkout.post(prefer="respond-async")
    assert (accepted.status_code, accepted.json()) == (202, {"job": checkout.job().id})
    checkout.worker()
    receipt = checkout.post()
    assert (receipt.status_code, receipt.headers["idempotency-replayed"]) == (200, "true")
    assert checkout.charges() == [("17", 999)]


def test_a_full_queue_is_429_and_says_when_to_come_back(checkout):
    for number in range(64):
        assert checkout.post(key=str(number), prefer="respond-async").status_code == 202
    answer = checkout.post()
    assert (answer.status_code, answer.json()["error"]) == (429, "full")
    assert int(answer.headers["retry-after"]) >= 1


def test_a_paused_queue_is_503(checkout):
    checkout.queue.pause()
    answer = checkout.post()
    assert (answer.status_code, answer.json()["error"]) == (503, "paused")


def test_a_caller_whose_time_is_over_gets_504(checkout):
    begun = time.monotonic()
    answer = checkout.post(timeout_ms=400)
    assert (answer.status_code, answer.json()["error"]) == (504, "DeadlineExceeded")
    assert time.monotonic() - begun < 2.0
    assert checkout.post(timeout_ms=0).json()["error"] == "DeadlineExceeded"


@pytest.mark.parametrize(
    ("ahead_s", "timeout_ms", "least", "most"),
    [
        (29.5, 30_000, 20.0, 29.5),  # the smaller of the two, less the way home
        (600.0, 30_000, 20.0, 30.0),  # a wrong clock: the duration wins
        (-600.0, 30_000, 20.0, 30.0),
    ],
)
def test_instant_and_duration_are_weighed(checkout, ahead_s, timeout_ms, least, most):
    assert checkout.post({}).status_code == 400  # from now on it answers at once
    instant = str(int((time.time() + ahead_s) * 1_000))
    accepted = checkout.post(prefer="respond-async", timeout_ms=timeout_ms, x_deadline_ms=instant)
    assert accepted.status_code == 202
    assert least < checkout.job().remaining_s < most


# A caller hangs up.


class Line:
    """A caller's own connection, on which an order has been sent: all of it, or so many bytes."""

    def __init__(self, checkout, key="k", sent=None):
        host, port = checkout.client.base_url.netloc.decode().split(":")
        self._socket = socket.create_connection((host, int(port)))
        body = b'{"order": "17", "cents": 999}'
        self._socket.sendall(
            b"POST /orders HTTP/1.1\r\nhost: x\r\nx-api-key: shop\r\nidempotency-key: %s\r\n"
            b"x-timeout-ms: 20000\r\ncontent-length: %d\r\n\r\n%s" % (key.encode(), len(body), body)
        )

    def hang_up(self, *, rudely=False):
        """Close it, or reset it; returns the instant before."""
        if rudely:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        gone = time.monotonic()
        self._socket.close()
        return gone


def order(checkout, state, key="k"):
    """Send an order, and wait until its job is in that state."""
    line = Line(checkout, key)
    wait_until(
        lambda: (job := checkout.job(key)) is not None and job.state is state, f"it to be {state}"
    )
    return line


def cancelled(checkout, key="k"):
    return wait_until(lambda: checkout.job(key).state is State.CANCELLED, "the job to be cancelled")


@pytest.mark.parametrize("rudely", [False, True])
def test_an_order_that_waits_is_given_up_when_its_caller_hangs_up(checkout, rudely):
    gone = order(checkout, State.READY).hang_up(rudely=rudely)
    cancelled(checkout)
    assert time.monotonic() - gone < 1.0
    checkout.worker()
    assert checkout.charges() == []


def test_an_order_that_waits_for_a_slot_is_given_up_when_its_caller_hangs_up(checkout):
    checkout.timed_worker(slots=1, CHECKOUT_REVIEW_S="1.0")
    with ThreadPoolExecutor(1) as callers:
        stays = callers.submit(checkout.post, key="runs")
        wait_until(lambda: checkout.book.notes("review"), "the slot to be taken")
        order(checkout, State.READY).hang_up()
        cancelled(checkout)
        assert checkout.job("runs").state is State.RUNNING
        assert stays.result().status_code == 200
    assert {note.key for note in checkout.book.notes()} == {"shop:runs"}


def test_hanging_up_is_no_error_in_the_log(checkout):
    """In mid-request, and while the order waits."""
    Line(checkout, sent=1).hang_up()
    order(checkout, State.READY).hang_up()
    cancelled(checkout)
    checkout.close()
    said = (checkout.folder / "log").read_text()
    assert "Finished server process" in said
    assert "Traceback" not in said


@pytest.mark.parametrize("rudely", [False, True])
def test_an_order_that_runs_is_given_up_when_its_caller_hangs_up(checkout, rudely):
    checkout.timed_worker(CHECKOUT_REVIEW_S="10")
    order(checkout, State.RUNNING).hang_up(rudely=rudely)
    cancelled(checkout)
    assert [note.what for note in checkout.book.notes()] == ["review", "interrupted"]
    assert checkout.charges() == []


def test_a_charge_that_has_begun_is_made_and_its_receipt_is_there_for_a_repeat(checkout):
    checkout.timed_worker(CHECKOUT_GATE=str(checkout.gate))
    line = order(checkout, State.RUNNING)
    wait_until(lambda: checkout.book.notes("charge"), "the charge to begin")
    line.hang_up()
    wait_until(lambda: checkout.job().cancelling, "the hang-up to be heard")
    assert checkout.charges() == []
    checkout.gate.touch()
    cancelled(checkout)
    assert [unit.state for unit in checkout.job().units] == ["done"]
    again = checkout.post()
    assert (again.status_code, again.json()["charge"]) == (200, f"{checkout.job().id}:charge")
    assert len(checkout.book.notes("charge")) == 1
    assert checkout.charges() == [("17", 999)]


def test_an_order_that_somebody_else_waits_for_goes_on(checkout):
    checkout.timed_worker(CHECKOUT_REVIEW_S="1.0")
    with ThreadPoolExecutor(1) as callers:
        line = order(checkout, State.RUNNING)
        stays = callers.submit(checkout.post)
        wait_until(lambda: checkout.job().waiters == 2, "the other caller")
        line.hang_up()
        wait_until(lambda: checkout.job().waiters == 1, "the hang-up to be heard")
        answer = stays.result()
    assert (answer.status_code, answer.headers["idempotency-replayed"]) == (200, "true")
    assert [note.what for note in checkout.book.notes()] == ["review", "charge", "charged"]
    assert checkout.charges() == [("17", 999)]


@pytest.mark.parametrize("charging", [False, True])
def test_a_caller_that_comes_back_at_once_gets_the_receipt(checkout, charging):
    """Its job has been told to stop, which it cannot within its unit."""
    checkout.timed_worker(CHECKOUT_REVIEW_S="0.3", CHECKOUT_GATE=str(checkout.gate))
    line = order(checkout, State.RUNNING)
    if charging:
        wait_until(lambda: checkout.book.notes("charge"), "the charge to begin")
    line.hang_up()
    if charging:
        wait_until(lambda: checkout.job().cancelling, "the hang-up to be heard")
    with ThreadPoolExecutor(1) as callers:
        answer = callers.submit(checkout.post)
        wait_until(lambda: checkout.job().waiters == 1, "the caller to come back")
        checkout.gate.touch()
    assert answer.result().status_code == 200
    assert checkout.charges() == [("17", 999)]


def spread(took):
    """In milliseconds, for whoever reads the test's output; returns the median in seconds."""
    median = statistics.median(took)
    print(f"{len(took)} hang-ups: median {median * 1e3:.1f} ms, at most {max(took) * 1e3:.1f} ms")
    return median


@pytest.mark.slow
@pytest.mark.parametrize("others", [0, 40])
def test_a_handler_is_interrupted_within_100_ms_of_its_callers_hanging_up(checkout, others):
    """From the close of the caller's socket to the interruption in the worker."""
    checkout.timed_worker(slots=60, CHECKOUT_REVIEW_S="18")
    stay = [order(checkout, State.RUNNING, f"other-{number}") for number in range(others)]
    took = []
    for number in range(40):
        key = str(number)
        line = order(checkout, State.RUNNING, key)
        wait_until(lambda key=key: checkout.book.notes("review", f"shop:{key}"), "the review")
        gone = line.hang_up(rudely=number % 2 == 1)
        (note,) = wait_until(
            lambda key=key: checkout.book.notes("interrupted", f"shop:{key}"), "the interruption"
        )
        took.append(note.at - gone)
    assert spread(took) < 0.1
    assert len(checkout.book.notes("interrupted")) == 40
    for line in stay:
        line.hang_up()


@pytest.mark.slow
def test_what_waits_is_cancelled_within_100_ms_of_its_callers_hanging_up(checkout):
    took = []
    for number in range(40):
        line = order(checkout, State.READY, str(number))
        gone = line.hang_up(rudely=number % 2 == 1)
        cancelled(checkout, str(number))
        took.append(time.monotonic() - gone)
    assert spread(took) < 0.1
