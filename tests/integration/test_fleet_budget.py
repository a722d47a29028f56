"""A retry budget that processes share through their server: what it costs, and that it holds."""

import asyncio
import contextlib
import multiprocessing
import os
import threading

import pytest
import redis
from prometheus_client import REGISTRY

from deadq import FleetBudget, Queue, RetryDenied
from deadq.budgets import _Lending
from deadq.resilience import Backoff, BudgetRule, aretry, retry
from deadq.testing import clock
from tests.cases.support import counting, script_calls
from tests.marks import on_newest
from tests.servers import Server, wait_until

pytestmark = on_newest

AT_ONCE = Backoff("none")
FORK = multiprocessing.get_context("fork")


@pytest.fixture
def budget(server):
    """A factory: each as in a process of its own."""
    with contextlib.ExitStack() as stack:

        def make(name="payments", rule="sre", url=None):
            made = FleetBudget(name, rule, url=url or server.url)
            stack.callback(made.close)
            return made

        yield make


def told(budget):
    """Use it once, and wait until the fleet has answered."""
    budget.first()
    wait_until(lambda: budget.shared, "the fleet's answer")
    return budget


def answers(budget):
    """How often the fleet has answered."""
    number: int = budget._lending.borrower._number
    return number if budget.shared else 0


def taken(budget, most=1_000):
    return sum(bool(budget.take()) for _ in range(most))


def test_what_one_process_has_earned_another_may_spend(budget):
    rule = BudgetRule(ratio=0.1, floor=0)
    busy, needy = budget(rule=rule), budget(rule=rule)
    for _ in range(1_000):
        busy.first()
    wait_until(lambda: answers(busy) > 1, "the report")
    told(needy)
    assert 10 <= taken(needy) <= 60


def test_all_together_stay_within_the_fleets_share(budget):
    """The floor is one for the fleet, and not one for each process."""
    rule = BudgetRule(ratio=0, floor=1.0)
    fleet = [told(budget(rule=rule)) for _ in range(6)]
    assert sum(taken(one) for one in fleet) <= 10


def test_calls_cost_no_round_trip(server, budget):
    shared = told(budget())

    @retry(budget=shared)
    def call():
        return 1

    with server.client() as client, counting(client) as found:
        for _ in range(10_000):
            call()
        wait_until(lambda: not shared._lending._wanted.is_set(), "the thread to be done")
    assert 1 <= script_calls(found) <= 10_000 / 100


@pytest.mark.parametrize("together", [1, 4])
def test_under_failures_too(server, budget, together):
    shared = told(budget(rule=BudgetRule(1000, 1000)))

    @aretry(tries=2, budget=shared, backoff=AT_ONCE)
    async def call():
        raise ConnectionResetError

    async def main():
        for _ in range(500):
            await asyncio.gather(*(call() for _ in range(together)), return_exceptions=True)

    with server.client() as client, counting(client) as found:
        asyncio.run(main())
    assert script_calls(found) <= 2 * 500 * together / 100


def test_names_are_told_apart(server, budget):
    rule = BudgetRule(0, 0.5)
    one, other = told(budget("a", rule)), told(budget("b", rule))
    assert taken(one) >= 1
    assert taken(other) >= 1
    with closing(Queue("a", capacity=5, url=server.url)) as queue:
        assert told(queue.budget).available() == 10, "a queue of that name is not the dependency"


@contextlib.contextmanager
def closing(queue):
    try:
        yield queue
    finally:
        queue.budget.close()
        queue.close()


def test_the_last_rule_holds_for_all(server, budget):
    told(budget(rule=BudgetRule(0, 0.1)))
    assert taken(told(budget(rule=BudgetRule(0, 100.0)))) >= 10


def test_a_queues_budget_is_that_of_its_own_retries(server):
    with closing(Queue("shop", capacity=5, url=server.url)) as queue:
        told(queue.budget)
        for _ in range(3):
            queue.budget.take()
        with server.client() as client:
            assert client.exists("deadq:{shop}:budget")


def test_a_queues_rule_outlives_those_who_borrow(server, budget):
    """Its workers say it when they register, and never again."""
    told(budget("shop"))
    with closing(Queue("shop", capacity=5, url=server.url)) as queue, server.client() as client:
        told(queue.budget)
        assert client.pttl("deadq:{shop}:budget") == -1
        (of_dependency,) = set(client.keys("*:budget")) - {b"deadq:{shop}:budget"}
        assert 0 < client.pttl(of_dependency) <= 76_000


def test_a_queue_that_is_closed_leaves_no_thread(server):
    before = [*lenders()]
    queue = Queue("shop", capacity=5, url=server.url)
    told(queue.budget)
    assert len(lenders()) == len(before) + 1
    queue.close()
    assert lenders() == before


def lenders():
    return [thread for thread in threading.enumerate() if thread.name == "deadq-budget"]


