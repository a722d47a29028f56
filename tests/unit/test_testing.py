"""deadq.testing: what a user's own tests rest on."""

import asyncio
import os
import subprocess
import sys
import threading
import time
import tomllib
from pathlib import Path

import pytest

import deadq
from deadq import (
    Cancelled,
    Deadline,
    DeadlineExceeded,
    JobFailed,
    Queue,
    QueueFull,
    Retry,
    State,
    current_job,
    testing,
)
from deadq.store import keys
from deadq.testing import driver

ROOT = Path(deadq.__path__[0]).parent


@pytest.fixture
def clock():
    with testing.clock() as made:
        yield made


@pytest.fixture
def queue(clock):
    return testing.queue()


# What a user writes: a shop's queue in a module of theirs, and tests of it.

shop = Queue("shop", capacity=8)
charged: list[str] = []
gateway_down: list[Exception] = []


@shop.task(within=2.0, retries=3, retry_on=ConnectionError, backoff=lambda n: 0.1 * 2**n)
async def charge(order: str, cents: int) -> dict[str, object]:
    if gateway_down:
        raise gateway_down.pop()
    charged.append(order)
    return {"order": order, "charged": cents}


@pytest.fixture
def faked_shop(clock):
    charged.clear()
    gateway_down.clear()
    with testing.faked(shop):
        yield shop


def test_an_order_is_charged(faked_shop):
    job = charge.options(key="order-17").enqueue("17", 999)
    assert job.state() is State.READY
    assert testing.run_until_idle(faked_shop) == 1
    assert job.result() == {"order": "17", "charged": 999}


def test_a_failing_gateway_is_tried_again_after_the_backoff(faked_shop, clock):
    gateway_down.append(ConnectionError("no route"))
    gateway_down.append(ConnectionError("no route"))
    job = charge.enqueue("17", 999)

    assert testing.run_until_idle(faked_shop) == 1
    assert job.state() is State.LATER
    clock.advance(0.199)
    assert testing.run_until_idle(faked_shop) == 0
    clock.advance(0.001)
    assert testing.run_until_idle(faked_shop) == 1
    assert job.state() is State.LATER
    clock.advance(0.4)
    assert testing.run_until_idle(faked_shop) == 1

    assert job.state() is State.DONE
    assert charged == ["17"]


def test_nobody_is_charged_after_the_deadline(faked_shop, clock):
    job = charge.enqueue("17", 999)
    clock.advance(2.0)
    assert testing.run_until_idle(faked_shop) == 0
    assert job.state() is State.EXPIRED
    assert charged == []
    with pytest.raises(DeadlineExceeded):
        job.result()


def test_a_cancelled_order_is_not_charged(faked_shop):
    job = charge.enqueue("17", 999)
    assert job.cancel()
    assert testing.run_until_idle(faked_shop) == 0
    assert charged == []
    with pytest.raises(Cancelled):
        job.result()


def test_a_repeated_order_is_charged_once(faked_shop):
    first = charge.options(key="order-17").enqueue("17", 999)
    waiting = charge.options(key="order-17").enqueue("17", 999)
    testing.run_until_idle(faked_shop)
    late = charge.options(key="order-17").enqueue("17", 999)

    assert (first.duplicate, waiting.duplicate, late.duplicate) == (False, True, True)
    assert charged == ["17"]
    assert first.result() == waiting.result() == late.result()


def test_too_many_orders_are_refused(faked_shop):
    for order in range(8):
        charge.enqueue(str(order), 1)
    with pytest.raises(QueueFull):
        charge.enqueue("8", 1)
    assert testing.run_until_idle(faked_shop) == 8


def test_an_outcome_is_forgotten_after_the_retention(faked_shop, clock):
    charge.options(key="order-17").call("17", 999)
    clock.advance(3599)
    assert charge.options(key="order-17").enqueue("17", 999).duplicate
    clock.advance(60)
    assert not charge.options(key="order-17").enqueue("17", 999).duplicate


def test_the_shop_gets_its_own_server_back(clock):
    before = shop.backend, shop.producer
    with testing.faked(shop):
        charge.enqueue("17", 999)
        assert shop.stats().live == 1
    assert (shop.backend, shop.producer) == before
    with testing.faked(shop):
        assert shop.stats().live == 0


# Running until idle.


def test_starts_are_counted_retries_included(queue):
    @queue.task(within=2.0, retries=5)
    async def flaky() -> int:
        if current_job().attempt < 4:
            raise Retry(after=0)
        return current_job().attempt

    job = flaky.enqueue()
    assert testing.run_until_idle(queue) == 4
    assert job.result() == 4
    assert testing.run_until_idle(queue) == 0


