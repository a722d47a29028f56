"""C47: done entries never leave.

The rule: whatever a job's end, its keys carry an expiry of at most the retention from then on, and
nothing else about it stays. A queue at rest is a fixed set of keys of a bounded size, whatever it
has gone through.
"""

import asyncio
import contextlib
import re

import pytest

from deadq import DeadqError, JobFailed, Retry, State
from deadq.store import keys
from tests.cases.support import pause
from tests.marks import sampled
from tests.servers import wait_until


def declare(queue, book):
    @queue.task(within=20.0)
    async def echo(value):
        return value

    @queue.task(within=20.0)
    async def fail(value):
        raise LookupError(value)

    @queue.task(within=20.0, retries=2)
    async def gives_up():
        raise Retry(after=0.01)

    @queue.task(within=0.2)
    async def too_slow():
        await asyncio.sleep(5)

    @queue.task(within=20.0)
    async def hold(value):
        book.note("start")
        await asyncio.sleep(30)


def declare_only_echo(queue, book):
    @queue.task(within=20.0)
    async def echo(value):
        return value


SERVICE_BYTES = 8_192
"""For each of these few tasks a histogram of 1 kB, and 0.6 kB of samples that wait for it."""

FIXED = re.compile(rf"({'|'.join(keys.STANDING)}|worker:[0-9a-f]+)")


def of_jobs(made):
    """Keys beyond the fixed set of a queue and one for each living worker."""
    names = [key.decode().removeprefix(made.prefix) for key in made.client.scan_iter(count=1000)]
    return [name for name in names if not FIXED.fullmatch(name)]


def all_expire(made, within_ms):
    """Every key of an ended job has an expiry, and not a long one."""
    for name in of_jobs(made):
        if name.startswith(("run:", "ctl:")):
            continue  # a living worker's, in passing
        left = made.client.pttl(made.prefix + name)
        assert left == -2 or 0 <= left <= within_ms, f"{name} lives {left} ms"


def memory(made):
    """Bytes, but for what is known of service times: that varies with them, up to a bound."""
    sizes = {key: made.client.memory_usage(key, samples=0) or 0 for key in made.client.scan_iter()}
    assert sizes.pop(made.key("service").encode()) < SERVICE_BYTES
    return sum(sizes.values())


async def churn(made, each, worker):
    """So many jobs of every kind of end."""
    tasks, queue = made.tasks, made.queue
    numbers = [(i,) for i in range(each)]
    worker.freeze()
    expiring = await tasks.echo.options(within=0.1).aenqueue_many(numbers)
    leaving = await tasks.echo.aenqueue_many(numbers)
    assert all(await asyncio.gather(*(handle.acancel() for handle in leaving)))
    await asyncio.gather(*(ended(handle) for handle in expiring))
    worker.thaw()
    fine = await tasks.echo.aenqueue_many(numbers)
    broken = await tasks.fail.aenqueue_many(numbers)
    # a repeat keeps the outcome until its caller's deadline
    twice = [tasks.echo.options(key=f"twice-{i}", within=1.8) for i in range(each)]
    firsts = await asyncio.gather(*(bound.aenqueue(i) for i, bound in enumerate(twice)))
    seconds = await asyncio.gather(*(bound.aenqueue(i) for i, bound in enumerate(twice)))
    assert sum(handle.duplicate for handle in seconds) == each
    good = await asyncio.gather(*(handle.aresult() for handle in [*fine, *firsts, *seconds]))
    assert good == [*range(each)] * 3
    assert await asyncio.gather(*(ended(handle) for handle in broken)) == [JobFailed] * each
    await queue.aclose()


async def ended(handle):
    with contextlib.suppress(TimeoutError):
        try:
            return await handle.aresult()
        except DeadqError as error:
            return type(error)


@pytest.mark.slow
@pytest.mark.parametrize(("each", "retention"), [(60, 1.0), (400, 4.0)], ids=["300", "2000"])
def test_three_rounds_of_every_end_leave_a_fixed_set_of_keys_and_flat_memory(
    scene, each, retention
):
    """Results are kept for as long as it takes to ask for all of them."""
    made = scene(declare, retention=retention, capacity=10_000)
    worker = made.worker(concurrency=16)
    sizes, left = [], []
    for _ in range(3):
        asyncio.run(churn(made, each, worker))
        wait_until(lambda: made.queue.stats().unfinished == 0, "all to have ended")
        all_expire(made, 1_000 * retention + 1_800)
        wait_until(lambda: not of_jobs(made), "their keys to be gone", within_s=retention + 2.0)
        sizes.append(memory(made))
        left.append(made.client.dbsize())
        made.calm()
    assert left[1] == left[0] == left[2]
    assert max(left) <= len(keys.STANDING) + 1
    assert sizes[2] <= sizes[1] * 1.02 + 512
    assert sizes[1] <= sizes[0] * 1.1 + 2048
    assert made.stat("finished:done") == 2 * 3 * each
    assert made.stat("finished:failed") == 3 * each
    assert made.stat("finished:cancelled") == 3 * each
    assert made.stat("expired:") == 3 * each
    assert made.stat("duplicate") == 3 * each


