"""Tied jobs on two real queues: one of the two runs, and nothing is left of the other."""

import asyncio
import contextlib
import multiprocessing
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import deadq
from deadq import (
    Cancelled,
    DeadlineExceeded,
    JobFailed,
    Paused,
    Queue,
    State,
    atie,
    current_job,
    testing,
    tie,
)
from deadq.job import Departure, Outcome, Settlement, job_id
from deadq.store import keys, scripts
from deadq.testing import slow_proxy
from tests.servers import wait_until
from tests.shifts import Shift, aat_gate, at_gate

PAIRS = 200


def declare_async(queue, book):
    @queue.task(within=20.0)
    async def work(what="quick"):
        book.note("start")
        await asyncio.sleep(0.005)
        if what == "gate":
            await aat_gate(book)
        if what == "unit":
            await current_job().unit("step", dict)
        if what == "fail":
            raise LookupError(queue.name)
        return queue.name


def declare_process(queue, book):
    @queue.task(within=20.0)
    def work(what="quick"):
        book.note("start")
        time.sleep(0.005)
        if what == "gate":
            at_gate(book)
        if what == "unit":
            current_job().unit("step", dict)
        if what == "fail":
            raise LookupError(queue.name)
        return queue.name


TWINS = {"async": declare_async, "process": declare_process}


@pytest.fixture(params=["async", "process"])
def shifts(valkey_server, tmp_path, request):
    """Two queues on one server, with one book."""
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(
                Shift(valkey_server, tmp_path, TWINS, request.param, name=name, lease=2.0)
            )
            for name in ("one", "two")
        ]


def bound(shifts, *args, key=None, **options):
    return [shift.tasks.work.options(key=key, **options).bind(*args) for shift in shifts]


def nothing_left(shifts):
    for shift in shifts:
        shift.rests()


def test_of_each_pair_one_runs(shifts):
    """Each pair by a caller of its own, of which there are many at a time."""
    for shift in shifts:
        shift.worker(concurrency=2)

    def pair(number):
        return tie(*bound(shifts, key=f"pair-{number}")).result()

    with ThreadPoolExecutor(16) as pool:
        results = [*pool.map(pair, range(PAIRS))]
    nothing_left(shifts)
    starts = shifts[0].book.starts()
    assert len(starts) == PAIRS, "each has run"
    assert sum(n > 1 for n in starts.values()) <= PAIRS / 100
    assert set(results) == {"one", "two"}, "the second queue takes its part"


def test_on_a_loop_of_each_pair_one_runs_and_no_task_is_left(shifts):
    for shift in shifts:
        shift.worker(concurrency=2)

    async def all_of_them():
        free = asyncio.Semaphore(16)

        async def pair(number):
            async with free:
                bind = [s.tasks.work.options(key=f"pair-{number}") for s in shifts]
                handle = await atie(*[await call.abind() for call in bind])
                return await handle.aresult()

        results = await asyncio.gather(*(pair(number) for number in range(PAIRS)))
        for shift in shifts:
            await shift.queue.aclose()
        names = {task.get_name() for task in asyncio.all_tasks() - {asyncio.current_task()}}
        return results, names

    results, names = asyncio.run(all_of_them())
    assert names == set()
    nothing_left(shifts)
    starts = shifts[0].book.starts()
    assert len(starts) == PAIRS
    assert sum(n > 1 for n in starts.values()) <= PAIRS / 100
    assert len(results) == PAIRS


def test_where_the_first_queue_is_busy_the_second_one_runs_it(shifts):
    one, _ = shifts
    for shift in shifts:
        shift.worker(concurrency=1)
    blocking = one.tasks.work.options(key="blocks").enqueue("gate")
    one.started("blocks")
    handle = tie(*bound(shifts, key="pair"))
    assert handle.result() == "two"
    assert handle.state() is State.DONE
    assert one.queue.stats().counters["tied_away"] == 1
    one.let()
    assert blocking.result() == "one"
    nothing_left(shifts)
    assert one.book.starts() == {"blocks": 1, "pair": 1}


def test_a_failure_is_the_jobs_own(shifts):
    for shift in shifts:
        shift.worker(concurrency=1)
    with pytest.raises(JobFailed, match="LookupError"):
        tie(*bound(shifts, "fail", key="pair")).result()
    nothing_left(shifts)


