"""The server is killed under load: what it had acknowledged stays, or says that it is gone."""

import asyncio
import os

import pytest

from deadq import JobGone
from tests.faults.kinds import NEWEST, OLDEST, on_servers
from tests.faults.trouble import DURABLE, Load, Trouble, fences_grow
from tests.marks import THOROUGH

ROUNDS = pytest.mark.parametrize("rounds", [2, pytest.param(20, marks=THOROUGH)])
_AT_WORK = 40
"""Results between one kill and the next."""


async def killed_under_load(trouble, rounds, unsynced=0):
    """Kill the server and bring it back, round after round; the load's story. What it has written
    during the last ``unsynced`` results is lost each time, as when the machine goes down.
    """
    async with Load(trouble) as load:
        await load.served(_AT_WORK)
        for _ in range(rounds):
            kept = trouble.server.journal.stat().st_size
            await load.served(unsynced)
            await asyncio.to_thread(trouble.server.kill)
            if unsynced:
                os.truncate(trouble.server.journal, kept)
            await load.noticed()
            await asyncio.to_thread(trouble.server.start)
            await load.served(_AT_WORK)
    return load


@on_servers(NEWEST, OLDEST)
@ROUNDS
def test_with_appendfsync_always_nothing_acknowledged_is_lost_or_doubled(
    version, kind, rounds, tmp_path
):
    with Trouble(version, tmp_path, kind, aof=True, config=DURABLE) as trouble:
        workers = [trouble.worker() for _ in range(2)]
        load = asyncio.run(killed_under_load(trouble, rounds))
        assert load.outcomes == {key: load.wanted[key] for key in load.accepted}
        # the lease outlives each outage: nothing is started once more for it
        assert trouble.book.starts() == {key: load.runs[key] for key in load.accepted}
        effects = [note.key for note in trouble.book.notes("effect")]
        assert len(effects) == len(set(effects))
        assert fences_grow(trouble.book)
        trouble.calm()
        assert all(worker.alive for worker in workers)


def each_kept_or_gone(trouble, load):
    """Every caller has got a result, or was told that the job is gone; the queue goes on."""
    assert set(load.outcomes) == set(load.accepted)
    lost = {key for key, error in load.failed.items() if isinstance(error, JobGone)}
    assert set(load.failed) == lost
    print(f"lost {len(lost)} of {len(load.accepted)}")
    kept = load.outcomes.keys() - lost
    assert {key: load.outcomes[key] for key in kept} == {key: load.wanted[key] for key in kept}
    assert fences_grow(trouble.book)
    trouble.calm()
    return lost


@on_servers(NEWEST, OLDEST)
@ROUNDS
def test_with_appendfsync_everysec_each_lost_job_says_that_it_is_gone(
    version, kind, rounds, tmp_path
):
    """A process that is killed loses only what it had not yet handed to the kernel."""
    with Trouble(version, tmp_path, kind, aof=True) as trouble:
        workers = [trouble.worker() for _ in range(2)]
        load = asyncio.run(killed_under_load(trouble, rounds))
        each_kept_or_gone(trouble, load)
        assert all(worker.alive for worker in workers)


@on_servers(NEWEST)
@ROUNDS
def test_power_losses_under_load_leave_a_queue_that_goes_on(version, kind, rounds, tmp_path):
    with Trouble(version, tmp_path, kind, aof=True, lease=1.5) as trouble:
        workers = [trouble.worker() for _ in range(2)]
        load = asyncio.run(killed_under_load(trouble, rounds, unsynced=20))
        assert each_kept_or_gone(trouble, load)
        assert all(worker.alive for worker in workers)
