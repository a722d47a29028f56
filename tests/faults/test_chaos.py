"""Children and supervisors are killed and stopped at random, under load."""

import asyncio
import contextlib
import os
import random
import signal
import threading
import time
from collections import Counter

import pytest

from deadq import DeadqError, JobGone
from tests.marks import THOROUGH
from tests.supervised import Yard, mostly

LEASE_S = 1.0
WORKERS = 3
CHILDREN = 2
_MOST_PAUSE_S = 0.6


class Monkey(threading.Thread):
    """Kills and stops what it finds, for so many seconds; then everything goes on again.

    A supervisor that it has killed is started anew, as an init system would.
    """

    def __init__(self, yard, seconds):
        super().__init__(daemon=True)
        self._yard = yard
        self._seconds = seconds
        self._chance = random.Random(seconds)
        self._stopped = {}
        """Processes that stand still, and until when (monotonic s)."""
        self.error = None
        self.did = Counter()
        self.workers = [self._start() for _ in range(WORKERS)]
        yard.ready(*self.workers)

    def _start(self):
        slots = CHILDREN if self._yard.runner == "process" else 8 * CHILDREN
        return self._yard.worker(slots=slots, children=CHILDREN, grace=5.0)

    def run(self):
        until = time.monotonic() + self._seconds
        try:
            while time.monotonic() < until:
                time.sleep(self._chance.uniform(0.0, _MOST_PAUSE_S))
                self._act()
                self._go_on(time.monotonic())
        except BaseException as error:
            self.error = error
        finally:
            self._go_on(float("inf"))

    def end(self):
        """Returns when everything goes on."""
        self.join()
        if self.error is not None:
            raise self.error

    def _act(self):
        number = self._chance.randrange(WORKERS)
        worker = self.workers[number]
        if not worker.alive:
            raise AssertionError(f"a supervisor ended by itself:\n{worker.log[-3000:]}")
        children = sorted(worker.children())
        what = self._chance.choices(
            ["kill child", "kill supervisor", "stop child", "stop supervisor", "stop all"],
            [5, 1, 4, 1, 1],
        )[0]
        if "child" in what and not (children and "working on" in worker.log):
            return  # a first child that dies before it has loaded the queue ends its worker
        self.did[what] += 1
        if what == "kill supervisor":
            worker.kill()
            self.workers[number] = self._start()
        elif what == "kill child":
            _signal(self._chance.choice(children), signal.SIGKILL)
        elif what == "stop child":
            self._halt([self._chance.choice(children)])
        else:
            self._halt([worker.pid, *(children if what == "stop all" else ())])

    def _halt(self, pids):
        until = time.monotonic() + self._chance.uniform(0.0, 2.5 * LEASE_S)
        for pid in pids:
            _signal(pid, signal.SIGSTOP)
            self._stopped[pid] = until

    def _go_on(self, now):
        for pid in [pid for pid, until in self._stopped.items() if until <= now]:
            del self._stopped[pid]
            _signal(pid, signal.SIGCONT)


def _signal(pid, number):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


async def submit_and_wait(yard, jobs, seconds):
    """Submits spread over so many seconds, a tenth of them twice; what each caller got."""
    chance = random.Random(jobs)
    outcomes = {}

    async def one(key, at):
        await asyncio.sleep(max(0.0, at - time.monotonic()))
        bound = yard.tasks.ship.options(key=key, within=60.0)
        handle = await bound.aenqueue(naps[key])
        try:
            outcome = await handle.aresult()
        except DeadqError as error:
            outcome = error
        outcomes.setdefault(key, []).append((handle, outcome))

    begun = time.monotonic()
    instants = {f"job-{n}": begun + seconds * n / jobs for n in range(jobs)}
    naps = {key: chance.uniform(0.0, 0.01) for key in instants}
    calls = [one(key, at) for key, at in instants.items()]
    twice = chance.sample(sorted(instants), jobs // 10)
    calls += [one(key, instants[key] + chance.uniform(0.0, 2.0)) for key in twice]
    await asyncio.gather(*calls)
    final = {key: await given[0][0].astate() for key, given in outcomes.items()}
    await yard.queue.aclose()
    return outcomes, final


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("jobs", "seconds"), [(500, 10), pytest.param(10_000, 120, marks=THOROUGH)]
)
@mostly("process")
def test_what_is_killed_and_stopped_at_random_loses_nothing(
    runner, jobs, seconds, valkey_server, tmp_path
):
    with Yard(valkey_server, tmp_path, runner, lease=LEASE_S) as yard:
        monkey = Monkey(yard, seconds)
        monkey.start()
        outcomes, final = asyncio.run(submit_and_wait(yard, jobs, seconds))
        monkey.end()

        assert len(outcomes) == jobs
        results, others = {}, Counter()
        for key, given in outcomes.items():
            values = {repr(value) for _, value in given}
            assert len(values) == 1, f"{key} has more than one outcome: {values}"
            value = given[0][1]
            assert not isinstance(value, JobGone), f"{key} is lost"
            assert final[key].final, f"{key} is {final[key]}"
            if isinstance(value, DeadqError):
                others[repr(value)] += 1
            else:
                results[key] = value
        print(f"{len(results)} of {jobs} have a result; {dict(others)}; {dict(monkey.did)};")
        assert len(results) >= 0.95 * jobs
        assert len(set(monkey.did)) == 5
        effects = yard.depot.ships().effects()
        for key, fences in effects.items():
            # never under an older fence, never twice in one attempt
            assert fences == sorted(set(fences)), key
        for key, fences in yard.depot.ships().recorded().items():
            # once there is a record, no attempt gets another one, and no effect comes after it
            assert len(fences) == 1, key
            assert effects[key][-1] in fences, key
            assert results.get(key, effects[key][-1]) in fences, key
        assert results.keys() <= effects.keys()
        print(f"{sum(map(len, effects.values()))} effects, {yard.depot.ships().refused()} refused")
        yard.calm()
        for worker in monkey.workers:
            worker.send(signal.SIGTERM)
        assert [worker.wait(15.0) for worker in monkey.workers] == [0] * WORKERS
        for worker in monkey.workers:
            worker.gone(2.0)
        yard.unmanned()
