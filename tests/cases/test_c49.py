"""C49: a worker drowns in expired jobs.

The rule: work that is not done costs next to nothing, and no call is unbounded. However much has
expired, a live job behind it starts at once, and each expired one ends as EXPIRED, once.
"""

import re
import time
from pathlib import Path

import pytest

from deadq import State
from tests.cases.support import Planter, counting, script_calls
from tests.servers import wait_until

EXPIRED = 5_000
PATIENT_MS = 3_000
"""Time to submit a thousand jobs in, and to have them set aside, however busy the machine is."""


def declare(queue, book):
    @queue.task(within=20.0)
    async def work(value):
        book.note("start")
        return value


def declare_something_else(queue, book):
    @queue.task(within=20.0)
    async def other():
        return None


def resident_kb(pid):
    found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text(encoding="ascii"))
    return int(found[1])


def flood(made, number=EXPIRED, **options):
    """Jobs whose deadline passes before anybody looks at them; no worker may run meanwhile."""
    # time enough to submit them, and less than a lease: a frozen worker may hold some of them
    deadline = made.now_ms() + max(1_500, number * 2 // 5)
    outcomes = made.tasks.work.options(deadline=deadline, **options).enqueue_many(
        [(i,) for i in range(number)]
    )
    assert {type(outcome).__name__ for outcome in outcomes} == {"JobHandle"}
    wait_until(lambda: made.now_ms() > deadline, "them to expire")
    return outcomes


def drained(made, outcomes):
    """Each is EXPIRED once, and none began."""
    wait_until(lambda: made.queue.stats().unfinished == 0, "all to be done with")
    assert made.stat("expired:") == len(outcomes)
    states = {handle.state() for handle in outcomes[:: len(outcomes) // 100 or 1]}
    assert states == {State.EXPIRED}
    assert not set(made.book.starts()) & {handle.key for handle in outcomes}
    made.calm()


@pytest.mark.parametrize("order", ["deadline", pytest.param("fifo", marks=pytest.mark.slow)])
def test_a_live_job_behind_5000_expired_ones_starts_at_once(scene, order):
    made = scene(declare, capacity=EXPIRED + 10, order=order)
    worker = made.worker()
    made.tasks.work.call("warm")
    worker.freeze()
    outcomes = flood(made)
    live = made.tasks.work.options(within=5.0).enqueue("live")
    before = resident_kb(worker.pid)
    with counting(made.client) as found:
        worker.thaw()
        assert live.result(timeout=2.0) == "live"
        drained(made, outcomes)
    # a hundred and more are swept by each call; the rest is this test's own looking
    assert script_calls(found) < 500
    assert resident_kb(worker.pid) - before < 8_000
    assert worker.alive
    assert "Traceback" not in worker.errors
    assert "recursion" not in worker.errors.lower()


@pytest.mark.slow
def test_a_worker_that_comes_to_a_dead_queue_starts_the_live_job_first_thing(scene):
    made = scene(declare, capacity=3_010)
    outcomes = flood(made, 3_000)
    live = made.tasks.work.options(within=10.0).enqueue("live")
    worker = made.worker()
    assert live.result(timeout=2.0) == "live"
    drained(made, outcomes)
    assert "Traceback" not in worker.errors


def test_a_submit_to_a_full_queue_of_expired_jobs_is_accepted_at_once(scene):
    """They hold no place, and no submit has to wait until they are swept."""
    made = scene(declare, capacity=2_000)
    outcomes = flood(made, 2_000)
    took = []
    for number in range(50):
        begun = time.monotonic()
        made.tasks.work.options(key=f"live-{number}").enqueue("live")
        took.append(time.monotonic() - begun)
    assert sorted(took)[25] < 0.02
    assert max(took) < 0.5
    made.worker()
    wait_until(lambda: len(made.book.starts()) == 50, "the live ones to run")
    drained(made, outcomes)


@pytest.mark.slow
def test_expired_jobs_that_were_put_off_do_not_hold_up_the_live_one(scene):
    made = scene(declare, capacity=8_000)
    outcomes = flood(made, 2_000, not_before=made.now_ms() + 500)
    live = made.tasks.work.options(within=5.0).enqueue("live")
    made.worker()
    assert live.result(timeout=2.0) == "live"
    drained(made, outcomes)


@pytest.mark.slow
def test_expired_jobs_that_nobody_knows_do_not_hold_up_the_live_one(scene):
    made = scene(declare, capacity=8_000)
    made.worker(declare_something_else)
    now = made.now_ms()
    outcomes = made.tasks.work.options(deadline=now + PATIENT_MS).enqueue_many(
        [(i,) for i in range(1_000)]
    )
    wait_until(lambda: outcomes[-1].state() == State.STRANGE, "them to be set aside")
    wait_until(lambda: made.now_ms() > now + PATIENT_MS, "them to expire")
    live = made.tasks.work.options(within=5.0).enqueue("live")
    made.worker()
    assert live.result(timeout=2.0) == "live"
    drained(made, outcomes)


def test_5000_members_without_a_record_do_not_hold_up_the_live_job(scene):
    made = scene(declare, capacity=EXPIRED + 10)
    client = made.client
    members = {f"{i:010x}:{i:032x}": 1 for i in range(EXPIRED)}
    client.zadd(made.key("ready"), members)
    client.zadd(made.key("due"), {f"{i:032x}": 1 for i in range(EXPIRED)})
    live = made.tasks.work.options(within=5.0).enqueue("live")
    worker = made.worker()
    assert live.result(timeout=2.0) == "live"
    wait_until(lambda: client.zcard(made.key("due")) == 0, "the rest to be swept")
    wait_until(lambda: client.zcard(made.key("ready")) == 0, "the rest to be swept")
    assert worker.alive
    assert "Traceback" not in worker.errors


@pytest.mark.slow
def test_2000_malformed_records_do_not_hold_up_the_live_job(scene):
    made = scene(declare, capacity=EXPIRED + 10)
    planter = Planter(made)
    for _ in range(2_000):
        planter.ready(deadline="soon", payload=None)
    live = made.tasks.work.options(within=5.0).enqueue("live")
    worker = made.worker()
    assert live.result(timeout=2.0) == "live"
    wait_until(lambda: made.client.zcard(made.key("ready")) == 0, "the rest to be set aside")
    assert made.stat("malformed") == 2_000
    assert worker.alive
    assert "Traceback" not in worker.errors


def test_cancelled_jobs_cost_the_worker_nothing(scene):
    made = scene(declare, capacity=EXPIRED + 10)
    outcomes = made.tasks.work.enqueue_many([(i,) for i in range(1_000)])
    assert all(handle.cancel() for handle in outcomes)
    live = made.tasks.work.options(key="live").enqueue("live")
    made.worker()
    assert live.result(timeout=2.0) == "live"
    assert set(made.book.starts()) == {"live"}
    assert made.queue.stats().unfinished == 0
