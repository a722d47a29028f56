"""Every call may be repeated: a lost reply loses no job, doubles none, leaks no slot.

For each script, in each situation that matters, the call is run once on one queue, and on
another queue with its reply lost and the call repeated by the store itself. Both queues must
then hold the same and both callers must have got the same answer.
"""

import asyncio
import os
import signal

import pytest
import redis
from redis.asyncio import Redis as AsyncRedis
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.retry import Retry

from deadq.job import job_id
from deadq.store import loader, scripts
from deadq.testing.proxy import slow_proxy
from tests.faults import unit_jobs
from tests.faults.callers import Callers
from tests.marks import on_newest, scenes_on_servers
from tests.shifts import Shift, under_both_runners
from tests.stages import (
    FIRST_SCENES,
    LEASE_MS,
    SCENES,
    Stage,
    comparable,
    differences,
    held,
    nothing_left,
    script_of,
    settled,
    unfinished,
    wind_up,
)

_SILENCE_S = 0.5
"""How long the client waits for a reply that will never come."""
everywhere = scenes_on_servers(SCENES, FIRST_SCENES.values())
_ERROR = b"\x93\xa1E\xa1m\xa0"
"""An encoded exception."""


@pytest.fixture
def line(server):
    """The server behind a proxy that can lose replies."""
    with slow_proxy(server.url, listen="unix") as proxy:
        yield proxy


@pytest.fixture(scope="module")
def callers():
    with Callers() as process:
        yield process


def test_every_script_has_its_scenes():
    assert {script_of(title) for title in SCENES} == set(loader.names())


@everywhere
def test_a_call_repeated_after_a_lost_reply_acts_once_and_answers_the_same(title, server, line):
    with server.client() as client:
        reference = Stage(client, "reference")
        expected = comparable(reference.run(SCENES[title](reference)))

        reset = Stage(client, "reset")
        call = SCENES[title](reset)
        with _client(line) as lossy:
            lossy.ping()
            line.swallow_replies(to=call.script.sha.encode(), cut=True)
            assert comparable(reset.sync(lossy).run(call)) == expected
        assert line.swallowed == 1
        assert not differences(held(client, "reset"), held(client, "reference"))

        concurrent = Stage(client, "asyncio")
        call = SCENES[title](concurrent)
        line.swallow_replies(to=call.script.sha.encode(), cut=True)
        assert comparable(asyncio.run(_run(concurrent, line, call))) == expected
        assert line.swallowed == 2
        assert not differences(held(client, "asyncio"), held(client, "reference"))


@pytest.mark.slow
@pytest.mark.parametrize("server", ["valkey9"], indirect=True)
@pytest.mark.parametrize("title", FIRST_SCENES.values())
def test_a_call_repeated_after_a_silence_acts_once_and_answers_the_same(title, server, line):
    """No reset tells the client that the reply is lost: it waits, and sends again."""
    with server.client() as client:
        reference = Stage(client, "reference")
        expected = comparable(reference.run(SCENES[title](reference)))

        stage = Stage(client, "silence")
        call = SCENES[title](stage)
        line.swallow_replies(to=call.script.sha.encode())
        assert comparable(asyncio.run(_run(stage, line, call))) == expected
        assert line.swallowed == 1
        assert not differences(held(client, "silence"), held(client, "reference"))


@everywhere
def test_a_caller_killed_before_the_reply_loses_nothing(title, server, line, callers):
    with server.client() as client:
        reference = Stage(client, "reference")
        reference.run(SCENES[title](reference))

        stage = Stage(client, "killed")
        call = SCENES[title](stage)
        line.swallow_replies(to=call.script.sha.encode())
        pid = callers.start(line.url, stage.name, stage.now_ms, call)
        line.wait_until(lambda: line.swallowed == 1)
        os.kill(pid, signal.SIGKILL)
        line.wait_until(lambda: line.connections == 0)
        assert not differences(held(client, "killed"), held(client, "reference"))

        to_run = unfinished(stage)
        assert wind_up(stage) == to_run
        nothing_left(stage)


def _client(line):
    retry = Retry(NoBackoff(), 0)
    return redis.Redis.from_url(line.url, socket_timeout=_SILENCE_S, retry=retry)


