"""C23: same key, other payload.

The written rule. A key stands for one request: one task and its arguments, in one queue. The same
request again gets the first one's job or outcome. Another task or other arguments under the key are
refused as KeyReused: nothing runs and nothing of the first is revealed. Arguments are the same when
they are equal in value and type at every depth, dicts whatever the order of their fields: 10 and
10.0 are different. Options (deadline, retries, criticality) are no part of it. Keys of different
queues have nothing to do with each other.
"""

import asyncio
import datetime as dt
import subprocess
import sys
from decimal import Decimal

import pytest

from deadq import JobFailed, KeyReused, Queue, State
from tests.cases.support import nothing_stored, says
from tests.marks import sampled
from tests.servers import wait_until
from tests.workers import ROOT

STATS = "deadq:{case}:stats"
SECRET = "receipt-8c1f"
KEY = "pay-7"


def declare(queue, book):
    @queue.task(within=10.0)
    async def pay(order, note=None):
        book.note("start")
        return [SECRET, order]

    @queue.task(within=10.0)
    async def refund(order, note=None):
        book.note("start")
        return [SECRET, order]

    @queue.task(within=10.0)
    async def broken(order, note=None):
        book.note("start")
        raise LookupError(SECRET)

    @queue.task(within=10.0)
    async def hold(order, note=None):
        book.note("start")
        await asyncio.sleep(20)


def once(work):
    """Run it on a loop of its own, and close what it opened there."""

    async def all_of_it(queue, made):
        try:
            return await made
        finally:
            await queue.aclose()

    return asyncio.run(all_of_it(*work))


PATHS = {
    "enqueue": lambda task, *args, **kw: task.options(key=KEY).enqueue(*args, **kw),
    "aenqueue": lambda task, *args, **kw: once(
        (task.queue, task.options(key=KEY).aenqueue(*args, **kw))
    ),
    "call": lambda task, *args, **kw: task.options(key=KEY).call(*args, **kw),
    "acall": lambda task, *args, **kw: once((task.queue, task.options(key=KEY).acall(*args, **kw))),
    "enqueue_many": lambda task, *args, **kw: first_of(
        task.queue.enqueue_many([task.options(key=KEY).bind(*args, **kw)])
    ),
    "aenqueue_many": lambda task, *args, **kw: first_of(
        once((task.queue, task.queue.aenqueue_many([task.options(key=KEY).bind(*args, **kw)])))
    ),
}
paths = pytest.mark.parametrize("submit", PATHS.values(), ids=PATHS)


def first_of(outcomes):
    (outcome,) = outcomes
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


ORDER = {"amount": 10, "currency": "EUR", "items": [1, {"a": 1, "b": 2}]}
OTHERS = {
    "another amount": {**ORDER, "amount": 11},
    "10.0 is not 10": {**ORDER, "amount": 10.0},
    "the text 10 is not 10": {**ORDER, "amount": "10"},
    "True is not 1": {**ORDER, "items": [True, {"a": 1, "b": 2}]},
    "Decimal is not int": {**ORDER, "amount": Decimal(10)},
    "bytes are not text": {**ORDER, "currency": b"EUR"},
    "a tuple is not a list": {**ORDER, "items": (1, {"a": 1, "b": 2})},
    "another order of a list": {**ORDER, "items": [{"a": 1, "b": 2}, 1]},
    "a field more": {**ORDER, "note": None},
    "a field less": {"amount": 10, "currency": "EUR"},
    "deep inside": {**ORDER, "items": [1, {"a": 1, "b": 2.0}]},
    "-0.0 is not 0": {**ORDER, "amount": -0.0},
    "a key as text": {**ORDER, 1: "x"},
    "composed and decomposed letters": {**ORDER, "currency": "\u00e9"},
}


@pytest.fixture
def paid(scene):
    """``pay`` has run under the key and is done; the worker is gone, so nothing stirs."""
    made = scene(declare)
    worker = made.worker()
    assert made.tasks.pay.options(key=KEY).call(ORDER) == [SECRET, ORDER]
    assert worker.stop() == 0
    return made


def refused(made, submit, task, *args, **kwargs):
    """KeyReused, and neither a run nor a word of the first."""
    with nothing_stored(made.client, but=STATS), pytest.raises(KeyReused) as caught:
        submit(task, *args, **kwargs)
    says(caught.value, "key")
    assert SECRET not in str(caught.value)
    assert caught.value.reason == "key_reused"
    assert caught.value.retry_after is None


@paths
def test_other_arguments_under_the_key_are_refused_on_every_path(paid, submit):
    for order in OTHERS.values():
        refused(paid, submit, paid.tasks.pay, order)
    assert paid.queue.stats().live == 0
    assert paid.book.starts()[KEY] == 1


@pytest.mark.parametrize("order", OTHERS.values(), ids=OTHERS)
def test_each_of_these_is_another_request(scene, order):
    made = scene(declare)
    made.tasks.pay.options(key=KEY).enqueue(ORDER)
    refused(made, PATHS["enqueue"], made.tasks.pay, order)


@paths
def test_another_task_under_the_key_is_refused_on_every_path(paid, submit):
    refused(paid, submit, paid.tasks.refund, ORDER)
    refused(paid, submit, paid.tasks.broken, ORDER)
    assert paid.book.starts()[KEY] == 1


@paths
def test_fields_in_another_order_get_the_first_result_on_every_path(paid, submit):
    turned = {"items": [1, {"b": 2, "a": 1}], "currency": "EUR", "amount": 10}
    assert list(turned) != list(ORDER)
    for order in (ORDER, turned):
        outcome = submit(paid.tasks.pay, order)
        if not isinstance(outcome, list):
            assert outcome.duplicate
            outcome = outcome.result()
        assert outcome == [SECRET, ORDER]
    assert paid.book.starts()[KEY] == 1


