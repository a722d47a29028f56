"""Every script of the queue in the situations that matter, for tests of faults around one call.

A :class:`Stage` is one queue whose clock stands still unless moved. A scene prepares it and
returns the call that a fault is then injected into. ``SCENES`` names the scenes of every script
that changes or reads the queue; a test compares it with the scripts there are.
"""

import hashlib
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import redis

from deadq.clock import ServerClock
from deadq.job import Claim, Departure, Settlement, State, Submission, job_id
from deadq.reports import JobReport
from deadq.store import keys, scripts
from deadq.store.aio import AsyncStore
from deadq.store.sync import SyncStore
from deadq.store.wire import Wire
from deadq.twins import Twin

NOW_MS = 1_800_000_000_000
RETENTION_MS = 600_000
LEASE_MS = 1_000
"""Shorter than the jobs have time: what a dead child held is run again."""
CAPACITY = 5
TASKS = ("echo", "nap")
ALL_TASKS = (*TASKS, "ghost")
CHANNEL = "stage"


class Stage:
    """One queue, called script by script. ``store`` sets it up; faults get shells of their own."""

    def __init__(self, client: redis.Redis, name: str, capacity: int = CAPACITY) -> None:
        self.name = name
        self.now_ms = NOW_MS
        self.client = client
        self.rules = scripts.Rules(capacity, "deadline", "feasible", RETENTION_MS)
        self.wire = Wire(name, ServerClock(), lambda: str(self.now_ms))
        self.store = SyncStore(client, self.wire)
        self._tokens = 0

    def sync(self, client: redis.Redis) -> SyncStore:
        return SyncStore(client, self.wire)

    def aio(self, client: Any) -> AsyncStore:
        return AsyncStore(client, self.wire)

    def run(self, call: scripts.Call[Any]) -> Any:
        return self.store.run(call)

    def key(self, kind: str, ident: str | None = None) -> str:
        return keys.key(self.name, kind, ident)

    # --- building calls

    def submission(
        self,
        key: str,
        *,
        within_ms: int = 5_000,
        task: str = "echo",
        payload: bytes = b"\x91\x01",
        later_ms: int = 0,
        rank: int = 1,
        retries: int = 2,
        token: str | None = None,
    ) -> Submission:
        self._tokens += 1
        return Submission(
            job_id(key),
            key,
            hashlib.sha256(task.encode() + payload).digest()[:16],
            task,
            self.now_ms + within_ms,
            self.now_ms + later_ms if later_ms else 0,
            rank,
            retries,
            token or f"w:p{CHANNEL}.{self._tokens:x}",
            payload,
        )

    def admit(self, *submissions: Submission) -> scripts.Call[Any]:
        return scripts.admit(self.rules, submissions)

    def register(self, child: str, *, slots: int = 4, tasks: Iterable[str] = TASKS) -> Any:
        return scripts.register(
            child,
            lease_ms=LEASE_MS,
            slots=slots,
            who="host:1",
            retention_ms=RETENTION_MS,
            tasks=tasks,
        )

    def claim(
        self, child: str, number: int, want: int = 4, *, tasks: Iterable[str] = TASKS
    ) -> scripts.Call[Any]:
        return scripts.claim(child, number, want, retention_ms=RETENTION_MS, park=True, tasks=tasks)

    def finish(self, child: str, *settlements: Settlement) -> scripts.Call[Any]:
        return scripts.finish(child, settlements, retention_ms=RETENTION_MS)

    def exchange(
        self, claim: scripts.Call[scripts.Claimed], *settlements: Settlement
    ) -> scripts.Call[Any]:
        return scripts.exchange(settlements, claim)

    def renew(self, *renewals: scripts.Renewal) -> scripts.Call[Any]:
        return scripts.renew(renewals, lease_ms=LEASE_MS, retention_ms=RETENTION_MS)

    def release(self, child: str, how: Departure = Departure.LEAVES) -> scripts.Call[Any]:
        return scripts.release(child, retention_ms=RETENTION_MS, how=how)

    def replay(self, key: str) -> scripts.Call[Any]:
        self._tokens += 1
        token = f"w:p{CHANNEL}.{self._tokens:x}"
        made = Submission(job_id(key), "", b"", "", self.now_ms + 5_000, 0, 1, 0, token, b"")
        return self.admit(made)

    def begin(
        self, key: str, fence: int, *, child: str = "c1", args: str = "ab12", needs_ms: int = 200
    ) -> scripts.Call[Any]:
        return scripts.begin(
            child,
            job_id(key),
            fence,
            "charge",
            args,
            needs_ms=needs_ms,
            limit_ms=1_000,
            on_doubt="rerun",
            retention_ms=RETENTION_MS,
        )

    def record(self, key: str, fence: int, end: str = "done") -> scripts.Call[Any]:
        return scripts.record(job_id(key), fence, "charge", end, 3_000, b"\xa2ok")

    def cancel(self, key: str) -> scripts.Call[Any]:
        return scripts.cancel(job_id(key), retention_ms=RETENTION_MS)

    def leave(self, *submissions: Submission) -> scripts.Call[Any]:
        return scripts.leave([(s.id, s.token) for s in submissions], retention_ms=RETENTION_MS)

    # --- getting somewhere

    def submitted(self, key: str, **options: Any) -> Submission:
        """A job that has been submitted and accepted."""
        submission = self.submission(key, **options)
        (answer,) = self.run(self.admit(submission))
        assert answer.verdict in ("admitted", "duplicate"), answer
        return submission

    def running(self, *submitted: str, child: str = "c1", number: int = 1) -> dict[str, int]:
        """Jobs in the hands of a child; the fence of each key."""
        self.run(self.register(child))
        for key in submitted:
            self.submitted(key)
        claims = self.run(self.claim(child, number, len(submitted))).claims
        assert sorted(c.key for c in claims) == sorted(submitted)
        return {c.key: c.fence for c in claims}


