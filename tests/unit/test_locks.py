"""Counters that a fork or a signal comes in between go on counting."""

import os
import signal
import threading

import pytest

from deadq.resilience import Allowance, Breaker, Budget, BudgetRule
from deadq.resilience.borrower import Borrower
from deadq.resilience.budget import Window
from deadq.resilience.latency import Latencies
from deadq.resilience.locks import counting_lock
from deadq.resilience.tail import Tail
from deadq.testing import clock

RULE = BudgetRule(ratio=0.1, floor=100)


def used(one):
    """Each counts something."""
    match one:
        case Allowance():
            assert one.spend()
        case Breaker():
            one.succeeded(one.allow())
        case Latencies():
            one.record(0.1)
            assert one.quantile(0.5)
        case Tail():
            one.seen(one.begin(0.1), 0.1, slow=False)
        case _:
            one.first()
            assert one.take()


def kinds():
    budget, quota = Budget(RULE), Budget("aws-2026")
    return [
        (budget, budget._counts._lock),
        (quota, quota._counts._lock),
        *[
            (one, one._lock)
            for one in (
                Allowance(5), Breaker(), Latencies(), Tail(0.95, 0.1, 0.05), Window(RULE),
                Borrower(RULE),
            )
        ],
    ]  # fmt: skip


KINDS = pytest.mark.parametrize(
    ("one", "lock"), kinds(), ids=lambda value: type(value).__name__
)  # fmt: skip


@pytest.fixture
def held():
    """Has a thread take a lock, and keep it until the test ends."""
    over, threads = threading.Event(), []

    def hold(lock):
        taken = threading.Event()

        def keep():
            with lock:
                taken.set()
                over.wait()

        threads.append(threading.Thread(target=keep))
        threads[-1].start()
        taken.wait()

    yield hold
    over.set()
    for thread in threads:
        thread.join()


def in_a_child(work):
    """Its end: 0 when the work came to one in ten seconds."""
    pid = os.fork()
    if pid:
        return os.waitpid(pid, 0)[1]
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(10)
        work()
        os._exit(0)
    finally:
        os._exit(1)


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
@KINDS
def test_what_another_thread_held_at_the_fork_is_free_in_the_child(held, one, lock):
    held(lock)
    assert in_a_child(lambda: used(one)) == 0


@KINDS
def test_a_handler_may_count_where_its_thread_is_counting(one, lock):
    done = threading.Event()

    def interrupted():
        with lock:
            used(one)
        done.set()

    threading.Thread(target=interrupted, daemon=True).start()
    assert done.wait(10)


def test_a_lock_still_keeps_threads_apart():
    lock = counting_lock()
    with lock:
        other = threading.Thread(target=lambda: found.append(lock.acquire(blocking=False)))
        found = []
        other.start()
        other.join()
    assert found == [False]


def test_a_window_that_was_left_half_counted_mends_itself():
    with clock() as time:
        window = Window(BudgetRule(ratio=0.5, floor=0))
        for _ in range(10):
            window.first()
        window._firsts += 100  # as after a fork between two steps of another thread
        window._spent -= 7
        time.advance(1.0)
        assert window.available() == 5.0
