"""C29: a cancelled job starts all the same.

The rule: cancel and claim are decided in one place, each in one step. True means that the body
never begins; False means that it had begun, or that the job had ended. Never both. The slot and
the place are given back once.
"""

import asyncio
import itertools
import random
import threading
import time

import pytest

from deadq import Cancelled, DeadqError, Interrupt, QueueFull, State
from deadq.job import MOVES
from tests.servers import wait_until
from tests.shifts import in_processes_slowly


def declare(queue, book):
    @queue.task(within=10.0)
    async def quick(value):
        book.note("start")
        return value

    @queue.task(within=10.0)
    async def nap(seconds):
        book.note("start")
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            book.note("interrupted")
            raise
        book.note("end")
        return "napped"

    @queue.task(within=10.0)
    def in_thread(value):
        book.note("start")
        return value


def declare_plain(queue, book):
    @queue.task(within=10.0)
    def quick(value):
        book.note("start")
        return value

    @queue.task(within=10.0)
    def nap(seconds):
        book.note("start")
        try:
            time.sleep(seconds)
        except Interrupt:
            book.note("interrupted")
            raise
        book.note("end")
        return "napped"


PLAIN = {declare: declare_plain}


def apart(made, told):
    """Every round's answer and its starts agree; ``told`` holds (key, answer) of each."""
    wait_until(lambda: made.queue.stats().unfinished == 0, "all to have ended")
    starts = made.book.starts()
    wrong = [(key, said, starts[key]) for key, said in told if said and starts[key]]
    assert not wrong, f"cancelled, and started all the same: {wrong}"
    late = [(key, starts[key]) for key, said in told if not said and starts[key] != 1]
    assert not late, f"too late, and never started, or more than once: {late}"
    # each job took a slot once and gave it back once
    assert made.stat("started") == sum(not said for _, said in told)
    made.calm()


@pytest.mark.slow
@pytest.mark.race
@pytest.mark.parametrize(
    ("scene", "name", "rounds"),
    [
        ("loop", "quick", 500),
        pytest.param("loop", "nap", 300, marks=pytest.mark.slow),
        pytest.param("loop", "in_thread", 300, marks=pytest.mark.slow),
        ("process", "quick", 200),
        pytest.param("process", "nap", 500, marks=pytest.mark.slow),
    ],
    indirect=["scene"],
)
def test_cancels_that_race_with_the_claim(scene, name, rounds):
    made = scene(declare)
    made.worker(concurrency=1)
    task = getattr(made.tasks, name)
    argument = 0.001 if name == "nap" else 1

    async def race():
        await made.queue.aconnect()
        told = []
        for number in range(rounds):
            key = f"k{number}"
            if number % 4 < 2:  # an idle worker is quick: let this round's be busy at first
                await made.tasks.nap.options(key=f"before-{key}").aenqueue(0.002)
                told.append((f"before-{key}", False))
            handle = await task.options(key=key).aenqueue(argument)
            await asyncio.sleep(random.uniform(0, 0.005) if number % 2 else 0)
            said = await handle.acancel()
            if said:
                assert await handle.astate() == State.CANCELLED
                with pytest.raises(Cancelled):
                    await handle.aresult()
            told.append((key, said))
        await made.queue.aclose()
        return told

    told = asyncio.run(race())
    apart(made, told)
    both = {said for _, said in told}
    assert both == {True, False}, "all rounds went one way: the race was not provoked"


