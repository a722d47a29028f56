"""C63: a separator inside a name.

The rule: queue names, task names and keys are texts of which every character counts, and none of
them separates anything. Two of them are the same only when they are equal byte by byte in UTF-8.
Empty ones, too long ones and what is no valid text are refused with a reason, before anything is
stored, the same on every path. Task names hold no control characters besides.
"""

import asyncio
import itertools
import unicodedata

import pytest

from deadq import Queue
from deadq.job import MAX_KEY_BYTES
from deadq.store.keys import MAX_NAME_BYTES, prefix
from tests.cases.support import nothing_stored, says

COMPOSED, DECOMPOSED = "caf\u00e9", unicodedata.normalize("NFD", "caf\u00e9")
ODD = [
    "a",
    "A",
    "a:b",
    "a:",
    ":a",
    ":",
    "::",
    "a b",
    " ",
    " a",
    "a ",
    "  ",
    "\t",
    "\n",
    "a\nb",
    "a\r\nb",
    "\0",
    "a\0b",
    "a\0",
    "{a}",
    "{",
    "}",
    "{}",
    "a}b",
    "{b}:a",
    "%",
    "%s",
    "%%",
    "%41",
    "%3A",
    "a%3Ab",
    "a%3ab",
    "*",
    "a*",
    "?",
    "[a]",
    "\\",
    "/",
    "../a",
    "a/b",
    "'",
    '"',
    "`$(x)`",
    "<script>",
    "-",
    "--json",
    ".",
    "..",
    "0",
    "-1",
    "null",
    "None",
    "nan",
    "jobs",
    "ready",
    "job:x",
    "\u202eabc",
    "abc\u202c",
    "\u200b",
    "\ufeff",
    "\u2028",
    "\x7f",
    "\x85",
    "\U0001f600",
    "\U0010ffff",
    "日本",
    COMPOSED,
    DECOMPOSED,
    "ß",
    "ss",
    "ﬀ",
    "ff",
    "İ",
    "i\u0307",
    "I",
    "\u0131",
]
REFUSED = [
    ("", ValueError, "empty"),
    ("x" * 10_000, ValueError, "10000 bytes"),
    ("é" * 5_000, ValueError, "10000 bytes"),
    ("caf\udce9", ValueError, "surrogate"),
    ("\ud800", ValueError, "surrogate"),
    (b"a", TypeError, "bytes"),
    (5, TypeError, "int"),
    (1.5, TypeError, "float"),
    (True, TypeError, "bool"),
    (("a", "b"), TypeError, "tuple"),
    (["a"], TypeError, "list"),
    (object(), TypeError, "object"),
]
refused = pytest.mark.parametrize(
    ("odd", "kind", "text"), REFUSED, ids=[repr(odd)[:20] for odd, *_ in REFUSED]
)


def declare(queue, book):
    @queue.task(within=20.0)
    async def echo(value):
        book.note("start")
        return [queue.name, value]


# Keys.


def test_every_odd_key_is_a_job_of_its_own(scene):
    made = scene(declare)
    made.worker(concurrency=32)
    echo = made.tasks.echo
    handles = {key: echo.options(key=key).enqueue(number) for number, key in enumerate(ODD)}
    assert not any(handle.duplicate for handle in handles.values())
    assert len({handle.id for handle in handles.values()}) == len(ODD)
    for number, (key, handle) in enumerate(handles.items()):
        assert handle.key == key
        assert handle.result() == ["case", number]
    assert made.book.starts() == dict.fromkeys(ODD, 1)
    for number, key in enumerate(ODD):
        again = made.tasks.echo.options(key=key).enqueue(number)
        assert again.duplicate
        assert again.result() == ["case", number]


def test_the_handler_sees_the_key_as_it_was_given(scene):
    made = scene(declare)
    made.worker()
    for key in ("a\nb", "\0", "\u202eabc", "{a}%s"):
        made.tasks.echo.options(key=key).call(1)
    assert set(made.book.starts()) == {"a\nb", "\0", "\u202eabc", "{a}%s"}


@refused
def test_a_key_that_is_none_is_refused_and_nothing_is_stored(scene, odd, kind, text):
    made = scene(declare)
    for attempt in (
        lambda: made.tasks.echo.options(key=odd).enqueue(1),
        lambda: asyncio.run(made.tasks.echo.options(key=odd).aenqueue(1)),
        lambda: made.tasks.echo.options(key=odd).bind(1),
        lambda: made.tasks.echo.options(key=odd).enqueue_many([(1,)]),
    ):
        with nothing_stored(made.client), pytest.raises(kind) as caught:
            attempt()
        says(caught.value, "key", text)


