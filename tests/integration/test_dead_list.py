"""The dead list as users see it: what failed for good, why, and its replay; ``on_crash``."""

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import deadq
from deadq import (
    DeadJob,
    Deadline,
    DeadlineExceeded,
    DeadlineExpired,
    JobFailed,
    Paused,
    Queue,
    QueueFull,
    Rejected,
    State,
    codec,
)
from deadq.job import Departure, Settlement
from deadq.store import loader, scripts
from deadq.testing.proxy import slow_proxy


class Bench:
    """A queue on a real server, and one child that does as it is told."""

    def __init__(self, url: str) -> None:
        self.queue = Queue("dead", capacity=8, url=url, admission="cap")

        @self.queue.task(within=30.0, retries=1)
        def add(a: int, b: int) -> int:
            return a + b

        @self.queue.task(within=30.0, on_crash="fail")
        def once() -> None: ...

        self.add, self.once = add, once
        self._numbers = iter(range(1, 1_000))

    def run(self, call: scripts.Call[Any]) -> Any:
        return self.queue.backend.sync().run(call)

    def claim(self, *, slots: int = 1) -> list[Any]:
        """Jobs in the hands of a child of its own."""
        self.child = f"c{next(self._numbers)}"
        call = scripts.register(
            self.child, lease_ms=60_000, slots=slots, who="h", retention_ms=60_000,
            tasks=self.queue.tasks,
        )  # fmt: skip
        self.run(call)
        claim = scripts.claim(
            self.child, 1, slots, retention_ms=60_000, park=False, tasks=self.queue.tasks
        )
        found: list[Any] = self.run(claim).claims
        return found

    def end(self, outcome: str, blob: bytes = b"") -> None:
        """Claim the next job, and report this of it."""
        (claim,) = self.claim()
        settlement = Settlement(claim.id, claim.fence, outcome, 1_000, False, 0, blob)
        self.run(scripts.finish(self.child, [settlement], retention_ms=60_000))
        self.run(scripts.release(self.child, retention_ms=60_000))

    def fail(self, error: Exception | None = None) -> None:
        self.end("failed", codec.describe_exception(error or ValueError("no such order")))

    def die(self) -> None:
        assert self.claim()
        self.run(scripts.release(self.child, retention_ms=60_000, how=Departure.DIED))


@pytest.fixture
def bench(server_url) -> Iterator[Bench]:
    made = Bench(server_url)
    yield made
    made.queue.close()


def failed(bench, key="k", *args) -> DeadJob:
    bench.add.options(key=key).enqueue(*(args or (1, 2)))
    bench.fail()
    return bench.queue.dead(1)[0]


# Dying.


def test_a_job_that_kills_three_workers_has_crashed(bench):
    job = bench.add.enqueue(1, 2)
    for state in (State.SUSPECT, State.SUSPECT, State.CRASHED):
        bench.die()
        assert job.state() is state
    with pytest.raises(
        JobFailed, match=r"^WorkerDied: 3 workers died running it, or lost its "
    ) as caught:
        job.result()
    assert (caught.value.type_name, caught.value.traceback) == ("WorkerDied", "")
    assert bench.queue.stats().counters["finished:crashed"] == 1
    again = bench.add.options(key=job.key).enqueue(1, 2)
    assert again.duplicate
    with pytest.raises(JobFailed, match="3 workers"):
        again.result()


def test_at_most_once_crashes_with_its_first_worker(bench):
    job = bench.once.enqueue()
    bench.die()
    with pytest.raises(JobFailed, match=r"^WorkerDied: 1 worker died running it, or lost its "):
        job.result(timeout=0)


def test_without_it_a_job_survives_its_worker(bench):
    job = bench.add.enqueue(1, 2)
    bench.die()
    assert bench.queue.stats().suspects == 1
    bench.end("done", codec.encode(3))
    assert job.result() == 3


@pytest.mark.parametrize("odd", ["never", "", None, True, 1])
def test_on_crash_is_one_of_two_words(bench, odd):
    with pytest.raises(ValueError, match=r"on_crash must be one of rerun, fail, not"):
        bench.queue.task(on_crash=odd)


def test_on_crash_is_part_of_what_the_task_promises(bench):
    assert bench.once.config.on_crash == "fail"
    assert bench.add.config.on_crash == "rerun"


# The list.