def test_threads_that_use_it_first_at_the_same_time_share_one_loan(budget, monkeypatch):
    made, twice = [], threading.Event()

    class Slow(_Lending):
        def __init__(self, *args):
            made.append(self)
            if len(made) == 2:
                twice.set()
            twice.wait(0.5)
            super().__init__(*args)

    monkeypatch.setattr("deadq.budgets._Lending", Slow)
    shared = budget()
    threads = [threading.Thread(target=shared.first) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1


# Trouble.


@pytest.fixture
def own_server(server):
    with Server(server.binary) as found:
        yield found


def test_while_the_server_is_away_each_process_goes_by_the_rule_alone(own_server, budget):
    server = own_server
    shared = told(budget(rule=BudgetRule(0.1, 0), url=server.url))
    server.kill()
    for _ in range(200):
        shared.first()
    wait_until(lambda: not shared.shared, "it to notice")
    assert taken(shared) <= 201 * 0.1
    assert shared.available() < 1
    server.start()

    def back():
        shared.first()
        return shared.shared

    wait_until(back, "it to come back")


def test_before_the_fleet_has_answered_too(budget):
    shared = budget(rule=BudgetRule(0.1, 0.2), url="redis://127.0.0.1:1/0")
    for _ in range(100):
        shared.first()
    assert taken(shared) == 12


def test_a_retry_weighs_when_it_is_made(budget):
    with clock() as time:
        shared = budget(rule=BudgetRule(0, 1.0, 1.0), url="redis://127.0.0.1:1/0")
        assert shared.take(after=0.8)
        time.advance(1.1)
        assert not shared.take(), "it was made 0.3 s ago"
        time.advance(0.8)
        assert shared.take()


def test_a_server_that_forgets_everything_does_no_harm(server, budget):
    shared = told(budget(rule=BudgetRule(0, 1.0)))
    with server.client() as client:
        client.flushall()
        client.script_flush()
    for _ in range(130):
        shared.first()
    wait_until(lambda: answers(shared) > 1, "the next answer")
    assert taken(shared) <= 10


def test_a_forked_child_borrows_for_itself(budget):
    shared = told(budget())

    def child(pipe):
        told(shared)
        pipe.send([os.getpid(), answers(shared)])
        shared.close()

    ours, theirs = FORK.Pipe()
    process = FORK.Process(target=child, args=(theirs,))
    process.start()
    assert ours.poll(20)
    pid, number = ours.recv()
    process.join(20)
    assert (pid, number) == (process.pid, 1)
    assert process.exitcode == 0
    for _ in range(130):
        shared.first()
    wait_until(lambda: answers(shared) > 1, "ours to go on")


def test_no_thread_is_left_behind(server):
    before = len(lenders())
    shared = told(FleetBudget("payments", url=server.url))
    assert len(lenders()) == before + 1
    shared.close()
    assert len(lenders()) == before
    told(shared)
    del shared
    wait_until(lambda: len(lenders()) == before, "the thread of a budget that is gone to end")


# What it shows.


def test_it_is_a_gauge(budget):
    shared = told(budget("gauged", BudgetRule(0, 2.0)))
    value = REGISTRY.get_sample_value("deadq_retry_budget_available", {"budget": "gauged"})
    assert value == shared.available() == 20
    assert "gauged" in repr(shared)


def test_the_metric_tells_when_it_denies(budget):
    shared = told(budget("none left", BudgetRule(0, 0)))

    @retry(budget=shared, backoff=AT_ONCE, name="needy")
    def call():
        raise ConnectionResetError

    with pytest.raises(RetryDenied) as found:
        call()
    assert found.value.reason == "budget"
    labels = {"name": "needy", "outcome": "budget"}
    assert REGISTRY.get_sample_value("deadq_retries_total", labels) == 1


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"name": ""}, ValueError, "budget name"),
        ({"name": 5}, TypeError, "budget name"),
        ({"rule": "aws-2026"}, ValueError, "sre, finagle"),
        ({"rule": 7}, TypeError, "preset"),
        ({"url": "http://x"}, ValueError, "redis://"),
    ],
)
def test_odd_settings_are_refused(given, error, words, server):
    with pytest.raises(error, match=words):
        FleetBudget(**{"name": "payments", **given})


def test_a_client_that_raises_what_no_client_does_is_asked_again(server, caplog):
    """As one with instruments about it may."""
    broken = threading.Event()
    broken.set()

    class Odd(redis.Redis):
        def execute_command(self, *args, **options):
            if broken.is_set():
                raise LookupError("instrument")
            return super().execute_command(*args, **options)

    client = Odd(unix_socket_path=str(server.socket))
    with contextlib.closing(FleetBudget("odd", client=client)) as odd:
        odd.first()
        wait_until(lambda: "LookupError: instrument" in caplog.text, "the line in the log")
        assert odd.take(), "it counts by itself"
        broken.clear()

        def answered():
            odd.first()
            return odd.shared

        wait_until(answered, "the fleet's answer")