def settled(
    key: str,
    fence: int,
    outcome: str = "done",
    *,
    blob: bytes = b"\xc0",
    delay_ms: int = 0,
    cut: bool = False,
) -> Settlement:
    """What a worker reports of a job that took 20 ms."""
    return Settlement(job_id(key), fence, outcome, 20_000, cut, delay_ms, blob)


Scene = Callable[[Stage], scripts.Call[Any]]
SCENES: dict[str, Scene] = {}
"""By "script: situation"."""


def scene(title: str) -> Callable[[Scene], Scene]:
    def add(fn: Scene) -> Scene:
        SCENES[title] = fn
        return fn

    return add


def script_of(title: str) -> str:
    return title.partition(":")[0]


# --- admit


@scene("admit: one job, fresh")
def _(stage):
    return stage.admit(stage.submission("a"))


@scene("admit: the last free place")
def _(stage):
    for n in range(CAPACITY - 1):
        stage.submitted(f"k{n}")
    return stage.admit(stage.submission("a"))


@scene("admit: a batch of every verdict")
def _(stage):
    stage.submitted("twice")
    return stage.admit(
        stage.submission("a"),
        stage.submission("twice", within_ms=9_000),
        stage.submission("twice", payload=b"\x91\x02"),
        stage.submission("dead", within_ms=-1),
        stage.submission("put off", later_ms=1_000),
        *(stage.submission(f"k{n}") for n in range(CAPACITY)),
    )


@scene("admit: the same key and a later deadline, waiting")
def _(stage):
    stage.submitted("a")
    return stage.admit(stage.submission("a", within_ms=8_000))


@scene("admit: the same key, running")
def _(stage):
    stage.running("a")
    return stage.admit(stage.submission("a", within_ms=8_000))


@scene("admit: the same key, running and cancelled")
def _(stage):
    stage.running("a")
    stage.run(stage.cancel("a"))
    return stage.admit(stage.submission("a", within_ms=8_000))