def test_jobs_run_one_at_a_time_the_latest_start_first(queue):
    order = []

    @queue.task(within=2.0)
    async def note(name: str) -> None:
        order.append(name)
        await asyncio.sleep(0)
        order.append(name)

    note.options(within=3.0).enqueue("patient")
    note.options(within=1.0).enqueue("urgent")
    assert testing.run_until_idle(queue) == 2
    assert order == ["urgent", "urgent", "patient", "patient"]


def test_with_more_concurrency_handlers_may_meet(queue):
    @queue.task(within=2.0)
    async def meet() -> str:
        await asyncio.wait_for(barrier.wait(), 5)
        return "met"

    async def scenario():
        nonlocal barrier
        barrier = asyncio.Barrier(2)
        jobs = [await meet.aenqueue(), await meet.aenqueue()]
        assert await testing.arun_until_idle(queue, concurrency=2) == 2
        assert [await job.aresult() for job in jobs] == ["met", "met"]

    barrier = None
    asyncio.run(scenario())


def test_a_job_that_a_handler_submits_runs_too(queue):
    @queue.task(within=2.0)
    async def parent() -> str:
        return (await child.aenqueue()).key

    @queue.task(within=2.0)
    async def child() -> None:
        pass

    parent.enqueue()
    assert testing.run_until_idle(queue) == 2
    assert queue.stats().counters["finished:done"] == 2


def test_jobs_put_off_wait_for_the_clock(queue, clock):
    @queue.task(within=10.0)
    async def greet() -> str:
        return "hello"

    job = greet.options(not_before=Deadline.after(5.0)).enqueue()
    assert testing.run_until_idle(queue) == 0
    clock.advance(5.0)
    assert testing.run_until_idle(queue) == 1
    assert job.result() == "hello"


def test_a_job_that_no_worker_took_says_so_and_one_that_ran_does_not(queue, clock):
    @queue.task(within=2.0)
    async def work() -> None:
        await asyncio.sleep(60)

    runs = work.enqueue()
    assert testing.run_until_idle(queue) == 1
    waits = work.enqueue()
    clock.advance(2.0)
    for job, says in ((waits, "no worker took it in time"), (runs, "before the job finished")):
        with pytest.raises(DeadlineExceeded, match=says):
            job.result()


def test_there_are_no_threads(queue):
    seen = []

    @queue.task(within=2.0)
    def where() -> None:
        seen.append((threading.current_thread(), threading.active_count()))

    before = threading.current_thread(), threading.active_count()
    where.enqueue()
    testing.run_until_idle(queue)
    assert seen == [before]


def test_lifespans_open_before_the_first_job_and_close_after_the_last(queue):
    said = []

    @queue.lifespan
    async def pool():
        said.append("open")
        yield
        said.append("close")

    @queue.task(within=2.0)
    async def work() -> None:
        said.append("work")

    assert testing.run_until_idle(queue) == 0
    assert said == []
    work.enqueue_many([(), ()])
    testing.run_until_idle(queue)
    assert said == ["open", "work", "work", "close"]


def test_failures_are_kept_and_do_not_end_the_run(queue):
    @queue.task(within=2.0)
    def fail() -> None:
        raise ValueError("odd")

    @queue.task(within=2.0)
    async def stop_iteration() -> None:
        raise StopIteration("odd")

    jobs = fail.enqueue(), stop_iteration.enqueue()
    assert testing.run_until_idle(queue) == 2
    for job, kind in zip(jobs, ("ValueError", "StopIteration"), strict=True):
        with pytest.raises(JobFailed, match=f"{kind}: odd"):
            job.result()


def test_a_job_that_submits_itself_for_ever_is_an_error(queue, monkeypatch):
    monkeypatch.setattr(driver, "_MOST", 20)

    @queue.task(within=2.0)
    async def again() -> None:
        await again.options(within=1.0).aenqueue()

    again.enqueue()
    with pytest.raises(RuntimeError, match=r"20 starts.*submit itself"):
        testing.run_until_idle(queue)


def test_what_breaks_the_run_off_gives_the_jobs_back(queue):
    @queue.task(within=60.0)
    async def hang() -> None:
        running.set()
        await asyncio.Event().wait()

    async def scenario():
        nonlocal running
        running = asyncio.Event()
        job = await hang.aenqueue()
        run = asyncio.create_task(testing.arun_until_idle(queue))
        await asyncio.wait_for(running.wait(), 5)
        assert await job.astate() is State.RUNNING
        run.cancel()
        await asyncio.wait([run])
        assert await job.astate() is State.READY

    running = None
    asyncio.run(scenario())


