"""C03: a CPU-bound async handler blocks the renewals.

The rule: whoever renews the lease runs no user code. A handler that keeps its process to itself,
loop, interpreter lock and all, keeps its lease; nobody else is given its job.
"""

import ctypes
import re
import time

from tests.servers import wait_until
from tests.shifts import Shift, async_daily, process_daily, under_both_slowly


def spin(seconds):
    """Computes, and gives nobody else the loop."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass


def in_long_calls(seconds, call, size, power):
    """Calls whose time grows by ``size ** power``: mostly a single one that takes it all."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        call(size)
        took = left - (until - time.monotonic())
        size = int(size * (max(left - took, 0.05) / took) ** (1 / power)) + 1


def hold_by_sum(seconds):
    """One call into C, in which the interpreter lock is never given away."""
    in_long_calls(seconds, lambda size: sum(range(size)), 1_000_000, 1)


def hold_by_match(seconds):
    """A regular expression of quadratic time; it lets signals in, but no other thread."""
    pattern = re.compile("a*b")
    in_long_calls(seconds, lambda size: pattern.search("a" * size), 4_000, 2)


def hold_by_power(seconds):
    """Long multiplication."""
    in_long_calls(seconds, lambda size: (3**size) * (3**size), 50_000, 1.6)


def hold_by_sleep(seconds):
    """Sleeps in C without giving the interpreter lock away."""
    usleep, until = ctypes.PyDLL(None).usleep, time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        usleep(min(int(left * 1e6) + 1, 999_999))


HOLDS = {hold.__name__: hold for hold in (spin, hold_by_sum, hold_by_match, hold_by_power)}
HOLDS["hold_by_sleep"] = hold_by_sleep


def held(book, how, seconds):
    book.note("start")
    HOLDS[how](seconds)
    book.note("effect")
    return how


def declare_async(queue, book):
    @queue.task(within=60.0)
    async def hold(how, seconds):
        return held(book, how, seconds)


def declare_process(queue, book):
    @queue.task(within=60.0)
    def hold(how, seconds):
        return held(book, how, seconds)


TWINS = {"async": declare_async, "process": declare_process}


def ran_once(made, *handles):
    keys = {handle.key for handle in handles}
    assert made.book.starts() == dict.fromkeys(keys, 1)
    assert sorted(note.key for note in made.book.notes("effect")) == sorted(keys)
    assert {note.attempt for note in made.book.notes()} == {1}
    assert made.stat("reclaimed") == made.stat("stale") == 0
    made.rests()


@async_daily
def test_a_handler_that_computes_for_longer_than_its_lease(valkey_server, tmp_path, runner):
    with Shift(valkey_server, tmp_path, TWINS, runner, lease=1.0) as made:
        made.worker(concurrency=1)
        handle = made.tasks.hold.options(key="k", within=15.0).enqueue("spin", 3.5)
        made.started("k")
        made.worker(concurrency=1)
        assert handle.result() == "spin"
        ran_once(made, handle)


@process_daily
def test_handlers_that_hold_the_interpreter_for_four_leases(valkey_server, tmp_path, runner):
    """Each in a process of its own; more of them than there are CPUs."""
    with Shift(valkey_server, tmp_path, TWINS, runner, lease=2.0) as made:
        count = len(HOLDS)
        made.worker(concurrency=count, children=count if runner == "async" else None)
        handles = [made.tasks.hold.options(key=how).enqueue(how, 8.1) for how in HOLDS]
        made.started(*HOLDS)
        made.worker(concurrency=1)  # idle all the time
        assert [handle.result() for handle in handles] == list(HOLDS)
        ran_once(made, *handles)
        for how in HOLDS:
            start, effect = (made.book.notes(what, how)[0].at for what in ("start", "effect"))
            assert effect - start > 4 * 2.0, how


@under_both_slowly
def test_many_at_once(valkey_server, tmp_path, runner):
    """Many more busy processes than CPUs: the supervisor gets its turn all the same."""
    with Shift(valkey_server, tmp_path, TWINS, runner, lease=2.0) as made:
        made.worker(concurrency=8, children=8 if runner == "async" else None)
        handles = [made.tasks.hold.options(key=f"k{i}").enqueue("spin", 6.0) for i in range(8)]
        wait_until(lambda: len(made.book.starts()) == 8, "all to start")
        made.worker(concurrency=2)
        assert [handle.result() for handle in handles] == ["spin"] * 8
        ran_once(made, *handles)
