"""Random sequences of calls against a real server and the model, checked after each step.

The clock stands still between steps. Children are simulated: they know what a real one would
know (the claims whose replies they got), park, pop tokens, die in silence, or lose a reply.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from deadq.job import Departure, Settlement, Submission
from deadq.store import scripts
from tests.model.queue_model import DEAD, OPEN, UNIT_LIMIT, WAITING, Job, Model
from tests.model.sight import SLACK, Sight, check, waiting_dead
from tests.scripts.world import T0, World, replay_of, with_argument

RETENTION, LEASE = 90_000, 5_000
TASKS = ("t", "u")
OUTCOMES = ("done", "failed", "retry", "retry", "release", "cut", "cancelled", "unrun")
KEYS = 9
ALL_RETRIES = "1000 1000 10000"
"""A budget that is never spent: tests/scripts/test_budget.py has one that is."""
SLOT_MS = 500
"""Of a budget: see budget_note.lua."""
CALLS_COUNTED = ("offered", "stale", "duplicate", "rejected:", "retry_denied:", "hedge_denied:")
"""Counters of calls rather than of jobs: a repeat counts again."""

small = st.integers(0, 7)
pick = st.integers(0, 63)


@dataclass
class Actor:
    """What a child knows of itself."""

    name: str
    slots: int
    tasks: tuple[str, ...]
    version: int
    number: int = 0
    held: dict[str, int] = field(default_factory=dict)
    unanswered: Step | None = None
    """A claim whose reply never came: it has to be sent again before anything else."""
    until_ms: int | None = None
    """While it is parked: when its wait ends by itself."""
    token: bool = False
    """Whether it has popped a token and not claimed since."""

    def knows(self, job: Job) -> bool:
        return job.task in self.tasks and self.version >= 1


def _ctl(actor: Actor) -> str:
    return f"ctl:{actor.name}"


@dataclass
class Step:
    """A call as it was sent, and how the model follows its answer."""

    kind: str
    call: scripts.Call[Any]
    follow: Callable[[Any], None]


class QueueMachine(RuleBasedStateMachine):
    """The rules; ``world`` is set by whoever runs it, and used for all sequences."""

    world: World
    sound = False
    """Whether the last step ended well."""

    @initialize(
        capacity=st.integers(1, 8),
        order=st.sampled_from(("deadline", "fifo")),
        admission=st.sampled_from(("feasible", "cap")),
    )
    def begin(self, capacity: int, order: str, admission: str) -> None:
        self.world.client.flushall()
        self.world.now = T0
        self.world.capacity, self.world.order = capacity, order
        self.world.admission, self.world.retention = admission, RETENTION
        self.model = Model(self.world.rules, LEASE, self.world.now)
        self.actors: dict[str, Actor] = {}
        self.steps: list[Step] = []
        self.tokens: list[tuple[str, str]] = []
        self.made = 0
        self.wakes_lost = False
        self.forgotten: set[str] = set()
        self.sight = self._look()
        self._register(slots=1, tasks=TASKS, version=1)
        self._register(slots=1, tasks=TASKS[capacity % 2 :][:1], version=1)
        if admission == "feasible":  # something is known of how long the tasks take
            self._submit([self._submission(n, 0, 9_000) for n in (0, 1)], twice=False)
            self._work(0, [(0, 90), (0, 400)])

    # --- one step

    def _look(self) -> Sight:
        return Sight(self.world.look(), self.world.now)

    def _send(self, step: Step, *, twice: bool = False) -> Any:
        """Run a call, let the model follow, and compare all that there is."""
        self.sound = False
        # first attempts of just now: there is never too little for a hedge
        self.world.client.hset(self.world.key("budget"), f"f{self.world.now // SLOT_MS}", 10**6)
        answer = self.world.run(step.call)
        step.follow(answer)
        if step.kind == "claim" and (actor := self.actors.get(str(step.call.args[0]))):
            actor.until_ms = answer.park_until_ms or None
        self._compare()
        if twice:
            self._repeat_at_once(step, answer)
        self.sound = True
        self.steps.append(step)
        del self.steps[:-40]
        return answer

    def _repeat_at_once(self, step: Step, first: Any) -> None:
        """The reply was lost and the same bytes came again: nothing more has happened."""
        before, same = self.sight, not waiting_dead(self.sight)
        answer = again = self.world.run(step.call)
        if step.kind == "claim":
            first, again = (
                a._replace(claims=sorted(a.claims, key=lambda c: c.id)) for a in (first, again)
            )
        elif step.kind == "renew":  # it finds the tokens that it has handed out itself
            first, again = (a._replace(tokens=0) for a in (first, again))
        elif step.kind == "admit":
            # of two submits of one key in a batch, the later may have changed the answer to both;
            # what was refused may be so for another reason, as the others have been accepted
            keys = [*step.call.args[4::13]]
            first, again = (
                [
                    (a.verdict if a.deadline_ms else "refused", a.deadline_ms)
                    for a, key in zip(both, keys, strict=True)
                    if keys.count(key) == 1
                ]
                for both in (first, again)
            )
            same = same and len(set(keys)) == len(keys)
        assert again == first, f"{step.kind} answered {first}, and when repeated {again}"
        step.follow(answer)
        self._compare()
        if same:
            # while a suspect waits, each call may wake one more who sleeps
            but = ("parked", *(name for name in before.values if name.startswith("ctl:")))
            but += ("stats", "wake")
            assert self.sight.zset("parked").items() <= before.zset("parked").items()
            after = self.sight.frozen(*but, *(n for n in self.sight.values if n.startswith("ctl:")))
            assert after == before.frozen(*but), f"a repeated {step.kind} changed something"
        for name, n in self.sight.values.get("stats", {}).items():
            if not name.startswith(CALLS_COUNTED):
                assert n == before.values["stats"].get(name, "0") or not same, name

    def _compare(self) -> None:
        before, self.sight = self.sight, self._look()
        self._adopt()
        for ident, job in self.model.jobs.items():
            self._compare_job(ident, job)
        known = self.model.jobs.keys()
        assert self.sight.records.keys() <= known, "a job that nobody submitted"
        for state, places in (("ready", self.sight.ready), ("suspect", self.sight.suspects)):
            right = [job.ident for job in self.model.waiting(state)]
            stand = [i for i in places if self.model.jobs[i].state == state]
            assert stand == right, f"{state} are {stand}, should be {right}"
            for ident in stand:
                place, _ = self.model.place(self.model.jobs[ident])
                assert places[ident] == place, f"{ident} stands at another place"
        assert self.sight.strays <= self.forgotten
        assert self.sight.zset("workers") == {
            name: child.lease_end for name, child in self.model.children.items()
        }
        check(self.sight, before, self.world.rules, LEASE)
        self._check_wakes()

    def _adopt(self) -> None:
        """Where the design leaves the moment open, the record tells."""
        for job in self.model.jobs.values():
            record = self.sight.records.get(job.ident, {})
            if job.unswept and record.get("state") not in WAITING:
                job.unswept, job.ended_at = False, self.world.now
            if job.open and job.estimate is None:
                job.estimate = int(record.get("estimate", 0))

    def _compare_job(self, ident: str, job: Job) -> None:
        record = self.sight.records.get(ident)
        assert record is not None, f"{ident}, {job.state}, was lost"
        if job.unswept:
            assert record["state"] in WAITING
            assert self.sight.due[ident] <= self.world.now
            return
        assert record["state"] == job.state, f"{ident} is {record['state']}, should be {job.state}"
        expected = {
            "task": job.task,
            "deadline": str(job.deadline),
            "fence": str(job.fence) if job.fence else None,
            "attempt": str(job.attempt) if job.attempt else None,
            "owner": job.owner,
            "replay": job.replay,
            "owner2": job.second and job.second.owner,
            "claim2": str(job.second.claim) if job.second else None,
            "fence2": str(job.second.fence) if job.second else None,
            "left": str(job.left) if job.left else None,
        }
        assert self.sight.zset("stragglers").get(ident) == job.late_at
        assert self.sight.zset("hedges").get(ident) == job.look_at
        if job.open:
            assert self.sight.due[ident] == job.due
            assert int(record.get("estimate", 0)) == job.estimate
            expected |= {
                "claim": str(job.claim) if job.claim else None,
                "fails": str(job.fails) if job.fails else None,
                "cancel": "1" if job.cancel else None,
                "again": "1" if job.again else None,
                "crashes": str(job.crashes) if job.crashes else None,
                "alone": "1" if job.alone else None,
                "once": "1" if job.once else None,
            }
            assert (record.get("probe") == "1") is job.probe
            assert self.sight.payload(ident) == job.payload
            held = {name for name in record if name.startswith("w:")}
            assert held == set(job.tokens)
        else:
            assert self.sight.blob(ident) == job.blob
            left = job.ended_at + job.keep - self.world.now
            assert left - SLACK <= self.sight.ttls[f"job:{ident}"] <= left
        found = {name: record.get(name) for name in expected}
        assert found == expected, f"{ident}: {found}, should be {expected}"

    def _check_wakes(self) -> None:
        """No job waits for a worker that sleeps: a token is on its way to somebody."""
        sleepers = [
            actor
            for actor in self.actors.values()
            if actor.until_ms is not None and actor.name in self.sight.parked()
            if self.sight.zset("workers").get(actor.name, 0) > self.world.now
        ]
        if self.wakes_lost or not sleepers:
            return
        woken = [
            actor
            for actor in self.actors.values()
            if actor.token or f"token {actor.name}" in self.sight.values.get(_ctl(actor), [])
        ]
        for job in self.model.waiting("suspect"):
            able = [a for a in sleepers if a.slots == 1 and a.knows(job)]
            called = any(a.slots == 1 for a in woken)
            assert called or not able or job.due <= self.world.now, f"{job.ident} waits, alone"
        if self.sight.tokens() or woken:
            return
        for job in self.model.jobs.values():
            able = [a for a in sleepers if a.knows(job)]
            if not able or job.due <= self.world.now:
                continue
            assert job.state != "ready", f"{job.ident} waits and nobody is woken"
            first = min(actor.until_ms for actor in sleepers if actor.until_ms is not None)
            if job.state == "later":
                assert first <= max(job.ready_at, self.world.now), f"all sleep past {job.ident}"
            # whose wait is over claims at once; these do so when it is their turn
            unheard = any(
                actor.unanswered or (actor.until_ms or self.world.now + 1) <= self.world.now
                for actor in self.actors.values()
            )
            if job.look_at is not None and not unheard and any(a.name != job.owner for a in able):
                assert first <= max(job.look_at, self.world.now), f"nobody waits for {job.ident}"

    # --- producers

    def _submission(
        self, n: int, m: int, within: int = 0, *, fresh: bool = False, ident: str = ""
    ) -> Submission:
        key, variant = n % KEYS, m % 16
        if fresh:
            key = KEYS + 1 + 2 * self.made + n % 2
        elif ident:
            key = int(ident, 16)
        self.made += 1
        token = f"w:pC.{self.made:x}"
        ident = f"{key:02x}"
        self.tokens.append((ident, token))
        task = TASKS[key % 2]
        within = within or (1, 60, 400, 1_000, 3_000, 8_000, 30_000, 30_000)[(n // KEYS + m) % 8]
        other = variant == 15
        return Submission(
            ident,
            f"key-{ident}",
            b"other" if other else b"print",
            task,
            self.world.now + within - (1 if variant == 14 else 0),
            self.world.now + within // 2 + 1 if variant in (12, 13) else 0,
            variant % 4,
            m % 3,
            token,
            (b"p" * 300 if key % 3 else b"p") + ident.encode(),
            "1" if key % 4 == 3 else "",
            "h" if key % 4 < 2 else "",
        )

    @rule(made=st.lists(st.tuples(pick, pick), min_size=2, max_size=4), twice=st.booleans())
    def submit(self, made: list[tuple[int, int]], twice: bool) -> None:
        self._submit([self._submission(*numbers) for numbers in made], twice=twice)

    @rule(n=pick, m=pick, twice=st.booleans())
    def submit_one(self, n: int, m: int, twice: bool) -> None:
        self._submit([self._submission(n, m)], twice=twice)

    @rule(n=small, m=pick, within=st.integers(1, 1_200))
    def submit_tight(self, n: int, m: int, within: int) -> None:
        """With about as much time as it may take."""
        self._submit([self._submission(n, m % 12, within, fresh=m % 2 == 0)], twice=False)

    @precondition(lambda self: self.model.slots() and self.sight.facts().tasks)
    @rule(n=small, rank=st.integers(0, 3), off=st.integers(-1, 1))
    def submit_at_the_edge(self, n: int, rank: int, off: int) -> None:
        """With just the time that it takes to be accepted, or a millisecond beside it."""
        task = TASKS[n % 2]
        least = self.model.least_time(task, rank, self.sight.facts())
        if least is not None:
            made = self._submission(n, rank, max(1, least + off), fresh=True)
            self._submit([made], twice=False)

    def _submit(self, submissions: Sequence[Submission], *, twice: bool) -> None:
        def follow(answers: Any) -> None:
            facts = self.sight.facts(sweeps=4 + len(submissions))
            dead = self.sight.zset("dead")
            self.model.admit(submissions, [tuple(a) for a in answers], facts, dead)

        call = scripts.admit(self.world.rules, submissions)
        self._send(Step("admit", call, follow), twice=twice)

    @precondition(lambda self: self.tokens)
    @rule(n=pick, everybody=small, twice=st.booleans())
    def leave(self, n: int, everybody: int, twice: bool) -> None:
        """A caller gives up; or somebody cancels the job for all."""
        ident, token = self.tokens[-1 - n % min(len(self.tokens), 12)]
        if everybody < 2:
            self._cancel(ident, twice=twice)
        else:
            self._leave(ident, token, twice=twice)

    @precondition(lambda self: any(j.state in DEAD or j.replay for j in self.model.jobs.values()))
    @rule(n=pick, within=st.sampled_from((0, 60, 1_000, 30_000)), times=st.integers(1, 3))
    def replay(self, n: int, within: int, times: int) -> None:
        """Somebody wants a dead job once more; others may want the same."""
        jobs = self.model.jobs.values()
        some = [job.ident for job in jobs if n < 2 or job.state in DEAD or job.replay]
        ident = some[n % len(some)]
        for _ in range(times):
            self.made += 1
            token = f"w:pC.{self.made:x}"
            self.tokens.append((ident, token))
            made = replay_of(ident, within=self.world.now - T0 + within, token=token)
            self._submit([made], twice=n % 2 == 0)

    def _leave(self, ident: str, token: str, *, twice: bool) -> None:
        def follow(answer: Any) -> None:
            assert answer[0] in self.model.leave(ident, token)

        call = scripts.leave([(ident, token)], retention_ms=RETENTION)
        self._send(Step("leave", call, follow), twice=twice)

    def _cancel(self, ident: str, *, twice: bool) -> None:
        def follow(answer: Any) -> None:
            assert answer in self.model.cancel(ident)

        call = scripts.cancel(ident, retention_ms=RETENTION)
        self._send(Step("cancel", call, follow), twice=twice)

    def _pause(self, *, paused: bool) -> None:
        def follow(_: Any) -> None:
            self.model.paused = paused

        self._send(Step("pause", scripts.pause(paused=paused), follow), twice=True)

    @precondition(lambda self: self.model.in_state("running"))
    @rule(n=small, what=small, ms=st.integers(-1, 1_200), off=st.integers(-1, 1))
    def meet_a_run(self, n: int, what: int, ms: int, off: int) -> None:
        """Something happens to a job while it runs."""
        runs = [job for job in self.model.jobs.values() if job.state == "running"]
        job = runs[n % len(runs)]
        owner = self.actors.get(job.owner or "")
        match what:
            case 0 | 1:
                within = max(1, job.due + ms - self.world.now)
                self._submit([self._submission(0, 0, within, ident=job.ident)], twice=what == 0)
            case 2:
                self._cancel(job.ident, twice=True)
            case 3 if job.tokens:
                self._leave(job.ident, [*job.tokens][-1], twice=ms % 2 == 0)
            case 4 | 5 if job.deadline + off > self.world.now:
                self._pass(job.deadline + off - self.world.now, renewed=ms > 100)
            case 6 if owner and off:
                self._release(owner, Departure.DIED if off > 0 else Departure.KILLED)
            case 6 if owner:
                self._crash(owner)
            case 7 if owner:
                owner.held.pop(job.ident, None)
                self._renew([owner], twice=True)

    @precondition(lambda self: self.sight.facts().tasks and len(self.model.children) < 12)
    @rule(n=small, slots=st.integers(1, 3), what=small, off=st.sampled_from((-1, 0, 0, 0, 50)))
    def straggle(self, n: int, slots: int, what: int, off: int) -> None:
        """A run takes longer than most, and somebody is idle; or something happens to both."""
        if not self._hedgeable():
            self.made += 1
            submission = self._submission(
                0, n % 3, 20_000, ident=f"{100 + 4 * self.made + n % 2:x}"
            )
            self._submit([submission], twice=False)
            self._register(slots=9, tasks=TASKS, version=1)
            self._claim(len(self.actors) - 1, 9, park=n > 1, lost=False, twice=False)
        stragglers = self._hedgeable()
        if not stragglers:
            return
        job = stragglers[n % len(stragglers)]
        owner = job.owner
        self._pass(max(1, (job.look_at or 0) + off - self.world.now), renewed=True)
        idle = [a.name for a in self.actors.values() if a.name != owner and not a.held]
        if not idle:
            self.made += 1
            self._register(slots=slots, tasks=TASKS, version=1)
        places = [*self.actors]
        self._claim(
            places.index(idle[0] if idle else places[-1]), slots, park=n % 4 > 0, lost=False,
            twice=n % 2 == 0,
        )  # fmt: skip
        if job.second is None:
            return
        both = [self.actors[name] for name in (job.owner, job.second.owner) if name in self.actors]
        actor = both[what % len(both)]
        ends = [(outcome, 90) for outcome in (0, 0, 1, 2, 4, 5)]
        match n:
            case 0 | 1 | 2 | 3 if job.ident in actor.held:
                actor.held = {job.ident: actor.held.pop(job.ident), **actor.held}
                self._finish(actor, [ends[what % len(ends)]], 50 * (n % 2), cut=False, twice=True)
            case 4:
                self._release(actor, [*Departure][what % 3])
            case 5:
                self._cancel(job.ident, twice=True)
            case 6:
                actor.held.pop(job.ident, None)
                self._renew([actor], twice=True)

    def _hedgeable(self) -> list[Job]:
        return [job for job in self.model.jobs.values() if job.look_at is not None]

    # --- children

    def _actor(self, n: int) -> Actor | None:
        return [*self.actors.values()][n % len(self.actors)] if self.actors else None

    def _register(self, slots: int, tasks: tuple[str, ...], version: int) -> None:
        name = f"c{len(self.steps)}-{self.made}-{len(self.actors)}"

        def follow(answer: Any) -> None:
            assert answer == name
            self.model.register(name, slots, version, tasks)

        call = scripts.register(
            name,
            lease_ms=LEASE,
            slots=slots,
            who="h",
            retention_ms=RETENTION,
            tasks=tasks,
            rule=ALL_RETRIES,
        )
        step = Step("register", with_argument(call, 5, version), follow)
        self.actors[name] = Actor(name, slots, tasks, version)
        self._send(step, twice=True)

    @precondition(lambda self: len(self.actors) < 3)
    @rule(n=small)
    def register(self, n: int) -> None:
        self.made += 1
        tasks = (TASKS, TASKS, TASKS[:1], TASKS[1:])[n % 4]
        self._register(slots=1 + n % 3, tasks=tasks, version=0 if n > 5 else 1)

    @precondition(lambda self: any(actor.held for actor in self.actors.values()))
    @rule(n=small, how=st.sampled_from((Departure.DIED, Departure.DIED, Departure.KILLED)))
    def die(self, n: int, how: Departure) -> None:
        """A child that was at work is gone, and its supervisor says so."""
        self._release(self._busy(n), how)

    @precondition(lambda self: self.model.in_state("ready", "suspect"))
    @rule(
        slots=st.integers(1, 2),
        ends=st.lists(st.sampled_from((*Departure, Departure.DIED, None)), min_size=1, max_size=3),
        within=st.sampled_from((400, 20_000)),
    )
    def die_at_work(self, slots: int, ends: list[Departure | None], within: int) -> None:
        """One child after the other is started, claims, and is gone; None: in silence."""
        for how in ends:
            self._submit([self._submission(len(ends), 0, within)], twice=False)
            self._register(slots=slots, tasks=TASKS, version=1)
            self._claim(len(self.actors) - 1, slots, park=True, lost=False, twice=False)
            actor = [*self.actors.values()][-1]
            if how is not None:
                self._release(actor, how)
            else:
                self._crash(actor)
                self._pass(LEASE, renewed=True)

    def _release(self, actor: Actor, how: Departure = Departure.LEAVES) -> None:
        """A child stops in order, or its supervisor reports how it went."""
        del self.actors[actor.name]
        self.wakes_lost |= actor.token or how is not Departure.LEAVES

        def follow(suspects: Any) -> None:
            self.model.retire(actor.name, how)
            if not self.forgotten:
                assert suspects == self.model.in_state("suspect")

        call = scripts.release(actor.name, retention_ms=RETENTION, how=how)
        self._send(Step("release", call, follow), twice=True)

    def _crash(self, actor: Actor) -> None:
        """A child falls silent; the server does not know until its lease lapses."""
        del self.actors[actor.name]
        self.wakes_lost |= actor.token or actor.until_ms is not None

    @precondition(lambda self: self.actors)
    @rule(n=small, want=st.integers(0, 3), park=st.booleans(), lost=small, twice=st.booleans())
    def claim(self, n: int, want: int, park: bool, lost: int, twice: bool) -> None:
        self._claim(n, want, park=park, lost=lost == 0, twice=twice)

    def _claim(self, n: int, want: int, *, park: bool, lost: bool, twice: bool) -> None:
        actor = self._actor(n)
        assert actor is not None
        self._pop(actor)
        if actor.token and actor.name not in dict(self.model.alive()):
            self.wakes_lost = True  # a real one registers anew, and claims
        step = actor.unanswered
        if step is None:
            free = max(0, actor.slots - len(actor.held))
            if actor.token:  # who has taken a token makes use of it
                want, park = max(1, want), True
            step = self._claim_step(actor, min(want, free), park=park)
        actor.token = False
        answer = self._send(step, twice=twice)
        if lost:
            actor.unanswered, actor.until_ms = step, None
            return
        actor.unanswered = None
        if not answer.known:
            del self.actors[actor.name]
            return
        actor.number = int(step.call.args[2])
        actor.held |= {claim.id: claim.fence for claim in answer.claims}

    def _pop(self, actor: Actor) -> None:
        """A parked child's blocked pop brings what there is for it."""
        if actor.until_ms is None:
            return
        actor.until_ms = None
        found = self.world.client.lpop(self.world.key(_ctl(actor)))
        if found is None:
            found = self.world.client.lpop(self.world.key("wake"))
        actor.token = found in (b"1", f"token {actor.name}".encode())

    def _claim_step(self, actor: Actor, want: int, *, park: bool) -> Step:
        name, number = actor.name, actor.number + 1

        def follow(answer: Any) -> None:
            self.model.claim(
                name, number, want, actor.version, actor.tasks, answer, self.sight.facts()
            )

        call = scripts.claim(
            name, number, want, retention_ms=RETENTION, park=park, tasks=actor.tasks
        )
        return Step("claim", with_argument(call, 6, actor.version), follow)

    @precondition(lambda self: any(actor.held for actor in self.actors.values()))
    @rule(
        n=small,
        ends=st.lists(st.tuples(small, st.sampled_from((1, 20, 90, 400))), min_size=1, max_size=3),
        delay=st.sampled_from((0, 50, 700)),
        cut=st.booleans(),
        twice=st.booleans(),
    )
    def finish(
        self, n: int, ends: list[tuple[int, int]], delay: int, cut: bool, twice: bool
    ) -> None:
        self._finish(self._busy(n), ends, delay, cut=cut, twice=twice)

    @precondition(lambda self: self.actors)
    @rule(n=small, ends=st.lists(st.tuples(small, st.sampled_from((1, 20, 90, 400))), max_size=3))
    def work(self, n: int, ends: list[tuple[int, int]]) -> None:
        """Claim all that fits, and finish some of it at once."""
        self._work(n, ends)

    def _work(self, n: int, ends: list[tuple[int, int]]) -> None:
        actor = self._actor(n)
        assert actor is not None
        self._claim(n, 9, park=True, lost=False, twice=False)
        if actor.held and ends:
            self._finish(actor, ends, 50, cut=False, twice=False)

    @precondition(lambda self: any(actor.held for actor in self.actors.values()))
    @rule(n=small, outcome=small, ms=st.sampled_from((1, 20, 90, 400)))
    def finish_one(self, n: int, outcome: int, ms: int) -> None:
        self._finish(self._busy(n), [(outcome, ms)], 50, cut=False, twice=False)

    def _busy(self, n: int) -> Actor:
        busy = [actor for actor in self.actors.values() if actor.held]
        return busy[n % len(busy)]

    def _finish(
        self, actor: Actor, ends: list[tuple[int, int]], delay: int, *, cut: bool, twice: bool
    ) -> None:
        settlements = [
            Settlement(ident, fence, OUTCOMES[o], ms * 1000, cut, delay, b"r" * ms)
            for (o, ms), (ident, fence) in zip(ends, [*actor.held.items()], strict=False)
        ]
        for settlement in settlements:
            del actor.held[settlement.id]

        def follow(answers: Any) -> None:
            self.model.finish(actor.name, settlements, answers, self.sight.facts())

        call = scripts.finish(actor.name, settlements, retention_ms=RETENTION)
        self._send(Step("finish", call, follow), twice=twice)

    @precondition(lambda self: self.actors)
    @rule(mask=st.integers(1, 15), leave_out=small, twice=st.booleans())
    def renew(self, mask: int, leave_out: int, twice: bool) -> None:
        """Children are renewed; one may no longer hold a job that it was given."""
        some = [a for i, a in enumerate(self.actors.values()) if mask & (1 << i % 4)]
        if leave_out == 0 and some and some[0].held:
            del some[0].held[next(iter(some[0].held))]
        self._renew(some, twice=twice)

    def _renew(self, some: Sequence[Actor], *, twice: bool = False) -> None:
        renewals = [scripts.Renewal(a.name, a.number, dict(a.held)) for a in some]

        def follow(answer: Any) -> None:
            self.model.renew(renewals, answer.children)
            ends = [child.lease_end for child in self.model.children.values()]
            assert answer.first_lapse_ms == min(ends, default=0)
            if not self.forgotten:
                assert answer.suspects == self.model.in_state("suspect")
            self.wakes_lost = False

        call = scripts.renew(renewals, lease_ms=LEASE, retention_ms=RETENTION)
        answer = self._send(Step("renew", call, follow), twice=twice)
        for actor, renewed in zip(some, answer.children, strict=True):
            if not renewed.known:
                del self.actors[actor.name]
            for ident, word in renewed.words.items():
                if word == "lost":
                    actor.held.pop(ident, None)

    @rule()
    def look(self) -> None:
        """What callers and people see is what the model knows."""
        idents = [*self.model.jobs, "ff00"]
        *sights, none = self.world.run(scripts.fetch(idents))
        assert none.state == "gone"
        for sight, job in zip(sights, self.model.jobs.values(), strict=True):
            dead = job.state in WAITING and job.due <= self.world.now
            assert sight.state == ("expired" if dead else job.state)
            assert sight.deadline_ms == (job.due if job.open else job.deadline)
            assert sight.attempt == job.attempt
            if job.state in ("done", "failed", "exhausted", "crashed"):
                assert sight.blob == job.blob
        self._look_at_the_dead()
        if any(job.unswept for job in self.model.jobs.values()) or self.forgotten:
            return
        stats, model = self.world.run(scripts.stats()), self.model
        assert stats._replace(counters={}, dead=0) == scripts.Stats(
            live=model.live(),
            ready=model.in_state("ready"),
            suspects=model.in_state("suspect"),
            later=model.in_state("later"),
            strange=model.in_state("strange"),
            unfinished=model.in_state(*OPEN),
            workers=len([*model.alive()]),
            slots=model.slots(),
            dead=0,
            counters={},
            paused=model.paused,
        )
        assert stats.counters.get("admitted", 0) == model.admitted
        assert stats.counters.get("started", 0) == model.started

    def _look_at_the_dead(self) -> None:
        """Newest first, and none of them missing."""
        found = self.world.run(scripts.dead(1_000))
        ended = [job.ended_ms for job, _ in found]
        assert ended == sorted(ended, reverse=True)
        assert {job.id for job, _ in found} <= set(self.model.jobs)
        for job, blob in found:
            known = self.model.jobs[job.id]
            assert (job.state, job.task, blob) == (known.state, known.task, known.blob)
            assert (job.ended_ms, job.attempts) == (known.ended_at, known.attempt)
        for ident, known in self.model.jobs.items():
            fresh = known.state in DEAD and known.ended_at > self.world.now - RETENTION
            assert not fresh or ident in {job.id for job, _ in found}

    # --- time, and anything again byte for byte

    @rule(ms=st.sampled_from((1, 7, 40, 150, 600, 2_000)), renewed=small)
    def pass_time(self, ms: int, renewed: int) -> None:
        self._pass(ms, renewed=renewed > 0)

    @rule(n=pick, m=small)
    def seldom(self, n: int, m: int) -> None:
        """What happens now and then: one rule for all, so that the others come more often."""
        actor = self._actor(m)
        if self.model.paused:
            self._pause(paused=False)
            return
        match n % 8:
            case 0 | 1 if actor:
                self._crash(actor)
            case 2 if actor:
                self._release(actor)
            case 3:
                self._pause(paused=True)
            case 4:
                self._pass((20_000, 61_000, 95_000, 200_000)[m % 4])

    @precondition(lambda self: self.steps)
    @rule(n=pick, kind=st.sampled_from(("finish", "finish", "claim", "renew", "")))
    def repeat(self, n: int, kind: str) -> None:
        """A call from some time ago arrives once more, byte for byte."""
        of_kind = [step for step in self.steps if step.kind == kind] or self.steps
        self._send(of_kind[-1 - n % len(of_kind)])

    @rule(n=small, off=st.integers(-1, 1), renewed=small)
    def pass_until(self, n: int, off: int, renewed: int) -> None:
        """To the very instant at which something happens, or just beside it."""
        instants = {child.lease_end for child in self.model.children.values()}
        for job in self.model.jobs.values():
            if job.open:
                instants |= {job.due, job.deadline, job.ready_at, self._latest_start(job)}
        ahead = sorted(at + off - self.world.now for at in instants if at + off > self.world.now)
        if ahead:
            self._pass(ahead[n % min(len(ahead), 5)], renewed=renewed > 0)

    def _latest_start(self, job: Job) -> int:
        """When its time is up by the smaller estimate, which fades until then."""
        at = job.deadline
        for _ in range(4):
            facts = replace(self.sight.facts(), now=at)
            at = job.deadline - math.ceil(self.model.expected(job, facts))
        return at

    def _pass(self, ms: int, *, renewed: bool = False) -> None:
        """Time passes; the leases of all who live are kept up meanwhile, or not."""
        while renewed and self.actors and ms > LEASE / 2:
            self._pass(LEASE // 2)
            self._renew([*self.actors.values()])
            ms -= LEASE // 2
        self.sound = False
        self.world.pass_time(ms, early_ms=SLACK // 2)
        self.model.now = self.world.now
        for name, child in self.model.children.items():
            if child.lease_end <= self.world.now:  # who was woken by name may be swept unheard
                self.wakes_lost |= name in self.actors and self.actors[name].until_ms is not None
        records = self._look().records
        for ident, job in [*self.model.jobs.items()]:
            if ident not in records:
                ends = job.ended_at + job.keep
                if job.open:
                    ends = job.due + UNIT_LIMIT + RETENTION
                assert job.unswept or ends - SLACK <= self.world.now, f"{ident} was forgotten"
                del self.model.jobs[ident]
                self.forgotten.add(ident)
        self._compare()
        self.sound = True

    # --- the end

    def teardown(self) -> None:
        if not self.sound:
            return  # a step has failed, and says why
        self._drain()
        for start in self.model.starts:
            assert start.at + start.estimate <= start.deadline, "started past its latest start"

    def _drain(self) -> None:
        """All workers die; a new one finds every job that was accepted, and ends it."""
        self.actors.clear()
        self._register(slots=9, tasks=TASKS, version=1)
        self._register(slots=1, tasks=TASKS, version=1)
        actors = [*self.actors.values()]
        for _ in range(60):
            self._renew(actors)
            for actor in actors:
                answer = self._send(self._claim_step(actor, actor.slots, park=False))
                actor.number += 1
                self._finish_all(actor, answer.claims)
            if not self.sight.due:
                break
            self._pass(1_000)
        assert not self.sight.due, f"never ended: {self.sight.due}"
        for name in ("ready", "suspects", "later", "strange", "delayed"):
            assert not self.sight.zset(name)
        assert not any(self.sight.runs.values())
        assert not any(job.state in OPEN for job in self.model.jobs.values())

    def _finish_all(self, actor: Actor, claims: Sequence[Any]) -> None:
        settlements = [Settlement(c.id, c.fence, "done", 1_000, False, 0, b"") for c in claims]

        def follow(answers: Any) -> None:
            self.model.finish(actor.name, settlements, answers, self.sight.facts())

        call = scripts.finish(actor.name, settlements, retention_ms=RETENTION)
        self._send(Step("finish", call, follow))
