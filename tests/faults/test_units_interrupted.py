"""Units that are interrupted: they complete, are recorded once, and then the job ends as
interrupted. What hangs costs its process, not the worker.
"""

import asyncio
import itertools
import os
import random
import signal
import sqlite3
import time

import pytest

import deadq
from deadq import Cancelled, DeadlineExceeded, JobFailed, State
from deadq.testing.proxy import slow_proxy
from tests.faults.unit_jobs import TWINS, adecorated, decorated
from tests.marks import THOROUGH
from tests.patience import slack_s
from tests.servers import Server, binaries, wait_until
from tests.shifts import RUNNERS, Shift, process_daily
from tests.workers import pending

SLACK_S = slack_s(0.5)
"""What a busy machine may add."""

UNIT_S = 0.6
"""How long most units take: well beyond the deadline of 0.3 s, or the stop."""


@pytest.fixture(scope="module", params=RUNNERS)
def working(request, tmp_path_factory):
    """A worker that the tests of this module share: none of them may end it."""
    folder = tmp_path_factory.mktemp("units")
    with Server(binaries()["valkey9"]) as server:
        with Shift(server, folder, TWINS, request.param) as made:
            made.working = made.worker(concurrency=3, grace=0.1)
            yield made


@pytest.fixture
def made(working):
    yield working
    assert working.working.alive
    working.rests()


on_a_loop = pytest.mark.parametrize("working", ["async"], indirect=True)
"""For what there is on event loops alone."""

on_its_own = pytest.mark.parametrize("working", ["process"], indirect=True)
"""For what there is in a process of its own alone."""


_keys = iter(range(1_000_000))


def begin(made, task, *args, within=20.0, key=None, **given):
    """Submit a job under a key of its own, and wait until it has begun."""
    key = key or f"k{next(_keys)}"
    handle = getattr(made.tasks, task).options(key=key, within=within).enqueue(*args, **given)
    made.started(key)
    return handle


def notes(made, handle):
    """What the job has noted, in order."""
    return [note.what for note in made.book.notes(key=handle.key)]


def ends(made, handle, state):
    """Wait for its end, whatever its caller still waits for."""
    made.ended(handle)
    assert handle.state() == state
    return notes(made, handle)


def recorded(made, handle):
    """The job's units on record, and how each ended."""
    fields = made.client.hgetall(made.key("job", handle.id))
    return {
        name.decode()[2:].removesuffix(f" {handle.key}"): value.split()[0].decode()
        for name, value in fields.items()
        if name.startswith(b"u:")
    }


def exceeded(handle):
    """The job was cut at its deadline; the units that are recorded all the same."""
    with pytest.raises(DeadlineExceeded) as caught:
        handle.result()
    return sorted(unit.removesuffix(f" {handle.key}") for unit in caught.value.units)


# Many of them.


@on_a_loop
def test_no_plain_unit_waits_for_another_once_it_is_on_record_that_it_begins(made):
    """Each of them ends when all have begun; there are more than asyncio has threads."""
    handle = begin(made, "meeting", 33)
    assert handle.result() == list(range(33))


# At the deadline, and at a cancel.


@pytest.mark.parametrize("kind", ["plain", "coroutine"])
def test_at_its_deadline(made, kind):
    handle = begin(made, "pay", UNIT_S, kind, within=0.3)
    with pytest.raises(DeadlineExceeded):
        handle.result()
    assert ends(made, handle, State.EXCEEDED) == ["start", "unit", "effect"]
    assert exceeded(handle) == ["pay"]
    assert recorded(made, handle) == {"pay": "done"}


@pytest.mark.parametrize("kind", ["plain", "coroutine"])
def test_at_a_cancel(made, kind):
    handle = begin(made, "pay", UNIT_S, kind)
    made.noted("unit", handle.key)
    handle.cancel()
    with pytest.raises(Cancelled):
        handle.result()
    assert ends(made, handle, State.CANCELLED) == ["start", "unit", "effect"]
    assert recorded(made, handle) == {"pay": "done"}


@pytest.mark.parametrize("broad", ["Exception", "BaseException"])
def test_inside_a_catch_all(made, broad):
    """What is raised after the record is the interruption; nothing that follows is a success."""
    handle = begin(made, "swallow", UNIT_S, broad, within=0.3)
    caught = ["caught"] if broad == "BaseException" else []
    assert ends(made, handle, State.EXCEEDED) == ["start", "unit", "effect", *caught]
    assert exceeded(handle) == ["pay"]