@pytest.mark.parametrize("letter", ["x", "é", "日", "\U0001f600", "\0"])
def test_the_longest_key_is_measured_in_bytes(scene, letter):
    made = scene(declare)
    size = len(letter.encode())
    longest = letter * (MAX_KEY_BYTES // size) + "x" * (MAX_KEY_BYTES % size)
    assert made.tasks.echo.options(key=longest).enqueue(1).key == longest
    with pytest.raises(ValueError) as caught:
        made.tasks.echo.options(key=longest + "x")
    says(caught.value, "key", f"{MAX_KEY_BYTES + 1} bytes", f"at most {MAX_KEY_BYTES}")


# Queue names.


def test_every_odd_queue_name_has_keys_of_its_own(valkey):
    """Also against queues whose names look like another one's keys."""
    names = [*ODD, "x", "x:jobs", "x:dead", "x:job:1", "x}:ready", "deadq:{x}:ready"]
    prefixes = [prefix(name) for name in names]
    assert len(set(prefixes)) == len(names)
    for one, other in itertools.permutations(prefixes, 2):
        assert not one.startswith(other)
    for text in prefixes:
        assert text.isascii()
        assert text.isprintable()
        assert text.startswith("deadq:{")
        assert text.endswith("}:")
        assert text.count("{") == text.count("}") == 1  # one hash tag: one slot of a cluster
    queues = []
    try:
        for number, name in enumerate(names):
            queue = Queue(name, capacity=1, url=valkey.url)
            queues.append(queue)
            declare(queue, None)
            handle = queue.tasks["echo"].options(key="k").enqueue(number)
            assert not handle.duplicate
        assert [queue.stats().live for queue in queues] == [1] * len(names)
        assert queues[3].tasks["echo"].options(key="k").enqueue(3).cancel()
        assert [queue.stats().live for queue in queues] == [1] * 3 + [0] + [1] * (len(names) - 4)
    finally:
        for queue in queues:
            queue.close()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("a:b", "c"), ("a", "b:c")),
        ((COMPOSED, "k"), (DECOMPOSED, "k")),
        pytest.param(*(("x", "jobs"), ("x:jobs", "x")), marks=pytest.mark.slow),
        pytest.param(*(("{a}", "b"), ("a", "{b}")), marks=pytest.mark.slow),
        pytest.param(*(("a\nb", "c"), ("a", "b\nc")), marks=pytest.mark.slow),
        pytest.param(*(("a%3Ab", "c"), ("a:b", "c")), marks=pytest.mark.slow),
        pytest.param(*(("A", "k"), ("a", "k")), marks=pytest.mark.slow),
    ],
    ids=repr,
)
def test_workers_of_two_queues_get_their_own_jobs_alone(scene, valkey, one, other):
    scenes = [(scene(declare, name=name, server=valkey), key) for name, key in (one, other)]
    handles = [made.tasks.echo.options(key=key).enqueue("x") for made, key in scenes]
    workers = [made.worker() for made, _ in scenes]
    for handle, (made, _) in zip(handles, scenes, strict=True):
        assert handle.result() == [made.queue.name, "x"]
        assert made.stat("started") == 1
    assert all(worker.alive for worker in workers)


@refused
def test_a_queue_name_that_is_none_is_refused(odd, kind, text):
    with pytest.raises(kind) as caught:
        Queue(odd, capacity=1)
    says(caught.value, "queue name", text)


@pytest.mark.parametrize("letter", ["x", "é", "\U0001f600", "{"])
def test_the_longest_queue_name_is_measured_in_bytes_and_works(valkey, letter):
    size = len(letter.encode())
    longest = letter * (MAX_NAME_BYTES // size) + "x" * (MAX_NAME_BYTES % size)
    queue = Queue(longest, capacity=1, url=valkey.url)
    try:
        declare(queue, None)
        assert queue.tasks["echo"].enqueue(1).cancel()
    finally:
        queue.close()
    with pytest.raises(ValueError) as caught:
        Queue(longest + "x", capacity=1)
    says(caught.value, "queue name", f"{MAX_NAME_BYTES + 1} bytes", f"{MAX_NAME_BYTES}")


def test_messages_about_an_oddly_named_queue_stay_one_line(valkey):
    for name in ODD:
        queue = Queue(name, capacity=1, url=valkey.url)
        try:
            declare(queue, None)
            queue.tasks["echo"].enqueue(1)
            errors = queue.tasks["echo"].enqueue_many([(2,)])
            queue.pause()
            errors += queue.tasks["echo"].enqueue_many([(2,)])
            for error in errors:
                says(error, "full|paused")
            assert repr(queue).isprintable()
            with pytest.raises(ValueError) as caught:
                declare(queue, None)
            says(caught.value, "already")
            assert repr(queue.tasks["echo"].queue).isprintable()
        finally:
            queue.close()


# Task names.

PRINTABLE = [name for name in ODD if not any(ord(c) < ord(" ") for c in name)]


def declare_odd(queue, book):
    for number, name in enumerate(PRINTABLE):

        @queue.task(name=name, within=20.0)
        async def odd(value, number=number):
            book.note("start")
            return [number, value]


def test_every_odd_task_name_is_a_task_of_its_own(scene):
    made = scene(declare_odd)
    worker = made.worker(concurrency=32)
    handles = [task.enqueue("x") for task in made.queue.tasks.values()]
    assert [handle.result() for handle in handles] == [[n, "x"] for n in range(len(PRINTABLE))]
    # once more, now that each has service times of its own
    handles = [task.enqueue("y") for task in made.queue.tasks.values()]
    assert [handle.result() for handle in handles] == [[n, "y"] for n in range(len(PRINTABLE))]
    assert made.queue.stats().strange == 0
    assert worker.alive


@refused
def test_a_task_name_that_is_none_is_refused(odd, kind, text):
    queue = Queue("case", capacity=1)
    with pytest.raises(kind) as caught:

        @queue.task(name=odd)
        async def task():
            return None

    says(caught.value, "task name", text)
    assert not queue.tasks


@pytest.mark.parametrize("odd", ["a\nb", "\0", "\t", "a\x1f", "\r"])
def test_control_characters_in_a_task_name_are_refused(odd):
    queue = Queue("case", capacity=1)
    with pytest.raises(ValueError) as caught:

        @queue.task(name=odd)
        async def task():
            return None

    says(caught.value, "task name", "control")
    assert not queue.tasks


def test_one_name_for_two_tasks_is_refused():
    queue = Queue("case", capacity=1)
    declare(queue, None)
    first = queue.tasks["echo"]
    with pytest.raises(ValueError) as caught:
        declare(queue, None)
    says(caught.value, "echo", "already", "name=")
    assert queue.tasks == {"echo": first}