def test_the_dead_are_listed_with_what_went_wrong(bench):
    before = bench.queue.clock.now_ms()
    bench.add.options(key="one").enqueue(1, 2)
    bench.fail(ValueError("no such order"))
    bench.add.options(key="two").enqueue(1, 2)
    bench.end("cut")
    bench.once.options(key="three").enqueue()
    bench.die()
    third, second, first = bench.queue.dead()
    assert (first.key, first.task, first.state, first.attempts) == ("one", "add", State.FAILED, 1)
    assert (first.error_type, first.error_message) == ("ValueError", "no such order")
    assert (second.key, second.state) == ("two", State.EXCEEDED)
    assert (second.error_type, second.error_message) == (None, None)
    assert (third.key, third.task, third.state) == ("three", "once", State.CRASHED)
    assert (third.error_type, third.error_message) == (
        "WorkerDied",
        "1 worker died running it, or lost its lease",
    )
    assert before - 50 <= first.ended_ms <= third.ended_ms <= bench.queue.clock.now_ms() + 50
    assert bench.queue.dead(limit=2) == [third, second]
    assert bench.queue.dead(0) == []


@pytest.mark.parametrize(("odd", "error"), [(-1, ValueError), (1.5, TypeError), (True, TypeError)])
def test_the_limit_is_a_whole_number(bench, odd, error):
    with pytest.raises(error, match="limit must"):
        bench.queue.dead(odd)


def test_an_error_that_cannot_be_read_says_so(bench):
    bench.add.enqueue(1, 2)
    bench.end("failed", b"\xc1 not ours")
    (job,) = bench.queue.dead()
    assert job.error_type == "deadq.MalformedRecord"


# The replay.


@pytest.mark.parametrize("key", ["order-17", "0123456789abcdef" * 2])
@pytest.mark.parametrize("by", ["id", "key", "job"])
def test_a_replay_runs_the_same_call_again(bench, by, key):
    dead = failed(bench, key, 4, 5)
    job = bench.queue.replay(dead if by == "job" else getattr(dead, by), within=5.0)
    assert (job.id, job.key, job.duplicate) == (dead.id, key, False)
    assert 4.5 < job.deadline.remaining() <= 5.0
    assert bench.queue.dead() == []
    (claim,) = bench.claim()
    assert codec.decode(claim.payload) == [4, 5]
    assert claim.attempt == 1
    settlement = Settlement(claim.id, claim.fence, "done", 1_000, False, 0, codec.encode(9))
    bench.run(scripts.finish(bench.child, [settlement], retention_ms=60_000))
    assert job.result() == 9


@pytest.mark.parametrize("kind", ["Deadline", "datetime", "epoch ms"])
def test_the_deadline_may_be_an_instant(bench, kind):
    dead = failed(bench)
    at = datetime.now(UTC) + timedelta(seconds=8)
    deadline = {"Deadline": Deadline.at(at), "datetime": at, "epoch ms": at.timestamp() * 1000}
    job = bench.queue.replay(dead, deadline=deadline[kind])
    assert 7.0 < job.deadline.remaining() <= 8.1


def test_it_never_outlives_the_deadline_in_force(bench):
    dead = failed(bench)
    with Deadline.after(2.0).scope():
        assert bench.queue.replay(dead, within=9.0).deadline.remaining() <= 2.0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "a replay needs a deadline of its own: give within or deadline"),
        ({"within": 1.0, "deadline": 5}, "give within or deadline, not both"),
        ({"within": -1.0}, "within"),
        ({"within": 8 * 86_400.0}, "past the queue's horizon"),
    ],
)
def test_an_odd_deadline_is_an_error_and_leaves_it_where_it_is(bench, given, message):
    dead = failed(bench)
    with pytest.raises(ValueError, match=message):
        bench.queue.replay(dead, **given)
    assert bench.queue.dead() == [dead]


@pytest.mark.parametrize("odd", [17, None, b"id", ("id",)])
def test_an_odd_job_is_an_error(bench, odd):
    with pytest.raises(TypeError, match="a job's id or key must be a str"):
        bench.queue.replay(odd, within=1.0)


@pytest.mark.parametrize(
    ("why", "message"),
    [
        ("unknown", r"is not among the dead: the server holds no record of it"),
        ("ready", r"is not among the dead: it is ready"),
        ("done", r"is not among the dead: it is done"),
    ],
)
def test_what_is_not_among_the_dead_is_refused_and_the_error_says_what_it_is(bench, why, message):
    ident = "ab12"
    if why != "unknown":
        ident = bench.add.enqueue(1, 2).id
    if why == "done":
        bench.end("done", codec.encode(3))
    with pytest.raises(Rejected, match=message):
        bench.queue.replay(ident, within=1.0)


