"""Jobs with units, as coroutines and as plain functions, for the tests of their interruption."""

import asyncio
import contextlib
import os
import sqlite3
import threading
import time

import deadq
from deadq import Retry, current_job
from tests.shifts import aat_gate, at_gate

SWALLOW = {"Exception": Exception, "BaseException": BaseException}


def named(name):
    """A unit's name: apart for each job, as the time that a unit of this name has taken decides
    whether it begins."""
    return f"{name} {current_job().key}"


def _effect(book, begun, seconds):
    """What a unit does: begins, takes its time, takes effect."""
    book.note(begun)
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        time.sleep(min(left, 0.02))
    book.note("effect")
    return current_job().unit_key(named("pay"))


@deadq.unit(limit=5.0)
def decorated(seconds):
    time.sleep(seconds)
    return ("plain", os.getpid(), threading.current_thread() is threading.main_thread())


@deadq.unit(limit=5.0)
async def adecorated(seconds):
    await asyncio.sleep(seconds)
    return ("coroutine", os.getpid())


def declare_async(queue, book):
    async def effect(seconds, begun="unit"):
        book.note(begun)
        await asyncio.sleep(seconds)
        book.note("effect")
        return current_job().unit_key(named("pay"))

    def in_thread(seconds):
        return _effect(book, "unit", seconds)

    effects = {"coroutine": effect, "plain": in_thread}

    @queue.task(within=20.0)
    async def pay(seconds, kind="coroutine", limit=5.0, needs=0.0):
        book.note("start")
        paid = await current_job().unit(
            named("pay"), effects[kind], seconds, limit=limit, needs=needs
        )
        book.note("after")
        return paid

    @queue.task(within=20.0)
    async def meeting(count):
        """Plain units that wait for each other."""
        book.note("start")
        all_here = threading.Barrier(count)

        def arrive(n):
            all_here.wait(5.0)
            return n

        units = [current_job().unit(f"meeting {n}", arrive, n) for n in range(count)]
        return await asyncio.gather(*units)

    @queue.task(within=20.0)
    async def alike(seconds):
        """Its unit has the same name in all jobs."""
        book.note("start")
        return await current_job().unit("alike", effect, seconds)

    @queue.task(within=20.0)
    async def swallow(seconds, broad):
        """Goes on after whatever is raised, and returns a value."""
        book.note("start")
        try:
            await current_job().unit(named("pay"), effect, seconds)
            book.note("after")
            await asyncio.sleep(5.0)
        except SWALLOW[broad]:
            book.note("caught")
        return "swallowed"

    @queue.task(within=20.0)
    async def second_unit(seconds):
        """After the interruption it tries to begin another."""
        book.note("start")
        with contextlib.suppress(BaseException):
            await current_job().unit(named("pay"), effect, seconds)
        try:
            await current_job().unit("more", effect, 0.0, begun="more")
        except BaseException as error:
            book.note(f"refused {type(error).__name__}")

    @queue.task(within=20.0, retries=1, backoff=lambda _: 0.0)
    async def nested(seconds):
        async def outer():
            book.note("outer")
            inner = await current_job().unit(named("inner"), effect, seconds)
            await asyncio.sleep(seconds)
            book.note("outer effect")
            return inner

        book.note("start")
        await current_job().unit(named("outer"), outer)
        book.note("after")

    @queue.task(within=20.0)
    async def one_after_the_other(seconds):
        book.note("start")
        for name in ("first", "second", "third"):
            await current_job().unit(named(name), effect, seconds, begun=name)
        book.note("after")

    @queue.task(within=20.0, retries=3, backoff=lambda _: 0.0)
    async def raising(fails):
        book.note("start")

        async def effect():
            book.note(f"key {current_job().unit_key(named('pay'))}")
            if current_job().attempt <= fails:
                raise LookupError("not yet")
            book.note("effect")
            return current_job().attempt

        try:
            return await current_job().unit(named("pay"), effect)
        except LookupError:
            raise Retry(after=0) from None

    @queue.task(within=20.0)
    async def twice(second):
        book.note("start")
        await current_job().unit(named("pay"), effect, 0.0)
        with contextlib.suppress(LookupError):
            await current_job().unit(named(second), effect, 0.0)

    @queue.task(within=20.0, retries=1, backoff=lambda _: 0.0)
    async def other_arguments():
        book.note("start")
        await current_job().unit(named("pay"), effect, current_job().attempt / 1000)
        raise Retry(after=0)

    @queue.task(within=20.0)
    async def with_decorator(which):
        book.note("start")
        return await {"plain": decorated, "coroutine": adecorated}[which](0.01)

    @queue.task(within=20.0)
    async def halt(on_doubt):
        """A unit that stands still in its first attempt, until its process is killed."""
        book.note("start")

        async def stand():
            book.note(f"effect {current_job().unit_key(named('pay'))}")
            if current_job().attempt == 1:
                await aat_gate(book)
            return current_job().attempt

        return await current_job().unit(named("pay"), stand, limit=20.0, on_doubt=on_doubt)

    @queue.task(within=20.0)
    async def hang(way):
        """A unit that outlives its limit."""
        book.note("start")
        try:
            await current_job().unit(named("pay"), HANGS[way](book), limit=0.3)
        except deadq.UnitInDoubt:
            book.note("in doubt")
            raise

    @queue.task(within=20.0)
    async def nap(seconds):
        book.note("start")
        await asyncio.sleep(seconds)
        return "napped"

    @queue.task(within=20.0)
    async def write(path, name):
        """The fence decides which write to the user's own store counts."""
        job = current_job()
        book.note("start")
        if job.attempt == 1:
            await aat_gate(book)
        book.note("write")
        return write_fenced(path, name, job.fence, job.attempt)

    # Only on a loop.

    @queue.task(within=20.0, retries=1, retry_on=())
    async def under_timeout(seconds):
        book.note("start")
        async with asyncio.timeout(0.1):
            return await current_job().unit(named("pay"), effect, seconds)

    @queue.task(within=20.0)
    async def beside_a_failure(seconds):
        async def fail():
            await asyncio.sleep(0.1)
            raise LookupError("beside it")

        book.note("start")
        async with asyncio.TaskGroup() as group:
            group.create_task(current_job().unit(named("pay"), effect, seconds))
            group.create_task(fail())

    @queue.task(within=20.0)
    async def cancelled_often(seconds):
        """Somebody in the handler cancels the task that is in the unit, again and again."""
        book.note("start")
        unit = asyncio.ensure_future(current_job().unit(named("pay"), effect, seconds))
        await asyncio.sleep(0.1)
        while not unit.done():
            unit.cancel()
            await asyncio.sleep(0.02)
        book.note(f"cancelled {unit.cancelled()}")
        return "done"

    @queue.task(within=20.0)
    async def several_at_once(seconds):
        book.note("start")
        await asyncio.gather(
            *(
                current_job().unit(named(f"u{i}"), effect, seconds * i, begun=f"u{i}")
                for i in range(1, 4)
            )
        )

    @queue.task(within=20.0)
    async def too_late(seconds):
        """A task that it leaves behind begins a unit when it is cancelled, after the job's end."""
        job = current_job()

        async def last_will():
            try:
                await asyncio.sleep(60.0)
            except asyncio.CancelledError:
                try:
                    await job.unit("will", effect, seconds)
                except BaseException as error:
                    book.note(f"refused {type(error).__name__}")

        book.note("start")
        asyncio.create_task(last_will())  # noqa: RUF006  left behind
        await asyncio.sleep(0.05)
        return "returned"

    @queue.task(within=20.0)
    async def left_open(seconds):
        """Returns while its unit runs."""
        book.note("start")
        book.unit = asyncio.ensure_future(current_job().unit(named("pay"), effect, seconds))
        await asyncio.sleep(0.05)
        return "returned"