@scene("admit: the same key, running and past its deadline")
def _(stage):
    stage.running("a")
    stage.now_ms += 6_000
    return stage.admit(stage.submission("a"))


@scene("admit: the same key, done")
def _(stage):
    fences = stage.running("a")
    stage.run(stage.finish("c1", settled("a", fences["a"])))
    return stage.admit(stage.submission("a"))


@scene("admit: the same key, cancelled before")
def _(stage):
    stage.submitted("a")
    stage.run(stage.cancel("a"))
    return stage.admit(stage.submission("a"))


@scene("admit: the same key, expired and not yet swept")
def _(stage):
    for n in range(CAPACITY):
        stage.submitted(f"k{n}", within_ms=100)
    stage.now_ms += 101
    return stage.admit(stage.submission("k0"))


@scene("admit: full")
def _(stage):
    for n in range(CAPACITY):
        stage.submitted(f"k{n}")
    return stage.admit(stage.submission("a"))


def _measured(stage: Stage, took_ms: int) -> None:
    """One run of a job that took so long."""
    fences = stage.running("slow")
    stage.now_ms += took_ms
    report = settled("slow", fences["slow"])._replace(held_us=took_ms * 1000)
    stage.run(stage.finish("c1", report))


@scene("admit: a probe against the estimate")
def _(stage):
    _measured(stage, 900)
    stage.now_ms += 850  # nothing has confirmed it for as long as the job may take
    return stage.admit(stage.submission("a", within_ms=400))


@scene("admit: unmeetable")
def _(stage):
    _measured(stage, 900)
    return stage.admit(stage.submission("a", within_ms=400))


@scene("admit: a worker waits for it")
def _(stage):
    stage.running()
    return stage.admit(stage.submission("a"), stage.submission("b"))


# --- register, release, renew


@scene("register: a first child")
def _(stage):
    return stage.register("c1")


@scene("register: one that knows a strange job")
def _(stage):
    stage.run(stage.register("c1"))
    stage.submitted("a", task="ghost")
    stage.run(stage.claim("c1", 1))
    return stage.register("c2", tasks=("ghost",))


@scene("register: after another's lease has lapsed")
def _(stage):
    stage.running("a")
    stage.submitted("b", within_ms=60_000)
    stage.now_ms += LEASE_MS + 1
    return stage.register("c2")


@scene("release: a child that holds jobs")
def _(stage):
    stage.running("a", "b", child="c1")
    stage.running(child="c2")
    return stage.release("c1")


@scene("release: a child that has died")
def _(stage):
    stage.running("a", "b", child="c1")
    stage.running(child="c2")
    return stage.release("c1", Departure.DIED)


@scene("release: a child that was killed in a unit")
def _(stage):
    fences = stage.running("a")
    stage.run(stage.begin("a", fences["a"]))
    return stage.release("c1", Departure.KILLED)


@scene("release: the third that one job kills")
def _(stage):
    stage.running("a")
    for child in ("c1", "c2"):
        stage.run(stage.release(child, Departure.DIED))
        stage.run(stage.register(f"c{int(child[1]) + 1}", slots=1))
        stage.run(stage.claim(f"c{int(child[1]) + 1}", 1, 1))
    return stage.release("c3", Departure.DIED)


@scene("claim: a suspect")
def _(stage):
    stage.running("a")
    stage.run(stage.release("c1", Departure.DIED))
    stage.submitted("b")
    stage.run(stage.register("c2", slots=1))
    return stage.claim("c2", 1, 1)


def _failed(stage: Stage) -> None:
    fences = stage.running("a")
    stage.run(stage.finish("c1", settled("a", fences["a"], "failed")))


@scene("dead: one that has failed")
def _(stage):
    _failed(stage)
    return scripts.dead(10)


@scene("admit: a replay")
def _(stage):
    _failed(stage)
    return stage.replay("a")


@scene("admit: a second replay")
def _(stage):
    _failed(stage)
    stage.run(stage.replay("a"))
    return stage.replay("a")


