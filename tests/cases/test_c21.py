"""C21: a key stays locked after a crash.

The rule: the key is the job, and the record under it lives exactly as long as the job can, plus
the retention of its outcome. There is no lock beside it that could outlive either. A crash frees
nothing and locks nothing: later submits attach, and the job runs again.
"""

import asyncio
import signal
import time

import pytest

from deadq import Cancelled, DeadlineExceeded, JobFailed, JobGone, QueueFull, State, current_job
from deadq.job import job_id
from tests.servers import wait_until
from tests.workers import Process, hear, tell


def declare(queue, book):
    @queue.task(within=8.0)
    async def charge(cents):
        """Hangs in its first attempt, before it has changed anything."""
        book.note("start")
        if current_job().attempt == 1:
            await asyncio.sleep(60)
        book.note("effect")
        return f"paid {cents}"

    @queue.task(within=8.0)
    async def quick(value):
        book.note("start")
        return value

    @queue.task(within=8.0)
    async def fail(text):
        book.note("start")
        raise LookupError(text)


def test_after_a_kill_all_submits_attach_to_one_job_that_runs_again(scene):
    made = scene(declare, lease=1.0, retention=1.0)
    charge = made.tasks.charge.options(key="k1")
    worker = made.worker()
    first = charge.enqueue(5)
    wait_until(lambda: made.book.starts()["k1"] == 1, "it to start")
    worker.kill()
    killed = time.monotonic()
    handles = [first]
    made.worker()
    while len(made.book.notes("effect")) == 0:
        assert time.monotonic() - killed < 2.5, "not run again within the lease and a sweep"
        handles.append(charge.enqueue(5))
        assert handles[-1].duplicate
        wait_until(
            lambda: time.monotonic() - killed > 0.2 * len(handles) or made.book.notes("effect"),
            "the next submit",
        )
    assert {handle.id for handle in handles} == {job_id("k1")}
    assert [handle.result() for handle in handles] == ["paid 5"] * len(handles)
    assert made.book.starts()["k1"] == 2
    assert made.stat("admitted") == 1
    assert made.stat("reclaimed") == 1
    record = made.key("job", first.id)
    assert 0 < made.client.pttl(record) <= 1000
    wait_until(lambda: not made.client.exists(record), "the key to be free", within_s=3.0)
    made.calm()
    again = charge.enqueue(6)  # another payload is another job now
    assert not again.duplicate
    again.cancel()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.slow
def test_a_job_that_waits_behind_the_dead_worker_is_not_lost_either(scene, how):
    made = scene(declare, lease=0.5)
    worker = made.worker(concurrency=1, grace=0.0)
    running = made.tasks.charge.options(key="k1").enqueue(5)
    waiting = made.tasks.quick.options(key="k2").enqueue("x")
    wait_until(lambda: made.book.starts()["k1"], "it to start")
    worker.signal(how)
    wait_until(lambda: not worker.alive, "the worker to be gone")
    made.worker()
    assert waiting.result() == "x"
    assert running.result() == "paid 5"
    assert made.book.starts() == {"k1": 2, "k2": 1}


def test_a_kill_between_the_jobs_of_one_worker_reclaims_every_one_once(scene):
    made = scene(declare, lease=0.5)
    worker = made.worker(concurrency=20)
    held = [made.tasks.charge.options(key=f"k{i}").enqueue(i) for i in range(20)]
    wait_until(lambda: len(made.book.starts()) == 20, "all to start")
    worker.kill()
    made.worker(concurrency=20)
    assert [handle.result() for handle in held] == [f"paid {i}" for i in range(20)]
    assert set(made.book.starts().values()) == {2}
    assert len(made.book.notes("effect")) == 20
    made.calm()


def produce(url):
    """A producer process that submits and then does nothing."""
    from deadq import Queue

    queue = Queue("case", capacity=1000, admission="cap", url=url)
    declare(queue, None)
    tell(queue.tasks["quick"].options(key="k1").enqueue("x").id)
    hear()


@pytest.mark.slow
def test_a_killed_producer_leaves_one_job_that_others_attach_to(scene):
    made = scene(declare)
    with Process("tests.cases.test_c21:produce", url=made.queue.backend.url) as producer:
        assert producer.hear() == job_id("k1")
        producer.kill()
    handle = made.tasks.quick.options(key="k1").enqueue("x")
    assert handle.duplicate
    made.worker()
    assert handle.result() == "x"
    assert made.book.starts()["k1"] == 1


# How long a key is held, by how its job ended.


def ended(made, how):
    """A job of key "k" that ended so; its handle."""
    match how:
        case "done":
            handle = made.tasks.quick.options(key="k").enqueue("x")
            handle.result()
        case "failed":
            handle = made.tasks.fail.options(key="k").enqueue("x")
            with pytest.raises(JobFailed):
                handle.result()
        case "expired":
            handle = made.tasks.quick.options(key="k", within=0.05).enqueue("x")
            with pytest.raises(DeadlineExceeded):
                handle.result()
        case "cancelled":
            handle = made.tasks.quick.options(key="k").enqueue("x")
            handle.cancel()
            with pytest.raises(Cancelled):
                handle.result()
        case "left":
            handle = made.tasks.quick.options(key="k").enqueue("x")
            handle.leave()
    return handle


