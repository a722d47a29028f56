"""A queue in plain Python, as the design describes it: what the scripts are compared with.

It knows nothing of keys. Each method takes a call's arguments and the answer that the server
gave, says what the answer should have been, and moves its own jobs accordingly. Where the design
leaves a choice (when somebody sweeps, whether a probe passes), the answer decides and the model
checks that the choice was one of those allowed.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from deadq.job import Settlement, Submission
from deadq.store.scripts import Claimed, Renewal, Renewed, Rules

BRIEF: Final = 60_000
UNIT_LIMIT: Final = 30_000
WAITING: Final = ("ready", "suspect", "later", "strange")
OPEN: Final = (*WAITING, "running")
REVIVED: Final = ("expired", "cancelled", "exhausted", "exceeded")
DEAD: Final = ("failed", "exhausted", "exceeded", "crashed")
POISON: Final = 3
"""Workers that a job may cost."""
CAP_SHARE: Final = (1, 1, 0.75, 0.5)
WAIT_SHARE: Final = (1, 0.9, 0.6, 0.4)
Allowed = dict[str, tuple[int | None, bool]]
"""Verdicts that are right, each with the estimate that the record keeps and whether it probes."""
HAIR: Final = 1e-6
"""Two machines may round a product of floats differently by less than this."""


@dataclass
class Job:
    ident: str
    task: str
    fingerprint: bytes
    payload: bytes
    state: str
    deadline: int
    due: int
    tokens: dict[str, tuple[int, bool]]
    """Deadline of each caller, and whether its submit came as a duplicate."""
    seq: int
    born: int
    retries: int
    estimate: int | None = 0
    """None: not known; to be taken from the record."""
    probe: bool = False
    ready_at: int = 0
    delayed: bool = False
    fails: int = 0
    attempt: int = 0
    fence: int | None = None
    owner: str | None = None
    claim: int | None = None
    cancel: bool = False
    again: bool = False
    ended_at: int = 0
    keep: int = 0
    blob: bytes = b""
    crashes: int = 0
    alone: bool = False
    """Once a suspect it is only ever run alone."""
    once: bool = False
    replay: str | None = None
    """The token of the replay that it owes its life to."""
    hedge: bool = False
    late_at: int | None = None
    """While it runs: from when on it counts as a straggler."""
    look_at: int | None = None
    """When it is to be decided whether it is started a second time."""
    began: int = 0
    second: Second | None = None
    left: int | None = None
    """The fence of a run that ended while the other went on."""
    unswept: bool = False
    """Dead, but its record may not say so yet."""

    @property
    def open(self) -> bool:
        return self.state in OPEN

    @property
    def unwanted(self) -> bool:
        return self.cancel and not self.again


@dataclass
class Second:
    """The second run of a job that runs twice."""

    owner: str
    claim: int
    fence: int
    began: int


@dataclass
class Child:
    slots: int
    version: int
    tasks: tuple[str, ...]
    lease_end: int
    claim: int = 0


@dataclass
class Facts:
    """Service times as they stand before a call: what has been learned is an input here."""

    now: int
    tasks: Mapping[str, tuple[float, float, int]] = field(default_factory=dict)
    total: tuple[float, float, float, int] | None = None
    blurred: bool = False
    """More has expired than one submit sweeps: it still counts in the wait that is expected."""

    def _faded(self, value: float, at: int) -> float:
        if value <= 0 or self.now <= at:
            return value
        return value * 0.5 ** ((self.now - at) / max(1000, 2 * value))

    def estimate(self, task: str) -> tuple[float, float] | None:
        """p50 and p95; nothing confirms them, so they fade."""
        if task not in self.tasks:
            return None
        p50, p95, at = self.tasks[task]
        return self._faded(p50, at), self._faded(p95, at)

    def mean_and_sd(self) -> tuple[float, float]:
        if self.total is None or self.total[0] <= 0:
            return 0.0, 0.0
        n, total, squares, at = self.total
        mean = total / n
        sd = math.sqrt(max(0.0, squares / n - mean * mean))
        left = self._faded(mean, at) / mean if mean > 0 else 1.0
        return mean * left, sd * left


@dataclass
class Start:
    """One start of a job: what the invariant about latest starts looks at."""

    ident: str
    at: int
    deadline: int
    estimate: float


class Model:
    """All jobs and children of one queue at ``now``."""

    def __init__(self, rules: Rules, lease_ms: int, now: int) -> None:
        self.rules = rules
        self.lease_ms = lease_ms
        self.now = now
        self.jobs: dict[str, Job] = {}
        self.children: dict[str, Child] = {}
        self.paused = False
        self.last_fence = 0
        self.admitted = 0
        self.started = 0
        self.starts: list[Start] = []
        self.ended: list[tuple[str, str]] = []
        """Each end in turn: id and state."""

    # --- what the design counts

    @property
    def brief(self) -> int:
        return min(BRIEF, self.rules.retention_ms)

    def live(self) -> int:
        return sum(job.open and job.due > self.now for job in self.jobs.values())

    def alive(self) -> Iterator[tuple[str, Child]]:
        return ((name, c) for name, c in self.children.items() if c.lease_end > self.now)

    def slots(self) -> int:
        return sum(child.slots for _, child in self.alive())

    def known(self, task: str) -> bool:
        """Whether a living worker knows the task and this release's records."""
        return any(task in child.tasks and child.version >= 1 for _, child in self.alive())

    def place(self, job: Job) -> tuple[int, int]:
        """By latest start, or by arrival; equal ones first come, first served."""
        fifo = self.rules.order == "fifo"
        return (job.born if fifo else job.deadline - job.estimate, job.seq)

    def ready(self) -> list[Job]:
        return self.waiting("ready")

    def waiting(self, state: str) -> list[Job]:
        return sorted((j for j in self.jobs.values() if j.state == state), key=self.place)

    def in_state(self, *states: str) -> int:
        return sum(job.state in states for job in self.jobs.values())

    # --- moves

    def end(self, job: Job, state: str, blob: bytes = b"") -> str:
        effectless = state in ("cancelled", "expired")
        job.state, job.blob = state, blob
        job.ended_at, job.keep = self.now, self.brief if effectless else self.rules.retention_ms
        job.owner = job.claim = None
        job.cancel = job.again = job.delayed = job.probe = False
        self._off_run(job)
        if state not in REVIVED:
            job.tokens = {}
        self.ended.append((job.ident, state))
        return state

    def let_wait(self, job: Job) -> str:
        job.state = "suspect" if job.alone else "ready"
        return job.state

    def _off_run(self, job: Job) -> None:
        job.late_at = job.look_at = job.second = job.left = None

    def drop_run(self, job: Job, owner: str) -> None:
        """One of two runs is over; the other one goes on."""
        second = job.second
        assert second is not None
        job.left = second.fence
        if job.owner == owner:
            job.left = job.fence
            job.owner, job.claim = second.owner, second.claim
            job.fence, job.began = second.fence, second.began
        job.second = None

    def runs(self, child: str) -> list[tuple[Job, int | None]]:
        """What a child runs, each with the number of its claim."""
        found = []
        for job in self.jobs.values():
            if job.state == "running" and job.owner == child:
                found.append((job, job.claim))
            elif job.second is not None and job.second.owner == child:
                found.append((job, job.second.claim))
        return found

    def give_back(self, job: Job) -> str:
        job.deadline = job.due
        self._off_run(job)
        job.owner = job.claim = None
        job.cancel = job.again = job.probe = False
        return self.let_wait(job)

    def take_from(self, job: Job) -> None:
        """Its child does not run it (any more)."""
        if job.unwanted:
            self.end(job, "cancelled")
        elif job.due <= self.now:
            self.end(job, "exceeded")
        else:
            self.give_back(job)

    def sweep_lapsed(self) -> None:
        lapsed = [(c.lease_end, name) for name, c in self.children.items()]
        for end, name in sorted(lapsed):  # of two that run one job, the order tells which is left
            if end <= self.now:
                self.retire(name, "lapsed")

    def retire(self, child: str, how: str) -> None:
        for job, _ in self.runs(child):
            if job.second is not None:
                if how in ("died", "lapsed"):
                    self._count_crash(job, suspect=how == "died")
                self.drop_run(job, child)
            elif how in ("died", "lapsed") and not job.unwanted and job.due > self.now:
                self._count_crash(job, suspect=how == "died")
                if job.once or job.crashes >= POISON:
                    self.end(job, "crashed", str(job.crashes).encode())
                else:
                    self.give_back(job)
            else:
                self.take_from(job)
        self.children.pop(child, None)

    def _count_crash(self, job: Job, *, suspect: bool) -> None:
        job.crashes += 1
        job.alone = job.alone or suspect or job.crashes > 1

    def sweep_expired(self) -> None:
        for job in self.jobs.values():
            if job.state in WAITING and job.due <= self.now:
                self.end(job, "expired")
                job.unswept = True

    def promote(self) -> None:
        for job in self.jobs.values():
            if job.state == "later" and job.ready_at <= self.now:
                job.delayed = False
                self.let_wait(job)

    # --- submit

    def admit(
        self,
        submissions: Sequence[Submission],
        answers: Sequence[tuple[str, int, int]],
        facts: Facts,
        dead: Collection[str],
    ) -> None:
        """``dead`` are the ids in the list of that name."""
        self.sweep_expired()
        for submission, answer in zip(submissions, answers, strict=True):
            self._submit(submission, answer, facts, dead)

    def _submit(
        self, s: Submission, answer: tuple[str, int, int], facts: Facts, dead: Collection[str]
    ) -> None:
        verdict, deadline, hint = answer
        assert hint >= 0
        job = self.jobs.get(s.id)
        replay = not s.task
        if replay:
            if job is None or not (job.replay or s.id in dead):
                assert verdict == "not_dead"
                return
            if job.replay == s.token:
                assert answer == ("admitted", s.deadline_ms, 0)
                return
            replay = s.id in dead
            if verdict == "not_dead":
                # its payload may be gone, once the retention is over
                overdue = job.ended_at + self.rules.retention_ms <= self.now
                assert overdue if replay else not job.open
                return
            assert replay or job.open
            s = s._replace(
                fingerprint=job.fingerprint, task=job.task, retries=job.retries,
                payload=job.payload, once="1" if job.once else "", marks="h" if job.hedge else "",
            )  # fmt: skip
        if job is not None and not replay:
            expected = self._repeated(job, s)
            if expected is not None:
                assert answer == (*expected, 0), (s, answer, expected)
                return
        allowed = self._decide(s, job, facts)
        assert verdict in allowed, (s, answer, allowed)
        if verdict == "duplicate":
            assert job is not None
            assert answer == ("duplicate", self._attach(job, s), 0)
        elif verdict == "admitted":
            assert (deadline, hint) == (s.deadline_ms, 0)
            self._accept(s, allowed[verdict])
            self.jobs[s.id].replay = s.token if replay else None
        else:
            assert deadline == 0

    def _repeated(self, job: Job, s: Submission) -> tuple[str, int] | None:
        if job.fingerprint != s.fingerprint:
            return "key_reused", 0
        if s.token in job.tokens:
            deadline, duplicate = job.tokens[s.token]
            if not duplicate:
                return "admitted", deadline
            return "duplicate", job.due if job.open else deadline
        if job.state in ("done", "failed", "crashed"):
            # who was told of the outcome may still come for it until its own deadline
            left = job.ended_at + job.keep - self.now
            job.keep += max(0, s.deadline_ms - self.now + 1_000 - left)
            return "duplicate", job.deadline
        if job.open and job.due > self.now:
            return "duplicate", self._attach(job, s)
        return None

    def _attach(self, job: Job, s: Submission) -> int:
        job.tokens[s.token] = (s.deadline_ms, True)
        if job.cancel:
            job.again = True
        if s.deadline_ms > job.due:
            job.due = s.deadline_ms
            if job.state != "running":  # a run keeps its instant
                job.deadline = s.deadline_ms
        return job.due

    def _decide(self, s: Submission, job: Job | None, facts: Facts) -> Allowed:
        nothing = (0, False)
        if self.paused:
            return {"paused": nothing}
        if s.deadline_ms <= self.now:
            return {"expired": nothing}
        if self.live() >= math.ceil(self.rules.capacity * CAP_SHARE[s.rank]):
            return {"full": nothing}
        if job is not None and job.state == "running":
            return {"duplicate": nothing}
        feasible = self.rules.admission == "feasible" and self.slots() > 0
        times = facts.estimate(s.task) if feasible else None
        if s.not_before_ms > self.now:
            room = s.deadline_ms - s.not_before_ms
            delayed = sum(j.delayed and j.ready_at > self.now for j in self.jobs.values())
            if room <= 0:
                return {"unmeetable": nothing}
            if delayed >= max(1, self.rules.capacity // 4):
                return {"full": nothing}
            if times is not None and times[0] > room:
                return {"unmeetable": nothing}
            return {"admitted": (min(math.ceil(times[1]), room) if times else 0, False)}
        if times is None:
            return {"admitted": nothing}
        return self._fits(s, *times, facts)

    def _fits(self, s: Submission, p50: float, p95: float, facts: Facts) -> Allowed:
        left, slots = s.deadline_ms - self.now, self.slots()
        refused = {"unmeetable": (0, False)}
        if facts.blurred:
            return {"admitted": (None, False), **refused}
        if self.in_state("ready", "running") < slots:
            if p50 <= left:
                return {"admitted": (min(math.ceil(p50), left), False)}
            return {"admitted": (0, True), **refused}
        latest_start = s.deadline_ms - math.ceil(p95)
        queue = [self.place(job)[0] for job in self.ready()]
        ahead = self._ahead(latest_start)
        spare = WAIT_SHARE[s.rank] * (left - p95) - self._wait(ahead, facts)
        admitted = {"admitted": (math.ceil(p95), False)}
        # accepted ones behind it must not be pushed past their latest start
        step = facts.mean_and_sd()[0] / slots
        behind = enumerate(queue[ahead:], ahead)
        pushed = any(score - self.now < (k + 2) * step for k, score in behind)
        if spare < -HAIR:
            return refused
        return {**admitted, **refused} if pushed or spare < HAIR else admitted

    def _ahead(self, latest_start: int) -> int:
        """Jobs that would be claimed before one with this latest start."""
        fifo = self.rules.order == "fifo"
        return sum(fifo or self.place(job)[0] <= latest_start for job in self.ready())

    def _wait(self, ahead: int, facts: Facts) -> float:
        mean, sd = facts.mean_and_sd()
        jobs, slots = ahead + 1, self.slots()
        return jobs * mean / slots + 2 * sd * math.sqrt(jobs) / slots

    def least_time(self, task: str, rank: int, facts: Facts) -> int | None:
        """With how many ms left a job would just be accepted, unless it is a probe."""
        times = facts.estimate(task)
        if times is None:
            return None
        p50, p95 = times
        if self.in_state("ready", "running") < self.slots():
            return math.ceil(p50)
        least = math.ceil(p95)
        for _ in range(9):  # the more time it has, the more are ahead of it
            wait = self._wait(self._ahead(self.now + least - math.ceil(p95)), facts)
            least = math.ceil(p95 + wait / WAIT_SHARE[rank])
        return least

    def _accept(self, s: Submission, kept: tuple[int | None, bool]) -> None:
        later = s.not_before_ms > self.now
        self.admitted += 1
        self.jobs[s.id] = Job(
            ident=s.id,
            task=s.task,
            fingerprint=s.fingerprint,
            payload=s.payload,
            state="later" if later else "ready",
            deadline=s.deadline_ms,
            due=s.deadline_ms,
            tokens={s.token: (s.deadline_ms, False)},
            seq=self.admitted,
            born=self.now,
            retries=s.retries,
            estimate=kept[0],
            probe=kept[1],
            ready_at=s.not_before_ms if later else 0,
            delayed=later,
            once=s.once == "1",
            hedge="h" in s.marks,
        )

    # --- waiters and cancelling

    def cancel(self, ident: str) -> set[str]:
        job = self.jobs.get(ident)
        if job is None:
            return {"gone"}
        return {self._cancel(job)}

    def _cancel(self, job: Job) -> str:
        if job.state == "running":
            job.cancel, job.again = True, False
            return "running"
        if job.state in WAITING:
            return self.end(job, "cancelled" if job.due > self.now else "expired")
        return job.state

    def leave(self, ident: str, token: str) -> set[str]:
        job = self.jobs.get(ident)
        if job is None:
            return {"gone"}
        held = job.tokens.pop(token, None) is not None
        awaited = any(deadline > self.now for deadline, _ in job.tokens.values())
        if not job.open:
            return {
                job.state,
                *(("awaited",) if awaited else ()),
                *(WAITING if job.unswept else ()),
            }
        if awaited:
            return {"awaited"}
        return {self._cancel(job) if held else job.state}

    # --- children

    def register(self, name: str, slots: int, version: int, tasks: Iterable[str]) -> None:
        before = self.children.get(name)
        remembered = before is not None and self.now < before.lease_end + UNIT_LIMIT
        number = before.claim if before and remembered else 0
        lease_end = self.now + self.lease_ms
        self.children[name] = Child(slots, version, tuple(tasks), lease_end, number)
        self.sweep_lapsed()
        for job in self.jobs.values():
            known = job.task in tasks and version >= 1
            if job.state == "strange" and known and job.due > self.now:
                self.let_wait(job)

    def claim(
        self, name: str, number: int, want: int, version: int, tasks: Sequence[str],
        answer: Claimed, facts: Facts,
    ) -> None:  # fmt: skip
        child = self.children.get(name)
        if child is None or child.lease_end <= self.now:
            assert not answer.known
            return
        assert answer.known
        if number <= child.claim:
            held = {
                job.ident: job.fence if job.owner == name or not job.second else job.second.fence
                for job, claim in self.runs(name)
                if claim == number
            }
            same = held if number == child.claim else {}
            assert {c.id: c.fence for c in answer.claims} == same, (answer, same)
            return
        self.sweep_lapsed()
        self.sweep_expired()
        self.promote()
        single, given = child.slots == 1, [c.id for c in answer.claims]
        brought = self._hand_out(want, version, tasks, given, facts, single=single)
        free = want - len(brought) if not any(job.alone for job in brought) else 0
        again = self._stragglers(name, free, tasks if version >= 1 else (), facts)
        found, right = [c.id for c in answer.claims], [job.ident for job in [*brought, *again]]
        assert found == right, f"{found} were handed out, should be {right}"
        for job, got in zip([*brought, *again], answer.claims, strict=True):
            assert got.fence > self.last_fence, "fences only grow"
            self.last_fence = got.fence
            if job in again:
                job.second = Second(name, number, got.fence, self.now)
            else:
                job.state, job.owner, job.claim = "running", name, number
                job.attempt += 1
                job.fence = got.fence
                self.started += 1
                self._may_straggle(job, facts)
            assert (got.attempt, got.fails) == (job.attempt, job.fails)
            assert (got.deadline_ms, got.task) == (job.deadline, job.task)
            assert got.payload == job.payload
        child.claim = number

    def _may_straggle(self, job: Job, facts: Facts) -> None:
        if job.hedge and job.task in facts.tasks:
            p50, p95, _ = facts.tasks[job.task]
            grain = max(5, int(p95 / 8))
            job.late_at = math.ceil((self.now + p95) / grain) * grain
            job.look_at = job.late_at if job.late_at + p50 < job.deadline else None
            job.began = self.now

    def _stragglers(
        self, name: str, free: int, tasks: Sequence[str], facts: Facts
    ) -> list[Job]:  # fmt: skip
        """Those that an idle child starts a second time; the budget always allows it here."""
        running = [job for job in self.jobs.values() if job.late_at is not None]
        late = sum((job.late_at or 0) <= self.now for job in running)
        found: list[Job] = []
        due = [job for job in running if job.look_at is not None and job.look_at <= self.now]
        for job in sorted(due, key=lambda job: (job.look_at, job.ident)):
            left = job.deadline - self.now
            if len(found) >= free:
                break
            if job.second or job.cancel or job.crashes or left <= facts.tasks[job.task][0]:
                job.look_at = None
            elif job.owner == name or job.task not in tasks:
                continue
            elif late > 2 and late > len(running) / 10:
                job.look_at = 2 * self.now - job.began
            else:
                job.look_at = None
                found.append(job)
        return found

    def _hand_out(
        self, want: int, version: int, tasks: Sequence[str], answer: Sequence[str], facts: Facts,
        *, single: bool,
    ) -> list[Job]:  # fmt: skip
        """From the earliest latest start on, until there are as many as are wanted.

        A suspect comes before all others, for a child of one slot, and alone. What can no longer
        make it is dropped, unless a slot stays idle: then it may be tried.
        """
        brought: list[Job] = []
        hopeless: list[Job] = []
        for job in [*(self.waiting("suspect") if single else []), *self.ready()]:
            if job.alone and len(brought) == min(want, 1):
                continue
            if len(brought) == want or any(j.alone for j in brought):
                break
            if job.task not in tasks or version < 1:
                if not self.known(job.task):
                    job.state = "strange"
            elif (estimate := self.expected(job, facts)) > job.deadline - self.now + HAIR:
                hopeless.append(job)
            else:
                self.starts.append(Start(job.ident, self.now, job.deadline, estimate))
                brought.append(job)
        for job in hopeless:
            alone = job.alone or any(j.alone for j in brought)
            if len(brought) < (min(want, 1) if alone else want) and job.ident in answer:
                job.probe = True
                brought.append(job)
            else:
                self.end(job, "expired")
        return brought

    def expected(self, job: Job, facts: Facts) -> float:
        """The smaller of the estimate it was admitted with and today's."""
        times = facts.estimate(job.task)
        return min(job.estimate or 0, times[1] if times else 0.0)

    def finish(
        self, name: str, settlements: Sequence[Settlement], answers: Sequence[str], facts: Facts
    ) -> None:
        for s, answer in zip(settlements, answers, strict=True):
            job = self.jobs.get(s.id)
            if job is None:
                expected = "gone"
            elif s.fence not in {job.fence, job.second and job.second.fence}:
                expected = "running" if job.left == s.fence else "stale"
            elif job.state != "running":
                expected = job.state
            elif (name, s.fence) not in self._hands(job):
                expected = "stale"
            elif job.second is not None and (s.outcome != "done" or job.due <= self.now):
                self.drop_run(job, name)
                expected = "running"
            else:
                job.fence = s.fence
                expected = self._settle(job, s, facts)
            unswept = expected == "expired" and answer in WAITING
            assert answer == expected or unswept, (s, answer, expected)

    def _hands(self, job: Job) -> set[tuple[str | None, int | None]]:
        second = {(job.second.owner, job.second.fence)} if job.second else set()
        return {(job.owner, job.fence), *second}

    def _settle(self, job: Job, s: Settlement, facts: Facts) -> str:
        in_time = job.due > self.now
        match s.outcome:
            case "failed":
                return self.end(job, "failed", s.blob)
            case "done" if in_time:
                return self.end(job, "done", s.blob)
            case "cancelled":
                back = job.again and in_time
                return self.give_back(job) if back else self.end(job, "cancelled")
            case _ if job.unwanted:
                return self.end(job, "cancelled")
            case "retry":
                return self._retry(job, s, facts)
            case "cut" if job.due <= job.deadline:
                return self.end(job, "exceeded")  # nobody has attached with a later deadline
            case _ if in_time:
                return self.give_back(job)
            case "unrun":
                return self.end(job, "expired")
        return self.end(job, "exceeded")

    def _retry(self, job: Job, s: Settlement, facts: Facts) -> str:
        if job.again:
            return self.give_back(job)
        times = facts.estimate(job.task)
        expected_service = times[1] if times else 0.0
        if job.fails >= job.retries or self.now + s.delay_ms + expected_service >= job.due:
            return self.end(job, "exhausted", s.blob)
        job.fails += 1
        self.give_back(job)
        if s.delay_ms:
            job.state, job.ready_at = "later", self.now + s.delay_ms
        return job.state

    def renew(self, renewals: Sequence[Renewal], answers: Sequence[Renewed]) -> None:
        for renewal, answer in zip(renewals, answers, strict=True):
            child = self.children.get(renewal.child)
            known = child is not None and child.lease_end > self.now
            assert answer.known is known
            if child is None or not known:
                assert answer.words == {}
                continue
            child.lease_end = self.now + self.lease_ms
            assert answer.words == self._words(renewal), (renewal, answer)
            for job, claim in self.runs(renewal.child):
                if job.ident not in renewal.held and (claim or 0) <= renewal.number:
                    if job.second is not None:
                        self.drop_run(job, renewal.child)
                    else:
                        self.take_from(job)
        self.sweep_lapsed()
        self.sweep_expired()
        self.promote()

    def _words(self, renewal: Renewal) -> dict[str, str]:
        words = {}
        for ident, fence in renewal.held.items():
            job = self.jobs.get(ident)
            if job is None or (renewal.child, fence) not in self._hands(job):
                words[ident] = "lost"
            elif job.cancel:
                words[ident] = "cancel"
        return words
