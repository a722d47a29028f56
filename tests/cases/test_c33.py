"""C33: a handler's own TimeoutError taken for the poll's.

The rule: what a handler raises by itself is an ordinary failure of that job under its type name,
whatever the type. One start an attempt. The runtime believes only its own marks: no exception of
a handler ends the worker, looks like an expiry, a cancel or a lost connection, or moves any
counter but the failures.
"""

import asyncio
import concurrent.futures
import contextlib
import functools
import sys
import threading

import pytest
import redis.exceptions

import deadq
from deadq import JobFailed, State
from deadq.codec import EncodeError
from tests.cases.support import counting, pause, script_calls
from tests.servers import wait_until
from tests.shifts import Shift, aat_gate, in_processes_slowly


class TwoArguments(Exception):
    def __init__(self, one, two):
        super().__init__(one, two)


class NoText(Exception):
    def __str__(self):
        raise self.args[0]


class NoTextAtRuntime(RuntimeError):
    __str__ = NoText.__str__


class NoClass(Exception):
    @property
    def __class__(self):
        raise RuntimeError("no class")


class NotEqual:
    def __eq__(self, other):
        raise SystemExit(6)

    __hash__ = None
    __str__ = __eq__


class NoRepr(Exception):
    def __repr__(self):
        raise RuntimeError("no repr")


class NoReduce(Exception):
    def __reduce__(self):
        raise RuntimeError("not to be packed")


class Falsy(Exception):
    def __bool__(self):
        return False

    def __len__(self):
        return 0


class TextThatIsNone(Exception):
    def __str__(self):
        return self.args  # no text


class Base(BaseException):
    pass


class Liar(Exception):
    """Claims to be another class."""

    @property
    def __class__(self):
        return asyncio.CancelledError


class NoEquality(Exception):
    def __eq__(self, other):
        raise RuntimeError("not to be compared")

    __hash__ = None


class OddMeta(type):
    def __getattribute__(cls, name):
        if name in ("__name__", "__qualname__", "__module__"):
            raise RuntimeError("no name")
        return super().__getattribute__(name)


class NoName(Exception, metaclass=OddMeta):
    pass


class Unsubscriptable(Exception):
    def __getattribute__(self, name):
        if name in ("__class__", "__dict__"):
            return super().__getattribute__(name)
        raise RuntimeError(f"no {name}")


def local_class():
    class Local(Exception):
        pass

    return Local("x")


def chain(length):
    error = None
    for number in range(length):
        after = ValueError(number)
        after.__cause__ = error
        error = after
    return error


def circle():
    error = ValueError("a")
    error.__cause__ = ValueError("b")
    error.__cause__.__cause__ = error
    return error


def with_lock():
    error = ValueError("locked")
    error.lock = threading.Lock()
    return error


def group(of, error):
    return of("several", [error, ValueError("beside it")])