def declare_process(queue, book):
    def effect(seconds, begun="unit"):
        return _effect(book, begun, seconds)

    async def on_a_loop(seconds):
        book.note("unit")
        await asyncio.sleep(seconds)
        book.note("effect")
        return current_job().unit_key(named("pay"))

    effects = {"coroutine": on_a_loop, "plain": effect}

    @queue.task(within=20.0)
    def pay(seconds, kind="plain", limit=5.0, needs=0.0):
        book.note("start")
        paid = current_job().unit(named("pay"), effects[kind], seconds, limit=limit, needs=needs)
        book.note("after")
        return paid

    @queue.task(within=20.0)
    def alike(seconds):
        book.note("start")
        return current_job().unit("alike", effect, seconds)

    @queue.task(within=20.0)
    def swallow(seconds, broad):
        book.note("start")
        try:
            current_job().unit(named("pay"), effect, seconds)
            book.note("after")
            time.sleep(5.0)
        except SWALLOW[broad]:
            book.note("caught")
        return "swallowed"

    @queue.task(within=20.0)
    def second_unit(seconds):
        book.note("start")
        with contextlib.suppress(BaseException):
            current_job().unit(named("pay"), effect, seconds)
        try:
            current_job().unit("more", effect, 0.0, begun="more")
        except BaseException as error:
            book.note(f"refused {type(error).__name__}")

    @queue.task(within=20.0, retries=1, backoff=lambda _: 0.0)
    def nested(seconds):
        def outer():
            book.note("outer")
            inner = current_job().unit(named("inner"), effect, seconds)
            time.sleep(seconds)
            book.note("outer effect")
            return inner

        book.note("start")
        current_job().unit(named("outer"), outer)
        book.note("after")

    @queue.task(within=20.0)
    def one_after_the_other(seconds):
        book.note("start")
        for name in ("first", "second", "third"):
            current_job().unit(named(name), effect, seconds, begun=name)
        book.note("after")

    @queue.task(within=20.0, retries=3, backoff=lambda _: 0.0)
    def raising(fails):
        book.note("start")

        def effect():
            book.note(f"key {current_job().unit_key(named('pay'))}")
            if current_job().attempt <= fails:
                raise LookupError("not yet")
            book.note("effect")
            return current_job().attempt

        try:
            return current_job().unit(named("pay"), effect)
        except LookupError:
            raise Retry(after=0) from None

    @queue.task(within=20.0)
    def twice(second):
        book.note("start")
        current_job().unit(named("pay"), effect, 0.0)
        with contextlib.suppress(LookupError):
            current_job().unit(named(second), effect, 0.0)

    @queue.task(within=20.0, retries=1, backoff=lambda _: 0.0)
    def other_arguments():
        book.note("start")
        current_job().unit(named("pay"), effect, current_job().attempt / 1000)
        raise Retry(after=0)

    @queue.task(within=20.0)
    def with_decorator(which):
        book.note("start")
        return {"plain": decorated, "coroutine": adecorated}[which](0.01)

    @queue.task(within=20.0)
    def halt(on_doubt):
        book.note("start")

        def stand():
            book.note(f"effect {current_job().unit_key(named('pay'))}")
            if current_job().attempt == 1:
                at_gate(book)
            return current_job().attempt

        return current_job().unit(named("pay"), stand, limit=20.0, on_doubt=on_doubt)

    @queue.task(within=20.0)
    def hang(way):
        book.note("start")
        try:
            current_job().unit(named("pay"), HANGS[way](book), limit=0.3)
        except deadq.UnitInDoubt:
            book.note("in doubt")
            raise

    @queue.task(within=20.0)
    def nap(seconds):
        book.note("start")
        time.sleep(seconds)
        return "napped"

    @queue.task(within=20.0)
    def write(path, name):
        job = current_job()
        book.note("start")
        if job.attempt == 1:
            at_gate(book)
        book.note("write")
        return write_fenced(path, name, job.fence, job.attempt)

    # Only in a process of its own.

    @queue.task(within=20.0)
    def in_another_thread():
        book.note("start")
        raised = []

        def call():
            try:
                job.unit("pay", effect, 0.0)
            except BaseException as error:
                raised.append(type(error).__name__)

        job = current_job()
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
        return raised

    @queue.task(within=20.0)
    def same_thread():
        """A connection that only its own thread may use is of use in a unit."""
        book.note("start")
        with contextlib.closing(sqlite3.connect(":memory:")) as store:
            return current_job().unit(named("pay"), lambda: store.execute("select 7").fetchone()[0])