def test_no_other_unit_begins_after_it(made):
    handle = begin(made, "second_unit", UNIT_S, within=0.3)
    said = ends(made, handle, State.EXCEEDED)
    assert said[:3] == ["start", "unit", "effect"]
    assert len(said) == 4
    assert said[3].startswith("refused ")
    assert recorded(made, handle) == {"pay": "done"}


def test_between_units_it_comes_at_once(made):
    """Three units of 200 ms, and a deadline within the second: the third never begins."""
    handle = begin(made, "one_after_the_other", 0.2, within=0.3)
    expected = ["start", "first", "effect", "second", "effect"]
    assert ends(made, handle, State.EXCEEDED) == expected
    assert exceeded(handle) == ["first", "second"]


def test_a_unit_within_a_unit(made):
    """The outer one completes too."""
    handle = begin(made, "nested", 0.3, within=0.2)
    expected = ["start", "outer", "unit", "effect", "outer effect"]
    assert ends(made, handle, State.EXCEEDED) == expected
    assert recorded(made, handle) == {"inner": "done", "outer": "done"}


# What a handler on a loop does to its own units.


@pytest.mark.race
@pytest.mark.parametrize("rounds", [25, pytest.param(500, marks=THOROUGH)])
def test_at_any_instant(made, rounds):
    """Deadlines and cancels that come just as units begin, end and are recorded."""
    chance, before = random.Random(rounds), made.working.children
    ends_seen = set()
    for number in range(rounds):
        handle = made.tasks.one_after_the_other.options(
            key=f"any-{rounds}-{number}", within=chance.uniform(0.005, 0.04)
        ).enqueue(0.005)
        if number % 3 == 0:
            time.sleep(chance.uniform(0.0, 0.02))
            handle.cancel()
        made.ended(handle)
        begun = notes(made, handle)
        names = begun[1:-1:2] if begun[-1:] == ["after"] else begun[1::2]
        assert begun == [
            *["start"] * bool(begun),
            *(word for name in names for word in (name, "effect")),
            *["after"] * (begun[-1:] == ["after"]),
        ]
        assert recorded(made, handle) == dict.fromkeys(names, "done")
        ends_seen.add((handle.state(), len(names)))
    assert made.working.children == before
    assert len(ends_seen) > 2, ends_seen  # some here, some there


@on_a_loop
def test_under_a_timeout_of_the_handlers_own(made):
    handle = begin(made, "under_timeout", 0.4)
    with pytest.raises(JobFailed) as caught:
        handle.result()
    assert caught.value.type_name == "TimeoutError"
    assert notes(made, handle) == ["start", "unit", "effect"]
    assert recorded(made, handle) == {"pay": "done"}


@on_a_loop
def test_beside_a_failure_in_a_task_group(made):
    handle = begin(made, "beside_a_failure", 0.4)
    with pytest.raises(JobFailed) as caught:
        handle.result()
    assert caught.value.type_name == "ExceptionGroup"
    assert notes(made, handle) == ["start", "unit", "effect"]
    assert recorded(made, handle) == {"pay": "done"}


@on_a_loop
def test_cancelled_again_and_again_by_its_own_handler(made):
    handle = begin(made, "cancelled_often", 0.3)
    assert handle.result() == "done"
    assert notes(made, handle) == ["start", "unit", "effect", "cancelled True"]
    assert recorded(made, handle) == {"pay": "done"}


@on_a_loop
def test_several_at_once(made):
    """The interruption waits for the last of them."""
    handle = begin(made, "several_at_once", 0.2, within=0.3)
    said = ends(made, handle, State.EXCEEDED)
    assert sorted(said) == ["effect", "effect", "effect", "start", "u1", "u2", "u3"]
    assert recorded(made, handle) == {"u1": "done", "u2": "done", "u3": "done"}


@on_a_loop
def test_left_open_by_its_handler(made):
    """The handler returns; its job ends when the unit is on record."""
    handle = begin(made, "left_open", 0.4)
    assert handle.result() == "returned"
    assert notes(made, handle) == ["start", "unit", "effect"]
    assert recorded(made, handle) == {"pay": "done"}