@pytest.mark.race
def test_cancels_from_threads_while_submits_and_claims_go_on(scene):
    made = scene(declare)
    made.worker(concurrency=8)
    told = []

    def some(name):
        for number in range(60):
            key = f"{name}-{number}"
            handle = made.tasks.quick.options(key=key).enqueue(1)
            told.append((key, handle.cancel()))

    threads = [threading.Thread(target=some, args=(n,)) for n in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(told) == 300
    apart(made, told)


@pytest.mark.race
@in_processes_slowly
def test_leaving_is_cancelling_for_the_last_caller(scene):
    made = scene(declare)
    made.worker(concurrency=4)

    async def rounds():
        told = []
        for number in range(100):
            key = f"k{number}"
            handle = await made.tasks.quick.options(key=key).aenqueue(1)
            await asyncio.sleep(random.uniform(0, 0.003) if number % 2 else 0)
            await handle.aleave()
            state = await handle.astate()
            told.append((key, state == State.CANCELLED and not made.book.starts()[key]))
        await made.queue.aclose()
        return told

    told = asyncio.run(rounds())
    wait_until(lambda: made.queue.stats().unfinished == 0, "all to have ended")
    starts = made.book.starts()
    assert all(starts[key] == 0 for key, cancelled in told if cancelled)
    assert max(starts.values(), default=0) <= 1
    made.calm()


@pytest.mark.race
@in_processes_slowly
def test_a_cancelled_wait_gives_the_job_up_once(scene):
    """``asyncio.timeout`` around acall: the job never starts, or is interrupted, or is done."""
    made = scene(declare)
    made.worker(concurrency=4)

    async def one(number):
        try:
            async with asyncio.timeout(random.uniform(0, 0.004)):
                return await made.tasks.nap.options(key=f"k{number}").acall(0.002)
        except TimeoutError:
            return None

    async def rounds():
        await made.queue.aconnect()
        results = [await one(number) for number in range(100)]
        await made.queue.aclose()
        return results

    results = asyncio.run(rounds())
    assert set(results) <= {None, "napped"}
    wait_until(lambda: made.queue.stats().unfinished == 0, "all to have ended")
    starts = made.book.starts()
    assert max(starts.values(), default=0) <= 1
    for number, result in enumerate(results):
        if result is not None:
            assert starts[f"k{number}"] == 1
    made.calm()


@pytest.mark.race
@pytest.mark.slow
def test_the_state_never_goes_back_from_an_end(scene):
    """A watcher that looks all the time sees allowed moves only."""
    made = scene(declare)
    made.worker(concurrency=2)
    seen = {}
    watching = threading.Event()
    record = made.client

    def watch():
        while not watching.is_set():
            for key, idents in list(seen.items()):
                state = record.hget(made.key("job", key), "state")
                if state is not None and idents[-1] != state.decode():
                    idents.append(state.decode())

    watcher = threading.Thread(target=watch)
    watcher.start()
    for number in range(80):
        handle = made.tasks.nap.options(key=f"k{number}").enqueue(0.002)
        seen[handle.id] = ["ready"]
        threading.Event().wait(random.uniform(0, 0.003))
        handle.cancel()
    wait_until(lambda: made.queue.stats().unfinished == 0, "all to have ended")
    watching.set()
    watcher.join()
    for states in seen.values():
        for before, after in itertools.pairwise(states):
            # a look may miss states in between, but nothing leads out of an end
            assert not State(before).final, states
            assert after in reachable(State(before)), states
    made.calm()


def reachable(state):
    found, rest = set(), [state]
    while rest:
        for after in MOVES[rest.pop()]:
            if after not in found:
                found.add(after)
                rest.append(after)
    return found


# Without a race.


def test_a_cancelled_job_never_starts_however_long_it_waited(scene):
    made = scene(declare)
    handles = [made.tasks.quick.options(key=f"k{i}").enqueue(i) for i in range(20)]
    assert all(handle.cancel() for handle in handles[::2])
    made.worker()
    for i, handle in enumerate(handles):
        if i % 2:
            assert handle.result() == i
        else:
            with pytest.raises(Cancelled):
                handle.result()
    assert set(made.book.starts()) == {f"k{i}" for i in range(1, 20, 2)}


@in_processes_slowly
def test_a_running_job_is_too_late_and_is_interrupted(scene):
    made = scene(declare)
    made.worker()
    handle = made.tasks.nap.options(key="k").enqueue(8.0)
    wait_until(lambda: made.book.starts()["k"], "it to start")
    assert handle.cancel() is False
    with pytest.raises(Cancelled):
        handle.result()
    assert made.book.notes("interrupted")
    assert handle.state() == State.CANCELLED
    made.calm()


def test_a_job_that_has_ended_stays_as_it_ended(scene):
    made = scene(declare)
    made.worker()
    handle = made.tasks.quick.enqueue(1)
    assert handle.result() == 1
    assert handle.cancel() is False
    handle.leave()
    assert handle.state() == State.DONE
    assert handle.result() == 1


@pytest.mark.parametrize("state", ["later", "strange"])
@pytest.mark.slow
def test_a_job_that_waits_elsewhere_is_cancelled_for_good(scene, state):
    made = scene(declare)
    if state == "later":
        handle = made.tasks.quick.options(not_before=made.now_ms() + 300).enqueue(1)
    else:
        made.worker(declare_nothing_of_it)
        handle = made.tasks.quick.enqueue(1)
    wait_until(lambda: handle.state() == state, f"it to be {state}")
    assert handle.cancel()
    made.worker()
    last = made.tasks.quick.options(not_before=made.now_ms() + 400).enqueue(2)
    assert last.result() == 2
    assert made.book.starts() == {last.key: 1}
    assert handle.state() == State.CANCELLED


def declare_nothing_of_it(queue, book):
    @queue.task
    async def other():
        return None


def test_the_place_of_a_cancelled_job_is_free_at_once(scene):
    made = scene(declare, capacity=1)
    for number in range(50):
        handle = made.tasks.quick.enqueue(number)
        with pytest.raises(QueueFull):
            made.tasks.quick.enqueue("full")
        assert handle.cancel()
        assert made.queue.stats().live == 0


def test_cancelling_what_does_not_exist_is_false(scene):
    made = scene(declare)
    handle = made.tasks.quick.enqueue(1)
    made.client.flushall()
    assert handle.cancel() is False
    handle.leave()
    with pytest.raises(DeadqError):
        handle.result(timeout=0)
