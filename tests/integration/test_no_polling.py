"""Nothing polls: what workers and waiters cost a server while nothing happens.

The server's own count of commands includes those that scripts call, so the scripts are known by
what MONITOR shows of the clients, and the totals by commandstats.
"""

import contextlib
import threading
import time

import pytest

from deadq.store import keys, loader
from tests.servers import wait_until
from tests.shop import Shop
from tests.workers import WorkerProcess

LEASE_S = 0.9
RENEWALS_A_SECOND = 3 / LEASE_S

for_some_time = pytest.mark.parametrize(
    "seconds", [3, pytest.param(10, marks=pytest.mark.slow)], ids=["3s", "10s"]
)


class Watch:
    """What clients send during a with block, and how often the server ran each command."""

    def __init__(self, server):
        self._server = server
        self._names = {loader.load(name).sha: name for name in loader.names()}
        self.sent = []

    def __enter__(self):
        self._client = self._server.client()
        self._client.config_resetstat()
        self._monitor = self._server.client().monitor()
        self._monitor.__enter__()
        self._thread = threading.Thread(target=self._read)
        self._thread.start()
        return self

    def __exit__(self, *_):
        self.ran = {
            name.removeprefix("cmdstat_"): stat["calls"]
            for name, stat in self._client.info("commandstats").items()
        }
        self._client.echo("the watch is over")
        self._thread.join()
        self._monitor.__exit__(None, None, None)
        self._client.close()

    def calls(self, *names):
        """How often clients called these scripts or commands."""
        return sum(name in names for name in self.sent)

    def _read(self):
        for seen in self._monitor.listen():
            command, _, rest = seen["command"].partition(" ")
            if "the watch is over" in rest:
                return
            command = command.upper()
            if seen["client_type"] == "lua" or command in ("INFO", "CONFIG"):  # the watch's own
                continue
            if command == "EVALSHA":
                command = self._names[rest.split()[0]]
            self.sent.append(command)


def steady(server):
    """Return once every worker has renewed its lease: its connections are open."""
    with server.client() as client:
        name = keys.key("shop", "workers")
        first = dict(client.zrange(name, 0, -1, withscores=True))
        wait_until(
            lambda: all(client.zscore(name, child) > lease for child, lease in first.items()),
            "the first renewals",
        )


def let_pass(seconds):
    until = time.monotonic() + seconds
    wait_until(lambda: time.monotonic() >= until, "time to pass", seconds + 5)


@pytest.fixture
def book(tmp_path):
    return tmp_path / "book"


@pytest.fixture
def server(valkey_server):
    """One kind is enough: what is sent depends on the clients."""
    with valkey_server.client() as client:
        client.flushall()
    return valkey_server


def worker(server, book, **settings):
    return WorkerProcess(server.url, book, **{"lease": LEASE_S, **settings})


@for_some_time
@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_idle_workers_send_renewals_and_blocked_pops_only(server, book, workers, seconds):
    with contextlib.ExitStack() as stack:
        for _ in range(workers):
            stack.enter_context(worker(server, book))
        steady(server)
        with Watch(server) as watch:
            let_pass(seconds)
    assert set(watch.sent) <= {"renew", "BLPOP"}
    renewals = watch.calls("renew")
    expected = workers * RENEWALS_A_SECOND * seconds
    assert expected - workers <= renewals <= expected + workers
    # the same by the server's own books
    assert watch.ran.get("blpop", 0) <= workers
    assert watch.ran["evalsha"] <= renewals  # one may be on its way when the counting ends
    assert sum(watch.ran.values()) <= 20 * renewals + 10