def test_a_tied_job_has_no_units(shifts):
    shifts[0].worker(concurrency=1)
    with pytest.raises(JobFailed, match="UnitError: unit 'step': a tied job has no units"):
        tie(*bound(shifts, "unit")).result()


def test_what_no_producer_wrote_names_no_twin(shifts):
    one, _ = shifts
    job = one.tasks.work.options(key="odd").enqueue()
    one.client.hset(keys.key("one", "job", job.id), "twin", "odd")
    one.worker(concurrency=1)
    assert job.result(timeout=5.0) == "one"
    assert one.book.starts() == {"odd": 1}
    one.rests()


@pytest.mark.slow
def test_one_whose_worker_dies_before_it_has_asked_is_not_lost(shifts):
    one, _ = shifts
    config = one.queue.config
    handle = tie(*bound(shifts, key="pair"))
    hands = Hands(one.queue)
    hands.claim()
    one.queue.backend.sync().run(
        scripts.release("child", retention_ms=config.retention_ms, how=Departure.DIED)
    )
    for shift in shifts:
        shift.worker(concurrency=1)
    assert handle.result() in ("one", "two")
    nothing_left(shifts)
    assert one.book.starts() == {"pair": 1}


# Without workers: the test itself is one.


class Hands:
    """A child of one queue that does as it is told, and asks nobody before it starts."""

    def __init__(self, queue):
        self.queue, self.number = queue, 0
        self.run(
            scripts.register(
                "child", lease_ms=60_000, slots=9, who="h", retention_ms=9_000_000, tasks=["work"]
            )
        )

    def run(self, call):
        return self.queue.backend.sync().run(call)

    def claim(self):
        self.number += 1
        call = scripts.claim(
            "child", self.number, 1, retention_ms=9_000_000, park=False, tasks=["work"]
        )
        (self.held,) = self.run(call).claims

    def untie(self):
        return self.run(scripts.untie(self.held, self.queue.name, retention_ms=9_000_000))

    def finish(self, outcome, value=None):
        blob = deadq.codec.encode(value)
        if outcome == Outcome.FAILED:
            blob = deadq.codec.describe_exception(LookupError(value))
        made = Settlement(self.held.id, self.held.fence, outcome, 1, False, 0, blob)
        return self.run(scripts.finish("child", [made], retention_ms=9_000_000))


@pytest.fixture
def two(server):
    """Two queues with one task."""
    queues = [Queue(name, url=server.url, capacity=1, admission="cap") for name in ("a", "b")]
    for queue in queues:

        @queue.task(within=20.0)
        def work(value=None):
            return value

    yield queues
    for queue in queues:
        queue.close()


def calls(queues, **options):
    return [queue.tasks["work"].options(**options).bind() for queue in queues]


def sent(queue):
    wait_until(lambda: queue.stats().counters.get("offered"), "the second one to be sent")


def test_a_fast_error_waits_for_the_other(two):
    handle = tie(*calls(two))
    sent(two[1])
    hands = [Hands(queue) for queue in two]
    for hand in hands:
        hand.claim()
    hands[1].finish(Outcome.FAILED, "fast")
    with pytest.raises(TimeoutError):
        handle.result(timeout=0.05)
    hands[0].finish(Outcome.DONE, "slow")
    assert handle.result() == "slow"


def test_the_second_one_counts_where_the_first_one_fails(two):
    handle = tie(*calls(two))
    sent(two[1])
    hands = [Hands(queue) for queue in two]
    for hand in hands:
        hand.claim()
    hands[0].finish(Outcome.FAILED, "fast")
    with pytest.raises(TimeoutError):
        handle.result(timeout=0.05)
    assert handle.state() is State.RUNNING
    hands[1].finish(Outcome.DONE, "slow")
    assert handle.result() == "slow"
    assert asyncio.run(aresult(handle, two)) == "slow"


async def aresult(handle, queues, timeout=None):
    try:
        return await handle.aresult(timeout)
    finally:
        for queue in queues:
            await queue.aclose()