DEADQ = {
    "QueueFull": lambda: deadq.QueueFull("full"),
    "Rejected": lambda: deadq.Rejected("no"),
    "Unmeetable": lambda: deadq.Unmeetable("no"),
    "DeadlineExpired": lambda: deadq.DeadlineExpired("late"),
    "KeyReused": lambda: deadq.KeyReused("reused"),
    "PayloadTooLarge": lambda: deadq.PayloadTooLarge("large"),
    "Paused": lambda: deadq.Paused("paused"),
    "StoreUnavailable": lambda: deadq.StoreUnavailable("away"),
    "DeadlineExceeded": deadq.DeadlineExceeded,
    "Cancelled": deadq.Cancelled,
    "JobFailed": lambda: deadq.JobFailed("Inner", "failed below"),
    "JobGone": lambda: deadq.JobGone("gone"),
    "LeaseLost": lambda: deadq.LeaseLost("lost"),
    "RetryDenied": lambda: deadq.RetryDenied("denied", reason="budget"),
    "DeadqError": lambda: deadq.DeadqError("root"),
    "EncodeError": lambda: EncodeError("by hand"),
}
REDIS = {
    name: functools.partial(getattr(redis.exceptions, name), "by hand")
    for name in ("ConnectionError", "TimeoutError", "NoScriptError", "ResponseError", "LockError")
}
CONTROL = {
    "TimeoutError": lambda: TimeoutError("mine"),
    "asyncio.TimeoutError": lambda: TimeoutError("mine"),
    "futures.TimeoutError": lambda: concurrent.futures.TimeoutError("mine"),
    "CancelledError": lambda: asyncio.CancelledError("mine"),
    "futures.CancelledError": lambda: concurrent.futures.CancelledError("mine"),
    "InvalidStateError": lambda: asyncio.InvalidStateError("mine"),
    "QueueEmpty": lambda: asyncio.QueueEmpty("mine"),
    "StopIteration": lambda: StopIteration("mine"),
    "StopAsyncIteration": lambda: StopAsyncIteration("mine"),
    "GeneratorExit": lambda: GeneratorExit("mine"),
    "SystemExit": lambda: SystemExit(3),
    "SystemExit of none": SystemExit,
    "KeyboardInterrupt": lambda: KeyboardInterrupt("mine"),
    "BaseException": lambda: BaseException("mine"),
    "a BaseException of one's own": lambda: Base("mine"),
    "BrokenPipeError": lambda: BrokenPipeError("mine"),
    "OSError": lambda: OSError(2, "No such file", "x"),
    "MemoryError": lambda: MemoryError("mine"),
    "RecursionError": lambda: RecursionError("mine"),
    "RuntimeError as Python words it": lambda: RuntimeError("coroutine raised StopIteration"),
    "loop closed": lambda: RuntimeError("Event loop is closed"),
}
ODD = {
    "two arguments": lambda: TwoArguments(1, 2),
    "a __str__ that raises": lambda: NoText(RuntimeError("no text")),
    "a __str__ that exits": lambda: NoText(SystemExit(4)),
    "a __str__ that interrupts": lambda: NoText(KeyboardInterrupt()),
    "a __str__ that cancels": lambda: NoText(asyncio.CancelledError()),
    "a __str__ that is none": TextThatIsNone,
    "a RuntimeError without text": lambda: NoTextAtRuntime(ValueError("no text")),
    "a RuntimeError that exits": lambda: NoTextAtRuntime(SystemExit(4)),
    "a RuntimeError of odd words": lambda: RuntimeError(NotEqual()),
    "no class": lambda: NoClass("x"),
    "a __repr__ that raises": lambda: NoRepr(1),
    "a __reduce__ that raises": lambda: NoReduce(1),
    "falsy": lambda: Falsy("x"),
    "a liar": lambda: Liar("x"),
    "no equality": lambda: NoEquality("x"),
    "no name": lambda: NoName("x"),
    "no attributes": lambda: Unsubscriptable("x"),
    "a class of a function": local_class,
    "a chain of 500": lambda: chain(500),
    "a circle": circle,
    "with a lock": with_lock,
    "10 MB of text": lambda: ValueError("x" * 10_000_000),
    "a lone surrogate": lambda: ValueError("\udce9"),
    "NUL and newlines": lambda: ValueError("a\0b\nc\r\n\u202e"),
    "bytes": lambda: ValueError(b"\xff"),
    "no text at all": ValueError,
    "a group": lambda: group(ExceptionGroup, TimeoutError("x")),
    "a base group": lambda: group(BaseExceptionGroup, asyncio.CancelledError("x")),
    "a group that exits": lambda: group(BaseExceptionGroup, SystemExit(5)),
}
ALL = DEADQ | {f"redis {name}": make for name, make in REDIS.items()} | CONTROL | ODD


def boom(which):
    error = ALL[which]()
    raise error