@scene("release: an idle child")
def _(stage):
    stage.running()
    return stage.release("c1")


def renewal(stage: Stage, child: str, number: int, held: dict[str, int]) -> scripts.Call[Any]:
    return stage.renew(scripts.Renewal(child, number, {job_id(k): f for k, f in held.items()}))


@scene("renew: a child with jobs")
def _(stage):
    fences = stage.running("a", "b")
    stage.now_ms += 300
    return renewal(stage, "c1", 1, fences)


@scene("renew: a job whose claim got lost")
def _(stage):
    fences = stage.running("a", "b")
    stage.running(child="c2")
    del fences["b"]
    return renewal(stage, "c1", 1, fences)


@scene("renew: a cancelled job and one that is somebody else's")
def _(stage):
    fences = stage.running("a", "b")
    stage.run(stage.cancel("a"))
    fences["b"] -= 1
    return renewal(stage, "c1", 1, fences)


@scene("renew: after another's lease has lapsed")
def _(stage):
    stage.run(stage.register("c1"))
    stage.submitted("a", within_ms=60_000)
    stage.run(stage.claim("c1", 1))
    stage.now_ms += LEASE_MS // 2
    stage.running(child="c2")
    stage.now_ms += LEASE_MS // 2 + 1
    return renewal(stage, "c2", 0, {})


@scene("renew: expired ones to sweep, put-off ones to bring forward")
def _(stage):
    stage.running(child="c1", number=1)
    stage.submitted("dead", within_ms=200)
    stage.submitted("due", later_ms=300)
    stage.now_ms += 400
    return renewal(stage, "c1", 0, {})


# --- claim


@scene("claim: some jobs")
def _(stage):
    stage.run(stage.register("c1"))
    for n in range(4):
        stage.submitted(f"k{n}", within_ms=3_000 + n)
    return stage.claim("c1", 1, 3)


@scene("claim: fewer than wanted, one put off")
def _(stage):
    stage.run(stage.register("c1"))
    stage.submitted("a")
    stage.submitted("b", later_ms=700)
    return stage.claim("c1", 1, 3)


@scene("claim: nothing there")
def _(stage):
    stage.run(stage.register("c1"))
    return stage.claim("c1", 1)


@scene("claim: behind expired and strange ones")
def _(stage):
    stage.run(stage.register("c1"))
    stage.submitted("dead", within_ms=50)
    stage.submitted("odd", task="ghost", within_ms=3_000)
    stage.submitted("a")
    stage.now_ms += 51
    return stage.claim("c1", 1)


@scene("claim: what a lapsed child held")
def _(stage):
    stage.run(stage.register("c1"))
    stage.submitted("a", within_ms=60_000)
    stage.run(stage.claim("c1", 1))
    stage.now_ms += LEASE_MS + 1
    stage.run(stage.register("c2"))
    return stage.claim("c2", 1)


@scene("claim: unknown child")
def _(stage):
    stage.submitted("a")
    return stage.claim("c1", 1)


@scene("claim: a second one")
def _(stage):
    stage.running("a")
    stage.submitted("b")
    return stage.claim("c1", 2)


# --- finish


def _finishing(title: str, outcome: str, **options: Any) -> None:
    @scene(f"finish: {title}")
    def _(stage):
        fences = stage.running("a")
        stage.now_ms += 20
        return stage.finish("c1", settled("a", fences["a"], outcome, **options))


_finishing("done", "done")
_finishing("done, a large result", "done", blob=b"\xda\x01\x00" + b"x" * 256)
_finishing("failed", "failed", blob=b"\x93\xa1E\xa1m\xa0")
_finishing("a retry at once", "retry", blob=b"\x93\xa1E\xa1m\xa0")
_finishing("a retry after a while", "retry", delay_ms=300, blob=b"\x93\xa1E\xa1m\xa0")
_finishing("a retry past the deadline", "retry", delay_ms=30_000, blob=b"\x93\xa1E\xa1m\xa0")
_finishing("given back", "release")
_finishing("cancelled", "cancelled")


