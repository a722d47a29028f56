"""What handlers need is opened and closed, on a loop and in blocking code, in the same order."""

import asyncio
import contextlib
import contextvars

import pytest

from deadq.lifespan import as_manager, opened_here, opened_on_loop

seen = []


@pytest.fixture(autouse=True)
def _empty():
    seen.clear()


def plain():
    seen.append("open plain")
    try:
        yield
    finally:
        seen.append("close plain")


async def looping():
    await asyncio.sleep(0)
    seen.append("open looping")
    try:
        yield
    finally:
        await asyncio.sleep(0)
        seen.append("close looping")


def object_of_its_own():
    return contextlib.closing(Closing())


class Closing:
    def __init__(self):
        seen.append("open object")

    def close(self):
        seen.append("close object")


KINDS = [as_manager(kind) for kind in (plain, looping, object_of_its_own, looping)]
OPEN = ["open plain", "open looping", "open object", "open looping"]
CLOSED = ["close looping", "close object", "close looping", "close plain"]


def run_here(lifespans, work):
    with opened_here(lifespans):
        work()


def run_on_loop(lifespans, work):
    async def main():
        async with opened_on_loop(lifespans):
            work()

    asyncio.run(main())


both = pytest.mark.parametrize("run", [run_here, run_on_loop])


@both
def test_each_kind_opens_in_order_and_closes_in_reverse(run):
    run(KINDS, lambda: seen.append("work"))
    assert seen == [*OPEN, "work", *CLOSED]


@both
def test_all_are_closed_when_the_work_fails(run):
    with pytest.raises(ZeroDivisionError):
        run(KINDS, lambda: 1 / 0)
    assert seen == [*OPEN, *CLOSED]


@both
def test_what_is_open_is_closed_when_another_does_not_open(run):
    async def broken():
        raise LookupError
        yield

    with pytest.raises(LookupError):
        run([KINDS[0], KINDS[1], as_manager(broken)], lambda: seen.append("work"))
    assert seen == ["open plain", "open looping", "close looping", "close plain"]


@both
def test_something_else_is_refused(run):
    with pytest.raises(TypeError, match="must be a generator function"):
        run([as_manager(lambda: 5)], lambda: None)


def test_in_blocking_code_no_loop_runs_meanwhile():
    def work():
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()
        seen.append(asyncio.run(asyncio.sleep(0, "a loop of its own")))

    run_here([KINDS[1]], work)
    assert seen == ["open looping", "a loop of its own", "close looping"]


@both
def test_context_variables_that_they_set_are_seen_by_the_work(run):
    variable = contextvars.ContextVar("variable", default="none")

    async def sets():
        variable.set("set")
        yield

    run([as_manager(sets)], lambda: seen.append(variable.get()))
    assert seen == ["set"]