def declare(queue, book):
    @queue.task(within=20.0)
    async def raises(which):
        book.note("start")
        boom(which)

    @queue.task(within=20.0)
    async def raises_later(which):
        book.note("start")
        await asyncio.sleep(0)
        boom(which)

    @queue.task(within=20.0)
    def in_thread(which):
        book.note("start")
        boom(which)

    @queue.task(within=20.0)
    async def in_a_unit(which):
        book.note("start")
        await deadq.current_job().unit("u", boom, which)

    @queue.task(within=20.0, retries=2, retry_on=(Exception,), backoff=lambda n: 0.0)
    async def retried(which):
        book.note("start")
        boom(which)

    @queue.task(within=20.0)
    async def echo(value):
        return value

    @queue.task(within=20.0)
    async def own_timeout():
        book.note("start")
        async with asyncio.timeout(0.01):
            await asyncio.sleep(10)

    @queue.task(within=20.0)
    async def cancels_itself():
        book.note("start")
        asyncio.current_task().cancel()
        await asyncio.sleep(10)

    @queue.task(within=20.0)
    async def cancels_itself_and_returns():
        book.note("start")
        asyncio.current_task().cancel()
        return "returned"

    @queue.task(within=20.0)
    async def waits_for_a_cancelled_task():
        book.note("start")
        task = asyncio.ensure_future(asyncio.sleep(10))
        task.cancel()
        await task

    @queue.task(within=20.0)
    async def group_fails():
        book.note("start")
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(asyncio.sleep(10))
            tasks.create_task(awaited(TimeoutError("inner")))

    @queue.task(within=20.0)
    async def recursion():
        book.note("start")

        def deeper():
            return deeper()

        return deeper()


async def awaited(error):
    raise error


def declare_plain(queue, book):
    @queue.task(within=20.0)
    def raises(which):
        book.note("start")
        boom(which)

    @queue.task(within=20.0)
    def in_a_unit(which):
        book.note("start")
        deadq.current_job().unit("u", boom, which)

    @queue.task(within=20.0, retries=2, retry_on=(Exception,), backoff=lambda n: 0.0)
    def retried(which):
        book.note("start")
        boom(which)

    @queue.task(within=20.0)
    def echo(value):
        return value


PLAIN = {declare: declare_plain}


UNTOUCHED = ("expired", "rejected", "retried", "retry_denied", "reclaimed", "stale", "malformed")
COUNTED_AS = ("finished:cancelled", "finished:exceeded")


@contextlib.contextmanager
def ordinary(made, failures):
    """So many jobs failed, and nothing else happened: no counter, no connection lost."""
    before = {connection["id"] for connection in made.client.client_list()}
    failed = made.stat("finished:failed")
    yield
    assert made.stat("finished:failed") - failed == failures
    for counter in (*UNTOUCHED, *COUNTED_AS):
        assert made.stat(counter) == 0, counter
    assert before <= {connection["id"] for connection in made.client.client_list()}
    made.calm()


NAMES = {
    **{name: f"deadq.errors.{name}" for name in DEADQ if name != "EncodeError"},
    "EncodeError": "deadq.codec.EncodeError",
    **{f"redis {name}": f"redis.exceptions.{name}" for name in REDIS},
    "asyncio.TimeoutError": "TimeoutError",
    "futures.TimeoutError": "TimeoutError",
    "CancelledError": "asyncio.exceptions.CancelledError",
    "futures.CancelledError": "concurrent.futures._base.CancelledError",
    "InvalidStateError": "asyncio.exceptions.InvalidStateError",
    "QueueEmpty": "asyncio.queues.QueueEmpty",
    "SystemExit of none": "SystemExit",
    "a BaseException of one's own": f"{__name__}.Base",
    "OSError": "FileNotFoundError",
    "RuntimeError as Python words it": "RuntimeError",
    "loop closed": "RuntimeError",
    "a __str__ that is none": f"{__name__}.TextThatIsNone",
}


@pytest.mark.parametrize(
    ("scene", "task"),
    [
        ("loop", "raises"),
        ("loop", "in_thread"),
        pytest.param("loop", "raises_later", marks=pytest.mark.slow),
        pytest.param("loop", "in_a_unit", marks=pytest.mark.slow),
        ("process", "raises"),
        pytest.param("process", "in_a_unit", marks=pytest.mark.slow),
    ],
    indirect=["scene"],
)
def test_whatever_a_handler_raises_is_a_failure_of_that_job_alone(scene, task):
    """All of them in one worker, which runs a healthy job after each."""
    made = scene(declare)
    worker = made.worker(concurrency=2)
    made.tasks.echo.call("warm")
    with ordinary(made, len(ALL)):
        for number, which in enumerate(ALL):
            key = f"k{number}"
            with pytest.raises(JobFailed) as caught:
                getattr(made.tasks, task).options(key=key).enqueue(which).result(timeout=5)
            expected = NAMES.get(which, which if which in CONTROL else "")
            if expected:
                assert caught.value.type_name == expected, which
            else:
                assert caught.value.type_name
            assert len(str(caught.value)) < 10_000
            assert made.tasks.echo.enqueue(which).result(timeout=5) == which
            assert made.book.starts()[key] == 1, which
            assert worker.alive, f"{which}: {worker.errors}"
        assert worker.alive
    assert set(made.book.starts().values()) == {1}
    assert worker.stop() == 0


