"""C13: a nonsense time accepted by the producer kills the consumer. The second line: what stands on
the server although no producer of this release wrote it.

The rule: a record that nobody could run is set aside as malformed; one that a newer release may
run waits, until its deadline at most; garbage beside the records costs nothing but itself. The
worker lives, asks the server no more often than before, and the healthy job behind runs.
"""

import asyncio
import contextlib
import hashlib
import math

import pytest

from deadq import Cancelled, DeadlineExceeded, DeadqError, JobFailed, Queue, State, current_job
from deadq.codec import encode, fingerprint
from deadq.job import MAX_KEY_BYTES, job_id
from deadq.store import keys
from tests.cases.support import Planter, Scene, counting, script_calls
from tests.marks import brief, sampled
from tests.servers import Server, binaries, wait_until

HEALTHY_S = 3.0
RAW = b"\xff\xfe\x80raw"
LONG_DIGITS = "9" * 5000


def declare(queue, book):
    @queue.task(within=10.0)
    async def echo(value):
        if value == "planted":
            book.note("planted")
        return value

    @queue.task(within=10.0)
    async def hold(value):
        book.note("hold")
        await asyncio.sleep(30)

    @queue.task(within=10.0)
    async def fail(text):
        raise LookupError(text)

    @queue.task(within=10.0)
    async def charge(cents):
        return await current_job().unit("charge", receipt, cents)


def receipt(cents):
    return f"paid {cents}"


class Stage:
    """A scene with one worker that many tests use in turn."""

    def __init__(self, server, folder):
        self.server = server
        self.scene = Scene(server.url, folder, declare)
        self.planter = Planter(self.scene)
        self.process = None
        self.producers = {"cap": self.scene.queue}
        self.producers["feasible"] = Queue("case", capacity=1000, url=server.url)
        declare(self.producers["feasible"], self.scene.book)

    def ready(self):
        """The worker works; a new one in an empty server if the last test has spoilt it."""
        if self.process is not None and self.process.alive:
            with contextlib.suppress(DeadqError, AssertionError, TimeoutError):
                self.healthy(within=2.0)
                return
        if self.process is not None:
            self.process.close()
        with self.server.client() as client:
            client.flushall()
        self.process = self.scene.worker()
        self.healthy()

    def healthy(self, within=HEALTHY_S):
        """A job submitted now runs soon."""
        echo = self.scene.tasks.echo
        assert echo.options(within=within).enqueue("healthy").result() == "healthy"

    def sweep_up(self):
        """Take away what was planted, but for what the worker itself has written."""
        client, prefix = self.scene.client, self.scene.prefix
        for kind in ("job", "data", "result"):
            for key in client.scan_iter(f"{prefix}{kind}:*"):
                client.delete(key)
        for kind in ("due", "ready", "later", "delayed", "strange", "probes", "dead"):
            client.delete(self.scene.key(kind))


@pytest.fixture(scope="module")
def standing(valkey_server, tmp_path_factory):
    with contextlib.ExitStack() as stack:
        stage = Stage(valkey_server, tmp_path_factory.mktemp("c13"))
        stack.enter_context(stage.scene)
        stack.callback(stage.producers["feasible"].close)
        yield stage


@pytest.fixture
def stage(standing):
    standing.ready()
    yield standing
    standing.sweep_up()


# Records: every field in turn.

ODD_NUMBERS = {
    "a word": "soon",
    "nothing": "",
    "NaN": "nan",
    "-NaN": "-nan",
    "infinite": "inf",
    "-infinite": "-inf",
    "too large to be a double": "1e999",
    "10**30": str(10**30),
    "5000 digits": LONG_DIGITS,
    "True": "True",
    "bytes that are no text": RAW,
    "a superscript": "²",
    "a date": "1018-01-01T00:00:00+00:00",
}
PAST_INSTANTS = {"-1": -1, "zero": 0, "one": 1, "the year 1018": -30_041_712_000_000}


@pytest.mark.parametrize(
    ("value", "field"),
    sampled(ODD_NUMBERS.values(), ["deadline", "estimate", "born", "seq", "version"]),
)
def test_a_record_with_no_number_in_its_place_is_set_aside(stage, field, value):
    ident = stage.planter.ready(**{field: value})
    stage.healthy()
    wait_until(lambda: state_of(stage, ident) == "malformed", "it to be set aside")
    left_alone(stage, ident)


