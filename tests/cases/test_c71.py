"""C71: the order rule is not what it says.

The written rule. Under order="deadline" the job with the earliest latest start (its deadline less
the service time expected when it was admitted) comes first; under "fifo" the one that arrived
first. Among equal ones the first come is first served. Retried, given back, reclaimed and revived
jobs stand where the rule puts them, and a raised deadline moves a job back. No live job waits
unseen: it starts before its deadline or is EXPIRED on time.
"""

import asyncio
import contextlib
import threading
import time

import pytest

from deadq import DeadlineExceeded, DeadqError, Retry, State, current_job
from tests.marks import sampled
from tests.patience import slack_s
from tests.servers import wait_until
from tests.shifts import in_processes_slowly

BODY_S = 0.02


def declare(queue, book):
    @queue.task(within=30.0)
    async def work(value=None):
        book.note("start")
        await asyncio.sleep(BODY_S)
        return value

    @queue.task(within=30.0)
    async def quick(value=None):
        book.note("start")

    @queue.task(within=30.0)
    async def gate(seconds):
        """Holds the only slot while the test submits."""
        book.note("gate")
        await asyncio.sleep(seconds)

    @queue.task(within=30.0, retries=1, backoff=lambda n: 0.0)
    async def twice(value=None):
        book.note("start")
        if current_job().attempt == 1:
            raise Retry(after=0.4)


def declare_plain(queue, book):
    @queue.task(within=30.0)
    def work(value=None):
        book.note("start")
        time.sleep(BODY_S)
        return value

    @queue.task(within=30.0)
    def quick(value=None):
        book.note("start")

    @queue.task(within=30.0)
    def gate(seconds):
        book.note("gate")
        time.sleep(seconds)

    @queue.task(within=30.0, retries=1, backoff=lambda n: 0.0)
    def twice(value=None):
        book.note("start")
        if current_job().attempt == 1:
            raise Retry(after=0.4)


PLAIN = {declare: declare_plain}


def order_of(made):
    return [note.key for note in made.book.notes("start")]


@pytest.fixture
def gated(scene):
    """A worker with one slot, busy until the test opens the gate: what waits gets an order."""

    def make(**settings):
        made = scene(declare, **settings)
        worker = made.worker(concurrency=1)
        shut(made, worker, "gate")
        return made, worker

    return make


def shut(made, worker, key):
    """The worker's only slot is taken, and it stands still: what comes now has to wait."""
    made.tasks.gate.options(key=key, within=25.0).enqueue(0.05)
    wait_until(lambda: made.book.notes("gate", key=key), "the gate to shut")
    worker.freeze()


def finish(made, worker):
    worker.thaw()
    wait_until(lambda: made.queue.stats().unfinished == 0, "all to have ended")


# The case, in both directions.


@pytest.mark.parametrize("admission", ["feasible", pytest.param("cap", marks=pytest.mark.slow)])
@in_processes_slowly
def test_urgent_jobs_pass_patient_ones_while_these_keep_coming(scene, admission):
    made = scene(declare, admission=admission)
    made.worker(concurrency=1)
    made.tasks.work.call("warm")
    work = made.tasks.work
    enough = threading.Event()

    def keep_coming():
        number = 0
        while not enough.wait(0.05):
            number += 1
            work.options(key=f"more-{number}", within=30.0).enqueue()

    patient = [work.options(key=f"patient-{i}", within=30.0) for i in range(50)]
    outcomes = made.queue.enqueue_many([bound.bind() for bound in patient])
    assert not [o for o in outcomes if isinstance(o, Exception)]
    stream = threading.Thread(target=keep_coming)
    stream.start()
    try:
        urgent = [work.options(key=f"urgent-{i}", within=0.5).enqueue() for i in range(5)]
        deadlines = [int(made.client.hget(made.key("job", h.id), "deadline")) for h in urgent]
        for handle in urgent:
            handle.result()
    finally:
        enough.set()
        stream.join()
    started = order_of(made)
    places = [started.index(f"urgent-{i}") for i in range(5)]
    # those that were running or claimed already, and no other, were in front
    assert max(places) - min(places) == 4
    if admission == "cap":  # no estimates: the deadlines alone, and these are in order
        by_deadline = sorted(range(5), key=lambda i: (deadlines[i], i))
        assert [places[i] for i in by_deadline] == sorted(places)
    before = [key for key in started[1 : min(places)] if key.startswith("patient")]
    assert before == [f"patient-{i}" for i in range(len(before))]
    wait_until(lambda: made.queue.stats().unfinished == 0, "all to have ended")
    assert made.stat("expired:") == 0
    made.calm()


