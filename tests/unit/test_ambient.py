"""What is ambient in a block, and what is left behind when a generator holds the block."""

import asyncio
import contextvars
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from deadq import Deadline
from deadq.ambient import Ambient
from deadq.resilience import Allowance, Backoff, aretry, retry
from deadq.resilience.steps import as_unit, inside_unit

AT_ONCE = Backoff("none")


def items(value, ambient, n=1):
    with ambient.held(value):
        for _ in range(n):
            yield ambient.get()


@pytest.fixture
def ambient():
    return Ambient("test")


def test_the_innermost_block_counts(ambient):
    assert ambient.get() is None
    with ambient.held(1):
        with ambient.held(2):
            assert ambient.get() == 2
        assert ambient.get() == 1
    assert ambient.get() is None


def test_blocks_that_are_left_out_of_order_leave_nothing_behind(ambient):
    first, second, third = (items(n, ambient) for n in (1, 2, 3))
    assert [next(one) for one in (first, second, third)] == [1, 2, 3]
    second.close()
    assert ambient.get() == 3
    first.close()
    assert ambient.get() == 3
    third.close()
    assert ambient.get() is None


def test_no_chain_grows_of_blocks_that_overlap(ambient):
    last = items(0, ambient)
    next(last)
    for n in range(1, 100):
        one = items(n, ambient)
        next(one)
        last.close()
        last = one
        assert ambient._inner.get().outer is None
    last.close()
    assert ambient.get() is None


def test_a_task_that_a_block_has_begun_keeps_it(ambient):
    with ambient.held(1):
        context = contextvars.copy_context()
    assert context.run(ambient.get) == 1


def pages(fails):
    """As a handler that sends its answer in pieces, and tries again."""
    n = 0
    for attempt in retry(tries=3, timeout=5.0, backoff=AT_ONCE):
        with attempt:
            n += 1
            yield n
            if fails and n < 2:
                raise ConnectionError


async def apages(fails):
    n = 0
    async for attempt in aretry(tries=3, backoff=AT_ONCE):
        async with attempt:
            n += 1
            yield n
            if fails and n < 2:
                raise ConnectionError


@pytest.mark.parametrize("fails", [False, True])
def test_each_step_of_a_generator_may_run_in_a_thread_of_its_own(fails):
    found, step = [], pages(fails)
    with ThreadPoolExecutor(1) as threads:
        while n := threads.submit(contextvars.copy_context().run, next, step, None).result():
            found.append(n)
    assert found == ([1, 2] if fails else [1])


@pytest.mark.parametrize("fails", [False, True])
def test_each_step_of_a_generator_may_run_in_a_task_of_its_own(fails):
    async def main():
        found, step = [], apages(fails)
        while n := await asyncio.create_task(anext(step, None)):
            found.append(n)
        return found

    assert asyncio.run(main()) == ([1, 2] if fails else [1])


def test_an_error_in_another_context_is_that_of_the_block():
    def body():
        with Deadline.after(5.0).scope(), Allowance(1).scope(), as_unit():
            yield
            raise KeyError("mine")

    step = body()
    contextvars.copy_context().run(next, step)
    with pytest.raises(KeyError, match="mine"):
        contextvars.copy_context().run(next, step)


def test_two_generators_side_by_side_leave_neither_deadline_nor_allowance_behind():
    assert list(zip(pages(fails=False), pages(fails=False), strict=True)) == [(1, 1)]
    assert Deadline.current() is None
    assert Allowance.current() is None
    assert not inside_unit()


def test_a_thread_of_its_own_has_none(ambient):
    found = []
    with ambient.held(1):
        thread = threading.Thread(target=lambda: found.append(ambient.get()))
        thread.start()
        thread.join()
    assert found == [None]