@pytest.mark.parametrize("value", PAST_INSTANTS.values(), ids=PAST_INSTANTS)
def test_a_record_whose_deadline_is_long_past_expires(stage, value):
    ident = stage.planter.ready(deadline=value)
    stage.healthy()
    wait_until(lambda: state_of(stage, ident) == "expired", "it to expire")
    left_alone(stage, ident)


@pytest.mark.parametrize("field", ["deadline", "born", "seq", "version", "task", "state"])
def test_a_record_without_a_field_that_it_needs_never_runs(stage, field):
    ident = stage.planter.ready(**{field: None})
    stage.healthy()
    wait_until(lambda: ident not in ready_ids(stage), "it to be gone from the ready ones")
    left_alone(stage, ident)


@pytest.mark.parametrize("field", ["key", "fingerprint", "retries", "estimate"])
def test_a_record_without_a_field_that_a_run_can_do_without_runs(stage, field):
    stage.planter.ready(**{field: None})
    stage.healthy()
    wait_until(lambda: stage.scene.book.notes("planted"), "the planted one to run")


@pytest.mark.parametrize(
    ("value", "field"),
    sampled(ODD_NUMBERS.values(), ["retries", "fails", "attempt", "fence", "claim", "crashes"]),
)
def test_odd_counts_in_a_record_count_as_none(stage, field, value):
    ident = stage.planter.ready(**{field: value})
    stage.healthy()
    wait_until(lambda: state_of(stage, ident) == "done", "the planted one to end")


@pytest.mark.parametrize("state", ["", "done", "running", "later", "READY", "no such state", RAW])
def test_a_record_in_ready_that_says_it_is_elsewhere_never_runs(stage, state):
    ident = stage.planter.ready(state=state)
    stage.healthy()
    wait_until(lambda: ident not in ready_ids(stage), "it to be gone from the ready ones")
    assert not stage.scene.book.notes("planted", key="planted-" + str(ident))


@pytest.mark.parametrize("kind", ["string", "list", "set", "zset", "stream"])
def test_a_record_of_another_type_is_set_aside(stage, kind):
    ident = stage.planter.ready()
    put_type(stage, stage.scene.key("job", ident), kind)
    stage.healthy()
    wait_until(lambda: ident not in ready_ids(stage), "it to be gone from the ready ones")
    wait_until(lambda: ident not in due_ids(stage), "it to be gone from those due")
    still(stage)


@pytest.mark.parametrize("kind", ["list", "set", "zset", "stream", "hash"])
def test_arguments_of_another_type_fail_the_job_alone(stage, kind):
    ident = stage.planter.ready()
    put_type(stage, stage.scene.key("data", ident), kind)
    stage.healthy()
    wait_until(lambda: state_of(stage, ident) in ("failed", "malformed"), "it to be done with")
    still(stage)


@pytest.mark.parametrize(
    "payload",
    [
        None,
        b"",
        b"\xc1",
        RAW,
        encode({"args": 1, "kwargs": 2}),
        encode("text"),
        encode(None),
        b"\x82\xa4args\x90\xa6kwargs\x81\x01\x02",  # a keyword that is a number
        b"\x91" * 3000,
        b"\xdd\xff\xff\xff\xff",  # an array that claims four thousand million members
        encode(["planted", "too", "many"]),
        encode([]),
    ],
    ids=brief,
)
def test_arguments_that_cannot_be_read_or_do_not_fit_fail_the_job_alone(stage, payload):
    ident = stage.planter.ready(payload=payload)
    stage.healthy()
    wait_until(lambda: state_of(stage, ident) == "failed", "it to fail")
    still(stage)


@pytest.mark.parametrize(
    "ident",
    [RAW, b"\x00", b"a\nb", b" ", b"{x}", b"%s%n", b"*", "\u202eid".encode(), b"x" * 5000, b"a:b"],
    ids=brief,
)
def test_an_id_that_is_no_digest_harms_nobody(stage, ident):
    stage.planter.ready(ident)
    stage.healthy()
    wait_until(lambda: ident not in raw_ready(stage), "it to be gone from the ready ones")
    still(stage)