async def _run(stage, line, call):
    retry = AsyncRetry(NoBackoff(), 0)
    async with AsyncRedis.from_url(line.url, socket_timeout=_SILENCE_S, retry=retry) as client:
        return await stage.aio(client).run(call)


def _repeated_after(stage, call, meanwhile):
    """What the repeat of a call answers when the first reply is lost and things go on."""
    stage.run(call)
    meanwhile()
    return stage.run(call)


@on_newest
@pytest.mark.parametrize("outcome", ["done", "failed", "retry", "cancelled"])
def test_a_submit_repeated_after_its_job_has_ended_does_not_run_it_again(server, outcome):
    with server.client() as client:
        stage = Stage(client, "late")
        submission = stage.submission("a", retries=0)
        stage.run(stage.register("c1"))

        def ends():
            if outcome == "cancelled":
                stage.run(stage.cancel("a"))
                return
            (claim,) = stage.run(stage.claim("c1", 1)).claims
            stage.run(stage.finish("c1", settled("a", claim.fence, outcome, blob=_ERROR)))

        (answer,) = _repeated_after(stage, stage.admit(submission), ends)
        assert answer.verdict in ("admitted", "duplicate")
        assert stage.run(stage.claim("c1", 2)).claims == []
        ended = {"retry": "exhausted"}.get(outcome, outcome)
        (sight,) = stage.run(scripts.fetch([submission.id]))
        assert sight.state == ended


@on_newest
def test_a_submit_repeated_while_its_job_runs_changes_nothing(server):
    with server.client() as client:
        stage = Stage(client, "running")
        stage.run(stage.register("c1"))
        call = stage.admit(stage.submission("a"))
        (answer,) = _repeated_after(stage, call, lambda: stage.run(stage.claim("c1", 1)))
        assert answer.verdict == "admitted"
        assert stage.run(stage.claim("c1", 2)).claims == []


@on_newest
def test_a_report_repeated_after_the_job_went_to_somebody_else_is_stale(server):
    with server.client() as client:
        stage = Stage(client, "moved")
        fences = stage.running("a")
        stage.run(stage.register("c2"))
        report = stage.finish("c1", settled("a", fences["a"], "retry", blob=_ERROR))
        claims = []

        def moves_on():
            claims.extend(stage.run(stage.claim("c2", 1)).claims)

        assert _repeated_after(stage, report, moves_on) == ["stale"]
        (claim,) = claims
        assert stage.run(stage.finish("c2", settled("a", claim.fence))) == ["done"]
        nothing_left(stage)


@on_newest
def test_a_claim_repeated_after_the_lease_has_lapsed_gives_nothing(server):
    with server.client() as client:
        stage = Stage(client, "lapsed")
        stage.run(stage.register("c1"))
        stage.submitted("a")
        found = []

        def lapses():
            stage.now_ms += LEASE_MS + 1
            stage.run(stage.register("c2"))
            found.extend(stage.run(stage.claim("c2", 1)).claims)

        answer = _repeated_after(stage, stage.claim("c1", 1), lapses)
        assert not answer.known
        assert [claim.key for claim in found] == ["a"]


@on_newest
def test_a_leave_repeated_after_the_key_was_submitted_anew_spares_the_new_job(server):
    with server.client() as client:
        stage = Stage(client, "anew")
        leaving = stage.leave(stage.submitted("a"))
        _repeated_after(stage, leaving, lambda: stage.submitted("a"))
        (sight,) = stage.run(scripts.fetch([job_id("a")]))
        assert sight.state == "ready"


@pytest.mark.slow
@under_both_runners
def test_a_worker_whose_registrations_were_all_carried_out_counts_once(
    valkey_server, tmp_path, runner
):
    """Each of them may have been, before it gave up and tried again."""
    with (
        Shift(valkey_server, tmp_path, unit_jobs.TWINS, runner, lease=30.0) as made,
        slow_proxy(valkey_server.url, listen="unix") as line,
    ):
        register = loader.load("register")
        made.client.script_load(register.source)
        line.swallow_replies(6, to=register.sha.encode(), cut=True)  # of three tries, two each
        worker = made.worker(concurrency=1, url=line.url)
        assert line.swallowed == 6
        assert (made.queue.stats().workers, made.queue.stats().slots) == (1, 1)
        assert worker.stop() == 0
        assert made.queue.stats().workers == 0