@scene("finish: several, one of them stale")
def _(stage):
    fences = stage.running("a", "b", "c")
    return stage.finish(
        "c1",
        settled("a", fences["a"]),
        settled("b", fences["b"] - 1),
        settled("c", fences["c"], "failed", blob=b"\x93\xa1E\xa1m\xa0"),
    )


@scene("exchange: one done, the next claimed")
def _(stage):
    fences = stage.running("a")
    stage.submitted("b")
    return stage.exchange(stage.claim("c1", 2, 1), settled("a", fences["a"]))


@scene("exchange: two done, nothing left")
def _(stage):
    fences = stage.running("a", "b")
    both = (settled(name, fences[name]) for name in "ab")
    return stage.exchange(stage.claim("c1", 2, 2), *both)


@scene("finish: out of retries")
def _(stage):
    stage.run(stage.register("c1"))
    stage.submitted("a", retries=0)
    (claim,) = stage.run(stage.claim("c1", 1)).claims
    return stage.finish("c1", settled("a", claim.fence, "retry", blob=b"\x93\xa1E\xa1m\xa0"))


@scene("finish: late")
def _(stage):
    fences = stage.running("a")
    stage.now_ms += 5_001
    return stage.finish("c1", settled("a", fences["a"]))


@scene("finish: cut, a later caller attached")
def _(stage):
    fences = stage.running("a")
    stage.submitted("a", within_ms=8_000)
    stage.now_ms += 5_001
    return stage.finish("c1", settled("a", fences["a"], "cut", cut=True))


@scene("finish: expired before its start")
def _(stage):
    fences = stage.running("a")
    stage.now_ms += 5_001
    return stage.finish("c1", settled("a", fences["a"], "unrun"))


@scene("finish: cancelled, and asked for anew")
def _(stage):
    fences = stage.running("a")
    stage.run(stage.cancel("a"))
    stage.submitted("a", within_ms=8_000)
    return stage.finish("c1", settled("a", fences["a"], "cancelled", cut=True))


# --- begin, record: the units of a job


@scene("begin: a unit")
def _(stage):
    fences = stage.running("a")
    return stage.begin("a", fences["a"])


@scene("begin: a unit that an earlier attempt has finished")
def _(stage):
    fences = stage.running("a")
    stage.run(stage.begin("a", fences["a"]))
    stage.run(stage.record("a", fences["a"]))
    stage.run(stage.finish("c1", settled("a", fences["a"], "release")))
    (claim,) = stage.run(stage.claim("c1", 2)).claims
    return stage.begin("a", claim.fence)


@scene("begin: a unit that a dead child has left open")
def _(stage):
    fences = stage.running("a")
    stage.run(stage.begin("a", fences["a"]))
    stage.now_ms += 200
    stage.run(stage.release("c1"))
    stage.run(stage.register("c2"))
    (claim,) = stage.run(stage.claim("c2", 1)).claims
    return stage.begin("a", claim.fence, child="c2")


@scene("begin: a unit with other arguments")
def _(stage):
    fences = stage.running("a")
    stage.run(stage.begin("a", fences["a"]))
    return stage.begin("a", fences["a"], args="cd34")


@scene("begin: too late for a unit")
def _(stage):
    fences = stage.running("a")
    return stage.begin("a", fences["a"], needs_ms=6_000)


@scene("begin: a job that is cancelled")
def _(stage):
    fences = stage.running("a")
    stage.run(stage.cancel("a"))
    return stage.begin("a", fences["a"])


@scene("begin: a job that is somebody else's")
def _(stage):
    fences = stage.running("a")
    return stage.begin("a", fences["a"] - 1)


def _recording(title: str, end: str) -> None:
    @scene(f"record: {title}")
    def _(stage):
        fences = stage.running("a")
        stage.run(stage.begin("a", fences["a"]))
        stage.now_ms += 3
        return stage.record("a", fences["a"], end)


_recording("a unit that is done", "done")
_recording("a unit that raised", "raised")