@pytest.mark.parametrize(
    "changes",
    [
        {"task": RAW},
        {"task": ""},
        {"task": "echo\nhold"},
        {"task": "no such task"},
        {"task": "\u202eohce"},
        {"key": RAW},
        {"key": "k" * (MAX_KEY_BYTES * 100)},
        {"owner": RAW},
        {"owner": "nobody"},
        {"u:charge": RAW},
        {b"u:" + RAW: b""},
        {"w:": "1"},
        {"w:p": "soon"},
        {"w:x1.2": RAW},
        {b"w:p" + RAW + b".1": "nan"},
        {"w:schannel.1": 9e15},
        {"probe": RAW},
        {"cancel": RAW},
        {"fifo": ""},
        {"foreign": RAW, "": "", "日本": "語"},
    ],
    ids=brief,
)
def test_odd_text_and_foreign_fields_in_a_record_harm_nobody(stage, changes):
    stage.planter.ready(more=changes)
    stage.healthy()
    still(stage)


PRINT = hashlib.blake2b(b"charge", digest_size=8)
PRINT.update(fingerprint("", 5, encode(5)))
SOUND = PRINT.hexdigest()


@pytest.mark.parametrize(
    "unit",
    [
        "",
        RAW,
        "done",
        "done 1 1 1 ",
        f"begun x 1 1 {SOUND} ",
        f"begun 1 1 1 {SOUND} ",
        f"begun 1 {LONG_DIGITS} 1 {SOUND} ",
        f"begun 1 1 {LONG_DIGITS} {SOUND} ",
        f"begun {LONG_DIGITS} 1 1 {SOUND} ",
        f"raised 1 1 1 {SOUND} ",
        f"no-such-word 1 1 1 {SOUND} ",
        f"nosuchword 1 1 1 {SOUND} ",
        f"done 1 1 1 {SOUND} ",
        f"done 1 1 1 {SOUND} \xc1",
        f"begun 1 1000000000000000 1 {SOUND} ",
        "begun 1 1 1 abc ",
    ],
    ids=brief,
)
def test_garbage_in_a_units_record_costs_that_job_alone(stage, unit):
    """It runs, fails, or waits for the other attempt that the garbage speaks of; in peace."""
    scene = stage.scene
    deadline = scene.now_ms() + 900
    ident = stage.planter.ready(
        task="charge", payload=encode([5]), deadline=deadline, more={"u:charge": unit}
    )
    with counting(scene.client) as found:
        stage.healthy()
        wait_until(
            lambda: state_of(stage, ident) in ("done", "failed", "exceeded", "malformed"),
            "it to end",
        )
    assert script_calls(found) < 400  # this test's own looks among them
    still(stage)


@pytest.mark.parametrize(
    "fields",
    [
        {"data": RAW, "data2": RAW, "data3": RAW},
        {"data": ""},
        {"data": "", "data2": encode(["planted"])},
        {"data2": encode(["planted"])},
        {"data": encode(["planted"]), "data2": b"\xc0"},
        {"data": b"x" * 1_000_000},
    ],
    ids=brief,
)
def test_odd_arguments_inside_a_record_fail_that_job_alone_or_are_passed_over(stage, fields):
    ident = stage.planter.ready(more=fields)
    stage.healthy()
    wait_until(lambda: state_of(stage, ident) in ("failed", "done"), "it to end")
    still(stage)


def test_a_record_of_a_newer_release_waits_and_expires_on_time(stage):
    """No living worker knows its version: it waits aside, whatever else it holds."""
    deadline = stage.scene.now_ms() + 700
    idents = [
        stage.planter.ready(version=2, deadline=deadline, novelty="yes"),
        stage.planter.ready(version=10**9, deadline=deadline),
        stage.planter.ready(version=1.5, deadline=deadline),
    ]
    stage.healthy()
    assert [state_of(stage, i) for i in idents] == ["strange"] * 3
    wait_until(
        lambda: [state_of(stage, i) for i in idents] == ["expired"] * 3,
        "them to expire",
        within_s=4.0,
    )
    assert stage.scene.now_ms() >= deadline
    still(stage)


# Members without records, and members that are none.


@pytest.mark.parametrize(
    ("score", "kind"),
    sampled(
        [-math.inf, -1, 0, 0.5, 1e300, math.inf, 1],
        ["due", "ready", "later", "delayed", "strange", "probes", "parked", "dead"],
    ),
)
def test_members_without_a_record_are_skipped(stage, kind, score):
    members = [b"0000000001:" + b"a" * 32, b"a" * 32, RAW, b"", b":", b"0000000001:", b"zz:x"]
    stage.scene.client.zadd(stage.scene.key(kind), dict.fromkeys(members, score))
    try:
        stage.healthy()
        still(stage)
    finally:
        stage.scene.client.zrem(stage.scene.key(kind), *members)