@in_processes_slowly
def test_the_worker_rests_afterwards(scene):
    made = scene(declare)
    worker = made.worker()
    for which in ALL:
        with pytest.raises(JobFailed):
            made.tasks.raises.call(which)
    before = cpu_seconds(worker.pid)
    with counting(made.client) as found:
        pause(1.5)
    assert script_calls(found) <= 4  # renewals
    assert cpu_seconds(worker.pid) - before < 0.3
    assert worker.alive


@in_processes_slowly
def test_each_attempt_is_one_start(scene):
    """Under retry_on=Exception: what is an Exception is retried twice, nothing else is."""
    made = scene(declare)
    made.worker()
    kinds = [*CONTROL, *DEADQ, *(f"redis {name}" for name in REDIS)]
    held = {which: made.tasks.retried.options(key=which).enqueue(which) for which in kinds}
    for which, handle in held.items():
        with pytest.raises(JobFailed):
            handle.result(timeout=5)
        is_ordinary = isinstance(ALL[which](), Exception)
        assert handle.state() == (State.EXHAUSTED if is_ordinary else State.FAILED), which
        assert made.book.starts()[which] == (3 if is_ordinary else 1), which
    assert made.stat("rejected") == made.stat("expired") == 0
    made.calm()


@pytest.mark.parametrize(
    ("task", "name"),
    [
        ("own_timeout", "TimeoutError"),
        ("cancels_itself", "asyncio.exceptions.CancelledError"),
        ("waits_for_a_cancelled_task", "asyncio.exceptions.CancelledError"),
        ("group_fails", "ExceptionGroup"),
        ("recursion", "RecursionError"),
    ],
)
def test_a_handlers_own_timeouts_and_cancels_are_its_own(scene, task, name):
    made = scene(declare)
    worker = made.worker()
    made.tasks.echo.call("warm")
    with ordinary(made, 1):
        with pytest.raises(JobFailed) as caught:
            getattr(made.tasks, task).options(key="k").enqueue().result(timeout=5)
        assert caught.value.type_name == name
        assert made.tasks.echo.enqueue("x").result(timeout=5) == "x"
    assert made.book.starts()["k"] == 1
    assert worker.alive


def test_a_handler_that_cancels_itself_and_returns_has_returned(scene):
    made = scene(declare)
    worker = made.worker()
    assert made.tasks.cancels_itself_and_returns.enqueue().result(timeout=5) == "returned"
    assert made.tasks.echo.enqueue("x").result(timeout=5) == "x"
    assert worker.alive


# A Retry is a request, and its numbers are the user's.


def declare_retries(queue, book):
    for name, after in RETRIES.items():

        @queue.task(name=name, within=0.8, retries=3)
        async def asks(after=after):
            book.note("start")
            raise deadq.Retry(after=after())

    for name, after in CHANGED.items():

        @queue.task(name=name, within=0.8, retries=3)
        async def asks_otherwise(after=after):
            book.note("start")
            raise changed_retry(after)

    for name, backoff in BACKOFFS.items():

        @queue.task(name=name, within=0.8, retries=3, retry_on=LookupError, backoff=backoff)
        async def backs_off():
            book.note("start")
            raise LookupError("again")

    @queue.task(within=20.0)
    async def echo(value):
        return value


def changed_retry(after):
    error = deadq.Retry()
    error.after = after
    return error


def no_backoff(number):
    raise RuntimeError("no backoff")