def test_after_the_end_of_its_job_none_begins(valkey_server, tmp_path):
    """Not even while the report of that end is still on its way, which is long here."""
    with Shift(valkey_server, tmp_path, TWINS, "async") as made:
        with slow_proxy(valkey_server.url) as proxy:
            worker = made.worker(concurrency=40, url=proxy.url)
            warm = [made.tasks.pay.options(key=f"w{i}").enqueue(0.01 * i) for i in range(20)]
            for handle in warm:  # there are connections that rest
                handle.result()
            proxy.delay = 0.2
            others = [made.tasks.nap.options(key=f"o{i}").enqueue(0.01 * i) for i in range(20)]
            held = [made.tasks.too_late.options(key=f"k{i}").enqueue(0.1) for i in range(5)]
            for handle in held:
                assert handle.result() == "returned"
                wait_until(lambda h=handle: len(notes(made, h)) > 1, "the task to be cancelled")
            for handle in held:
                assert notes(made, handle) == ["start", "refused LeaseLost"]
                assert recorded(made, handle) == {}
            assert [handle.result() for handle in others] == ["napped"] * len(others)
            assert worker.stop() == 0
        made.rests()


# At a stop.


def _by_sigterm(worker):
    worker.signal(signal.SIGTERM)


def _by_two_sigterms(worker):
    worker.signal(signal.SIGTERM)
    _delivered(worker, signal.SIGTERM)
    worker.signal(signal.SIGTERM)


def _by_two_ctrl_c(worker):
    worker.signal_group(signal.SIGINT)
    _delivered(worker, signal.SIGINT)
    worker.signal_group(signal.SIGINT)


def _to_everybody(worker):
    worker.signal_group(signal.SIGTERM)


def _delivered(worker, number):
    wait_until(lambda: not pending(worker.pid, number), "the first signal to be delivered")


SLOW = pytest.mark.slow
BY_ITSELF_S, NEVER_S = 0.1, 60.0
STOPS = [  # after two signals nobody waits for the end of the grace
    ("async", _by_sigterm, BY_ITSELF_S),
    ("process", _by_two_ctrl_c, NEVER_S),
    *(
        pytest.param(*stop, marks=marks)
        for stop, marks in (
            (("process", _by_sigterm, BY_ITSELF_S), THOROUGH),
            (("async", _by_two_ctrl_c, NEVER_S), THOROUGH),
            (("async", _by_two_sigterms, NEVER_S), SLOW),
            (("process", _by_two_sigterms, NEVER_S), THOROUGH),
            (("async", _to_everybody, BY_ITSELF_S), THOROUGH),
            (("process", _to_everybody, BY_ITSELF_S), SLOW),
        )
    ),
]


@pytest.mark.parametrize(("runner", "stop", "grace"), STOPS)
def test_at_a_stop(valkey_server, tmp_path, runner, stop, grace):
    """Given back, uncharged; the next attempt gets the recorded result, the unit does not run."""
    with Shift(valkey_server, tmp_path, TWINS, runner) as made:
        first = made.worker(concurrency=2, grace=grace)
        handles = [begin(made, "pay", UNIT_S, kind) for kind in ("plain", "coroutine")]
        for handle in handles:
            made.noted("unit", handle.key)
        stop(first)
        assert first.wait() == 0
        for handle in handles:
            assert notes(made, handle) == ["start", "unit", "effect"]
            assert recorded(made, handle) == {"pay": "done"}
            assert handle.state() == State.READY
        second = made.worker(concurrency=2)
        for handle in handles:
            assert handle.result() == f"{handle.id}:pay {handle.key}"
            assert notes(made, handle) == ["start", "unit", "effect", "start", "after"]
            assert made.book.notes("start", handle.key)[1].attempt == 2
            assert not made.client.hget(made.key("job", handle.id), "crashes")
        assert second.stop() == 0
        made.rests()


# Beyond its limit.

IN_DOUBT = [  # those that can be left, one way or another: the handler is told
    pytest.param("async", "leaves", "gone", marks=SLOW),  # a thread never leaves
    pytest.param("async", "swallows", "gone", marks=SLOW),
    pytest.param("async", "leaves, on a loop", "stays", marks=THOROUGH),
    ("async", "swallows, on a loop", "gone"),
    pytest.param("process", "leaves", "stays", marks=SLOW),
    pytest.param("process", "leaves, on a loop", "stays", marks=THOROUGH),
    pytest.param("process", "swallows, on a loop", "stays", marks=SLOW),
]
KILLED = [  # those that have to be killed
    ("process", "swallows"),
    pytest.param("process", "holds", marks=SLOW),
    pytest.param("process", "holds, on a loop", marks=SLOW),
    pytest.param("async", "holds, on a loop", marks=SLOW),
]