def test_a_member_without_a_record_holds_a_place_until_its_time_at_most(scene):
    made = scene(declare, capacity=2)
    deadline = made.now_ms() + 500
    made.client.zadd(made.key("due"), {"a" * 32: deadline, "b" * 32: deadline})
    wait_until(lambda: made.now_ms() > deadline, "their time to pass")
    held = [made.tasks.echo.enqueue(i) for i in range(2)]
    assert made.queue.stats().live == 2
    assert made.client.zscore(made.key("due"), "a" * 32) is None
    assert [handle.state() for handle in held] == [State.READY] * 2


def test_a_stray_member_does_not_harm_the_job_that_it_names(stage):
    """The job's own record says where it stands; a second member beside it is what goes."""
    handle = stage.scene.tasks.hold.enqueue("x")
    wait_until(lambda: handle.state() == State.RUNNING, "it to run")
    stray = "ffffffffff:" + handle.id
    stage.scene.client.zadd(stage.scene.key("ready"), {stray: 1, handle.id: 2})
    stage.healthy()
    wait_until(lambda: not raw_ready(stage), "the stray members to be gone")
    assert handle.state() == State.RUNNING
    assert handle.cancel() is False
    wait_until(lambda: handle.state() == State.CANCELLED, "it to stop")
    still(stage)


@pytest.mark.parametrize(
    ("score", "record"),
    sampled([-math.inf, 0, 1e300, math.inf], ["none", "garbage", "of another type"]),
)
def test_a_worker_that_is_none_is_swept_or_let_be(stage, record, score):
    client, scene = stage.scene.client, stage.scene
    child = "planted-child"
    if record == "garbage":
        client.hset(scene.key("worker", child), mapping={"slots": "many", "tasks": RAW, "x": ""})
    elif record == "of another type":
        client.set(scene.key("worker", child), "x")
    client.sadd(scene.key("run", child), "a" * 32, RAW)
    client.zadd(scene.key("workers"), {child: score})
    try:
        stage.healthy()
        still(stage)
    finally:
        client.zrem(scene.key("workers"), child)
        client.delete(scene.key("worker", child), scene.key("run", child))


@pytest.mark.parametrize("kind", ["string", "list", "hash"])
def test_jobs_of_a_dead_worker_kept_in_another_type_do_not_stop_the_sweep(stage, kind):
    client, scene = stage.scene.client, stage.scene
    put_type(stage, scene.key("run", "planted-child"), kind)
    client.zadd(scene.key("workers"), {"planted-child": 1})
    try:
        stage.healthy()
        wait_until(
            lambda: client.zscore(scene.key("workers"), "planted-child") is None, "the sweep"
        )
        still(stage)
    finally:
        client.zrem(scene.key("workers"), "planted-child")
        client.delete(scene.key("run", "planted-child"))


# Garbage in the standing keys.

GARBAGE = [
    ("stats", {"admitted": "many"}),
    ("stats", {"offered": RAW}),
    ("stats", {"started": "1e999", "finished:done": "", "duplicate": "-"}),
    ("stats", {"admitted": "1.5"}),
    ("stats", {"admitted": str(2**63 - 1)}),
    ("stats", {"foreign": "x", RAW: RAW}),
    ("fleet", {"slots": "many", "lapse": "soon", "known": RAW}),
    ("fleet", {"slots": "-5", "lapse": "-1", "known": "\n\n1\n x\n9 "}),
    ("fleet", {"slots": "1e999", "lapse": "nan"}),
    ("fleet", {"slots": "0.5", "lapse": "1e15", "known": "99999999999999999999 echo"}),
    ("service", {"s:echo": "x y 5", "h:echo": RAW, "all": "x"}),
    ("service", {"s:echo": "nan nan nan", "h:echo": "1:nan 2:inf", "all": "nan nan nan nan"}),
    ("service", {"s:echo": "1 1 1e999", "h:echo": "99999999999:1", "all": "x 1 1 5"}),
    ("service", {"s:echo": "-5 -5 0", "h:echo": "5:-1", "all": "1 -5 1 0"}),
    ("service", {"s:echo": "1e14 1e14 0", "h:echo": "-1:5", "all": "0 0 0 0"}),
    ("service", {"s:echo": "1 1 9e15", "all": "5 x 1 5"}),
    ("service", {"s:echo": "", "h:echo": "", "all": ""}),
    ("service", {"foreign": RAW}),
]