def test_an_argument_by_name_is_the_same_as_by_place(paid):
    assert paid.tasks.pay.options(key=KEY).call(order=ORDER) == [SECRET, ORDER]
    assert paid.book.starts()[KEY] == 1


def test_another_queue_knows_nothing_of_the_key(paid):
    """The reach of a key is one queue."""
    other = Queue("other", capacity=10, url=paid.queue.backend.url)
    declare(other, paid.book)
    try:
        handle = other.tasks["pay"].options(key=KEY).enqueue({"amount": 99})
        assert not handle.duplicate
        assert handle.state() == State.READY
        assert handle.id == paid.tasks.pay.options(key=KEY).enqueue(ORDER).id  # the key's digest
        assert handle.cancel()
    finally:
        other.close()
    assert paid.tasks.pay.options(key=KEY).call(ORDER) == [SECRET, ORDER]


def test_options_are_no_part_of_the_request(paid):
    for options in (
        {"within": 3.0},
        {"retries": 7},
        {"criticality": "sheddable"},
        {"not_before": paid.now_ms() + 1000},
    ):
        handle = paid.tasks.pay.options(key=KEY, **options).enqueue(ORDER)
        assert handle.duplicate
        assert handle.result() == [SECRET, ORDER]


@pytest.mark.parametrize(
    ("state", "other"),
    sampled(["ready", "later", "running", "failed", "cancelled", "expired"], ["arguments", "task"]),
)
def test_the_rule_holds_in_every_state_of_the_first(scene, state, other):
    made = scene(declare)
    task = made.tasks.pay
    options = {"key": KEY}
    match state:
        case "later":
            options["not_before"] = made.now_ms() + 5000
        case "running":
            made.worker()
            task = made.tasks.hold
        case "failed":
            made.worker()
            task = made.tasks.broken
        case "expired":
            options["within"] = 0.05
    handle = task.options(**options).enqueue(ORDER)
    if state == "cancelled":
        handle.cancel()
    wait_until(lambda: handle.state() == state, f"the first to be {state}")
    if state == "expired":  # swept, so that nothing but counters changes below
        made.tasks.pay.options(key="x", within=0.01).enqueue(1)
    if state == "running":
        wait_until(lambda: made.book.starts()[KEY], "the handler to start")
    before = made.book.starts()[KEY]
    # a refusal may sweep the expired first: compare the record alone
    record = made.client.hgetall(made.key("job", handle.id))
    changed, order = (made.tasks.refund, ORDER) if other == "task" else (task, {"amount": 11})
    with pytest.raises(KeyReused) as caught:
        changed.options(key=KEY).enqueue(order)
    assert SECRET not in str(caught.value)
    assert made.client.hgetall(made.key("job", handle.id)) == record
    assert made.book.starts()[KEY] == before
    assert handle.state() == state


def test_a_failed_request_again_gets_the_failure_and_no_second_run(scene):
    made = scene(declare)
    made.worker()
    for _ in range(3):
        with pytest.raises(JobFailed, match=SECRET):
            made.tasks.broken.options(key=KEY).call(ORDER)
    assert made.book.starts()[KEY] == 1


def test_many_under_one_key_in_one_batch_are_one_job(scene):
    made = scene(declare)
    outcomes = made.tasks.pay.options(key=KEY).enqueue_many([(ORDER,), (ORDER,), ({"x": 1},)])
    assert [getattr(outcome, "duplicate", None) for outcome in outcomes] == [False, True, None]
    assert type(outcomes[2]) is KeyReused


KINDS = [
    0,
    0.0,
    -0.0,
    False,
    "",
    b"",
    None,
    [],
    (),
    {},
    set(),
    frozenset(),
    Decimal(0),
    Decimal("0.0"),
    dt.timedelta(0),
    dt.date(2026, 1, 1),
    dt.datetime(2026, 1, 1),
    dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
    "0",
    "None",
    [0],
    [[]],
    {"": ""},
]


def test_no_two_empty_or_zero_values_are_the_same_request(scene):
    made = scene(declare)
    for i, first in enumerate(KINDS):
        made.tasks.pay.options(key=f"k{i}").enqueue(first)
        assert made.tasks.pay.options(key=f"k{i}").enqueue(first).duplicate
        for j, second in enumerate(KINDS):
            if i != j:
                with pytest.raises(KeyReused):
                    made.tasks.pay.options(key=f"k{i}").enqueue(second)


@pytest.mark.slow
def test_the_same_request_is_the_same_in_every_process(scene, monkeypatch):
    """Hash seeds differ from process to process; what a request is does not."""
    made = scene(declare)
    program = (
        "import sys; from deadq import Queue; from tests.cases import test_c23 as t\n"
        "queue = Queue('case', capacity=9, url=sys.argv[1]); t.declare(queue, None)\n"
        "value = {'s': {'b', 'a', 'c'}, 'f': frozenset({1, 'x', 2.5}), **t.ORDER}\n"
        "print(queue.tasks['pay'].options(key='k').enqueue(value).duplicate); queue.close()\n"
    )
    said = []
    for seed in ("0", "42"):
        monkeypatch.setenv("PYTHONHASHSEED", seed)
        done = subprocess.run(
            [sys.executable, "-c", program, made.queue.backend.url],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        said.append(done.stdout.strip())
    assert said == ["False", "True"]
