"""workers/quotes: a web app, a worker that asks three sellers, and PostgreSQL; all of them real."""

import contextlib
import time

import httpx
import pytest

from deadq import Queue
from tests.served import Served, worked


class Quotes:
    """The web app, its sellers, a worker, and what stands in the database."""

    def __init__(self, folder, url, postgres, **sellers):
        self._open = contextlib.ExitStack()
        self._postgres = postgres
        with postgres.connect() as conn:
            conn.execute("DROP TABLE IF EXISTS quotes")
            conn.commit()
        market = Served("workers.quotes.sellers:app", folder / "sellers.log", **sellers)
        self._open.enter_context(market)
        named = ",".join(f"{market.address}/{name}" for name in ("north", "south", "west"))
        settings = {"DEADQ_URL": url, "QUOTES_DATABASE": postgres.url, "QUOTES_SELLERS": named}
        web = self._open.enter_context(
            Served("workers.quotes.web:app", folder / "web.log", **settings)
        )
        self.client = self._open.enter_context(httpx.Client(base_url=web.address, timeout=20.0))
        self.queue = Queue("quotes", capacity=64, url=url)
        self._open.callback(self.queue.close)
        worker = worked("workers.quotes.jobs:queue", self.queue, folder / "worker.log", **settings)
        self._open.enter_context(worker)

    def ask(self, item="umbrella", **headers):
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.client.post("/quotes", json={"item": item}, headers=named)

    def rows(self):
        with self._postgres.connect() as conn:
            return conn.execute("SELECT item, seller, cents FROM quotes ORDER BY made").fetchall()

    def close(self):
        self._open.close()


@pytest.fixture
def quotes(tmp_path, valkey_server, postgres):
    with valkey_server.client() as client:
        client.flushall()
    with contextlib.ExitStack() as stack:

        def make(**sellers):
            made = Quotes(tmp_path, valkey_server.url, postgres, **sellers)
            stack.callback(made.close)
            return made

        yield make


def test_the_best_offer_is_given_and_written_down_once(quotes):
    made = quotes(SELLERS_STALL_SHARE="0")
    first = made.ask(idempotency_key="k")
    again = made.ask(idempotency_key="k")
    assert first.status_code == 200, first.text
    offer = first.json()
    assert (offer["item"], 500 <= offer["cents"] < 1500) == ("umbrella", True)
    assert again.json() == offer
    assert again.headers["idempotency-replayed"] == "true"
    assert made.rows() == [("umbrella", offer["seller"], offer["cents"])]


def test_when_no_seller_answers_the_caller_hears_so_in_time_and_nothing_is_written(quotes):
    made = quotes(SELLERS_STALL_SHARE="1", SELLERS_STALL_S="20")
    begun = time.monotonic()
    answer = made.ask(x_timeout_ms="1500")
    assert (answer.status_code, answer.json()["error"]) == (503, "no_offer")
    assert time.monotonic() - begun < 5.0
    assert made.rows() == []


def test_what_is_no_item_is_400(quotes):
    made = quotes(SELLERS_STALL_SHARE="0")
    for body in (b"", b"[]", b'{"item": ""}', b'{"item": 1}'):
        answer = made.client.post("/quotes", content=body)
        assert (answer.status_code, answer.json()["error"]) == (400, "malformed")