@pytest.mark.parametrize(("note", "admission"), sampled(GARBAGE, ["cap", "feasible"]))
def test_garbage_in_the_queues_own_notes_stops_nobody(stage, note, admission):
    scene, (kind, fields) = stage.scene, note
    key = scene.key(kind)
    kept = scene.client.dump(key)
    producer = stage.producers[admission]
    try:
        scene.client.hset(key, mapping=fields)
        held = [producer.tasks["echo"].options(within=HEALTHY_S).enqueue(i) for i in range(20)]
        assert [handle.result() for handle in held] == list(range(20))
        with pytest.raises(JobFailed, match="LookupError: one"):
            producer.tasks["fail"].enqueue("one").result()
        assert producer.stats().live == 0
        still(stage)
    finally:
        scene.client.delete(key)
        if kept:
            scene.client.restore(key, 0, kept)


@pytest.mark.parametrize(
    "fence", ["x", "", "-5", "1e999", "nan", "1.5", LONG_DIGITS, RAW, "0"], ids=brief
)
def test_a_garbage_fence_starts_over_from_the_servers_time(stage, fence):
    stage.scene.client.set(stage.scene.key("fence"), fence)
    stage.healthy()
    assert int(stage.scene.client.get(stage.scene.key("fence"))) > 10**15
    still(stage)


STANDING = ["due", "ready", "later", "delayed", "strange", "probes", "workers", "parked", "wake"]
STANDING += ["fleet", "stats", "service", "fence", "dead"]


@pytest.mark.parametrize("kind", STANDING)
def test_a_standing_key_of_another_type_is_a_typed_error_until_it_is_taken_away(stage, kind):
    """The queue cannot work without it. Producers are told so; the worker waits, in peace."""
    scene = stage.scene
    key = scene.key(kind)
    moved = scene.client.exists(key) and scene.client.rename(key, "kept")
    other = "list" if kind == "fence" else "string"
    put_type(stage, key, other)
    try:
        with counting(scene.client) as found:
            for _ in range(3):
                with contextlib.suppress(DeadqError, TimeoutError):
                    scene.tasks.echo.options(within=0.3).enqueue("x").result()
        assert script_calls(found) < 150
        assert stage.process.alive, stage.process.errors
    finally:
        scene.client.delete(key)
        if moved:
            scene.client.rename("kept", key)
    stage.healthy(within=6.0)
    assert stage.process.alive, stage.process.errors


# Messages to a worker.


MESSAGES = [
    b"",
    RAW,
    b"cancel",
    b"cancel ",
    b"cancel  ",
    b"cancel a",
    b"cancel a b",
    b"cancel a -1",
    b"cancel a 1.5",
    "cancel a ²".encode(),
    "cancel a ٣".encode(),
    b"cancel a " + LONG_DIGITS.encode(),
    b"cancel " + RAW + b" 1",
    b"cancel a b c d e",
    b"\x00",
    b"stop",
    b"x" * 1_000_000,
]


@pytest.mark.parametrize(("message", "where"), sampled(MESSAGES, ["ctl", "wake"]))
def test_a_garbage_message_to_a_worker_is_passed_over(stage, where, message):
    scene = stage.scene
    (child,) = scene.client.zrange(scene.key("workers"), 0, -1)
    key = scene.key("ctl", child.decode()) if where == "ctl" else scene.key("wake")
    scene.client.rpush(key, message, message)
    stage.healthy()
    wait_until(lambda: not scene.client.exists(key), "the messages to be read")
    still(stage)


def test_a_message_that_names_another_fence_cancels_nothing(stage):
    scene = stage.scene
    handle = scene.tasks.hold.enqueue("x")
    wait_until(lambda: handle.state() == State.RUNNING, "it to run")
    (child,) = scene.client.zrange(scene.key("workers"), 0, -1)
    scene.client.rpush(scene.key("ctl", child.decode()), f"cancel {handle.id} 1", "cancel x 1")
    stage.healthy()
    assert handle.state() == State.RUNNING
    handle.cancel()
    with pytest.raises(Cancelled):
        handle.result()


# Garbage towards producers.


