"""C09: a job expires in the worker's local buffer.

The rule: expiry is judged at the moment of the start, by whoever is about to start it, wherever
the job has waited since it was handed out: for a slot, for the loop, for a thread, for a reply.
"""

import asyncio
import contextlib
import time

import pytest

from deadq import DeadlineExceeded, State
from deadq.testing.proxy import slow_proxy
from tests.marks import sampled
from tests.servers import wait_until
from tests.shifts import in_processes_slowly

EXPIRED_COUNTERS = "expired:"


def declare(queue, book):
    @queue.task(within=5.0)
    async def nap(seconds):
        book.note("start")
        await asyncio.sleep(seconds)
        return "napped"

    @queue.task(within=5.0)
    async def spin(seconds):
        """Keeps the loop to itself."""
        book.note("start")
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            pass
        return "spun"

    @queue.task(within=5.0)
    async def quick():
        book.note("start")

    @queue.task(within=5.0)
    def in_thread():
        book.note("start")

    @queue.task(within=5.0)
    def block(seconds):
        book.note("start")
        time.sleep(seconds)
        return "blocked"


def declare_plain(queue, book):
    @queue.task(within=5.0)
    def nap(seconds):
        book.note("start")
        time.sleep(seconds)
        return "napped"

    @queue.task(within=5.0)
    def spin(seconds):
        book.note("start")
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            pass
        return "spun"

    @queue.task(within=5.0)
    def quick():
        book.note("start")


PLAIN = {declare: declare_plain}


def keyed(task, key, **options):
    return task.options(key=key, **options)


def expired_once(made, *handles):
    """None of them started, each ended EXPIRED, and each was counted once."""
    for handle in handles:
        with pytest.raises(DeadlineExceeded):
            handle.result()
    wait_until(
        lambda: made.stat(EXPIRED_COUNTERS) == len(handles),
        f"{len(handles)} to be counted as expired",
    )
    assert [handle.state() for handle in handles] == [State.EXPIRED] * len(handles)
    starts = made.book.starts()
    assert [starts[handle.key] for handle in handles] == [0] * len(handles)
    wait_until(lambda: made.queue.stats().unfinished == 0, "all to be done with")
    assert made.stat(EXPIRED_COUNTERS) == len(handles)
    made.calm()


@pytest.mark.parametrize(
    ("scene", "slow", "fast"),
    [
        *(
            pytest.param("loop", *row.values, marks=row.marks, id=row.id)
            for row in sampled(["nap", "block", "spin"], ["quick", "in_thread"])
        ),
        ("process", "nap", "quick"),
        pytest.param("process", "spin", "quick", marks=pytest.mark.slow),
    ],
    indirect=["scene"],
)
def test_behind_a_slow_job_in_the_only_slot(scene, slow, fast):
    made = scene(declare)
    made.worker(concurrency=1)
    a = getattr(made.tasks, slow).options(key="a", within=5.0).enqueue(0.4)
    wait_until(lambda: made.book.starts()["a"], "a to start")
    b = getattr(made.tasks, fast).options(key="b", within=0.15).enqueue()
    expired_once(made, b)
    assert a.result() in ("napped", "blocked", "spun")
    assert made.book.starts()["a"] == 1


@pytest.mark.parametrize("fast", ["quick", "in_thread"])
def test_handed_out_in_one_claim_with_a_job_that_keeps_the_loop(scene, fast):
    """Both are claimed at once; the second one's task gets no turn before its deadline."""
    made = scene(declare)
    worker = made.worker(concurrency=2)
    gates = [made.tasks.nap.options(key=key).enqueue(0.1) for key in ("g1", "g2")]
    wait_until(lambda: len(made.book.starts()) == 2, "both slots to be taken")
    worker.freeze()
    a = made.tasks.spin.options(key="a", deadline=made.now_ms() + 5000).enqueue(0.6)
    b = getattr(made.tasks, fast).options(key="b", deadline=made.now_ms() + 400).enqueue()
    # b is due first and would be handed out first: put a in front of it
    made.client.zadd(made.key("ready"), {ready_member(made, a.id): 1})
    worker.thaw()
    expired_once(made, b)
    assert a.result() == "spun"
    assert [gate.result() for gate in gates] == ["napped", "napped"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scene", "fast"),
    [
        ("loop", "quick"),
        ("loop", "in_thread"),
        pytest.param("process", "quick", marks=pytest.mark.slow),
    ],
    indirect=["scene"],
)
def test_while_the_reply_of_its_claim_is_under_way(scene, fast):
    """The server hands it out in time, and the worker hears of it too late."""
    made = scene(declare)
    with slow_proxy(made.queue.backend.url) as proxy:
        made.worker(concurrency=1, url=proxy.url)
        made.tasks.quick.options(key="first").call()
        proxy.delay = 1.0  # half of it on the way there
        b = getattr(made.tasks, fast).options(key="b", within=0.25).enqueue()
        expired_once(made, b)
        proxy.delay = 0.0
        made.tasks.quick.options(key="last").call()
    assert made.book.starts() == {"first": 1, "last": 1}


def test_behind_many_in_a_batch_claim(scene):
    """Ten slots, ten jobs that keep the loop in turn: no start once the deadline has passed."""
    made = scene(declare)
    worker = made.worker(concurrency=10)
    worker.freeze()
    now = made.now_ms()
    held = [
        made.tasks.spin.options(key=f"k{i}", deadline=now + 550).enqueue(0.1) for i in range(10)
    ]
    worker.thaw()
    for handle in held:
        with contextlib.suppress(DeadlineExceeded):
            handle.result()
    wait_until(lambda: made.queue.stats().unfinished == 0, "all to be done with")
    states = [handle.state() for handle in held]
    starts = made.book.starts()
    for handle, state in zip(held, states, strict=True):
        assert starts[handle.key] == (state != State.EXPIRED)
        assert state in (State.DONE, State.EXCEEDED, State.EXPIRED)
    for note in made.book.notes("start"):
        assert note.at < held[0].deadline.monotonic + 0.02
    assert states.count(State.EXPIRED) == made.stat(EXPIRED_COUNTERS) >= 3
    made.calm()


@in_processes_slowly
def test_while_its_worker_is_frozen(scene):
    """It was claimed before; after the thaw its time is over, though the lease is not."""
    made = scene(declare, lease=10.0)
    worker = made.worker(concurrency=1)
    a = made.tasks.nap.options(key="a", within=5.0).enqueue(0.3)
    wait_until(lambda: made.book.starts()["a"], "a to start")
    b = made.tasks.quick.options(key="b", within=0.4).enqueue()
    worker.freeze()
    with pytest.raises(DeadlineExceeded):
        b.result()
    worker.thaw()
    expired_once(made, b)
    assert a.result() == "napped"


@in_processes_slowly
def test_the_wait_for_an_expired_job_ends_at_its_deadline_not_at_the_slot(scene):
    made = scene(declare)
    made.worker(concurrency=1)
    made.tasks.nap.options(key="a", within=5.0).enqueue(3.0)
    wait_until(lambda: made.book.starts()["a"], "a to start")
    b = made.tasks.quick.options(key="b", within=0.15).enqueue()
    begun = time.monotonic()
    with pytest.raises(DeadlineExceeded):
        b.result()
    assert time.monotonic() - begun < 2.0


def ready_member(made, ident):
    (member,) = (m for m in made.client.zrange(made.key("ready"), 0, -1) if ident.encode() in m)
    return member
