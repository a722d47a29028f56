"""Settings are checked once, where they are given, with one line that names fault and remedy."""

import dataclasses
import math
import re

import pytest
import redis

from deadq import DeadqError, Queue, StoreUnavailable, Worker
from deadq.config import MAX_CAPACITY, QueueConfig, TaskConfig, one_of, text, whole
from tests.cases.support import says


class TwoLines:
    def __repr__(self):
        return "[[1 2]\n [3 4]]"


def by_part(rows):
    # without addresses: processes that share the tests must name them alike
    return [re.sub(r" at 0x\w+", "", repr(row))[:50] for row in rows]


SETTINGS = [
    ({"capacity": 0}, ValueError, "capacity.*between 1"),
    ({"capacity": -1}, ValueError, "capacity"),
    ({"capacity": MAX_CAPACITY + 1}, ValueError, "capacity"),
    ({"capacity": 10**400}, ValueError, "capacity"),
    ({"capacity": True}, TypeError, "capacity.*whole number"),
    ({"capacity": 5.0}, TypeError, "capacity"),
    ({"capacity": "5"}, TypeError, "capacity"),
    ({"capacity": None}, TypeError, "capacity"),
    ({"capacity": math.nan}, TypeError, "capacity"),
    ({"capacity": TwoLines()}, TypeError, "capacity"),
    ({"order": "lifo"}, ValueError, "order.*deadline, fifo"),
    ({"order": "FIFO"}, ValueError, "order"),
    ({"order": None}, ValueError, "order"),
    ({"order": ["fifo"]}, ValueError, "order"),
    ({"admission": "none"}, ValueError, "admission.*feasible, cap"),
    ({"admission": True}, ValueError, "admission"),
    ({"retention": 0}, ValueError, "retention.*more than 0"),
    ({"retention": None}, ValueError, "retention"),
    ({"retention": 1e300}, ValueError, "retention"),
    ({"lease": 0.01}, ValueError, "lease.*at least 0.1"),
    ({"lease": "5"}, ValueError, "lease"),
    ({"horizon": math.inf}, ValueError, "horizon.*finite"),
    ({"horizon": -1}, ValueError, "horizon"),
    ({"max_payload": 0}, ValueError, "max_payload"),
    ({"max_payload": 2**40}, ValueError, "max_payload"),
    ({"max_payload": 1.5}, TypeError, "max_payload"),
    ({"allow_eviction": "yes"}, TypeError, "allow_eviction.*True or False"),
    ({"allow_eviction": 1}, TypeError, "allow_eviction"),
]


@pytest.mark.parametrize(("settings", "kind", "words"), SETTINGS, ids=by_part(SETTINGS))
def test_odd_settings_of_a_queue_are_refused(settings, kind, words):
    with pytest.raises(kind) as caught:
        Queue("case", **{"capacity": 1, **settings})
    says(caught.value, words)


def test_a_queue_needs_a_capacity_and_knows_no_other_settings():
    with pytest.raises(TypeError, match="capacity"):
        Queue("case")
    with pytest.raises(TypeError, match="capazity"):
        Queue("case", capacity=1, capazity=2)


def test_the_smallest_and_largest_settings_are_taken():
    queue = Queue(
        "q",
        capacity=MAX_CAPACITY,
        retention=0.0001,
        lease=0.1,
        max_payload=1,
        horizon=1e-9,
        order="fifo",
        admission="cap",
        allow_eviction=True,
    )
    assert queue.config.retention_ms == 1  # never none: nothing may stay without an expiry
    assert queue.config.lease_ms == 100
    with pytest.raises(dataclasses.FrozenInstanceError):
        queue.config.capacity = 5


def test_making_a_queue_does_no_io():
    Queue("q", capacity=1, url="redis://no-such-host.invalid:1")


URLS = [
    ("", ValueError),
    (" ", ValueError),
    ("localhost", ValueError),
    ("localhost:6379", ValueError),
    ("http://localhost", ValueError),
    ("REDIS://localhost", ValueError),
    ("redis:/localhost", ValueError),
    ("redis//localhost", ValueError),
    ("://localhost", ValueError),
    ("redis://localhost:port", ValueError),
    ("redis://localhost:70000", ValueError),
    ("redis://localhost:-1", ValueError),
    ("redis://[::1", ValueError),
    ("redis://localhost?db=x", ValueError),
    ("redis://localhost?socket_timeout=soon", ValueError),
    ("postgres://localhost/db", ValueError),
    (b"redis://localhost", TypeError),
    (5, TypeError),
    (["redis://localhost"], TypeError),
]


@pytest.mark.parametrize(("url", "kind"), URLS, ids=by_part(URLS))
def test_odd_urls_are_refused_where_they_are_given(url, kind):
    with pytest.raises(kind) as caught:
        Queue("case", capacity=1, url=url)
    says(caught.value, "(?i)url", "redis://")


@pytest.mark.parametrize(("url", "kind"), [row for row in URLS if isinstance(row[0], str)][1:])
def test_odd_urls_of_the_environment_are_refused_at_the_first_use(monkeypatch, url, kind):
    monkeypatch.setenv("DEADQ_URL", url)
    queue = Queue("case", capacity=1)
    with pytest.raises(kind) as caught:
        queue.stats()
    says(caught.value, "(?i)url", "redis://")