TWINS = {"async": declare_async, "process": declare_process}


# Units that outlive their limit of 0.3 s, and end by themselves after 30 s.


def _leaves(book):
    """Leaves as soon as it is told to."""

    def unit():
        book.note("unit")
        time.sleep(30.0)

    return unit


def _leaves_on_a_loop(book):
    async def unit():
        book.note("unit")
        await asyncio.sleep(30.0)

    return unit


def _swallows(book):
    def stay(until):
        while time.monotonic() < until:
            with contextlib.suppress(BaseException):
                time.sleep(0.01)

    def unit():
        book.note("unit")
        until = time.monotonic() + 30.0
        while time.monotonic() < until:  # what comes between two catch-alls meets a third
            with contextlib.suppress(BaseException):
                stay(until)

    return unit


def _swallows_on_a_loop(book):
    async def unit():
        book.note("unit")
        until = time.monotonic() + 30.0
        while time.monotonic() < until:
            try:
                await asyncio.sleep(0.01)
            except GeneratorExit:
                raise  # its loop is gone: nothing can be awaited any more
            except BaseException:
                continue

    return unit


def _holds(book):
    def unit():
        book.note("unit")
        sum(range(400_000_000))

    return unit


def _holds_on_a_loop(book):
    async def unit():
        _holds(book)()

    return unit


HANGS = {
    "leaves": _leaves,
    "leaves, on a loop": _leaves_on_a_loop,
    "swallows": _swallows,
    "swallows, on a loop": _swallows_on_a_loop,
    "holds": _holds,
    "holds, on a loop": _holds_on_a_loop,
}


# The user's own store.


def write_fenced(path, name, fence, value):
    """Write unless somebody with a higher fence has; says whether it did."""
    with contextlib.closing(sqlite3.connect(path, timeout=10.0)) as store, store:
        store.execute("create table if not exists t (name primary key, fence, value)")
        done = store.execute(
            "insert into t values (?, ?, ?) on conflict (name) do update set "
            "fence = excluded.fence, value = excluded.value where excluded.fence > t.fence",
            (name, fence, value),
        )
        return done.rowcount == 1
