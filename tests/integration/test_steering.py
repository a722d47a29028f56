"""Looking at a queue and steering it from an event loop, as from blocking code; and settings of a
task that its calls go by.
"""

import asyncio

import pytest

from deadq import Paused, Queue, QueueFull, State


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