@pytest.mark.parametrize("why", ["paused", "full", "expired"])
def test_it_is_refused_like_any_submit(bench, why):
    dead = failed(bench)
    deadline = datetime.now(UTC) + timedelta(seconds=-1.0 if why == "expired" else 5.0)
    error = {"paused": Paused, "full": QueueFull, "expired": DeadlineExpired}[why]
    if why == "paused":
        bench.queue.pause()
    elif why == "full":
        for _ in range(8):
            bench.add.enqueue(1, 2)
    with pytest.raises(error):
        bench.queue.replay(dead, deadline=deadline)
    assert bench.queue.dead() == [dead]


def test_of_many_replays_at_once_one_is_the_admission(bench):
    dead = failed(bench)
    jobs: list[Any] = []
    threads = [
        threading.Thread(target=lambda: jobs.append(bench.queue.replay(dead, within=20.0)))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(job.duplicate for job in jobs) == [False, *[True] * 7]
    assert bench.queue.stats().live == 1


def test_its_waiters_wait_to_their_own_deadlines(bench):
    dead = failed(bench)
    short = bench.queue.replay(dead, within=0.05)
    with pytest.raises(DeadlineExceeded):
        short.result()


def test_the_asyncio_twins_do_the_same(bench):
    dead = failed(bench, "order-17", 4, 5)

    async def twins() -> None:
        queue = bench.queue
        assert await queue.adead() == await queue.adead(1) == [dead]
        assert await queue.adead(limit=0) == []
        one, other = await asyncio.gather(
            queue.areplay(dead, within=5.0), queue.areplay(dead.id, within=5.0)
        )
        assert sorted([one.duplicate, other.duplicate]) == [False, True]
        assert {one.key, other.key} == {"order-17"}
        assert await queue.adead() == []
        await one.acancel()
        with pytest.raises(Rejected, match="it is cancelled"):
            await queue.areplay(dead, deadline=datetime.now(UTC) + timedelta(seconds=5))
        with pytest.raises(ValueError, match="give within or deadline"):
            await queue.areplay(dead)
        await queue.aclose()

    asyncio.run(twins())


def test_on_a_loop_too_a_replay_has_the_time_that_it_is_given(bench):
    one, other = [failed(bench, key) for key in ("one", "other")]

    async def replays() -> None:
        job = await bench.queue.areplay(one, within=5.0)
        assert 4.5 < job.deadline.remaining() <= 5.0
        at = datetime.now(UTC) + timedelta(seconds=8)
        job = await bench.queue.areplay(other, deadline=at)
        assert 7.0 < job.deadline.remaining() <= 8.1
        await bench.queue.aclose()

    asyncio.run(replays())


def test_a_replay_cancelled_in_mid_call_leaves_nothing(server, bench):
    dead = [failed(bench, f"k{n}", 1, 2) for n in range(8)]
    accepted = set()

    async def main() -> None:
        with slow_proxy(server.url, listen="unix") as proxy:
            far = Bench(proxy.url)
            await far.queue.aconnect()
            proxy.delay = 0.06
            for n, job in enumerate(dead):  # before, in and after each round trip
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.03 * n):
                        accepted.add((await far.queue.areplay(job, within=20.0)).id)
            await far.queue.aclose()  # what is under way is carried out
            far.queue.close()

    asyncio.run(main())
    look = bench.queue.producer.look
    assert {job.id for job in dead if look(job.id).state is State.READY} == accepted
    assert len(accepted) < len(dead)


def test_a_replay_interrupted_in_mid_call_leaves_nothing(bench, monkeypatch):
    dead = failed(bench, "order-17", 4, 5)
    store = bench.queue.backend.sync()
    exchange = store._exchange

    def answered_and_interrupted(commands: list[Any]) -> Any:
        replies = exchange(commands)
        if any(loader.load("admit").sha in command for command in commands):
            raise KeyboardInterrupt
        return replies

    monkeypatch.setattr(store, "_exchange", answered_and_interrupted)
    with pytest.raises(KeyboardInterrupt):
        bench.queue.replay(dead, within=20.0)
    assert bench.queue.stats().live == 0
    assert bench.queue.producer.look(dead.id).state is State.CANCELLED


def test_a_replay_works_in_a_users_own_tests():
    with deadq.testing.clock() as clock:
        queue = deadq.testing.queue()
        broken = [True]

        @queue.task(within=2.0)
        def act() -> str:
            if broken.pop():
                raise ValueError("once")
            return "done"

        broken.insert(0, False)
        with pytest.raises(JobFailed):
            act.call()
        clock.advance(5.0)
        (dead,) = queue.dead()
        assert dead.error_message == "once"
        assert queue.replay(dead, within=1.0).result() == "done"
