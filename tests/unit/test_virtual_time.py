"""Code that waits, run without waiting."""

import asyncio
import time

import pytest

from deadq import Deadline
from deadq.resilience import Backoff, aretry
from deadq.testing import run_in_virtual_time


def test_a_day_takes_no_time():
    async def main():
        await asyncio.sleep(86_400)
        return asyncio.get_running_loop().time()

    begun = time.monotonic()
    assert run_in_virtual_time(main()) == 86_400
    assert time.monotonic() - begun < 60


def test_deadlines_and_pauses_go_by_it():
    began = []

    async def main():
        deadline = Deadline.after(10)

        @aretry(tries=3, backoff=Backoff("exponential", base=1.0))
        async def call():
            began.append(asyncio.get_running_loop().time())
            raise ConnectionResetError

        with pytest.raises(Exception, match="3 attempts"):
            await call()
        return deadline.remaining()

    assert run_in_virtual_time(main()) == 4
    assert began == [0, 2, 6]


def test_the_same_code_takes_the_same_turns():
    async def main():
        turns = []

        async def walk(name, step):
            for _ in range(5):
                await asyncio.sleep(step)
                turns.append((name, asyncio.get_running_loop().time()))

        await asyncio.gather(walk("a", 0.3), walk("b", 0.5), walk("c", 0.3))
        return turns

    turns = run_in_virtual_time(main())
    assert turns == run_in_virtual_time(main())
    assert [at for _, at in turns] == sorted(at for _, at in turns)


def test_who_waits_for_ever_is_told():
    async def main():
        await asyncio.Event().wait()

    with pytest.raises(RuntimeError, match="no timer is set"):
        run_in_virtual_time(main())


def test_time_goes_on_as_usual_afterwards():
    with pytest.raises(KeyError):
        run_in_virtual_time(failing())
    before = time.monotonic()
    assert Deadline.after(5)._monotonic >= before


async def failing():
    await asyncio.sleep(1e6)
    raise KeyError
