"""One queue on one server, looked at key by key: what the script tests seed, call and read.

The time is the world's own: each call carries ``world.now`` (ms), so that every instant in a
test is a number one can check by hand. Values are read as ``str``; scores and times as ``int``.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import redis

from deadq.clock import ServerClock
from deadq.job import Claim, DeadJob, Departure, Settlement, Submission
from deadq.store import keys, scripts
from deadq.store.sync import SyncStore
from deadq.store.wire import Wire
from deadq.twins import Twin

T = TypeVar("T")

T0: Final = 1_700_000_000_000
"""When every test begins: a number that a double prints as 1.7e+12 if one lets it."""
RETENTION: Final = 3_600_000
UNIT_LIMIT: Final = 30_000
BRIEF: Final = 60_000
LEASE: Final = 5_000

_READ: Final = """
local found = {}
for _, key in ipairs(ARGV) do
  local kind, value = redis.call('TYPE', key).ok, ''
  if kind == 'string' then
    value = redis.call('GET', key)
  elseif kind == 'hash' then
    value = redis.call('HGETALL', key)
  elseif kind == 'zset' then
    value = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
  elseif kind == 'set' then
    value = redis.call('SMEMBERS', key)
  elseif kind == 'list' then
    value = redis.call('LRANGE', key, 0, -1)
  end
  found[#found + 1] = { key, kind, redis.call('PTTL', key), value }
end
return found
"""

_AGE: Final = """
for _, key in ipairs(redis.call('KEYS', ARGV[1])) do
  local left = redis.call('PTTL', key)
  if left >= 0 then
    left = left - tonumber(ARGV[2])
    redis.call('PEXPIRE', key, left < tonumber(ARGV[3]) and 0 or left)
  end
end
"""


_PIECES: Final = ("data", "data2", "data3")
_PLACES: Final = {"due", "ready", "suspects", "later", "delayed", "strange"}
_DEFAULTS: Final = {"estimate": "0", "retries": "0"}


def text(value: bytes | str) -> str:
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value


def number(value: bytes | str | float) -> int | float:
    exact = float(value)
    return int(exact) if exact.is_integer() else exact


def _read(kind: str, value: Any) -> Any:
    match kind:
        case "string":
            return text(value)
        case "hash":
            return {text(f): text(v) for f, v in zip(value[::2], value[1::2], strict=True)}
        case "zset":
            return {text(m): number(s) for m, s in zip(value[::2], value[1::2], strict=True)}
        case "set":
            return {text(v) for v in value}
        case "list":
            return [text(v) for v in value]
    return kind


class World:
    """A queue whose clock stands still until the test moves it."""

    def __init__(self, client: redis.Redis, queue: str = "q") -> None:
        self.client = client
        self.queue = queue
        self.prefix = keys.prefix(queue)
        self.now = T0
        self.capacity = 100
        self.order = "deadline"
        self.admission = "feasible"
        self.retention = RETENTION
        wire = Wire(queue, ServerClock(), lambda: str(self.now))
        self.store = SyncStore(client, wire)
        self._values = client.register_script(_READ)
        self._age = client.register_script(_AGE)

    # --- calls

    def run(self, call: scripts.Call[T]) -> T:
        return self.store.run(call)

    def reply(self, call: scripts.Call[Any]) -> list[Any]:
        """The reply as it came, its first element too."""
        reply: list[Any] = []
        self.store.run(call._replace(parse=reply.extend))
        return reply

    @property
    def rules(self) -> scripts.Rules:
        return scripts.Rules(self.capacity, self.order, self.admission, self.retention)

    def admit(self, *submissions: Submission) -> list[tuple[str, int, int]]:
        """Submit; for each (verdict, deadline in force, retry hint)."""
        return [tuple(a) for a in self.run(self.call_for_admit(*submissions))]

    def reply_to_admit(self, *submissions: Submission) -> list[Any]:
        return self.reply(self.call_for_admit(*submissions))

    def call_for_admit(self, *submissions: Submission) -> scripts.Call[Any]:
        return scripts.admit(self.rules, submissions)

    def verdict(self, submission: Submission) -> str:
        return self.admit(submission)[0][0]

    def register(self, child: str, *tasks: str, slots: int = 1, lease: int = LEASE) -> str:
        return self.run(
            scripts.register(
                child,
                lease_ms=lease,
                slots=slots,
                who="host",
                retention_ms=self.retention,
                tasks=tasks or ("t",),
            )
        )

    def claim(
        self, child: str, number: int = 1, want: int = 1, *tasks: str, park: bool = False
    ) -> scripts.Claimed:
        return self.run(
            scripts.claim(
                child,
                number,
                want,
                retention_ms=self.retention,
                park=park,
                tasks=tasks or ("t",),
            )
        )

    def claimed(self, child: str, number: int = 1, want: int = 1, *tasks: str) -> list[str]:
        """The ids that a claim brings."""
        return [claim.id for claim in self.claim(child, number, want, *tasks).claims]

    def finish(self, child: str, *settlements: Settlement) -> list[str]:
        return self.run(scripts.finish(child, settlements, retention_ms=self.retention))

    def exchange(
        self, child: str, number: int, want: int, *settlements: Settlement, park: bool = False
    ) -> tuple[list[str], list[str]]:
        """What became of the settlements, and the ids that the claim brings."""
        claim = scripts.claim(
            child, number, want, retention_ms=self.retention, park=park, tasks=("t",)
        )
        words, claimed = self.run(scripts.exchange(settlements, claim))
        return words, [one.id for one in claimed.claims]

    def renew(self, *renewals: scripts.Renewal) -> scripts.RenewalReply:
        return self.run(
            scripts.renew(renewals, lease_ms=LEASE, retention_ms=self.retention),
        )

    def release(self, child: str, how: Departure = Departure.LEAVES) -> int:
        """How many suspects wait now."""
        return self.run(scripts.release(child, retention_ms=self.retention, how=how))

    def dead(self, most: int = 100, job: str = "") -> list[tuple[DeadJob, bytes]]:
        with self.changes() as changed:
            found = self.run(scripts.dead(most, job))
        assert changed == {}
        return found

    def cancel(self, job: str) -> str:
        return self.run(scripts.cancel(job, retention_ms=self.retention))

    def leave(self, *tokens: tuple[str, str]) -> list[str]:
        return self.run(scripts.leave(tokens, retention_ms=self.retention))

    # --- time

    def pass_time(self, ms: int, *, early_ms: int = 0) -> None:
        """Let ``ms`` pass: on the world's clock, and for all that expires on the server.

        What would have less than ``early_ms`` left goes at once, lest it go by the server's own
        clock, in the middle of whatever the test does next.
        """
        self.now += ms
        self._age(args=[f"{self.prefix}*", ms, early_ms])

    # --- reading

    def key(self, name: str) -> str:
        return self.prefix + name

    def look(self, *names: str) -> dict[str, tuple[Any, int]]:
        """The keys so named, else every key of the queue: value, and TTL in ms (-1: none)."""
        wanted = [self.key(name) for name in names] or self.client.keys(f"{self.prefix}*")
        found = self._values(args=wanted) if wanted else []
        return {
            text(key).removeprefix(self.prefix): (_read(text(kind), value), ttl)
            for key, kind, ttl, value in found
            if kind != b"none"
        }

    def dump(self) -> dict[str, Any]:
        """The value of every key."""
        return {key: value for key, (value, _) in self.look().items()}

    @contextmanager
    def changes(self) -> Iterator[dict[str, Any]]:
        """Every key that the block changes, with its value afterwards; None where it is gone."""
        before = self.dump()
        changed: dict[str, Any] = {}
        yield changed
        after = self.dump()
        for key in before.keys() | after.keys():
            if before.get(key) != after.get(key):
                changed[key] = after.get(key)

    def get(self, name: str) -> Any:
        """The value of one key; None when there is none."""
        value, _ = self.look(name).get(name, (None, -2))
        return value

    def job(self, ident: str) -> dict[str, str]:
        """The record, whatever its layout: defaults filled in, the payload left out."""
        record = dict(self.get(f"job:{ident}") or {})
        for piece in _PIECES:
            record.pop(piece, None)
        return {**_DEFAULTS, **record} if record else {}

    def payload(self, ident: str) -> str | None:
        """The arguments as they were submitted; None when they are kept no longer."""
        record = self.get(f"job:{ident}") or {}
        if "data" in record:
            return "".join(record.get(piece, "") for piece in _PIECES)
        return self.get(f"data:{ident}")

    def outcome(self, ident: str) -> str | None:
        """The result or error as it was reported, in the record or beside it."""
        return self.job(ident).get("result") or self.get(f"result:{ident}")

    def state(self, ident: str) -> str | None:
        return self.job(ident).get("state")

    def order_of(self, waiting: str = "ready") -> list[str]:
        """Ids in the order in which they would be claimed."""
        found = self.client.zrange(self.key(waiting), 0, -1)
        return [text(member).partition(":")[2] for member in found]

    def places(self, ident: str) -> set[str]:
        """Where the job stands: names of keys, ``due`` among them."""
        found = set()
        for name, value in self.dump().items():
            if name in {"ready", "suspects"}:
                value = {member.partition(":")[2] for member in value}  # noqa: PLW2901
            if name in _PLACES or name.startswith("run:"):
                found |= {name} if ident in value else set()
        return found

    def counters(self) -> dict[str, int]:
        return {name: int(value) for name, value in (self.get("stats") or {}).items()}

    def keeps_payload(self, ident: str, ms: int) -> bool:
        """Whether the payload was given ``ms`` to live a moment ago, in the record or beside it."""
        return self.keeps(f"{'data' if self.get(f'data:{ident}') else 'job'}:{ident}", ms)

    def lasts(self, name: str) -> int:
        """TTL in ms (-1: none, -2: no such key)."""
        return self.client.pttl(self.key(name))

    def keeps(self, name: str, ms: int) -> bool:
        """Whether the TTL was set to ``ms`` a moment ago."""
        return ms - 2_000 < self.lasts(name) <= ms

    # --- seeds: keys as the scripts leave them

    def seed_job(
        self,
        ident: str,
        *,
        state: str = "ready",
        deadline: int = 10_000,
        due: int | None = None,
        ready_at: int = 0,
        estimate: int = 0,
        seq: int = 1,
        born: int = 0,
        task: str = "t",
        version: int = 1,
        token: str | None = "w:pC.1",
        owner: str = "",
        claim: int = 1,
        fence: int = 7,
        payload: str = "args",
        delayed: bool = False,
        pipeline: Any = None,
        **fields: Any,
    ) -> None:
        """A job that is somewhere in the queue. Instants are given in ms after ``T0``.

        With a pipeline of the caller's, it is there when the caller executes it.
        """
        deadline += T0
        due = deadline if due is None else due + T0
        record: dict[str, Any] = {
            "key": f"key-{ident}",
            "fingerprint": "fp",
            "task": task,
            "deadline": deadline,
            "estimate": estimate,
            "retries": 2,
            "born": T0 + born,
            "seq": seq,
            "version": version,
            "state": state,
        }
        if token:
            record[token] = due
        if state == "running":
            record |= {"owner": owner, "claim": claim, "fence": fence, "attempt": 1, "probe": ""}
        if state == "suspect":
            record |= {"crashes": 1, "alone": 1}
        record |= fields
        pipe = self.client.pipeline() if pipeline is None else pipeline
        ttl = due - self.now + UNIT_LIMIT + self.retention
        if len(payload) <= 64:
            record["data"] = payload
        else:
            pipe.set(self.key(f"data:{ident}"), payload, px=ttl)
        pipe.hset(self.key(f"job:{ident}"), mapping=record)
        pipe.pexpire(self.key(f"job:{ident}"), ttl)
        pipe.zadd(self.key("due"), {ident: due})
        match state:
            case "ready":
                score = T0 + born if "fifo" in record else deadline - estimate
                pipe.zadd(self.key("ready"), {f"{seq:010x}:{ident}": score})
            case "suspect":
                score = T0 + born if "fifo" in record else deadline - estimate
                pipe.zadd(self.key("suspects"), {f"{seq:010x}:{ident}": score})
                pipe.hset(self.key("fleet"), "suspects", 1)
            case "later":
                pipe.zadd(self.key("later"), {ident: T0 + ready_at})
                if delayed:
                    pipe.zadd(self.key("delayed"), {ident: T0 + ready_at})
            case "strange":
                pipe.zadd(self.key("strange"), {ident: deadline})
            case "running":
                pipe.sadd(self.key(f"run:{owner}"), ident)
        if pipeline is None:
            pipe.execute()

    def seed_ended(
        self, ident: str, state: str, *, deadline: int = 10_000, ttl: int = RETENTION, **fields: Any
    ) -> None:
        """A job that has ended."""
        record = {
            "key": f"key-{ident}",
            "fingerprint": "fp",
            "task": "t",
            "deadline": T0 + deadline,
            "retries": 2,
            "version": 1,
            "state": state,
            "finished": T0,
        }
        self.client.hset(self.key(f"job:{ident}"), mapping=record | fields)
        self.client.pexpire(self.key(f"job:{ident}"), ttl)

    def seed_worker(
        self,
        child: str,
        *tasks: str,
        slots: int = 1,
        lease: int = LEASE,
        version: int = 1,
        claim: int | None = None,
        parked: int | None = None,
    ) -> None:
        """A child that has registered; ``lease`` and ``parked`` are ms after ``T0``."""
        fields: dict[str, Any] = {
            "slots": slots,
            "version": version,
            "who": "host",
            "tasks": "\n".join(tasks or ("t",)),
            "since": T0,
        }
        if claim is not None:
            fields["claim"] = claim
        self.client.hset(self.key(f"worker:{child}"), mapping=fields)
        self.client.pexpire(self.key(f"worker:{child}"), max(1, lease) + UNIT_LIMIT)
        self.client.zadd(self.key("workers"), {child: T0 + lease})
        if parked is not None:
            self.client.zadd(self.key("parked"), {child: T0 + parked})
        self._seed_fleet()

    def _seed_fleet(self) -> None:
        slots, ends, known = 0, [], {}
        for child, end in (self.get("workers") or {}).items():
            worker = self.get(f"worker:{child}")
            if end > self.now:
                slots += int(worker["slots"])
                ends.append(end)
                for task in worker["tasks"].split("\n"):
                    known[task] = max(known.get(task, 0), int(worker["version"]))
        digest = "\n".join(f"{version} {task}" for task, version in known.items())
        self.client.hset(
            self.key("fleet"),
            mapping={"slots": slots, "lapse": min(ends, default=0), "known": digest},
        )

    def seed_service(self, task: str, p50: float, p95: float, *, at: int = 0) -> None:
        """What the task's runs have taken (ms), last confirmed ``at`` ms after ``T0``."""
        self.client.hset(self.key("service"), f"s:{task}", f"{p50} {p95} {2 * p95} {T0 + at}")

    def seed_earned(self, firsts: int = 1_000) -> None:
        """First attempts of just now, which earn retries and hedges."""
        self.client.hincrby(self.key("budget"), f"f{self.now // 500}", firsts)

    def seed_mean(self, mean: float, sd: float, *, at: int = 0, n: int = 100) -> None:
        """Mean and standard deviation of a run over the whole queue (ms)."""
        squares = n * (mean * mean + sd * sd)
        self.client.hset(self.key("service"), "all", f"{n} {n * mean} {squares} {T0 + at}")

    def seed_histogram(self, task: str, weights: Mapping[int, float]) -> None:
        """Weights by bucket: bucket i holds (1.1^(i-1), 1.1^i] microseconds."""
        flat = " ".join(f"{i}:{w}" for i, w in weights.items())
        self.client.hset(self.key("service"), f"h:{task}", flat)

    def histogram(self, task: str) -> dict[int, float]:
        flat = (self.get("service") or {}).get(f"h:{task}", "")
        return {int(i): float(w) for i, w in (pair.split(":") for pair in flat.split())}

    def quantiles(self, task: str) -> tuple[float, float]:
        """p50 and p95 of the task, ms."""
        p50, p95, *_ = (self.get("service") or {})[f"s:{task}"].split()
        return float(p50), float(p95)

    def mean_and_sd(self) -> tuple[float, float]:
        n, total, squares, _ = map(float, (self.get("service") or {})["all"].split())
        mean = total / n
        return mean, max(0.0, squares / n - mean * mean) ** 0.5


def submission(
    ident: str,
    *,
    within: int = 10_000,
    not_before: int = 0,
    rank: int = 1,
    retries: int = 2,
    token: str = "w:pC.1",
    fingerprint: bytes = b"fp",
    task: str = "t",
    payload: bytes = b"args",
    once: str = "",
    marks: str = "",
    twin: str = "",
) -> Submission:
    """A submit. ``within`` and ``not_before`` are ms after ``T0``; 0: at once."""
    return Submission(
        ident,
        f"key-{ident}",
        fingerprint,
        task,
        T0 + within,
        not_before and T0 + not_before,
        rank,
        retries,
        token,
        payload,
        once,
        marks,
        twin,
    )


def tied(ident: str, role: str = "second", queue: str = "q") -> Claim:
    """A claimed job whose twin, with the same id, is in ``queue``."""
    twin = Twin(role, ident, queue).text
    return Claim(ident, f"key-{ident}", "t", T0 + 10_000, 1, 7, 0, b"args", twin=twin)


def replay_of(ident: str, *, within: int = 10_000, token: str = "w:pC.9") -> Submission:
    """A replay, which leaves to the server what is in the record."""
    return Submission(ident, "", b"", "", T0 + within, 0, 1, 0, token, b"")


def settlement(
    ident: str,
    outcome: str = "done",
    *,
    fence: int = 7,
    ms: float = 10,
    cut: bool = False,
    delay: int = 0,
    blob: bytes = b"",
) -> Settlement:
    """A report of a run that took ``ms``."""
    return Settlement(ident, fence, outcome, round(ms * 1000), cut, delay, blob)


def renewal(child: str, number: int = 1, held: Mapping[str, int] | None = None) -> scripts.Renewal:
    return scripts.Renewal(child, number, held or {})


def with_argument(call: scripts.Call[T], index: int, value: scripts.Arg) -> scripts.Call[T]:
    """The call with one argument replaced; they count as in the script's header, from 2."""
    args: Sequence[scripts.Arg] = [*call.args]
    return call._replace(args=[*args[: index - 2], value, *args[index - 1 :]])
