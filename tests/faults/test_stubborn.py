"""Handlers that do not leave when they are interrupted: it costs their process, and nobody else."""

import asyncio
import contextlib
import time

import pytest

from deadq import DeadlineExceeded, State
from tests.cases.support import pause
from tests.faults.swallowers import COROUTINES, DEAF, HOLDING, LEAVINGS, PLAIN
from tests.patience import slack_s
from tests.servers import wait_until
from tests.shifts import Shift, under_both_runners

BOUND_S = 0.3
"""So long after its deadline a handler is out, or its process is being replaced."""

UNHEARD_S = 1.4
"""So much later where no interrupt gets through: the supervisor waits before it kills."""


def declare_async(queue, book):
    @queue.task(within=20.0)
    async def swallow(way):
        book.note("start")
        await {**COROUTINES, **HOLDING}[way](lambda: book.note("beat"))
        return "swallowed"

    @queue.task(within=20.0)
    async def catch_once(way):
        book.note("start")
        try:
            await asyncio.sleep(5.0)
        except BaseException:
            book.note("caught")
            return LEAVINGS[way]()

    @queue.task(within=20.0)
    async def nap(seconds):
        book.note("start")
        await asyncio.sleep(seconds)
        return "napped"


def declare_process(queue, book):
    @queue.task(within=20.0)
    def swallow(way):
        book.note("start")
        PLAIN[way](lambda: book.note("beat"))
        return "swallowed"

    @queue.task(within=20.0)
    def catch_once(way):
        book.note("start")
        try:
            time.sleep(5.0)
        except BaseException:
            book.note("caught")
            return LEAVINGS[way]()

    @queue.task(within=20.0)
    def nap(seconds):
        book.note("start")
        time.sleep(seconds)
        return "napped"


TWINS = {"async": declare_async, "process": declare_process}


def settled(made, handle, within_s):
    """Wait until the job has ended, as cut at its deadline, within so long after it."""
    while not (state := handle.state()).final:
        assert handle.deadline.remaining() > -within_s - slack_s(), handle.key
        pause(0.003)
    assert state == State.EXCEEDED, handle.key


def last_beat(made, handle):
    """Seconds after the deadline at which the handler last noted a step."""
    return made.book.notes("beat", handle.key)[-1].at - handle.deadline.monotonic


def crashes(made, handle):
    return int(made.client.hget(made.key("job", handle.id), "crashes") or 0)


# Outside of any unit.


THIRDS = [list(PLAIN)[i::3] for i in range(3)]


@pytest.mark.parametrize(
    "ways",
    [
        pytest.param(THIRDS[0], id="a"),
        pytest.param(THIRDS[1], id="b", marks=pytest.mark.slow),
        pytest.param(THIRDS[2], id="c", marks=pytest.mark.slow),
    ],
)
def test_plain_handlers_that_swallow_everything(valkey_server, tmp_path, ways):
    with Shift(valkey_server, tmp_path, TWINS, "process", lease=3.0) as made:
        worker = made.worker(concurrency=len(ways) + 1)
        before = set(worker.children)
        neighbour = made.tasks.nap.options(key="neighbour").enqueue(1.8)
        made.started("neighbour")
        held = [made.tasks.swallow.options(key=way, within=0.6).enqueue(way) for way in ways]
        made.started(*ways)
        for handle in held:
            with pytest.raises(DeadlineExceeded):
                handle.result()
        for handle in sorted(held, key=lambda handle: handle.key in DEAF):
            deaf = handle.key in DEAF
            settled(made, handle, BOUND_S + UNHEARD_S * deaf)
            assert last_beat(made, handle) < BOUND_S + UNHEARD_S * deaf + slack_s()
        assert neighbour.result() == "napped"
        assert made.book.starts() == dict.fromkeys(["neighbour", *ways], 1)
        # an interrupt between two catch-alls may have got one out by itself
        gone = {note.pid for note in made.book.notes("start")} - set(worker.children)
        assert len(gone) > len(ways) / 2
        assert {made.book.notes("start", way)[0].pid for way in ways if way in DEAF} <= gone
        wait_until(
            lambda: len(worker.said("registered")) == len(before) + len(gone), "the replacements"
        )
        assert made.tasks.nap.options(key="next").call(0.0) == "napped"
        assert worker.stop() == 0
        made.rests()