@pytest.mark.parametrize("admission", ["feasible", pytest.param("cap", marks=pytest.mark.slow)])
@in_processes_slowly
def test_a_patient_job_is_not_starved_by_a_stream_of_urgent_ones(scene, admission):
    """Urgent ones come at 1.5 times what one slot can do; the patient one has 2.5 s."""
    made = scene(declare, admission=admission)
    made.worker(concurrency=1)
    made.tasks.work.call("warm")
    work = made.tasks.work
    enough = threading.Event()

    def stream():
        number = 0
        while not enough.wait(BODY_S / 1.5):
            number += 1
            with contextlib.suppress(DeadqError):
                work.options(key=f"urgent-{number}", within=0.3).enqueue()

    thread = threading.Thread(target=stream)
    thread.start()
    try:
        wait_until(lambda: len(order_of(made)) > 10, "the stream to flow")
        patient = work.options(key="patient", within=2.5).enqueue("done")
        with contextlib.suppress(DeadlineExceeded):
            assert patient.result() == "done"
        ended = time.monotonic()
    finally:
        enough.set()
        thread.join()
    assert ended <= patient.deadline.monotonic + slack_s(0.25)
    wait_until(lambda: patient.state().final, "it to be settled")
    starts = [note.at for note in made.book.notes("start", key="patient")]
    state = patient.state()
    assert state in (State.DONE, State.EXPIRED, State.EXCEEDED)
    assert len(starts) == (state != State.EXPIRED)
    for at in starts:
        assert at < patient.deadline.monotonic
    if admission == "feasible":  # the stream is cut to what fits, and the patient one fits too
        assert state == State.DONE
    wait_until(lambda: made.queue.stats().unfinished == 0, "all to have ended")
    made.calm()


# The rule itself.


@in_processes_slowly
def test_by_latest_start_and_not_by_arrival(gated):
    made, worker = gated()
    now = made.now_ms()
    deadlines = [9000, 3000, 7000, 5000, 8000, 4000, 6000]
    for ahead in deadlines:
        made.tasks.quick.options(key=f"{ahead}", deadline=now + ahead).enqueue()
    finish(made, worker)
    assert order_of(made) == [str(ahead) for ahead in sorted(deadlines)]


@in_processes_slowly
def test_fifo_is_by_arrival_and_not_by_deadline(gated):
    made, worker = gated(order="fifo")
    now = made.now_ms()
    deadlines = [9000, 3000, 7000, 5000, 8000, 4000, 6000]
    for ahead in deadlines:
        made.tasks.quick.options(key=f"{ahead}", deadline=now + ahead).enqueue()
    finish(made, worker)
    assert order_of(made) == [str(ahead) for ahead in deadlines]


@pytest.mark.parametrize(
    ("way", "order"), sampled(["one by one", "in one batch", "concurrent"], ["deadline", "fifo"])
)
def test_equal_ones_are_first_come_first_served(gated, order, way):
    made, worker = gated(order=order)
    deadline = made.now_ms() + 8000
    keys = [f"k{number}" for number in range(40)]
    bound = [made.tasks.quick.options(key=key, deadline=deadline) for key in keys]
    if way == "one by one":
        for each in bound:
            each.enqueue()
    elif way == "in one batch":
        made.queue.enqueue_many([each.bind() for each in bound])
    else:
        asyncio.run(concurrently(made.queue, [each.aenqueue for each in bound]))
    finish(made, worker)
    assert order_of(made) == keys


@pytest.mark.slow
def test_a_longer_expected_service_starts_earlier(gated):
    """Same deadline: the one that takes longer has the earlier latest start."""
    made, worker = gated(admission="feasible")
    worker.thaw()
    for _ in range(5):
        made.tasks.work.options(within=20.0).call()
        made.tasks.gate.options(within=20.0).call(0.3)
    shut(made, worker, "full")
    deadline = made.now_ms() + 15_000
    made.tasks.work.options(key="short", deadline=deadline).enqueue()
    made.tasks.gate.options(key="long", deadline=deadline).enqueue(0.0)
    finish(made, worker)
    (long,) = made.book.notes("gate", key="long")
    (short,) = made.book.notes("start", key="short")
    assert long.at < short.at


def test_a_raised_deadline_moves_a_job_back(gated):
    made, worker = gated()
    now = made.now_ms()
    for key, ahead in (("a", 3000), ("b", 5000)):
        made.tasks.quick.options(key=key, deadline=now + ahead).enqueue()
    made.tasks.quick.options(key="a", deadline=now + 8000).enqueue()
    finish(made, worker)
    assert order_of(made) == ["b", "a"]


def test_a_lower_deadline_of_a_later_caller_moves_nothing(gated):
    made, worker = gated()
    now = made.now_ms()
    for key, ahead in (("a", 5000), ("b", 4000)):
        made.tasks.quick.options(key=key, deadline=now + ahead).enqueue()
    made.tasks.quick.options(key="a", deadline=now + 3000).enqueue()
    finish(made, worker)
    assert order_of(made) == ["b", "a"]