@pytest.mark.parametrize("on_loop", [False, True])
def test_where_both_run_after_a_fault_the_first_success_counts_though_the_first_hangs(
    two, server, on_loop
):
    handle = tie(*calls(two))
    sent(two[1])
    hands = [Hands(queue) for queue in two]
    for hand in hands:
        hand.claim()

    def succeed():
        hands[1].finish(Outcome.DONE, "second")

    after = threading.Timer(0.1, succeed)  # while it is waited for
    after.start()
    began = time.monotonic()
    if on_loop:
        assert asyncio.run(aresult(handle, two)) == "second"
    else:
        assert handle.result() == "second"
    assert time.monotonic() - began < 10.0, "long before the deadline"
    after.join()
    with server.client() as client:
        record = keys.key("a", "job", hands[0].held.id)
        if not on_loop:  # the loop has ended
            wait_until(lambda: client.hget(record, "cancel"), "the first one to be given up")
    assert handle.state() is State.DONE


@pytest.mark.parametrize("on_loop", [False, True])
def test_a_look_is_at_both(two, on_loop):
    handle = tie(*calls(two))
    sent(two[1])
    hands = Hands(two[1])
    hands.claim()
    assert hands.untie()
    hands.finish(Outcome.DONE, "second")
    if on_loop:
        assert asyncio.run(aresult(handle, two, timeout=0)) == "second"
    else:
        assert handle.result(timeout=0) == "second"


def test_a_server_that_answers_one_slowly_holds_up_no_other(server, monkeypatch):
    """Each second submit is sent by a thread of its own."""
    queues = [Queue(name, url=server.url, capacity=9, admission="cap") for name in ("a", "b")]
    for queue in queues:
        queue.task(within=20.0, name="work")(lambda: None)
    slow, look = threading.Event(), queues[0].producer.look

    def looking(job):
        if job == job_id("slow"):
            assert slow.wait(10.0)
        return look(job)

    monkeypatch.setattr(queues[0].producer, "look", looking)
    one, other = (tie(*calls(queues, key=key)) for key in ("slow", "quick"))
    try:
        assert other._fate.result(5.0) is not None
        assert not one._fate.done()
    finally:
        slow.set()
    assert one._fate.result(5.0) is not None
    for handle in (one, other):
        handle.leave()
    for queue in queues:
        queue.close()


def test_where_both_fail_the_error_is_that_of_the_first(two):
    handle = tie(*calls(two))
    sent(two[1])
    hands = [Hands(queue) for queue in two]
    for hand, text in zip(hands, ("first", "second"), strict=True):
        hand.claim()
        hand.finish(Outcome.FAILED, text)
    with pytest.raises(JobFailed, match="LookupError: first"):
        handle.result()


def test_what_was_taken_away_is_no_outcome(two):
    handle = tie(*calls(two))
    sent(two[1])
    hands = Hands(two[1])
    hands.claim()
    assert hands.untie()
    with pytest.raises(TimeoutError):
        handle.result(timeout=0.05)
    assert handle.state() is State.RUNNING
    hands.finish(Outcome.DONE, "second")
    assert handle.result() == "second"
    assert [queue.stats().unfinished for queue in two] == [0, 0]


def test_the_second_one_is_not_sent_once_the_first_has_started(two):
    two[0].clock.round_trip_s = 0.1
    handle = tie(*calls(two))
    hands = Hands(two[0])
    hands.claim()
    assert handle._fate.result(5.0) is None
    assert "offered" not in two[1].stats().counters
    hands.finish(Outcome.DONE, "first")
    assert handle.result() == "first"


def test_a_first_one_that_ends_before_the_second_is_sent_holds_up_nobody(two):
    two[0].clock.round_trip_s = 0.1
    handle = tie(*calls(two))
    hands = Hands(two[0])
    hands.claim()
    hands.finish(Outcome.DONE, "first")
    assert handle.result() == "first"
    two[0].clock.round_trip_s = 0.0
    again = tie(*calls(two))
    assert again._fate.result(5.0) is not None
    assert handle._fate.result(5.0) is None
    again.leave()


