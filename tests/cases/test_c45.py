"""C45: worker alive but deaf after reconnects."""

import time

import pytest

from deadq.testing.proxy import slow_proxy
from tests.marks import on_newest
from tests.servers import Server, binaries, wait_until
from tests.shop import Shop
from tests.workers import WorkerProcess, blocked


@pytest.fixture
def book(tmp_path):
    return tmp_path / "book"


def kill_all_others(client):
    """Kill every connection but this one; how many."""
    mine = client.client_id()
    victims = [c["id"] for c in client.client_list() if int(c["id"]) != mine]
    for victim in victims:
        client.client_kill_filter(_id=victim)
    return len(victims)


def starts_within(shop, seconds, since):
    """Submit a job with deadline +3 s; it must start so soon after that instant."""
    handle = shop.echo.options(within=3.0).enqueue("value")
    assert handle.result() == "value"
    started = shop.book.notes("start", handle.key)
    assert len(started) == 1
    assert started[0].at - since < seconds


@on_newest
def test_a_worker_cut_off_three_times_in_two_seconds_still_listens(server, book):
    shop = Shop(server.url, book)
    with server.client() as client, WorkerProcess(server.url, book):
        cut = 0.0
        for _ in range(3):
            wait_until(lambda: blocked(client), "the worker to block")
            due = cut + 0.65
            wait_until(lambda at=due: time.monotonic() >= at, "the next cut")
            assert kill_all_others(client) > 0
            cut = time.monotonic()
        starts_within(shop, 1.0, cut)
        # and it goes on listening
        wait_until(lambda: blocked(client), "the worker to block again")
        starts_within(shop, 1.0, time.monotonic())
        shop.close()


@on_newest
def test_a_job_that_is_submitted_while_the_worker_is_cut_off_starts_soon_after(server, book):
    with slow_proxy(server.url, listen="unix") as line:
        shop = Shop(server.url, book)
        with WorkerProcess(line.url, book):
            line.refuse()
            line.cut()
            handle = shop.echo.options(within=5.0).enqueue("value")
            let_go = time.monotonic() + 0.3
            wait_until(lambda: time.monotonic() > let_go, "the outage to end")
            line.refuse(False)
            healed = time.monotonic()
            assert handle.result() == "value"
            (started,) = shop.book.notes("start")
            assert started.at - healed < 1.5  # the pause between two tries is 1 s at most
        shop.close()


@on_newest
def test_a_worker_whose_token_got_lost_on_the_way_is_not_deaf(server, book):
    """The reply of the blocked pop vanishes, and its connection stays open: a half-dead line.
    Renewals get through, so the worker counts as alive; they must tell it that work waits.
    """
    with slow_proxy(server.url, listen="unix") as line:
        shop = Shop(server.url, book, lease=1.5)
        with WorkerProcess(line.url, book, lease=1.5), server.client() as client:
            wait_until(lambda: blocked(client), "the worker to block")
            line.swallow_replies(to=b"BLPOP")
            handle = shop.echo.options(within=5.0).enqueue("value")
            line.wait_until(lambda: line.swallowed == 1)
            swallowed = time.monotonic()
            assert handle.result() == "value"
            (started,) = shop.book.notes("start")
            assert started.at - swallowed < 1.5
        shop.close()


@on_newest
def test_a_worker_that_never_hears_that_it_is_parked_is_not_deaf(server, book):
    """It listened for messages alone while its claim was under way; what would have ended that
    got lost on a half-dead line."""
    with slow_proxy(server.url, listen="unix") as line:
        shop = Shop(server.url, book, lease=1.5)
        line.swallow_replies(to=b"BLPOP")
        with WorkerProcess(line.url, book, lease=1.5), server.client() as client:
            line.wait_until(lambda: line.swallowed == 1)
            parked = time.monotonic()
            (deaf,) = (c["id"] for c in blocked(client))
            wait_until(lambda: any(c["id"] != deaf for c in blocked(client)), "a line that lives")
            assert time.monotonic() - parked < 1.5
            starts_within(shop, 0.5, time.monotonic())
        shop.close()


@pytest.mark.slow
def test_a_worker_listens_after_its_server_was_restarted(book):
    with Server(binaries()["valkey9"], aof=True) as server:
        shop = Shop(server.url, book)
        with WorkerProcess(server.url, book):
            for _ in range(3):
                with server.client() as client:
                    wait_until(lambda c=client: blocked(c), "the worker to block")
                server.restart()
                starts_within(shop, 1.5, time.monotonic())
        shop.close()


@pytest.mark.slow
def test_a_worker_listens_after_its_server_stood_still(book):
    """SIGSTOP for longer than a lease: nothing is closed, nothing answers."""
    with Server(binaries()["valkey9"]) as server:
        shop = Shop(server.url, book, lease=0.5)
        with WorkerProcess(server.url, book, lease=0.5):
            server.freeze()
            thaw = time.monotonic() + 1.0
            wait_until(lambda: time.monotonic() > thaw, "the end of the standstill")
            server.thaw()
            thawed = time.monotonic()
            starts_within(shop, 1.5, thawed)
        shop.close()