@pytest.mark.parametrize("order", ["deadline", pytest.param("fifo", marks=pytest.mark.slow)])
def test_a_put_off_job_takes_the_place_that_the_rule_gives_it(gated, order):
    made, worker = gated(order=order)
    now = made.now_ms()
    quick = made.tasks.quick
    early = quick.options(key="early", not_before=now + 200, deadline=now + 4000).enqueue()
    quick.options(key="late", deadline=now + 9000).enqueue()
    quick.options(key="middle", deadline=now + 6000).enqueue()
    wait_until(lambda: made.now_ms() > now + 200, "its time to come")
    finish(made, worker)
    assert early.state() == State.DONE
    # under fifo it arrived first as well
    expected = ["early", "middle", "late"] if order == "deadline" else ["early", "late", "middle"]
    assert order_of(made) == expected


@pytest.mark.parametrize("order", ["deadline", pytest.param("fifo", marks=pytest.mark.slow)])
@in_processes_slowly
def test_a_retried_job_obeys_the_same_order(scene, order):
    made = scene(declare, order=order)
    worker = made.worker(concurrency=1)
    deadline = made.now_ms() + 9000
    retried = made.tasks.twice.options(key="retried", deadline=deadline - 3000).enqueue()
    wait_until(lambda: retried.state() == State.LATER, "it to back off")
    made.tasks.gate.options(key="gate", within=9.0).enqueue(0.05)
    wait_until(lambda: made.book.notes("gate"), "the gate to shut")
    worker.freeze()
    now = made.now_ms()
    quick = made.tasks.quick
    for key, at in (("later", deadline), ("sooner", deadline - 5000), ("equal", deadline - 3000)):
        quick.options(key=key, deadline=at).enqueue()
    wait_until(lambda: made.now_ms() > now + 450, "its backoff to end")
    finish(made, worker)
    if order == "deadline":
        expected = ["retried", "sooner", "retried", "equal", "later"]
    else:
        expected = ["retried", "retried", "later", "sooner", "equal"]
    assert order_of(made) == expected


@pytest.mark.parametrize(
    ("order", "how"), [("deadline", "kill"), pytest.param("fifo", "stop", marks=pytest.mark.slow)]
)
@in_processes_slowly
def test_a_reclaimed_or_given_back_job_obeys_the_same_order(scene, order, how):
    made = scene(declare, order=order, lease=0.5)
    worker = made.worker(concurrency=1, grace=0.0)
    deadline = made.now_ms() + 30_000
    first = made.tasks.gate.options(key="first", deadline=deadline - 3000)
    first.enqueue(0.8)
    wait_until(lambda: made.book.notes("gate", key="first"), "it to run")
    quick = made.tasks.quick
    for key, at in (("later", deadline), ("sooner", deadline - 5000), ("equal", deadline - 3000)):
        quick.options(key=key, deadline=at).enqueue()
    getattr(worker, how)()
    wait_until(lambda: made.queue.stats().workers == 0, "its lease to end")
    made.worker(concurrency=1)
    wait_until(lambda: made.queue.stats().unfinished == 0, "all to have ended")
    notes = [note.key for note in made.book.notes()]
    assert notes[0] == "first"
    if order == "deadline":
        assert notes[1:] == ["sooner", "first", "equal", "later"]
    else:
        assert notes[1:] == ["first", "later", "sooner", "equal"]


@pytest.mark.slow
@in_processes_slowly
def test_no_live_job_waits_unseen(gated):
    """More work than fits: each one starts in time or is EXPIRED on time, and none is forgotten."""
    made, worker = gated()
    now = made.now_ms()
    handles = []
    for number in range(60):
        ahead = 500 + 20 * number
        handles.append(made.tasks.work.options(deadline=now + ahead).enqueue(number))
    worker.thaw()
    for handle in handles:
        with contextlib.suppress(DeadlineExceeded):
            handle.result()
    wait_until(lambda: made.queue.stats().unfinished == 0, "all to have ended")
    assert {handle.state() for handle in handles} <= {State.DONE, State.EXPIRED, State.EXCEEDED}
    by_key = {handle.key: handle for handle in handles}
    for note in made.book.notes("start"):
        assert note.at < by_key[note.key].deadline.monotonic + slack_s()
    states = [handle.state() for handle in handles]
    assert states.count(State.DONE) >= 5
    made.calm()


def test_the_order_of_a_queue_is_the_order_in_its_ready_set(scene):
    """What a person sees by ZRANGE is what comes next."""
    made = scene(declare)
    now = made.now_ms()
    for ahead in (9000, 5000, 7000):
        made.tasks.quick.options(key=f"{ahead}", deadline=now + ahead).enqueue()
    rows = made.client.zrange(made.key("ready"), 0, -1, withscores=True)
    assert [score for _, score in rows] == sorted(score for _, score in rows)
    idents = [member.split(b":")[1].decode() for member, _ in rows]
    keys = [made.client.hget(made.key("job", ident), "key") for ident in idents]
    assert keys == [b"5000", b"7000", b"9000"]


async def concurrently(queue, calls):
    try:
        return await asyncio.gather(*(call() for call in calls))
    finally:
        await queue.aclose()