@pytest.mark.parametrize(
    "seconds", [1, pytest.param(10, marks=pytest.mark.slow)], ids=["1s", "10s"]
)
def test_a_busy_worker_and_its_waiting_callers_send_renewals_only(server, book, seconds):
    """One slot runs, others are free; ten callers in threads wait for the result."""
    shop = Shop(server.url, book)
    with worker(server, book):
        call = shop.nap.options(key="long", within=30.0)
        handle = call.enqueue(20.0)
        waiters = [threading.Thread(target=lambda: _outcome(call.enqueue(20.0))) for _ in range(10)]
        for waiter in waiters:
            waiter.start()
        wait_until(lambda: shop.book.notes("start", "long"), "the start")
        with server.client() as client:
            wait_until(lambda: _subscribed(client), "the waiters to listen")
        steady(server)
        with Watch(server) as watch:
            let_pass(seconds)
        handle.cancel()
        for waiter in waiters:
            waiter.join(5)
    shop.close()
    assert set(watch.sent) <= {"renew", "BLPOP"}
    assert watch.calls("renew") <= RENEWALS_A_SECOND * seconds + 1
    assert watch.ran["evalsha"] <= watch.calls("renew")


@pytest.mark.slow
def test_a_full_worker_with_a_backlog_sends_renewals_only(server, book):
    """All slots run and jobs wait: nothing to claim until one ends."""
    shop = Shop(server.url, book)
    with worker(server, book, concurrency=2), worker(server, book, concurrency=1):
        handles = [shop.nap.options(within=30.0).enqueue(20.0) for _ in range(10)]
        wait_until(lambda: len(shop.book.notes("start")) == 3, "all slots to run")
        steady(server)
        with Watch(server) as watch:
            let_pass(1.5)
        for handle in handles:
            handle.cancel()
    shop.close()
    # a renewal hands out tokens again, in case they went down with a worker
    assert set(watch.sent) <= {"renew", "BLPOP", "claim"}
    renewals = watch.calls("renew")
    assert renewals <= 2 * RENEWALS_A_SECOND * 1.5 + 2
    assert watch.calls("claim", "BLPOP") <= 4 * renewals


@pytest.mark.parametrize("end", ["kill", pytest.param("freeze", marks=pytest.mark.slow)])
def test_a_full_worker_does_not_spin_on_a_dead_ones_token(server, book, end):
    """An idle worker dies while parked; jobs wait that the full one cannot take yet."""
    shop = Shop(server.url, book)
    long = {"concurrency": 1, "lease": 5.0}
    with worker(server, book, **long), worker(server, book, **long) as victim:
        first = shop.nap.options(within=30.0).enqueue(20.0)
        wait_until(lambda: shop.book.notes("start"), "the start")
        if shop.book.notes("start")[0].pid == victim.pid:
            # the other one is idle: let the busy one be the survivor
            first.cancel()
            wait_until(lambda: shop.book.notes("interrupted"), "the interruption")
        getattr(victim, end)()
        rest = [shop.nap.options(within=30.0).enqueue(20.0) for _ in range(5)]
        wait_until(lambda: _running_in_another(shop.book, victim.pid), "the survivor to be full")
        let_pass(0.1)
        with Watch(server) as watch:
            let_pass(0.8)  # the dead one's lease is longer
        for handle in (first, *rest):
            handle.cancel()
    shop.close()
    assert watch.calls("claim", "BLPOP") <= 4 * (watch.calls("renew") + 1), watch.sent[:20]


@pytest.mark.slow
def test_a_worker_leaves_jobs_alone_that_another_one_knows(server, book):
    """Waiting jobs of a task that only a full worker knows: the idle one must not circle them."""
    shop = Shop(server.url, book)
    with worker(server, book, concurrency=1), worker(server, book, forget=["nap"]):
        handles = [shop.nap.options(within=30.0).enqueue(20.0) for _ in range(5)]
        wait_until(lambda: shop.book.notes("start"), "the start")
        steady(server)
        with Watch(server) as watch:
            let_pass(1.5)
        for handle in handles:
            handle.cancel()
    shop.close()
    renewals = watch.calls("renew")
    assert watch.calls("claim", "BLPOP") <= 4 * renewals, watch.sent[:20]


def _outcome(handle):
    with contextlib.suppress(Exception):
        handle.result()


def _subscribed(client):
    return any(int(c["sub"]) or int(c.get("ssub", 0)) for c in client.client_list())


def _running_in_another(book, pid):
    alive = [note for note in book.notes("start") if note.pid != pid]
    ended = [note for note in book.notes("interrupted") if note.pid != pid]
    return len(alive) > len(ended)
