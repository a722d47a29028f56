"""C17: many producers pass the cap together.

The rule: the cap counts all live accepted jobs (ready, put off and running), exactly, whoever
submits and however; a refusal is immediate and typed, and stores nothing.
"""

import asyncio
import statistics
import threading
import time

import pytest

from deadq import Deadline, JobHandle, Queue, QueueFull, Retry, State
from tests.cases.support import nothing_stored, says
from tests.servers import wait_until
from tests.workers import Process, hear, tell

STATS = "deadq:{case}:stats"


def declare(queue, book):
    @queue.task(within=30.0)
    async def work(value=None):
        return value

    @queue.task(within=30.0)
    async def hold(seconds):
        book.note("start")
        await asyncio.sleep(seconds)

    @queue.task(within=30.0, retries=5)
    async def later():
        book.note("start")
        raise Retry(after=20.0)


def produce(url, number, submits):
    """A producer process: for each round that it hears of, so many submits at once."""
    queue = Queue("case", capacity=5, admission="cap", url=url)
    declare(queue, None)
    work = queue.tasks["work"]

    async def one(key):
        begun = time.monotonic()
        try:
            await work.options(key=key).aenqueue()
        except QueueFull:
            return "full", time.monotonic() - begun
        return "accepted", time.monotonic() - begun

    async def rounds():
        await queue.aconnect()
        loop = asyncio.get_running_loop()
        tell("ready")
        while (number_of_round := await loop.run_in_executor(None, hear)) is not None:
            keys = [f"{number_of_round}-{number}-{i}" for i in range(submits)]
            tell(await asyncio.gather(*map(one, keys)))
        await queue.aclose()

    asyncio.run(rounds())


class Observer(threading.Thread):
    """Looks at the cap's own set as fast as it can, until told to stop."""

    def __init__(self, made):
        super().__init__(daemon=True)
        self._client = made.client
        self._due = made.key("due")
        self._halt = threading.Event()
        self.most = 0
        self.looks = 0

    def run(self):
        while not self._halt.is_set():
            self.most = max(self.most, self._client.zcard(self._due))
            self.looks += 1

    def stop(self):
        self._halt.set()
        self.join()


@pytest.mark.race
def test_exactly_the_cap_is_accepted_of_200_submits_by_4_processes_in_20_rounds(scene):
    made = scene(declare, capacity=5)
    producers = [
        Process("tests.cases.test_c17:produce", url=made.queue.backend.url, number=n, submits=50)
        for n in range(4)
    ]
    observer = Observer(made)
    took = []
    try:
        for producer in producers:
            assert producer.hear() == "ready"
        observer.start()
        for number in range(20):
            for producer in producers:
                producer.tell(number)
            outcomes = [outcome for producer in producers for outcome in producer.hear()]
            words = [word for word, _ in outcomes]
            assert (words.count("accepted"), words.count("full")) == (5, 195)
            assert made.queue.stats().live == 5
            took += [seconds for word, seconds in outcomes if word == "full"]
            for ident in made.client.zrange(made.key("due"), 0, -1):
                assert made.queue.producer.cancel(ident.decode()) == "cancelled"
    finally:
        if observer.is_alive():
            observer.stop()
        for producer in producers:
            producer.close()
    assert observer.looks > 100
    assert observer.most == 5
    assert made.stat("admitted") == 100
    # all 200 share two cores here: the half of them is what one refusal takes
    assert statistics.median(took) < 0.05
    assert max(took) < 1.0
    made.calm()