@scene("record: a unit that a later attempt waits for")
def _(stage):
    fences = stage.running("a")
    stage.run(stage.begin("a", fences["a"]))
    stage.run(stage.release("c1"))
    stage.run(stage.register("c2"))
    stage.run(stage.claim("c2", 1))
    return stage.record("a", fences["a"])


@scene("record: a unit that another attempt has begun")
def _(stage):
    fences = stage.running("a")
    stage.run(stage.begin("a", fences["a"]))
    return stage.record("a", fences["a"] - 1)


@scene("record: a job that is gone")
def _(stage):
    return stage.record("a", 1)


# --- cancel, leave


@scene("cancel: waiting")
def _(stage):
    stage.submitted("a")
    return stage.cancel("a")


@scene("cancel: put off")
def _(stage):
    stage.submitted("a", later_ms=500)
    return stage.cancel("a")


@scene("cancel: running")
def _(stage):
    stage.running("a")
    return stage.cancel("a")


@scene("cancel: done")
def _(stage):
    fences = stage.running("a")
    stage.run(stage.finish("c1", settled("a", fences["a"])))
    return stage.cancel("a")


@scene("cancel: no such job")
def _(stage):
    return stage.cancel("a")


@scene("leave: the only one, waiting")
def _(stage):
    return stage.leave(stage.submitted("a"))


@scene("leave: one of two")
def _(stage):
    first = stage.submitted("a")
    stage.submitted("a")
    return stage.leave(first)


@scene("leave: the last, running")
def _(stage):
    stage.run(stage.register("c1"))
    first = stage.submitted("a")
    stage.run(stage.claim("c1", 1))
    return stage.leave(first)


@scene("leave: of two jobs at once")
def _(stage):
    first = stage.submitted("a")
    stage.submitted("a")
    return stage.leave(first, stage.submitted("b"))


@scene("leave: after the end")
def _(stage):
    stage.run(stage.register("c1"))
    first = stage.submitted("a")
    (claim,) = stage.run(stage.claim("c1", 1)).claims
    stage.run(stage.finish("c1", settled("a", claim.fence)))
    return stage.leave(first)


# --- fetch, stats, pause


@scene("fetch: in every state")
def _(stage):
    fences = stage.running("done", "failed", "running")
    stage.run(
        stage.finish(
            "c1",
            settled("done", fences["done"]),
            settled("failed", fences["failed"], "failed", blob=b"\x93\xa1E\xa1m\xa0"),
        )
    )
    stage.submitted("ready")
    stage.submitted("later", later_ms=100)
    known = ("done", "failed", "running", "ready", "later", "gone")
    return scripts.fetch([job_id(key) for key in known])


@scene("stats: of some of each")
def _(stage):
    stage.running("a")
    stage.submitted("b")
    stage.submitted("c", later_ms=100)
    return scripts.stats()


@scene("jobs: of some of each")
def _(stage):
    stage.running("a")
    stage.submitted("b")
    return scripts.jobs("", 10)


@scene("show: one that runs")
def _(stage):
    stage.running("a")
    return scripts.show(job_id("a"))


@scene("lend: a process tells what it has done, and borrows")
def lend(stage: Stage) -> scripts.Call[Any]:
    stage.run(stage.register("c1"))
    deeds = [scripts.Deed("f", 0, 100), scripts.Deed("s", 1_000, 2)]
    return scripts.lend("p", 1, rule="0.1 1 10000", wanted=7, length_ms=5_000, deeds=deeds)


@scene("lend: a loan is told of and made anew")
def lend_again(stage: Stage) -> scripts.Call[Any]:
    stage.run(lend(stage))
    deeds = [scripts.Deed("s", 0, 3)]
    return scripts.lend("p", 2, rule="", wanted=4, length_ms=5_000, deeds=deeds)


# --- hedged and tied