@pytest.mark.parametrize("message", [b"", RAW, b"\x00", b"x" * 100_000], ids=brief)
def test_a_garbage_notice_leaves_nobody_waiting(stage, message):
    """Each of these waits would hang to its deadline if the listener died of the notice."""
    scene = stage.scene

    async def waits():
        queue = Queue("case", capacity=1000, admission="cap", url=stage.server.url)
        declare(queue, scene.book)
        try:
            first = await queue.tasks["echo"].acall("one")
            await queue.backend.aio()
            publish(scene, queue.producer.backend.channel, message)
            second = await asyncio.wait_for(queue.tasks["echo"].acall("two"), 3.0)
        finally:
            await queue.aclose()
        return first, second

    assert asyncio.run(waits()) == ("one", "two")
    assert scene.tasks.echo.call("three") == "three"
    publish(scene, scene.queue.producer.backend.channel, message)
    assert scene.tasks.echo.options(within=3.0).call("four") == "four"


def publish(scene, channel, message):
    whole = keys.reply_channel(scene.queue.name, channel)
    assert scene.client.execute_command("SPUBLISH", whole, message) >= 0


PLANTED_RESULTS = [b"", RAW, b"\xc1", encode([1]), encode("x"), encode(None)]


@pytest.mark.parametrize("state", ["failed", "exhausted"])
@pytest.mark.parametrize("blob", PLANTED_RESULTS, ids=brief)
def test_an_error_that_cannot_be_read_is_a_typed_error_to_its_waiter(stage, state, blob):
    handle = stage.scene.tasks.echo.options(key="odd-result", within=5.0).enqueue("x")
    handle.result()
    stage.scene.client.hset(
        stage.scene.key("job", handle.id), mapping={"state": state, "result": blob}
    )
    with pytest.raises(DeadqError) as caught:
        handle.result()
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("blob", [b"", RAW, b"\xc1", b"\xc7\x01\x7fx"], ids=brief)
def test_a_result_that_cannot_be_read_is_a_typed_error_to_its_waiter(stage, blob):
    handle = stage.scene.tasks.echo.options(key="odd-result", within=5.0).enqueue("x")
    handle.result()
    stage.scene.client.hset(stage.scene.key("job", handle.id), "result", blob)
    with pytest.raises(DeadqError) as caught:
        handle.result()
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    "plant",
    [
        {"state": "no such state"},
        {"state": RAW},
        {"deadline": "soon"},
        {"deadline": RAW, "attempt": RAW},
        {"attempt": LONG_DIGITS},
        {"state": "running", "owner": "nobody"},
        {"state": "later"},
        {"state": "strange", "deadline": "nan"},
    ],
    ids=brief,
)
@pytest.mark.parametrize("scored", [False, True])
def test_a_planted_record_under_a_callers_key_gives_a_state_and_a_typed_end(stage, plant, scored):
    """The caller waits for a job that nobody will ever run: to the deadline and no longer."""
    scene = stage.scene
    ident = job_id("mine")
    handle = scene.tasks.echo.options(key="mine", within=0.4).enqueue("x")
    handle.result()
    scene.client.hset(scene.key("job", ident), mapping=plant)
    if scored:
        scene.client.zadd(scene.key("due"), {ident: scene.now_ms() + 300})
    assert isinstance(handle.state(), State)
    with contextlib.suppress(DeadqError):
        assert handle.result() == "x"
    stage.healthy()


@pytest.mark.parametrize("kind", ["string", "list", "zset"])
def test_a_record_of_another_type_under_a_callers_key_is_replaced(stage, kind):
    scene = stage.scene
    put_type(stage, scene.key("job", job_id("mine")), kind)
    assert scene.tasks.echo.options(key="mine").call("x") == "x"
    still(stage)


@pytest.mark.parametrize(
    "fields",
    [
        {"state": "ready"},
        {"state": RAW, "fingerprint": "x"},
        {"state": "ready", "fingerprint": "x", "deadline": "soon"},
        {"x": "y"},
        {"fingerprint": "theirs"},
    ],
    ids=brief,
)
def test_half_a_record_under_a_callers_key_is_replaced(stage, fields):
    scene = stage.scene
    scene.client.hset(scene.key("job", job_id("mine")), mapping=fields)
    assert scene.tasks.echo.options(key="mine").call("x") == "x"
    still(stage)