# The clock judges.


def test_a_handler_that_lets_its_deadline_pass_is_cut_there(queue, clock):
    seen = []

    @queue.task(within=2.0)
    async def slow() -> None:
        clock.advance(1.999)
        await asyncio.sleep(0)
        seen.append("in time")
        clock.advance(0.001)
        await asyncio.sleep(0)
        seen.append("never")

    job = slow.enqueue()
    testing.run_until_idle(queue)
    assert job.state() is State.EXCEEDED
    assert seen == ["in time"]


def test_a_plain_function_stops_where_it_checks(queue, clock):
    seen = []

    @queue.task(within=2.0)
    def slow() -> None:
        current_job().check()
        clock.advance(2.0)
        seen.append("goes on")
        current_job().check()
        seen.append("never")

    job = slow.enqueue()
    testing.run_until_idle(queue)
    assert job.state() is State.EXCEEDED
    assert seen == ["goes on"]


def test_an_attempt_past_its_own_limit_is_tried_again(queue, clock):
    @queue.task(within=5.0, timeout=1.0, retries=1, backoff=lambda _: 0.5)
    async def slow_once() -> int:
        if current_job().attempt == 1:
            clock.advance(1.0)
            await asyncio.sleep(0)
        return current_job().attempt

    job = slow_once.enqueue()
    testing.run_until_idle(queue)
    assert job.state() is State.LATER
    clock.advance(0.5)
    testing.run_until_idle(queue)
    assert job.result() == 2


def test_a_handler_that_really_sleeps_too_long_moves_the_clock(queue, clock):
    @queue.task(within=0.05)
    async def sleep() -> None:
        await asyncio.sleep(60)

    before = clock.monotonic()
    job = sleep.enqueue()
    testing.run_until_idle(queue)
    assert job.state() is State.EXCEEDED
    assert clock.monotonic() - before == pytest.approx(0.05, abs=0.0015)


def test_what_runs_out_of_time_before_its_start_never_starts(queue, clock):
    @queue.task(within=1.0)
    async def slow(name: str) -> str:
        clock.advance(0.6)
        return name

    jobs = slow.enqueue_many([("a",), ("b",), ("c",)])
    assert testing.run_until_idle(queue) == 2
    assert [job.state() for job in jobs] == [State.DONE, State.EXCEEDED, State.EXPIRED]


def test_a_cancelled_run_is_interrupted(queue):
    @queue.task(within=60.0)
    async def hang() -> None:
        running.set()
        await asyncio.Event().wait()

    async def scenario():
        nonlocal running
        running = asyncio.Event()
        job = await hang.aenqueue()
        run = asyncio.create_task(testing.arun_until_idle(queue))
        await asyncio.wait_for(running.wait(), 5)
        assert not await job.acancel()
        assert await asyncio.wait_for(run, 5) == 1
        assert await job.astate() is State.CANCELLED

    running = None
    asyncio.run(scenario())


def test_a_plain_function_sees_its_own_cancellation(queue):
    seen = []

    @queue.task(within=2.0)
    def stop_myself() -> None:
        job.cancel()
        try:
            current_job().check()
        except Cancelled:
            seen.append("cancelled")
            raise

    job = stop_myself.enqueue()
    testing.run_until_idle(queue)
    assert seen == ["cancelled"]
    assert job.state() is State.CANCELLED


@pytest.mark.parametrize("odd", [-1, float("nan"), float("inf"), True, "1"])
def test_a_clock_takes_no_odd_times(clock, odd):
    with pytest.raises(ValueError, match="seconds must be"):
        clock.advance(odd)


def test_a_clock_counts_whole_milliseconds_and_only_when_moved(clock):
    monotonic, wall_ms = clock.monotonic(), clock.wall_ms()
    clock.advance(0.1 + 0.2)
    assert clock.wall_ms() - wall_ms == 300
    clock.advance(0.0001)
    assert clock.wall_ms() - wall_ms == 301
    assert clock.monotonic() - monotonic == pytest.approx(0.301)


@pytest.mark.parametrize("steps", [[2.0], [1.0, 1.0], [0.1] * 20])
@pytest.mark.parametrize("began_ms", [1_000, 1_006, 4_005, 8_191_996])
def test_what_takes_as_long_as_the_clock_was_moved_is_over(clock, began_ms, steps, monkeypatch):
    """However the sums are rounded: a host's clock may have begun at any instant."""
    monkeypatch.setattr(clock, "_monotonic_ms", began_ms)
    deadline = Deadline.after(2.0)
    for step in steps:
        assert not deadline.expired
        clock.advance(step)
    assert deadline.expired