def straggling(stage: Stage) -> int:
    """``c1`` runs a straggler of a hedged task, ``c2`` is idle; the fence of ``c1``."""
    now = stage.now_ms
    stage.client.hset(stage.key("service"), "s:echo", f"10 20 30 {now}")
    stage.client.hset(stage.key("budget"), f"f{now // 500}", 1_000)
    stage.run(stage.register("c1"))
    stage.run(stage.register("c2"))
    stage.run(stage.admit(stage.submission("a")._replace(marks="h")))
    (claim,) = stage.run(stage.claim("c1", 1)).claims
    stage.now_ms += 100
    fence: int = claim.fence
    return fence


def twice(stage: Stage) -> tuple[int, int]:
    """Both have it; their fences."""
    first = straggling(stage)
    (claim,) = stage.run(stage.claim("c2", 1)).claims
    return first, claim.fence


@scene("claim: a straggler, for the second time")
def _(stage):
    straggling(stage)
    return stage.claim("c2", 1)


@scene("finish: the second of two runs succeeds")
def _(stage):
    return stage.finish("c2", settled("a", twice(stage)[1]))


@scene("finish: the first of two runs fails")
def _(stage):
    return stage.finish("c1", settled("a", twice(stage)[0], "failed"))


@scene("release: one of two that run a job has died")
def _(stage):
    twice(stage)
    return stage.release("c1", Departure.DIED)


@scene("renew: one of two that were to run a job does not hold it")
def _(stage):
    twice(stage)
    return stage.renew(scripts.Renewal("c1", 1, {}))


def tied(stage: Stage, role: str) -> scripts.Call[Any]:
    """A job of another queue is about to start, whose twin is here."""
    mine = Twin(role, job_id("a"), stage.name)
    claim = Claim(mine.id, "a", "echo", stage.now_ms + 5_000, 1, 7, 0, b"", twin=mine.text)
    return scripts.untie(claim, "elsewhere", retention_ms=RETENTION_MS)


@scene("untie: a twin that waits")
def _(stage):
    twin = Twin("first", job_id("a"), "elsewhere").text
    stage.run(stage.admit(stage.submission("a")._replace(twin=twin)))
    return tied(stage, "second")


@scene("untie: a twin that runs")
def _(stage):
    twin = Twin("first", job_id("a"), "elsewhere").text
    stage.run(stage.register("c1"))
    stage.run(stage.admit(stage.submission("a")._replace(twin=twin)))
    stage.run(stage.claim("c1", 1))
    return tied(stage, "second")


@scene("survey: a queue at work")
def _(stage):
    _failed(stage)
    return scripts.survey(["t"])


@scene("pause: an open queue")
def _(stage):
    stage.submitted("a")
    return scripts.pause(paused=True)


@scene("pause: a paused queue, resumed")
def _(stage):
    stage.run(scripts.pause(paused=True))
    return scripts.pause(paused=False)


FIRST_SCENES = {script_of(title): title for title in reversed(SCENES)}
"""One scene of each script."""

# --- what comes after


def unfinished(stage: Stage) -> list[str]:
    """Keys of the jobs that still have to run, though every child is dead by now: those that
    are in time when the last lease has lapsed, and wanted by somebody.
    """
    found = []
    for ident, deadline in stage.client.zrange(stage.key("due"), 0, -1, withscores=True):
        record = stage.client.hgetall(stage.key("job", ident.decode()))
        wanted = b"cancel" not in record or b"again" in record
        if wanted and deadline > stage.now_ms + LEASE_MS + 1:
            found.append(record[b"key"].decode())
    return sorted(found)


