"""Looking at a queue and steering it from an event loop, as from blocking code; and settings of a
task that its calls go by.
"""

import asyncio
import warnings

import pytest

from deadq import DeadlineExceeded, Paused, Queue, QueueFull, State


@pytest.fixture
def queue(server_url):
    made = Queue("steered", capacity=10, url=server_url)

    @made.task(within=30.0)
    async def pay(order: str) -> str: ...

    yield made
    made.close()


def test_an_event_loop_sees_and_does_what_blocking_code_does(queue):
    asyncio.run(_steer(queue))


async def _steer(queue):
    pay = queue.tasks["pay"]
    first, second = [await pay.options(key=key).aenqueue(key) for key in ("first", "second")]
    assert [job.key for job in await queue.ajobs()] == ["first", "second"]
    assert [job.key for job in await queue.ajobs(limit=1)] == ["first"]
    assert await queue.ajobs("later") == []
    shown = await queue.ashow(second.id)
    assert (shown.key, shown.task, shown.waiters) == ("second", "pay", 1)
    assert await queue.ashow("nobody") is None
    assert await queue.acancel(first.id) is State.CANCELLED
    assert await queue.acancel("nobody") is State.GONE
    assert (await queue.astats()).ready == 1

    await queue.apause()
    with pytest.raises(Paused):
        await pay.aenqueue("third")
    await queue.aresume()
    assert not (await pay.aenqueue("third")).duplicate
    await queue.aclose()


KEYS = ["order-17", "0123456789abcdef" * 2, None]
"""One that looks like an id; and the random one of a job that got none."""


@pytest.mark.parametrize("key", KEYS, ids=["plain", "like an id", "random"])
def test_a_job_is_seen_and_cancelled_by_its_key_or_its_id(queue, key):
    pay = queue.tasks["pay"]
    for name in ("key", "id"):
        job = pay.options(key=key).enqueue("17")
        assert queue.show(getattr(job, name)).id == job.id
        assert queue.cancel(getattr(job, name)) is State.CANCELLED
        assert job.state() is State.CANCELLED
        assert queue.cancel(getattr(job, name)) is State.CANCELLED  # it stays so
    asyncio.run(_by_name(queue, key))


async def _by_name(queue, key):
    pay = queue.tasks["pay"]
    for name in ("key", "id"):
        job = await pay.options(key=key).aenqueue("17")
        assert (await queue.ashow(getattr(job, name))).id == job.id
        assert await queue.acancel(getattr(job, name)) is State.CANCELLED
    await queue.aclose()


def test_where_a_key_is_the_id_of_another_job_the_id_counts(queue):
    pay = queue.tasks["pay"]
    first = pay.options(key="order-17").enqueue("17")
    second = pay.options(key=first.id).enqueue("17")
    assert queue.cancel(first.id) is State.CANCELLED
    assert (first.state(), second.state()) == (State.CANCELLED, State.READY)


@pytest.mark.parametrize("name", ["nobody", "0123456789abcdef" * 2])
def test_a_job_that_nobody_knows_is_gone(queue, name):
    assert queue.show(name) is None
    assert queue.cancel(name) is State.GONE


@pytest.mark.parametrize(
    ("odd", "error"),
    [(odd, ValueError) for odd in ("", "k" * 1025, "\ud800")]
    + [(odd, TypeError) for odd in (None, 17, b"k", ("k",))],
)
def test_what_can_be_neither_id_nor_key_is_an_error(queue, odd, error):
    for ask in (queue.show, queue.cancel):
        with pytest.raises(error, match="a job's id or key"):
            ask(odd)


@pytest.mark.parametrize(("criticality", "most"), [("critical", 8), ("sheddable", 4)])
def test_calls_are_as_critical_as_their_task(criticality, most, server_url):
    queue = Queue("shares", capacity=8, url=server_url)

    @queue.task(within=30.0, criticality=criticality)
    async def work() -> None: ...

    for _ in range(most):
        work.enqueue()
    with pytest.raises(QueueFull):
        work.enqueue()
    queue.close()


@pytest.mark.parametrize("ask", ["call", "result"])
def test_a_wait_that_blocks_an_event_loop_is_warned_of_and_goes_on(queue, ask):
    pay = queue.tasks["pay"].options(within=0.05)

    def wait():
        with pytest.raises(DeadlineExceeded):
            pay.call("17") if ask == "call" else pay.enqueue("17").result()

    async def on_a_loop():
        wait()

    with pytest.warns(RuntimeWarning, match=r"await task\.acall\(\.\.\.\) or job\.aresult\(\)"):
        asyncio.run(on_a_loop())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        wait()