@pytest.mark.parametrize("way", ["threads", "many", "tasks", "bound"])
def test_the_cap_is_exact_however_the_submits_come(scene, way):
    made = scene(declare, capacity=5)
    work, queue = made.tasks.work, made.queue

    def try_one(key):
        try:
            return work.options(key=key).enqueue()
        except QueueFull as error:
            return error

    async def concurrent():
        bound = [work.options(key=f"k{i}") for i in range(300)]
        try:
            return await asyncio.gather(*(b.aenqueue() for b in bound), return_exceptions=True)
        finally:
            await queue.aclose()

    if way == "threads":
        outcomes = []
        threads = [
            threading.Thread(
                target=lambda n=n: outcomes.extend(try_one(f"{n}-{i}") for i in range(30))
            )
            for n in range(10)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    elif way == "many":
        outcomes = work.enqueue_many([(i,) for i in range(300)])
    elif way == "bound":
        outcomes = queue.enqueue_many([work.options(key=f"k{i}").bind(i) for i in range(300)])
    else:
        outcomes = asyncio.run(concurrent())
    assert sum(isinstance(o, JobHandle) for o in outcomes) == 5
    assert sum(type(o) is QueueFull for o in outcomes) == 295
    assert queue.stats().live == 5


def test_a_refusal_is_typed_says_what_is_full_and_stores_nothing(scene):
    made = scene(declare, capacity=3)
    for _ in range(3):
        made.tasks.work.enqueue()
    with nothing_stored(made.client, but=STATS), pytest.raises(QueueFull) as caught:
        made.tasks.work.options(key="k").enqueue()
    says(caught.value, "case", "full", "3")
    assert caught.value.reason == "full"
    assert caught.value.retry_after is None or caught.value.retry_after > 0


def test_a_refusal_costs_one_round_trip(scene):
    made = scene(declare, capacity=1)
    made.tasks.work.enqueue()
    took = []
    for _ in range(200):
        begun = time.monotonic()
        with pytest.raises(QueueFull):
            made.tasks.work.enqueue()
        took.append(time.monotonic() - begun)
    assert statistics.median(took) < 0.01
    assert sorted(took)[-10] < 0.05


# What counts against the cap.


def full(made):
    with pytest.raises(QueueFull):
        made.tasks.work.enqueue()
    return made.queue.stats().live


def test_a_running_job_counts(scene):
    made = scene(declare, capacity=2)
    made.worker()
    held = [made.tasks.hold.enqueue(20.0) for _ in range(2)]
    wait_until(lambda: all(h.state() == State.RUNNING for h in held), "both to run")
    assert full(made) == 2
    held[0].cancel()
    wait_until(lambda: held[0].state() == State.CANCELLED, "it to be cancelled")
    assert made.tasks.work.call("x") == "x"


def test_a_job_that_waits_for_its_retry_counts(scene):
    made = scene(declare, capacity=2)
    made.worker()
    handle = made.tasks.later.enqueue()
    wait_until(lambda: handle.state() == State.LATER, "it to back off")
    made.tasks.hold.enqueue(20.0)
    assert full(made) == 2


def test_a_job_that_was_put_off_counts(scene):
    made = scene(declare, capacity=2)
    made.tasks.work.options(not_before=made.now_ms() + 20_000).enqueue()
    made.tasks.work.enqueue()
    assert full(made) == 2


def test_a_repeat_under_the_same_key_takes_no_place_and_is_not_refused(scene):
    made = scene(declare, capacity=1)
    made.tasks.work.options(key="k").enqueue()
    for _ in range(5):
        assert made.tasks.work.options(key="k").enqueue().duplicate
    assert full(made) == 1


def test_a_job_whose_deadline_has_passed_gives_up_its_place_by_itself(scene):
    """Nobody has to sweep first, and no worker has to live."""
    made = scene(declare, capacity=2)
    short = [made.tasks.work.options(within=0.1).enqueue() for _ in range(2)]
    assert full(made) == 2
    wait_until(lambda: all(h.deadline.expired for h in short), "them to expire")
    wait_until(lambda: made.queue.stats().live == 0, "the places to be free")
    made.tasks.work.enqueue()
    made.tasks.work.enqueue()
    assert full(made) == 2


def test_a_cancelled_job_gives_up_its_place_once(scene):
    made = scene(declare, capacity=2)
    held = [made.tasks.work.enqueue() for _ in range(2)]
    for _ in range(3):  # asked again, it says again that the job never starts
        assert held[0].cancel()
    held[0].leave()
    made.tasks.work.enqueue()
    assert full(made) == 2


def test_a_raised_deadline_keeps_its_place(scene):
    made = scene(declare, capacity=1)
    made.tasks.work.options(key="k", within=0.1).enqueue()
    made.tasks.work.options(key="k", within=20.0).enqueue()
    done = Deadline.after(0.2)
    wait_until(lambda: done.expired, "the first deadline to pass")
    assert full(made) == 1


@pytest.mark.parametrize(
    ("criticality", "share"),
    [("critical_plus", 5), ("critical", 5), ("sheddable_plus", 4), ("sheddable", 3)],
)
def test_each_criticality_may_fill_its_share_of_the_cap_rounded_up(scene, criticality, share):
    made = scene(declare, capacity=5)
    bound = made.tasks.work.options(criticality=criticality)
    for _ in range(share):
        bound.enqueue()
    with pytest.raises(QueueFull):
        bound.enqueue()
    assert made.queue.stats().live == share
    if share < 5:
        made.tasks.work.options(criticality="critical").enqueue()


def test_a_quarter_of_the_cap_may_be_put_off(scene):
    made = scene(declare, capacity=8)
    bound = made.tasks.work.options(not_before=made.now_ms() + 20_000)
    for _ in range(2):
        bound.enqueue()
    with pytest.raises(QueueFull):
        bound.enqueue()
    made.tasks.work.enqueue()


def test_at_least_one_may_be_put_off_in_the_smallest_queue(scene):
    made = scene(declare, capacity=1)
    made.tasks.work.options(not_before=made.now_ms() + 20_000).enqueue()
    assert full(made) == 1


@pytest.mark.parametrize("capacity", [2, pytest.param(1, marks=pytest.mark.slow)])
def test_a_retried_and_reclaimed_job_never_makes_it_one_more(scene, capacity):
    made = scene(declare, capacity=capacity, lease=0.3)
    worker = made.worker()
    observer = Observer(made)
    observer.start()
    held = [made.tasks.hold.options(key=f"k{i}").enqueue(20.0) for i in range(capacity)]
    wait_until(lambda: len(made.book.starts()) == capacity, "all to run")
    worker.kill()
    made.worker()
    wait_until(lambda: min(made.book.starts()[h.key] for h in held) == 2, "all to run once more")
    assert full(made) == capacity
    observer.stop()
    assert observer.most == capacity