@pytest.mark.parametrize(("runner", "way", "process"), IN_DOUBT)
def test_a_unit_beyond_its_limit_is_in_doubt(valkey_server, tmp_path, runner, way, process):
    """Its process is replaced, unless it left; the neighbour there runs on to its end."""
    with Shift(valkey_server, tmp_path, TWINS, runner) as made:
        worker = made.worker(concurrency=2)
        neighbour = begin(made, "nap", 1.2)
        handle = begin(made, "hang", way)
        since, pid = made.noted("unit", handle.key)[-2:]
        with pytest.raises(JobFailed) as caught:
            handle.result(timeout=8.0)
        assert caught.value.type_name.endswith(".UnitInDoubt")
        assert time.monotonic() - since < 0.3 + 0.25 + SLACK_S
        assert recorded(made, handle) == {"pay": "begun"}
        assert notes(made, handle) == ["start", "unit", "in doubt"]
        assert neighbour.result() == "napped"
        assert len(made.book.notes("start", neighbour.key)) == 1
        assert begin(made, "nap", 0.0).result() == "napped"
        if process == "gone":
            wait_until(lambda: pid not in worker.children, "its process to go", 5.0)
        else:
            assert pid in worker.children
        assert worker.stop() == 0
        made.rests()


@pytest.mark.parametrize(("runner", "way"), KILLED)
def test_a_unit_that_does_not_leave_is_killed(valkey_server, tmp_path, runner, way):
    """Its job is charged with that, and with nothing else; the third time is the last."""
    with Shift(valkey_server, tmp_path, TWINS, runner) as made:
        worker = made.worker(concurrency=2)
        neighbour = begin(made, "nap", 1.2)
        handle = begin(made, "hang", way)
        with pytest.raises(JobFailed) as caught:
            handle.result()
        assert caught.value.type_name == "WorkerDied"
        assert handle.state() == State.CRASHED
        begun = made.book.notes("unit", handle.key)
        assert len({note.pid for note in begun}) == len(begun) == 3
        longest_s = 0.3 + (0.4 if way == "swallows" else 1.5) + SLACK_S
        for before, after in itertools.pairwise(begun):
            assert after.at - before.at < longest_s + SLACK_S  # a process is made, too
        assert neighbour.result() == "napped"
        assert not made.client.hget(made.key("job", neighbour.id), "crashes")
        assert begin(made, "nap", 0.0).result() == "napped"
        assert worker.stop() == 0
        made.rests()


# Too little time.


def test_with_too_little_time_it_does_not_begin(made):
    handle = begin(made, "pay", 0.0, needs=5.0, within=1.5)
    assert exceeded(handle) == []
    made.ended(handle)
    assert notes(made, handle) == ["start"]
    assert handle.state() == State.EXCEEDED
    assert recorded(made, handle) == {}


def test_what_a_unit_usually_takes_is_needed_too(made):
    """Seen once to take 600 ms, it does not begin with 400 ms left."""
    begin(made, "alike", UNIT_S).result()
    handle = begin(made, "alike", UNIT_S, within=0.4)
    assert exceeded(handle) == []
    assert ends(made, handle, State.EXCEEDED) == ["start"]
    assert time.monotonic() < handle.deadline.monotonic + SLACK_S  # said at once


# Names and arguments.


def test_a_name_used_twice_in_one_attempt(made):
    handle = begin(made, "twice", "pay")
    with pytest.raises(JobFailed, match="used already in this attempt") as caught:
        handle.result()
    assert caught.value.type_name.endswith("UnitError")
    assert notes(made, handle) == ["start", "unit", "effect"]
    assert begin(made, "twice", "pay2").result() is None


def test_other_arguments_on_the_second_attempt(made):
    handle = begin(made, "other_arguments")
    with pytest.raises(JobFailed, match="on record with other arguments"):
        handle.result()
    assert notes(made, handle) == ["start", "unit", "effect", "start"]


# A unit that raises.


@pytest.mark.parametrize("fails", [1, 3])
def test_a_unit_that_raises_closes_and_runs_again(made, fails):
    """Raised is no doubt: each attempt runs it anew, under the same key, until it succeeds."""
    handle = begin(made, "raising", fails)
    assert handle.result() == fails + 1
    key = f"key {handle.id}:pay {handle.key}"
    assert notes(made, handle) == [*["start", key] * (fails + 1), "effect"]
    assert recorded(made, handle) == {"pay": "done"}


# Killed in a unit.