def test_the_second_one_waits_two_round_trips_as_measured(valkey_server):
    """The caller does not: it has its handle as soon as the first one is accepted."""
    trip = 0.1
    with valkey_server.client() as client, slow_proxy(valkey_server.url, delay=trip) as proxy:
        client.flushall()
        with contextlib.closing(Queue("first", url=valkey_server.url, capacity=9)) as first:
            # the server knows the script from now on
            first.task(within=20.0, name="work")(lambda: None).enqueue()
        queues = [Queue(name, url=proxy.url, capacity=9, admission="cap") for name in ("a", "b")]
        for queue in queues:
            queue.task(within=20.0, name="work")(lambda: None)
        made = calls(queues)
        assert trip <= queues[0].clock.round_trip_s < 2 * trip
        began = time.monotonic()
        handle = tie(*made)
        accepted = time.monotonic()
        assert accepted - began < 2 * trip, "its own one"
        second = handle._fate.result(5.0)
        assert time.monotonic() - accepted >= 4 * trip, "two, the look, and its own"
        assert second is not None
        handle.leave()
        for queue in queues:
            queue.close()


@pytest.mark.parametrize("on_loop", [False, True])
def test_where_the_first_is_refused_the_second_is_sent_at_once(two, on_loop):
    two[0].pause()
    handle = submit(two, on_loop=on_loop)
    hands = Hands(two[1])
    hands.claim()
    assert hands.untie()
    hands.finish(Outcome.DONE, "second")
    assert handle.result() == "second"


@pytest.mark.parametrize("on_loop", [False, True])
def test_where_the_second_is_refused_there_is_the_first(two, on_loop):
    two[1].pause()
    handle = submit(two, on_loop=on_loop)
    wait_until(handle._fate.done, "the second one to be refused")
    hands = Hands(two[0])
    hands.claim()
    hands.finish(Outcome.DONE, "first")
    assert handle.result() == "first"


@pytest.mark.parametrize("on_loop", [False, True])
def test_where_both_refuse_the_error_is_that_of_the_first(two, on_loop):
    for queue in two:
        queue.pause()
    with pytest.raises(Paused, match="the queue 'a' is paused"):
        submit(two, on_loop=on_loop)


def submit(queues, *, on_loop):
    if not on_loop:
        return tie(*calls(queues))

    async def work():
        made = [await queue.tasks["work"].options().abind() for queue in queues]
        handle = await atie(*made)
        await asyncio.wrap_future(handle._fate)
        for queue in queues:
            await queue.aclose()
        return handle

    return asyncio.run(work())


def test_leaving_takes_both_away(two):
    handle = tie(*calls(two))
    sent(two[1])
    handle.leave()
    assert [queue.stats().counters["finished:cancelled"] for queue in two] == [1, 1]
    with pytest.raises(Cancelled):
        handle.result()


def test_leaving_before_the_second_is_sent_means_that_it_never_is(two):
    two[0].clock.round_trip_s = 0.1
    handle = tie(*calls(two))
    handle.leave()
    assert two[0].stats().unfinished == 0
    assert "offered" not in two[1].stats().counters


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("how", ["leave", "cancel", "aleave", "acancel"])
def test_a_forked_child_does_not_wait_for_what_only_its_parent_can_send(two, how):
    two[0].clock.round_trip_s = 30.0
    handle = tie(*calls(two))

    def give_up():
        done = getattr(handle, how)()
        if how.startswith("a"):
            asyncio.run(done)

    child = multiprocessing.get_context("fork").Process(target=give_up)
    child.start()
    child.join(10)
    hangs = child.is_alive()
    child.kill()
    child.join()
    assert not hangs
    assert child.exitcode == 0
    assert two[0].stats().unfinished == 0


def test_cancelling_says_whether_one_of_them_had_started(two):
    handle = tie(*calls(two))
    sent(two[1])
    assert handle.cancel() is True
    again = tie(*calls(two))
    wait_until(lambda: two[1].stats().live, "the second one to be sent")
    Hands(two[1]).claim()
    assert again.cancel() is False


def test_a_wait_that_is_cancelled_leaves_both(two):
    async def wait():
        made = [await queue.tasks["work"].options().abind() for queue in two]
        handle = await atie(*made)
        waiting = asyncio.ensure_future(handle.aresult())
        await asyncio.wrap_future(handle._fate)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        for queue in two:
            await queue.aclose()

    asyncio.run(wait())
    assert [queue.stats().unfinished for queue in two] == [0, 0]


def test_a_loop_that_ends_before_the_second_is_sent_leaves_nobody_waiting(two):
    async def work():
        made = [await queue.tasks["work"].options().abind() for queue in two]
        two[0].clock.round_trip_s = 5.0
        handle = await atie(*made)
        for queue in two:
            await queue.aclose()
        return handle

    handle = asyncio.run(work())
    assert handle._fate.result(5.0) is None
    handle.leave()
    assert two[0].stats().unfinished == 0
    assert "offered" not in two[1].stats().counters