RETRIES = {
    "1e308 s": lambda: 1e308,
    "10**400 s": lambda: 10**400,
    "10**5000 s": lambda: 10**5000,
    "an hour": lambda: 3600,
    "NaN": lambda: float("nan"),
    "negative": lambda: -1,
    "infinite": lambda: float("inf"),
    "text": lambda: "5",
}
CHANGED = {
    "changed to NaN": float("nan"),
    "changed to less than nothing": -1.0,
    "changed to a text": "soon",
    "changed to 10**400": 10**400,
}
BACKOFFS = {
    "b inf": lambda n: float("inf"),
    "b 1e308": lambda n: 1e308,
    "b 10**400": lambda n: 10**400,
    "b an hour": lambda n: 3600.0,
    "b raises": no_backoff,
    "b exits": sys.exit,
    "b NaN": lambda n: float("nan"),
    "b negative": lambda n: -5.0,
    "b text": lambda n: "soon",
    "b none": lambda n: None,
}
FAR = {"1e308 s", "10**400 s", "10**5000 s", "an hour", "b inf", "b 1e308", "b an hour"} | {
    "changed to 10**400"
}


def test_an_odd_delay_before_a_retry_costs_that_job_alone(scene):
    """Past the deadline it is denied; garbage is the usual backoff or a failure. No hot loop."""
    made = scene(declare_retries)
    worker = made.worker(concurrency=32)
    names = [*RETRIES, *CHANGED, *BACKOFFS]
    held = {name: made.queue.tasks[name].options(key=name).enqueue() for name in names}
    for name, handle in held.items():
        with pytest.raises((JobFailed, deadq.DeadlineExceeded)):
            handle.result()
        assert worker.alive, f"{name}: {worker.errors}"
    wait_until(lambda: made.queue.stats().unfinished == 0, "all to have ended")
    for name, starts in made.book.starts().items():
        assert starts == 1 if name in FAR else 1 <= starts <= 4, f"{name}: {starts} starts"
    assert made.tasks.echo.enqueue("x").result(timeout=5) == "x"
    made.calm()
    assert "Traceback" not in worker.errors, worker.errors


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stat:  # noqa: PTH123
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


# What a handler has begun raises, not the handler itself.


def declare_begun(queue, book):
    async def bad(error):
        book.note("bad")
        raise error

    @queue.task(within=20.0)
    async def awaits(which):
        book.note("start")
        await asyncio.create_task(bad(ENDS[which]()))

    @queue.task(within=20.0)
    async def groups(which):
        book.note("start")
        async with asyncio.TaskGroup() as group:
            group.create_task(bad(ENDS[which]()))
            group.create_task(asyncio.sleep(10.0))

    @queue.task(within=20.0)
    async def in_a_unit(which):
        book.note("start")

        async def begins():
            await asyncio.create_task(bad(ENDS[which]()))

        await deadq.current_job().unit("u", begins)

    @queue.task(within=20.0)
    async def leaves(which):
        book.note("start")
        task = asyncio.create_task(bad(ENDS[which]()))
        await asyncio.sleep(0.05)
        return task.done()

    @queue.task(within=20.0)
    async def calls_back(which):
        book.note("start")

        def bad_callback():
            raise ENDS[which]

        asyncio.get_running_loop().call_soon(bad_callback)
        await asyncio.sleep(0.05)
        return True

    @queue.task(within=20.0)
    async def stops_the_loop(_which):
        book.note("start")
        asyncio.get_running_loop().stop()
        await asyncio.sleep(0.05)
        return True

    @queue.task(within=20.0)
    async def waits():
        book.note("start")
        await aat_gate(book)
        return "waited"


ENDS = {"SystemExit": lambda: SystemExit(3), "KeyboardInterrupt": KeyboardInterrupt}


@pytest.mark.parametrize("which", ENDS)
def test_what_a_handlers_tasks_and_callbacks_raise_ends_no_worker(valkey_server, tmp_path, which):
    twins = {"async": declare_begun}
    with Shift(valkey_server, tmp_path, twins, "async") as made:
        worker = made.worker(concurrency=8)
        before = worker.children
        neighbour = made.tasks.waits.options(key="neighbour").enqueue()
        made.started("neighbour")
        for task in ("awaits", "groups", "in_a_unit"):
            with pytest.raises(JobFailed) as caught:
                getattr(made.tasks, task).options(key=task).enqueue(which).result(timeout=5)
            assert caught.value.type_name == which, task
        for task in ("leaves", "calls_back", "stops_the_loop"):
            asked = getattr(made.tasks, task).options(key=task).enqueue(which)
            assert asked.result(timeout=5) is True, task
        made.let()
        assert neighbour.result(timeout=5) == "waited"
        assert set(made.book.starts().values()) == {1}
        assert worker.children == before
        assert worker.stop() == 0
        made.rests()