@pytest.mark.parametrize(
    ("runner", "on_doubt"),
    [
        ("process", "rerun"),
        ("async", "fail"),
        pytest.param("async", "rerun", marks=SLOW),
        pytest.param("process", "fail", marks=SLOW),
    ],
)
def test_killed_in_a_unit(valkey_server, tmp_path, runner, on_doubt):
    with Shift(valkey_server, tmp_path, TWINS, runner, lease=1.0) as made:
        worker = made.worker(concurrency=1)
        handle = begin(made, "halt", on_doubt)
        effect = f"effect {handle.id}:pay {handle.key}"
        os.kill(made.noted(effect, handle.key).pid, signal.SIGKILL)
        made.let()
        if on_doubt == "rerun":
            assert handle.result() == 2
            assert notes(made, handle) == ["start", effect, "start", effect]
            assert recorded(made, handle) == {"pay": "done"}
        else:
            with pytest.raises(JobFailed, match="on_doubt='fail'") as caught:
                handle.result()
            assert caught.value.type_name.endswith(".UnitInDoubt")
            assert notes(made, handle) == ["start", effect, "start"]
            assert [job.id for job in made.queue.dead()] == [handle.id]
        assert worker.stop() == 0
        made.rests()


@process_daily
def test_the_next_attempt_waits_for_a_unit_that_may_still_be_recorded(
    valkey_server, tmp_path, runner
):
    """Its worker stood still for longer than its lease, and goes on: the effect counts once."""
    with Shift(valkey_server, tmp_path, TWINS, runner, lease=0.5) as made:
        first = made.worker(concurrency=1)
        handle = begin(made, "halt", "rerun")
        effect = f"effect {handle.id}:pay {handle.key}"
        made.noted(effect, handle.key)
        first.freeze()
        second = made.worker(concurrency=1)
        wait_until(lambda: made.book.starts()[handle.key] == 2, "the next attempt to start")
        with pytest.raises(TimeoutError):
            handle.result(timeout=0.3)
        made.let()
        first.thaw()
        assert handle.result() == 1  # what the first attempt's unit returned
        assert notes(made, handle) == ["start", effect, "start"]
        assert recorded(made, handle) == {"pay": "done"}
        assert [worker.stop() for worker in (first, second)] == [0, 0]
        made.rests()


# The fence in the user's own writes.


@process_daily
def test_a_write_of_an_attempt_that_was_overtaken_is_refused(valkey_server, tmp_path, runner):
    """Stopped past its lease before its write, and let go when the next attempt has written."""
    path = str(tmp_path / "store")
    with Shift(valkey_server, tmp_path, TWINS, runner, lease=0.5) as made:
        first = made.worker(concurrency=1)
        handle = begin(made, "write", path, "name")
        pid = made.book.notes("start", handle.key)[0].pid
        first.freeze()
        os.kill(pid, signal.SIGSTOP)
        second = made.worker(concurrency=1)
        assert handle.result() is True
        made.let()
        stale, fresh = sorted(note.fence for note in made.book.notes("start", handle.key))
        assert stale < fresh
        # the old process is let go: it leaves, or its write is refused
        os.kill(pid, signal.SIGCONT)
        first.thaw()
        assert first.stop() == 0
        assert second.stop() == 0
        with sqlite3.connect(path) as store:
            assert store.execute("select * from t").fetchall() == [("name", fresh, 2)]
        store.close()
        made.rests()


# The decorator.


@pytest.mark.parametrize("which", ["plain", "coroutine"])
def test_the_decorator_inside_a_job(made, which):
    handle = begin(made, "with_decorator", which)
    kind, pid, *on_main = handle.result()
    assert kind == which
    assert pid == made.book.notes("start", handle.key)[0].pid
    assert on_main == ([made.runner == "process"] if which == "plain" else [])
    name = {"plain": "decorated", "coroutine": "adecorated"}[which]
    assert recorded(made, handle) == {name: "done"}


def test_the_decorator_outside_of_a_job():
    assert decorated(0.0) == ("plain", os.getpid(), True)
    assert asyncio.run(adecorated(0.0)) == ("coroutine", os.getpid())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"needs": -1}, "needs"),
        ({"needs": float("nan")}, "needs"),
        ({"limit": 0}, "limit"),
        ({"limit": float("inf")}, "limit"),
        ({"on_doubt": "retry"}, "on_doubt"),
    ],
)
def test_odd_settings_are_refused_where_they_are_given(settings, message):
    with pytest.raises(ValueError, match=message):
        deadq.unit(**settings)(lambda: None)


# On a thread of its own, or not.


@on_its_own
def test_a_unit_in_another_thread_is_refused(made):
    assert begin(made, "in_another_thread").result() == ["UnitError"]


@on_its_own
def test_a_unit_runs_on_the_handlers_own_thread(made):
    assert begin(made, "same_thread").result() == 7