def test_after_the_block_the_real_clock_counts_again():
    with testing.clock() as clock:
        clock.advance(3600)
        assert Deadline.after(1.0).monotonic > time.monotonic() + 3000
    assert Deadline.after(1.0).monotonic < time.monotonic() + 2


# Units.


@pytest.mark.parametrize("plain", [False, True])
def test_a_unit_that_is_on_record_is_not_run_again(queue, plain):
    taken: list[int] = []

    def take(cents: int) -> int:
        taken.append(cents)
        return len(taken)

    @queue.task(within=2.0, retries=1)
    async def pay() -> tuple[int, int]:
        number = await current_job().unit("take", take, 999)
        if current_job().attempt == 1:
            raise Retry(after=0)
        return number, current_job().attempt

    @queue.task(within=2.0, retries=1)
    def pay_plainly() -> tuple[int, int]:
        number = current_job().unit("take", take, 999)
        if current_job().attempt == 1:
            raise Retry(after=0)
        return number, current_job().attempt

    task = pay_plainly if plain else pay
    assert task.call() == (1, 2)
    assert taken == [999]


@pytest.mark.parametrize("plain", [False, True])
def test_one_unit_too_many_is_an_error_that_says_so(queue, plain):
    def fill_up() -> None:
        units = {f"u:{n}": f"done 1 {n} 30000 ab " for n in range(1_000)}
        record = keys.key(queue.name, "job", current_job().id)
        queue.backend.sync_client().hset(record, mapping=units)

    @queue.task(within=2.0)
    async def pay() -> None:
        fill_up()
        await current_job().unit("one more", print)

    @queue.task(within=2.0)
    def pay_plainly() -> None:
        fill_up()
        current_job().unit("one more", print)

    with pytest.raises(
        JobFailed, match="'one more' is one too many: a job may have 1,000"
    ) as caught:
        (pay_plainly if plain else pay).call()
    assert caught.value.type_name.endswith("UnitError")


@pytest.mark.parametrize("plain", [False, True])
def test_a_unit_is_not_interrupted_and_what_came_meanwhile_comes_after(queue, clock, plain):
    seen = []

    def outlive() -> None:
        clock.advance(2.0)
        seen.append("took effect")

    @queue.task(within=2.0)
    async def slow() -> None:
        await current_job().unit("outlive", outlive)
        seen.append("never")

    @queue.task(within=2.0)
    def slow_plainly() -> None:
        current_job().unit("outlive", outlive)
        current_job().check()
        seen.append("never")

    job = (slow_plainly if plain else slow).enqueue()
    testing.run_until_idle(queue)
    assert seen == ["took effect"]
    with pytest.raises(DeadlineExceeded) as caught:
        job.result()
    assert caught.value.units == ("outlive",)


# Waiting for results.


@pytest.fixture
def family(queue):
    """A task for each way in which a handler may call another."""

    @queue.task(within=2.0)
    async def double(x: int) -> int:
        return 2 * x

    @queue.task(within=2.0)
    async def by_await(x: int) -> int:
        return 1 + await double.acall(x)

    @queue.task(within=2.0)
    def by_call(x: int) -> int:
        return 1 + double.call(x)

    return double, by_await, by_call


@pytest.mark.parametrize("which", [1, 2])
def test_waiting_runs_the_queue_in_blocking_code(family, which):
    assert family[which].call(4) == 9


@pytest.mark.parametrize("which", [1, 2])
def test_waiting_runs_the_queue_on_a_loop(family, which):
    async def scenario():
        calls = [family[which].acall(x) for x in range(5)]
        assert await asyncio.gather(*calls) == [1, 3, 5, 7, 9]

    asyncio.run(scenario())
    asyncio.run(scenario())  # on another loop


def test_merely_looking_runs_nothing(family):
    job = family[0].enqueue(4)
    with pytest.raises(TimeoutError):
        job.result(timeout=0)
    assert job.state() is State.READY


def test_waiting_for_what_only_the_clock_can_bring_says_so(queue):
    @queue.task(within=9.0, retries=1)
    async def flaky() -> None:
        raise Retry(after=1.0)

    with pytest.raises(TimeoutError, match=r"is later.*clock\.advance"):
        flaky.call()

    async def scenario():
        with pytest.raises(TimeoutError, match=r"is later.*clock\.advance"):
            await flaky.acall()

    asyncio.run(scenario())