def test_a_repeat_under_the_same_key_shares_both_jobs(two):
    first = tie(*calls(two, key="k"))
    sent(two[1])
    second = tie(*calls(two, key="k"))
    assert second._fate.result(5.0) is not None
    assert [queue.stats().live for queue in two] == [1, 1]
    hands = Hands(two[1])
    hands.claim()
    assert hands.untie()
    hands.finish(Outcome.DONE, "once")
    assert first.result() == second.result() == "once"


def test_a_failure_that_comes_first_takes_nothing_away_from_the_winner(two):
    """The winner's caller gives up its hold on the one that still waits."""
    handle = tie(*calls(two))
    sent(two[1])
    hands = Hands(two[0])
    hands.claim()
    hands.finish(Outcome.DONE, "first")
    assert handle.result() == "first"
    wait_until(lambda: not two[1].stats().unfinished, "the second one to be given up")


# At the door.


def test_both_have_one_key(two):
    for options in ({"key": "k"}, {}), ({}, {"key": "k"}), ({"key": "k"}, {"key": "k"}):
        made = [q.tasks["work"].options(**o).bind() for q, o in zip(two, options, strict=True)]
        handle = tie(*made)
        assert handle.key == "k"
        assert handle._fate.result(5.0).key == "k"
        handle.leave()
    made = [q.tasks["work"].options(key=key).bind() for q, key in zip(two, "xy", strict=True)]
    with pytest.raises(ValueError, match="tied jobs have one key: give it to either"):
        tie(*made)


def test_on_a_loop_too_both_have_one_key(two):
    async def work():
        for options in ({"key": "k"}, {}), ({}, {"key": "k"}):
            bound = [q.tasks["work"].options(**o) for q, o in zip(two, options, strict=True)]
            handle = await atie(*[await call.abind() for call in bound])
            assert handle.key == "k"
            assert (await asyncio.wrap_future(handle._fate)).key == "k"
            await handle.aleave()
        for queue in two:
            await queue.aclose()

    asyncio.run(work())


def test_a_wait_that_runs_out_keeps_the_hold(two):
    handle = tie(*calls(two, within=0.8))
    with pytest.raises(TimeoutError, match=r"the job is ready after 0.01 s"):
        handle.result(timeout=0.01)
    assert handle.state() is State.READY
    with pytest.raises(DeadlineExceeded):
        handle.result()


def test_on_a_loop_too_a_wait_that_runs_out_keeps_the_hold(two):
    async def work():
        made = [await q.tasks["work"].options(within=0.8).abind() for q in two]
        handle = await atie(*made)
        with pytest.raises(TimeoutError, match=r"the job is ready after 0.01 s"):
            await handle.aresult(timeout=0.01)
        assert await handle.astate() is State.READY
        with pytest.raises(DeadlineExceeded):
            await handle.aresult()
        for queue in two:
            await queue.aclose()

    asyncio.run(work())


def test_one_queue_is_not_two(two):
    made = calls([two[0], two[0]])
    with pytest.raises(ValueError, match="tie takes calls for two queues, and both are for 'a'"):
        tie(*made)


def test_two_servers_are_not_one(two):
    far = testing.queue("far")
    far.task(within=9.0, name="work")(lambda: None)
    with pytest.raises(ValueError, match=r"'a' and 'far' are not on one server.*the same url="):
        tie(*calls([two[0], far]))


def test_what_is_not_awaited_is_refused_with_the_remedy(two):
    async def main():
        call = two[0].task(within=9.0, name="awaited")(lambda: None).abind()
        with pytest.raises(TypeError, match=r": await task.abind\(...\)$"):
            await atie(call, calls(two)[1])
        await call

    asyncio.run(main())


@pytest.mark.parametrize("odd", [None, "job", 5])
def test_what_is_not_bound_is_refused(two, odd):
    with pytest.raises(TypeError, match=r"tie takes what task.bind\(...\) makes, not"):
        tie(calls(two)[0], odd)
    with pytest.raises(TypeError, match="tie takes what"):
        asyncio.run(atie(odd, calls(two)[1]))