@pytest.mark.parametrize("how", ["done", "failed", "expired", "cancelled", "left"])
def test_no_key_is_held_longer_than_the_retention(scene, how):
    made = scene(declare, retention=0.5)
    if how in ("done", "failed"):
        made.worker()
    handle = ended(made, how)
    made.queue.stats()
    made.tasks.quick.options(key="other", within=0.05).enqueue("sweeps the expired one")
    assert made.client.pttl(made.key("job", handle.id)) <= 500
    wait_until(lambda: not made.client.exists(made.key("job", handle.id)), "the key to be free")
    assert handle.state() == State.GONE
    with pytest.raises((JobGone, DeadlineExceeded)):
        handle.result(timeout=0)
    assert not made.tasks.quick.options(key="k").enqueue("another payload").duplicate


@pytest.mark.parametrize("how", ["expired", "cancelled", "left"])
def test_a_key_whose_job_had_no_outcome_is_free_at_once_for_the_same_request(scene, how):
    made = scene(declare, retention=60.0)
    ended(made, how)
    again = made.tasks.quick.options(key="k").enqueue("x")
    assert not again.duplicate
    made.worker()
    assert again.result() == "x"


@pytest.mark.parametrize("how", ["done", "failed"])
def test_a_key_whose_job_had_an_outcome_gives_that_outcome_for_the_retention(scene, how):
    made = scene(declare, retention=60.0)
    made.worker()
    ended(made, how)
    task = made.tasks.quick if how == "done" else made.tasks.fail
    again = task.options(key="k").enqueue("x")
    assert again.duplicate
    if how == "done":
        assert again.result() == "x"
    else:
        with pytest.raises(JobFailed, match="LookupError: x"):
            again.result()
    assert made.book.starts()["k"] == 1


def test_an_unfinished_record_lives_as_long_as_its_job_can(scene):
    """It may not go while the job may still run, nor stay much longer (0.1 s for the clocks)."""
    made = scene(declare, retention=2.0)
    handle = made.tasks.quick.options(key="k", within=5.0).enqueue("x")
    record = made.key("job", handle.id)
    assert 5_000 < made.client.pttl(record) <= 5_100 + 30_000 + 2_000
    made.tasks.quick.options(key="k", within=7.9).enqueue("x")
    assert made.client.pttl(record) + 100 >= 7_900
    assert made.client.pttl(record) <= 8_000 + 30_000 + 2_000


def test_a_refused_submit_holds_no_key(scene):
    made = scene(declare, capacity=1)
    made.tasks.quick.options(key="a").enqueue("x")
    with pytest.raises(QueueFull):
        made.tasks.quick.options(key="b").enqueue("x")
    assert not made.client.exists(made.key("job", job_id("b")))
    with pytest.raises(QueueFull):
        made.tasks.quick.options(key="b").enqueue("another payload")


def test_a_server_that_lost_all_data_has_lost_the_keys_too(scene):
    made = scene(declare)
    handle = made.tasks.quick.options(key="k", within=0.5).enqueue("x")
    made.client.flushall()
    assert handle.state() == State.GONE
    with pytest.raises((JobGone, DeadlineExceeded)):
        handle.result(timeout=0.1)
    again = made.tasks.quick.options(key="k").enqueue("another payload")
    assert not again.duplicate
    made.worker()
    assert again.result() == "another payload"


@pytest.mark.parametrize(
    "end",
    ["cancel", *(pytest.param(end, marks=pytest.mark.slow) for end in ("expire", "finish"))],
)
def test_ten_thousand_callers_under_one_key_are_one_job_with_one_end(scene, end):
    """Each holds a token in the record; no number of them may keep the job from ending."""
    made = scene(declare, retention=1.0)
    bound = made.tasks.quick.options(key="k", within=30.0)
    outcomes = bound.enqueue_many([("x",)] * 10_000)
    assert sum(not handle.duplicate for handle in outcomes) == 1
    first = outcomes[0]
    if end == "cancel":
        assert first.cancel()
        state = State.CANCELLED
    elif end == "expire":
        # the record says so; nobody would wait 30 s here
        made.client.hset(made.key("job", first.id), "deadline", 1)
        made.client.zadd(made.key("due"), {first.id: 1})
        made.tasks.quick.options(key="other").enqueue("sweeps")
        state = State.EXPIRED
    else:
        made.worker()
        assert outcomes[-1].result() == "x"
        state = State.DONE
    assert {handle.state() for handle in outcomes[::1000]} == {state}
    assert made.client.zscore(made.key("due"), first.id) is None
    assert made.client.pttl(made.key("job", first.id)) <= 1000