def test_a_running_record_that_nobody_owns_is_no_trap_for_later_callers(stage):
    """A lost owner: the caller's own deadline bounds the wait, and the key is free afterwards."""
    scene = stage.scene
    now, print_ = scene.now_ms(), fingerprint("echo", ["x"], encode(["x"]))
    ident = stage.planter.ready(
        job_id("mine"), state="running", owner="nobody", fingerprint=print_, deadline=now + 300
    )
    scene.client.zadd(scene.key("due"), {ident: now + 300})
    scene.client.delete(scene.key("ready"))
    with pytest.raises(DeadlineExceeded):
        scene.tasks.echo.options(key="mine", within=0.2).call("x")
    wait_until(lambda: scene.now_ms() > now + 350, "its deadline to pass")
    with contextlib.suppress(DeadlineExceeded):
        assert scene.tasks.echo.options(key="mine", within=1.0).call("x") == "x"
    still(stage)


# Before the worker comes.


def test_a_worker_starts_on_a_queue_full_of_garbage(valkey, tmp_path):
    with Scene(valkey.url, tmp_path, declare) as scene:
        planter = Planter(scene)
        for value in ODD_NUMBERS.values():
            planter.ready(deadline=value)
            planter.ready(version=value)
        for kind in ("due", "later", "strange", "parked", "probes", "workers"):
            scene.client.zadd(scene.key(kind), {RAW: 5, "a" * 32: 1e15, "": 7})
        for kind, fields in GARBAGE:
            if kind != "stats":
                scene.client.hset(scene.key(kind), mapping=fields)
        planter.put("worker", "a" * 32, {"slots": RAW, "tasks": RAW, "version": "x"})
        worker = scene.worker()
        assert scene.tasks.echo.options(within=HEALTHY_S).call("x") == "x"
        assert worker.alive
        assert "Traceback" not in worker.errors, worker.errors
        assert worker.stop() == 0


@pytest.mark.parametrize("other", ["redis62", "redis7"])
def test_other_servers_set_aside_the_same(other, tmp_path):
    if other not in binaries():
        pytest.skip(f"this machine has no {other}")
    with Server(binaries()[other]) as server, Scene(server.url, tmp_path, declare) as scene:
        worker = scene.worker()
        planter = Planter(scene)
        odd = [planter.ready(deadline=v) for v in ODD_NUMBERS.values()]
        put = planter.ready()
        scene.client.delete(scene.key("job", put))
        scene.client.set(scene.key("job", put), "x")
        # a server without sharded channels, and a waiter that asked for one
        told = planter.ready(more={"w:schannel.1": 10**13})
        assert scene.tasks.echo.options(within=HEALTHY_S).call("x") == "x"
        for ident in odd:
            wait_until(
                lambda ident=ident: (
                    scene.client.hget(scene.key("job", ident), "state") == b"malformed"
                ),
                "it to be set aside",
            )
        wait_until(
            lambda: scene.client.hget(scene.key("job", told), "state") == b"done", "it to be done"
        )
        assert scene.tasks.echo.options(within=HEALTHY_S).call("y") == "y"
        assert worker.alive
        assert "Traceback" not in worker.errors, worker.errors


# Looks.


def state_of(stage, ident):
    found = stage.scene.client.hget(stage.scene.key("job", ident), "state")
    return None if found is None else found.decode()


def raw_ready(stage):
    return [
        m.split(b":", 1)[-1] for m in stage.scene.client.zrange(stage.scene.key("ready"), 0, -1)
    ]


def ready_ids(stage):
    return [ident.decode() for ident in raw_ready(stage)]


def due_ids(stage):
    return [i.decode() for i in stage.scene.client.zrange(stage.scene.key("due"), 0, -1)]


def left_alone(stage, ident):
    """Out of the queue, with an expiry; its body never began; the worker rests."""
    assert ident not in ready_ids(stage)
    wait_until(lambda: ident not in due_ids(stage), "it to be gone from those due")
    assert stage.scene.client.ttl(stage.scene.key("job", ident)) > 0
    still(stage)


def still(stage):
    """The worker lives and has said nothing alarming; a job submitted now runs."""
    stage.healthy()
    assert stage.process.alive, stage.process.errors
    assert "Traceback" not in stage.process.errors, stage.process.errors


def put_type(stage, key, kind):
    client = stage.scene.client
    client.delete(key)
    match kind:
        case "string":
            client.set(key, "x")
        case "list":
            client.rpush(key, "x")
        case "set":
            client.sadd(key, "x")
        case "zset":
            client.zadd(key, {"x": 1})
        case "hash":
            client.hset(key, "x", "y")
        case "stream":
            client.xadd(key, {"x": "y"})