@pytest.mark.parametrize(("size", "name"), sampled([10, 150, 1000, 200_000], ["echo", "fail"]))
def test_arguments_and_results_of_every_size_leave(scene, name, size):
    """Small ones live in the record, large ones in keys of their own."""
    made = scene(declare, retention=0.4)
    made.worker()
    with contextlib.suppress(JobFailed):
        getattr(made.tasks, name).call("x" * size)
    assert of_jobs(made)
    all_expire(made, 400)
    wait_until(lambda: not of_jobs(made), "its keys to be gone")


@pytest.mark.slow
def test_every_rarer_end_leaves_too(scene):
    made = scene(declare, retention=0.5, lease=0.5, capacity=4)
    tasks = made.tasks
    worker = made.worker(declare_only_echo)
    strange = tasks.hold.options(within=0.3).enqueue("nobody here knows this")
    wait_until(lambda: strange.state() == State.STRANGE, "it to be set aside")
    wait_until(lambda: strange.state() in (State.EXPIRED, State.GONE), "it to expire")
    assert worker.stop() == 0
    worker = made.worker(concurrency=2)
    given_up = tasks.gives_up.enqueue()
    slow = tasks.too_slow.enqueue()
    wait_until(lambda: given_up.state() == State.EXHAUSTED, "it to give up")
    wait_until(lambda: slow.state() == State.EXCEEDED, "it to be cut")
    running = tasks.hold.enqueue("cancelled while it runs")
    wait_until(lambda: running.state() == State.RUNNING, "it to run")
    running.cancel()
    lost = tasks.hold.options(key="lost", within=1.0).enqueue("its worker dies")
    wait_until(lambda: len(made.book.starts()) == 2, "it to run")
    worker.kill()
    put_off = tasks.echo.options(not_before=made.now_ms() + 5000).enqueue("cancelled")
    put_off.cancel()
    outcomes = tasks.echo.options(within=0.5).enqueue_many([("until it is full",)] * 10)
    assert any(isinstance(outcome, DeadqError) for outcome in outcomes)
    with pytest.raises(DeadqError):
        tasks.echo.options(key="lost").enqueue("reused")
    made.worker()
    wait_until(lambda: made.queue.stats().unfinished == 0, "all to have ended")
    assert lost.state() in (State.EXCEEDED, State.EXPIRED, State.GONE)
    all_expire(made, 500)
    wait_until(lambda: not of_jobs(made), "their keys to be gone")
    made.calm()


@pytest.mark.slow
def test_workers_that_come_and_go_leave_nothing(scene):
    made = scene(declare, lease=0.4)
    for how in ("stop", "kill", "stop", "kill"):
        worker = made.worker()
        handle = made.tasks.hold.enqueue(how)
        wait_until(lambda handle=handle: handle.state() == State.RUNNING, "it to run")
        handle.cancel()  # a message is under way to a worker that may be gone
        getattr(worker, how)()
    made.worker()
    wait_until(lambda: made.client.zcard(made.key("workers")) == 1, "the others to be swept")
    wait_until(lambda: made.queue.stats().unfinished == 0, "all to have ended")
    names = [key.decode() for key in made.client.scan_iter(f"{made.prefix}worker:*")]
    assert len(names) == 1
    for kind in ("run", "ctl"):
        for key in made.client.scan_iter(f"{made.prefix}{kind}:*"):
            assert made.client.ttl(key) > 0, key


def test_the_list_of_the_dead_is_bounded_in_number_and_age(scene):
    made = scene(declare, retention=1.0)
    made.worker(concurrency=32)
    outcomes = made.tasks.fail.options(within=20.0).enqueue_many([(i,) for i in range(900)])
    wait_until(lambda: outcomes[-1].state() == State.FAILED, "the last one to fail")
    outcomes = made.tasks.fail.options(within=20.0).enqueue_many([(i,) for i in range(900)])
    wait_until(lambda: made.queue.stats().unfinished == 0, "all to fail")
    assert made.client.zcard(made.key("dead")) <= 1000
    wait_until(lambda: not of_jobs(made), "their keys to be gone", within_s=4.0)
    with pytest.raises(JobFailed):
        made.tasks.fail.call("one more")
    assert made.client.zcard(made.key("dead")) == 1


def test_refusals_leave_nothing_but_counters(scene):
    made = scene(declare, capacity=1)
    made.tasks.echo.options(key="k").enqueue("x")
    size = made.client.dbsize()
    for number in range(300):
        with pytest.raises(DeadqError):
            made.tasks.echo.enqueue(number)
        with pytest.raises(DeadqError):
            made.tasks.echo.options(key="k").enqueue(number)
        with pytest.raises(DeadqError):
            made.tasks.echo.options(deadline=made.now_ms() - 1).enqueue(number)
    assert made.client.dbsize() == size
    assert made.client.hlen(made.key("stats")) < 20


def test_a_queue_at_rest_without_workers_keeps_no_key_of_any_job(scene):
    """Nobody sweeps: the expiries alone must do."""
    made = scene(declare, retention=0.3)
    for number in range(20):
        made.tasks.echo.options(within=0.05).enqueue(number)
    for handle in [made.tasks.echo.enqueue(number) for number in range(20)]:
        handle.cancel()
    pause(0.06)
    made.tasks.echo.options(within=0.05).enqueue("sweeps some of them")
    for name in of_jobs(made):
        assert 0 < made.client.pttl(made.prefix + name) <= 50 + 30_000 + 300