def test_a_wait_ends_when_another_task_moves_the_clock(queue, clock):
    @queue.task(within=9.0, retries=1)
    async def flaky() -> int:
        if current_job().attempt == 1:
            raise Retry(after=1.0)
        return current_job().attempt

    async def scenario():
        job = await flaky.aenqueue()
        waiting = asyncio.create_task(job.aresult())
        assert not (await asyncio.wait([waiting], timeout=0.1))[0]
        assert await job.astate() is State.LATER
        clock.advance(1.0)
        assert await waiting == 2

    asyncio.run(scenario())


def test_a_wait_ends_at_its_deadline_by_the_moved_clock(queue, clock):
    @queue.task(within=9.0, retries=1)
    async def flaky() -> None:
        raise Retry(after=5.0)

    async def scenario():
        job = await flaky.aenqueue()
        waiting = asyncio.create_task(job.aresult())
        assert not (await asyncio.wait([waiting], timeout=0.1))[0]
        assert await job.astate() is State.LATER
        clock.advance(9.0)
        with pytest.raises(DeadlineExceeded):
            await waiting

    asyncio.run(scenario())


def test_the_last_waiter_leaving_cancels_what_runs(queue):
    ended = []
    begun = asyncio.Event()

    @queue.task(within=60.0)
    async def hang() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    async def scenario():
        waiting = asyncio.create_task(hang.options(key="k").acall())
        await begun.wait()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await testing.arun_until_idle(queue)

    asyncio.run(scenario())
    assert ended == ["cancelled"]
    assert queue.stats().counters["finished:cancelled"] == 1


def test_without_a_test_clock_real_time_counts():
    queue = testing.queue()

    @queue.task(within=5.0, retries=1)
    async def flaky() -> int:
        if current_job().attempt == 1:
            raise Retry(after=0.05)
        return current_job().attempt

    @queue.task(within=0.05)
    async def sleep() -> None:
        await asyncio.sleep(60)

    assert flaky.call() == 2
    with pytest.raises(DeadlineExceeded):
        sleep.call()


# Wrong use.


def test_only_faked_queues_are_run_here():
    with pytest.raises(ValueError, match=r"queue shop is on a real server.*testing\.faked"):
        testing.run_until_idle(shop)


def test_on_a_loop_the_twin_is_named(queue):
    async def scenario():
        with pytest.raises(RuntimeError, match=r"await testing\.arun_until_idle"):
            testing.run_until_idle(queue)

    asyncio.run(scenario())


@pytest.mark.parametrize("setting", ["url", "client"])
def test_a_fake_queue_takes_no_server(setting):
    with pytest.raises(TypeError, match=f"leave {setting} out"):
        testing.queue(**{setting: "redis://localhost"})


def test_settings_reach_the_queue():
    made = testing.queue("mine", capacity=3, order="fifo", retention=7.0)
    assert (made.name, made.config.capacity, made.config.order) == ("mine", 3, "fifo")
    assert made.config.retention == 7.0
    with pytest.raises(TypeError, match="horizonn"):
        testing.queue(horizonn=1)


@pytest.mark.parametrize("missing", ["fakeredis", "lupa"])
def test_a_missing_package_is_named_with_its_remedy(missing, monkeypatch):
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ModuleNotFoundError) as caught:
        testing.queue()
    assert str(caught.value) == (
        f"deadq.testing needs {missing} for a fake server: pip install 'deadq[testing]'"
    )


# The pytest plugin.

A_USERS_TEST = """
def test_mine(deadq_queue, deadq_clock):
    from deadq import testing

    @deadq_queue.task(within=2.0)
    async def add(a: int, b: int) -> int:
        return a + b

    job = add.enqueue(1, 2)
    assert testing.run_until_idle(deadq_queue) == 1
    assert job.result() == 3
    late = add.enqueue(1, 2)
    deadq_clock.advance(2.0)
    assert testing.run_until_idle(deadq_queue) == 0

def test_not_mine():
    import time
    from deadq import clock
    assert isinstance(clock.current(), clock.SystemClock)
"""


def test_pytest_finds_the_fixtures_by_the_entry_point(tmp_path):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    name, module = project["entry-points"]["pytest11"].popitem()
    installed = tmp_path / "deadq-9.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: deadq\nVersion: 9\n")
    (installed / "entry_points.txt").write_text(f"[pytest11]\n{name} = {module}\n")
    (tmp_path / "test_user.py").write_text(A_USERS_TEST)
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_user.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path, "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
