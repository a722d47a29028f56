"""What a worker's settings mean: slots, children, runners, and requests that cannot be met."""

import asyncio

import pytest

from deadq import Queue, Worker
from deadq.runtime.cpus import available
from deadq.runtime.settings import WorkerConfig, plan_for, shares


@pytest.fixture
def plain():
    queue = Queue("plain", capacity=10)

    @queue.task
    def work(): ...

    return queue


@pytest.fixture
def mixed(plain):
    @plain.task
    async def wait(): ...

    return plain


def test_plain_handlers_get_a_process_for_each_cpu(plain):
    plan = plan_for(plain, WorkerConfig())
    assert (plan.process, list(plan.slots)) == (True, [1] * available())
    assert list(plan_for(plain, WorkerConfig(concurrency=3)).slots) == [1, 1, 1]


def test_one_coroutine_function_makes_it_an_event_loop(mixed):
    plan = plan_for(mixed, WorkerConfig())
    assert (plan.process, list(plan.slots)) == (False, [64])


def test_a_runner_can_be_asked_for(plain):
    assert not plan_for(plain, WorkerConfig(runner="async")).process
    assert plan_for(plain, WorkerConfig(runner="process")).process


@pytest.mark.parametrize(
    ("concurrency", "children", "slots"), [(8, 2, [4, 4]), (8, 3, [3, 3, 2]), (5, 5, [1] * 5)]
)
def test_children_share_the_slots(concurrency, children, slots, mixed):
    config = WorkerConfig(concurrency=concurrency, children=children)
    assert list(plan_for(mixed, config).slots) == slots


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"concurrency": 0}, "concurrency must lie between 1 and 100000"),
        ({"concurrency": True}, "concurrency must be a whole number"),
        ({"grace": -1}, "grace must be 0 or more seconds, not -1"),
        ({"children": 0}, "children must lie between 1 and 1000"),
        ({"max_jobs": 0}, "max_jobs must lie between 1 "),
        ({"max_memory": 0.5}, "max_memory must be a whole number"),
        ({"runner": "threads"}, "runner must be one of auto, async, process"),
        ({"children": 5, "concurrency": 4}, "5 children cannot share a concurrency of 4"),
        ({"runner": "process"}, "task 'wait' is a coroutine function, and the process runner"),
    ],
)
def test_odd_settings_are_refused_with_the_remedy(settings, says, mixed):
    with pytest.raises((ValueError, TypeError)) as refused:
        Worker(mixed, **settings)
    assert says in str(refused.value)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"runner": "process"}, "arun() runs everything on one loop"),
        ({"children": 2}, "arun() runs everything on one loop"),
        ({"max_jobs": 1000}, "max_jobs and max_memory replace a child by a fresh one, and arun()"),
        ({"max_memory": 400_000_000}, "leave them out, or use run()"),
    ],
)
def test_what_wants_processes_is_refused_on_a_loop_of_ones_own(settings, says, plain):
    worker = Worker(plain, concurrency=2, **settings)
    with pytest.raises(ValueError) as refused:
        asyncio.run(worker.arun())
    assert says in str(refused.value)


def test_a_slot_of_the_process_runner_is_a_child(plain):
    assert Worker(plain, children=2, concurrency=2).config.children == 2
    with pytest.raises(ValueError, match="leave children out"):
        Worker(plain, children=2, concurrency=4)


def test_a_queue_without_tasks_has_no_worker():
    with pytest.raises(ValueError, match="has no tasks; declare handlers"):
        Worker(Queue("empty", capacity=1))


@pytest.mark.parametrize(
    ("total", "weights", "slots"),
    [
        (8, [3, 1], [6, 2]),
        (8, [1], [8]),
        (3, [100, 1, 1], [1, 1, 1]),
        (10, [1, 1, 1], [4, 3, 3]),
        (10, [5, 3, 1], [6, 3, 1]),
        (4, [1000, 1, 1], [2, 1, 1]),
    ],
)
def test_slots_are_shared_by_weight_and_none_goes_without(total, weights, slots):
    assert shares(total, weights) == slots


def test_more_queues_than_slots_are_refused():
    with pytest.raises(ValueError, match="a concurrency of 1 is too little for 2 queues"):
        shares(1, [1, 1])