def wind_up(stage: Stage) -> list[str]:
    """Let every child so far be dead, and new ones, one for suspects too, run what is left;
    returns the sorted keys.
    """
    stage.now_ms += LEASE_MS + 1
    slots = {"last": 100, "alone": 1}
    for child, n in slots.items():
        stage.run(stage.register(child, slots=n, tasks=ALL_TASKS))
    ran: list[str] = []
    number = 0
    while True:
        number += 1
        answers = []
        for child, n in slots.items():
            answer = stage.run(stage.claim(child, number, n, tasks=ALL_TASKS))
            assert answer.known
            answers.append(answer)
            ran += [claim.key for claim in answer.claims]
            done = [settled(claim.key, claim.fence) for claim in answer.claims]
            assert set(stage.run(stage.finish(child, *done))) <= {"done"}
        if any(answer.claims for answer in answers):
            continue
        if not any(answer.more for answer in answers) and not stage.client.zcard(
            stage.key("later")
        ):
            return sorted(ran)
        stage.now_ms = max(stage.now_ms, *(answer.park_until_ms for answer in answers))
        for child in slots:
            stage.run(renewal(stage, child, number, {}))


def nothing_left(stage: Stage) -> None:
    """Fail if any job is in limbo or any place in the queue is taken."""
    client = stage.client
    for kind in ("due", "ready", "suspects", "later", "delayed", "strange"):
        assert client.zcard(stage.key(kind)) == 0, kind
    prefix = keys.prefix(stage.name)
    assert not list(client.scan_iter(f"{_glob(prefix)}run:*"))
    for name in client.scan_iter(f"{_glob(prefix)}job:*"):
        state = client.hget(name, "state")
        assert State(state.decode()).final, state
        assert client.ttl(name) > 0
    stage.run(scripts.pause(paused=False))
    fresh = [stage.submission(f"fresh{n}", within_ms=50_000) for n in range(CAPACITY + 1)]
    verdicts = [answer.verdict for answer in stage.run(stage.admit(*fresh))]
    assert verdicts == ["admitted"] * CAPACITY + ["full"]


# --- comparing

_COUNTS_CALLS = (b"offered", b"rejected:", b"duplicate", b"stale")
"""Counters of answers given: a call that arrives twice and changes nothing counts twice there."""


class Held(NamedTuple):
    """Everything a queue holds: by key without its prefix."""

    values: dict[str, Any]
    expiries_ms: dict[str, int]


def held(client: redis.Redis, queue: str) -> Held:
    """All keys of a queue; what a fault around one call must not change."""
    prefix = keys.prefix(queue)
    values, expiries = {}, {}
    for name in client.scan_iter(f"{_glob(prefix)}*", count=1000):
        short = name.decode().removeprefix(prefix)
        values[short] = _value(client, name)
        expiries[short] = client.pttl(name)
    if "stats" in values:
        values["stats"] = {
            k: v for k, v in values["stats"].items() if not k.startswith(_COUNTS_CALLS)
        }
    return Held(values, expiries)


def differences(one: Held, other: Held) -> list[str]:
    """The keys in which two queues differ; expiries may be five seconds apart."""
    names = sorted(one.values.keys() | other.values.keys())
    return [
        f"{name}: {one.values.get(name)!r} / {other.values.get(name)!r}, "
        f"{one.expiries_ms.get(name)} / {other.expiries_ms.get(name)} ms"
        for name in names
        if one.values.get(name) != other.values.get(name)
        or abs(one.expiries_ms[name] - other.expiries_ms[name]) > 5_000
    ]


def comparable(answer: Any) -> Any:
    """A call's answer, to compare: the order of the jobs claimed has no meaning, and TTLs run on
    the server's own clock."""
    if isinstance(answer, scripts.Claimed):
        return answer._replace(claims=sorted(answer.claims, key=lambda claim: claim.fence))
    match answer:
        case (JobReport() as report, blob):
            return report._replace(kept_s=0.0), blob
    return answer


def _value(client: redis.Redis, name: bytes) -> Any:
    kind = client.type(name)
    if kind == b"string":
        return client.get(name)
    if kind == b"hash":
        return client.hgetall(name)
    if kind == b"zset":
        return dict(client.zrange(name, 0, -1, withscores=True))
    if kind == b"set":
        return client.smembers(name)
    assert kind == b"list", kind
    return client.lrange(name, 0, -1)


def _glob(text: str) -> str:
    return "".join(f"[{c}]" if c in "*?[]\\" else c for c in text)