@pytest.mark.parametrize(
    "url",
    [
        "redis://no-such-host.invalid:1",
        "redis://127.0.0.1:1",
        "redis://[::1]:1",
        "valkey://127.0.0.1:1/3",
        "unix:///no/such/socket",
        "unix://",
        "redis://my..host",
        "redis://.x",
        "redis://" + "a" * 300,
        "redis://127.0.0.1:1?no_such_setting=1",
        "redis://ho\0st",
        "redis://user:pa%00ss@127.0.0.1:1",
    ],
)
def test_a_server_that_cannot_be_reached_is_a_typed_error(url):
    with pytest.raises((StoreUnavailable, ValueError)) as caught:
        Queue("case", capacity=1, url=url).stats()
    says(caught.value, "server|URL|host|socket")


def test_no_password_stands_in_an_error():
    queue = Queue("case", capacity=1, url="redis://user:hunter2@127.0.0.1:1")
    with pytest.raises(DeadqError) as caught:
        queue.stats()
    assert "hunter2" not in str(caught.value)
    assert "hunter2" not in repr(queue)


CLIENTS = [
    ({"client": object()}, TypeError, "client"),
    ({"client": 5}, TypeError, "client"),
    ({"client": "redis://localhost"}, TypeError, "client"),
    ({"client": (1,)}, TypeError, "client|pair"),
    ({"client": (1, 2)}, TypeError, "client|pair"),
    ({"client": (1, 2, 3)}, TypeError, "client|pair"),
    ({"client": ()}, TypeError, "client|pair"),
    ({"client": redis.Redis, "url": "redis://x"}, ValueError, "url or client"),
]


@pytest.mark.parametrize(("settings", "kind", "words"), CLIENTS, ids=by_part(CLIENTS))
def test_odd_clients_are_refused(settings, kind, words):
    with pytest.raises(kind) as caught:
        Queue("case", capacity=1, **settings)
    says(caught.value, words)


TASKS = [
    ({"name": ""}, ValueError, "name.*empty"),
    ({"name": 5}, TypeError, "name"),
    ({"within": 0}, ValueError, "within"),
    ({"within": "2"}, ValueError, "within"),
    ({"timeout": 0}, ValueError, "timeout"),
    ({"timeout": math.nan}, ValueError, "timeout"),
    ({"retries": -1}, ValueError, "retries"),
    ({"retries": 1001}, ValueError, "retries"),
    ({"retries": True}, TypeError, "retries"),
    ({"retries": 1.0}, TypeError, "retries"),
    ({"retries": None}, TypeError, "retries"),
    ({"criticality": "high"}, ValueError, "criticality.*sheddable"),
    ({"criticality": None}, ValueError, "criticality"),
    ({"retry_on": KeyboardInterrupt}, TypeError, "retry_on"),
    ({"retry_on": BaseException}, TypeError, "retry_on"),
    ({"retry_on": ValueError("x")}, TypeError, "retry_on"),
    ({"retry_on": [ValueError, 5]}, TypeError, "retry_on"),
    ({"retry_on": "ValueError"}, TypeError, "retry_on"),
    ({"retry_on": 5}, TypeError, "retry_on"),
    ({"backoff": 5}, TypeError, "backoff"),
    ({"backoff": "full"}, TypeError, "backoff"),
]


@pytest.mark.parametrize(("settings", "kind", "words"), TASKS, ids=by_part(TASKS))
def test_odd_settings_of_a_task_are_refused_and_no_task_is_made(settings, kind, words):
    queue = Queue("case", capacity=1)
    with pytest.raises(kind) as caught:

        @queue.task(**settings)
        def task():
            return None

    says(caught.value, words)
    assert not queue.tasks


def generator():
    yield


async def async_generator():
    yield


HANDLERS = [
    (5, "function"),
    ("echo", "function"),
    ([], "function"),
    (generator, "generator"),
    (async_generator, "generator"),
]


@pytest.mark.parametrize(("handler", "words"), HANDLERS, ids=by_part(HANDLERS))
def test_what_is_no_handler_is_refused(handler, words):
    queue = Queue("case", capacity=1)
    with pytest.raises(TypeError) as caught:
        queue.task(handler)
    says(caught.value, words)
    assert not queue.tasks


@pytest.mark.parametrize(
    ("settings", "kind", "words"),
    [
        ({"concurrency": 0}, ValueError, "concurrency"),
        ({"concurrency": 10**9}, ValueError, "concurrency"),
        ({"concurrency": True}, TypeError, "concurrency"),
        ({"concurrency": 1.5}, TypeError, "concurrency"),
        ({"grace": -1}, ValueError, "grace"),
        ({"grace": math.nan}, ValueError, "grace"),
        ({"grace": None}, ValueError, "grace"),
    ],
)
def test_odd_settings_of_a_worker_are_refused(settings, kind, words):
    queue = Queue("case", capacity=1)
    queue.task(name="x")(lambda: None)
    with pytest.raises(kind) as caught:
        Worker(queue, **settings)
    says(caught.value, words)


def test_the_checks_themselves():
    assert whole(5, "n", 1, 5) == 5
    assert one_of("a", "w", ("a", "b")) == "a"
    assert text("é", "t", 2) == "é"
    with pytest.raises(ValueError, match="n must lie between 1 and 5"):
        whole(6, "n", 1, 5)
    with pytest.raises(ValueError, match="w must be one of a, b"):
        one_of("c", "w", ("a", "b"))
    with pytest.raises(ValueError, match="3 bytes"):
        text("éx", "t", 2)


def test_settings_are_few_and_have_their_defaults_beside_them():
    assert len(dataclasses.fields(QueueConfig)) <= 12
    assert len(dataclasses.fields(TaskConfig)) <= 12
    config = QueueConfig("q", 5)
    assert (config.order, config.admission, config.retention) == ("deadline", "feasible", 3600.0)
    assert (config.lease, config.max_payload, config.horizon) == (5.0, 262_144, 604_800.0)
    assert config.allow_eviction is False