def test_coroutines_that_swallow_everything(valkey_server, tmp_path):
    """All in one process: it claims no more, is replaced, and what else it runs may end there."""
    with Shift(valkey_server, tmp_path, TWINS, "async") as made:
        worker = made.worker(concurrency=20)
        (before,) = worker.children
        neighbour = made.tasks.nap.options(key="neighbour").enqueue(1.5)
        held = [made.tasks.swallow.options(key=w, within=0.6).enqueue(w) for w in COROUTINES]
        made.started("neighbour", *COROUTINES)
        for handle in held:
            with pytest.raises(DeadlineExceeded):
                handle.result()
        for handle in held:
            settled(made, handle, BOUND_S)
        wait_until(lambda: len(worker.said("registered")) == 2, "the replacement")
        assert made.tasks.nap.options(key="next").call(0.0) == "napped"
        assert made.book.notes("start", "next")[0].pid != before
        assert neighbour.result() == "napped"
        (start,) = made.book.notes("start", "neighbour")
        assert (start.attempt, start.pid, crashes(made, neighbour)) == (1, before, 0)
        wait_until(
            lambda: before not in worker.children, "the old process to end", 3.0 + slack_s(0.0)
        )
        assert max(last_beat(made, handle) for handle in held) < 1.5 - 0.6 + 1.5 + slack_s(0.0)
        assert worker.stop() == 0
        assert made.book.starts() == dict.fromkeys(["neighbour", "next", *COROUTINES], 1)
        made.rests()


@pytest.mark.parametrize(
    "way",
    ["blocking", *(pytest.param(w, marks=pytest.mark.slow) for w in HOLDING if w != "blocking")],
)
def test_a_coroutine_that_keeps_the_loop_beyond_its_deadline(valkey_server, tmp_path, way):
    """Nothing else gets a turn there: the process is killed, and its neighbours start again."""
    with Shift(valkey_server, tmp_path, TWINS, "async", lease=3.0) as made:
        worker = made.worker(concurrency=3)
        neighbour = made.tasks.nap.options(key="neighbour").enqueue(0.5)
        made.started("neighbour")
        handle = made.tasks.swallow.options(key="k", within=0.4).enqueue(way)
        made.started("k")
        with pytest.raises(DeadlineExceeded):
            handle.result()
        settled(made, handle, BOUND_S + UNHEARD_S)
        assert last_beat(made, handle) < BOUND_S + UNHEARD_S + slack_s()
        assert neighbour.result() == "napped"
        assert [note.attempt for note in made.book.notes("start", "neighbour")] == [1, 2]
        assert crashes(made, neighbour) == 0
        assert made.queue.stats().suspects == 0
        assert made.book.starts()["k"] == 1
        assert worker.stop() == 0
        made.rests()


@under_both_runners
def test_what_a_handler_makes_of_the_interrupt_changes_nothing(valkey_server, tmp_path, runner):
    """It leaves at the first one, by whatever it likes: that comes too late, whatever it is."""
    with Shift(valkey_server, tmp_path, TWINS, runner) as made:
        worker = made.worker(concurrency=len(LEAVINGS))
        before = worker.children
        held = [
            made.tasks.catch_once.options(key=way, within=0.6, retries=3).enqueue(way)
            for way in LEAVINGS
        ]
        made.started(*LEAVINGS)
        for handle in held:
            with pytest.raises(DeadlineExceeded):
                handle.result()
        for handle in held:
            settled(made, handle, BOUND_S)
            (caught,) = made.book.notes("caught", handle.key)
            assert 0 <= caught.at - handle.deadline.monotonic + 0.02 < BOUND_S + slack_s(0.0)
        assert made.book.starts() == dict.fromkeys(LEAVINGS, 1)
        assert worker.children == before  # it cost nobody a process
        assert worker.stop() == 0
        assert made.stat("finished:exceeded") == len(LEAVINGS)
        assert made.stat("finished:failed") == made.stat("finished:done") == 0
        made.rests()


def declare_endless(queue, book):
    @queue.task(within=20.0)
    async def endless():
        """Once what it shields has been cancelled, the loop gets no turn any more."""
        book.note("start")
        shielded = asyncio.create_task(asyncio.sleep(60.0))
        while True:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.shield(shielded)


@pytest.mark.slow  # it takes the ten seconds that are a child's for its end
def test_a_child_that_is_replaced_does_not_stay_for_a_handler_without_end(valkey_server, tmp_path):
    with Shift(valkey_server, tmp_path, {"async": declare_endless}, "async") as made:
        worker = made.worker()
        (before,) = worker.children
        handle = made.tasks.endless.options(within=0.4).enqueue()
        with pytest.raises(DeadlineExceeded):
            handle.result()
        wait_until(lambda: before not in worker.children, "the old process to end", within_s=30.0)
        assert len(worker.children) == 1
        assert worker.stop() == 0
        assert len(made.book.notes("start")) == 1
        made.rests()
