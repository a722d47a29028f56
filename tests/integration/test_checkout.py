"""workers/checkout as its callers meet it: the real web app and worker, over real HTTP."""

import contextlib
import socket
import sqlite3
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from deadq import Queue, State
from deadq.job import job_id
from tests.commands import COMMAND, environment
from tests.servers import wait_until

ORDER = {"order": "17", "cents": 999}


class Checkout:
    """The web app, its queue as an operator sees it, and workers on demand."""

    def __init__(self, folder, url):
        self.folder = folder
        self.ledger = folder / "ledger.sqlite"
        self.settings = {"DEADQ_URL": url, "CHECKOUT_LEDGER": str(self.ledger)}
        self.queue = Queue("checkout", capacity=64, url=url)
        self._open = contextlib.ExitStack()
        with socket.create_server(("127.0.0.1", 0)) as listener:
            door = listener.fileno()
            self.run("-m", "uvicorn", "workers.checkout.web:app", f"--fd={door}", fds=(door,))
            self.address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        self.client = self._open.enter_context(httpx.Client(base_url=self.address, timeout=20.0))
        self._open.callback(self.queue.close)

    def run(self, *args, fds=(), **settings):
        process = subprocess.Popen(
            [sys.executable, *args],
            env=environment(**self.settings, **settings),
            stdin=subprocess.DEVNULL,
            stdout=(self.folder / "log").open("ab"),
            stderr=subprocess.STDOUT,
            pass_fds=fds,
        )
        self._open.callback(process.wait, 10)
        self._open.callback(process.terminate)
        return process

    def worker(self, **settings):
        target = "workers.checkout.jobs:queue"
        worker = self.run(*COMMAND[1:], "work", target, "--concurrency", "4", **settings)
        wait_until(lambda: self.queue.stats().slots == 4, "the worker")
        return worker

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


def test_a_key_belongs_to_one_order(staffed):
    assert staffed.post().status_code == 200
    other = staffed.post({"order": "18", "cents": 1})
    assert (other.status_code, other.json()) == (422, {"error": "key_reused"})


def test_a_payment_that_is_declined_is_not_charged(staffed):
    answer = staffed.post({"order": "17", "cents": 2_000_000})
    assert (answer.status_code, answer.json()) == (402, {"error": "declined"})
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
    assert (answer.status_code, answer.json()) == (429, {"error": "full"})
    assert int(answer.headers["retry-after"]) >= 1


def test_a_paused_queue_is_503(checkout):
    checkout.queue.pause()
    assert (checkout.post().status_code, checkout.post().json()) == (503, {"error": "paused"})


def test_a_caller_whose_time_is_over_gets_504(checkout):
    begun = time.monotonic()
    answer = checkout.post(timeout_ms=400)
    assert (answer.status_code, answer.json()) == (504, {"error": "DeadlineExceeded"})
    assert time.monotonic() - begun < 2.0
    assert checkout.post(timeout_ms=0).json() == {"error": "expired"}


@pytest.mark.parametrize(
    ("ahead_s", "timeout_ms", "least", "most"),
    [
        (2.5, 3_000, 2.0, 2.5),  # the smaller of the two, less the way home
        (600.0, 3_000, 2.5, 3.0),  # a wrong clock: the duration wins
        (-600.0, 3_000, 2.5, 3.0),
    ],
)
def test_instant_and_duration_are_weighed(checkout, ahead_s, timeout_ms, least, most):
    instant = str(int((time.time() + ahead_s) * 1_000))
    accepted = checkout.post(prefer="respond-async", timeout_ms=timeout_ms, x_deadline_ms=instant)
    assert accepted.status_code == 202
    assert least < checkout.job().remaining_s < most


# A caller hangs up.


def hang_up(checkout, state):
    """Send an order, and close the connection once its job is in that state."""
    with socket.create_connection(checkout.client.base_url.netloc.decode().split(":")) as line:
        body = b'{"order": "17", "cents": 999}'
        line.sendall(
            b"POST /orders HTTP/1.1\r\nhost: x\r\nx-api-key: shop\r\nidempotency-key: k\r\n"
            b"x-timeout-ms: 20000\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)
        )
        wait_until(
            lambda: (job := checkout.job()) is not None and job.state is state, f"it to be {state}"
        )
    return time.monotonic()


def cancelled(checkout):
    return wait_until(lambda: checkout.job().state is State.CANCELLED, "the job to be cancelled")


def test_a_waiting_order_is_given_up_when_its_caller_hangs_up(checkout):
    gone = hang_up(checkout, State.READY)
    cancelled(checkout)
    assert time.monotonic() - gone < 1.0
    checkout.worker()
    assert checkout.charges() == []


def test_a_running_order_is_given_up_when_its_caller_hangs_up(checkout):
    checkout.worker(CHECKOUT_REVIEW_S="10")
    gone = hang_up(checkout, State.RUNNING)
    cancelled(checkout)
    assert time.monotonic() - gone < 1.0
    assert checkout.charges() == []


def test_an_order_that_somebody_else_waits_for_goes_on(checkout):
    checkout.worker(CHECKOUT_REVIEW_S="1.0")
    with ThreadPoolExecutor(1) as callers:
        stays = callers.submit(checkout.post)
        hang_up(checkout, State.RUNNING)
        answer = stays.result()
    assert answer.status_code == 200
    assert checkout.charges() == [("17", 999)]
