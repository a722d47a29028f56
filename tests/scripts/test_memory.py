"""A full server refuses admissions whole and lets everything else pass: the queue drains."""

from collections.abc import Iterator

import pytest
import redis

from deadq.errors import StoreUnavailable
from deadq.job import Departure
from deadq.store import loader, scripts
from deadq.twins import Twin
from tests.scripts.world import RETENTION, T0, World, renewal, settlement, submission, tied
from tests.servers import Server

CHILD = "c"


@pytest.fixture
def world(server: Server) -> Iterator[World]:
    client = server.client()
    with client:
        yield World(client)
        client.config_set("maxmemory", 0)


def fill(world: World) -> None:
    """From here on the server refuses each command that may need memory."""
    world.client.config_set("maxmemory-policy", "noeviction")
    world.client.config_set("maxmemory", 1)
    with pytest.raises(redis.exceptions.OutOfMemoryError):
        world.client.set("elsewhere", "x")


def seed(world: World) -> None:
    """One job in each place, a lapsed child, one whose deadline has come, one that falls due."""
    world.seed_worker(CHILD, slots=9, lease=60_000)
    world.seed_worker("lapsed", lease=100)
    world.seed_job("a0", seq=1, payload="p" * 500)
    world.seed_job("b0", state="running", owner=CHILD, seq=2, payload="p" * 500)
    world.seed_job("b1", state="running", owner="lapsed", seq=3, fence=8)
    world.seed_job("b2", state="running", owner=CHILD, seq=4, deadline=200, fence=9)
    world.seed_job("c0", state="later", ready_at=100, seq=5)
    world.seed_job("d0", state="strange", task="u", seq=6)
    world.seed_job("e0", deadline=100, seq=7)
    world.seed_service("t", 10, 20)
    world.now = T0 + 300


@pytest.mark.parametrize("outcome", ["done", "failed", "retry", "release", "cut", "cancelled"])
@pytest.mark.parametrize("size", [2, 500])
def test_finish(world, outcome, size):
    seed(world)
    fill(world)
    made = settlement("b0", outcome, blob=b"r" * size, delay=50)
    (word,) = world.finish(CHILD, made)
    assert word == world.state("b0")
    assert (
        word
        == {
            "done": "done",
            "failed": "failed",
            "retry": "later",
            "release": "ready",
            "cut": "exceeded",
            "cancelled": "cancelled",
        }[outcome]
    )


@pytest.mark.parametrize("outcome", ["done", "unrun"])
def test_finish_past_the_deadline(world, outcome):
    seed(world)
    fill(world)
    assert world.finish(CHILD, settlement("b2", outcome, fence=9))[0] in ("exceeded", "expired")


@pytest.mark.parametrize("ident", ["a0", "b0", "c0", "d0"])
def test_cancel(world, ident):
    seed(world)
    fill(world)
    assert world.cancel(ident) == ("running" if ident == "b0" else "cancelled")


@pytest.mark.parametrize("ident", ["a0", "b0", "c0", "d0"])
def test_leave(world, ident):
    seed(world)
    fill(world)
    assert world.leave((ident, "w:pC.1")) == ["running" if ident == "b0" else "cancelled"]


def test_expiry_claim_and_what_the_dead_have_held(world):
    seed(world)
    fill(world)
    assert world.claimed(CHILD, 1, 9) == ["a0", "b1", "c0"]
    assert world.state("e0") == "expired"


def test_a_claim_that_finds_nothing_parks(world):
    world.seed_worker(CHILD)
    fill(world)
    assert world.claim(CHILD, 1, 1, park=True).known
    assert world.get("parked").keys() == {CHILD}


def test_an_exchange(world):
    seed(world)
    fill(world)
    done = settlement("b0", "done", fence=7, blob=b"y" * 5_000)
    assert world.exchange(CHILD, 2, 1, done) == (["done"], ["a0"])


def test_renewal_and_its_housekeeping(world):
    seed(world)
    fill(world)
    (answer,) = world.renew(renewal(CHILD, 1, {"b0": 7, "b2": 9})).children
    assert answer.known
    assert world.get("workers")[CHILD] == world.now + 5_000
    assert (world.state("b1"), world.state("c0"), world.state("e0")) == (
        "ready",
        "ready",
        "expired",
    )


def test_a_worker_may_come_and_go(world):
    seed(world)
    fill(world)
    world.release(CHILD)
    assert world.state("b0") == "ready"
    world.register("d", "t", "u", slots=5)
    assert world.state("d0") == "ready"
    assert world.claim("d", 1, 9, "t", "u").claims


def test_a_dead_childs_jobs_become_suspects_and_run_alone(world):
    seed(world)
    world.seed_worker("d")
    fill(world)
    assert world.release(CHILD, Departure.DIED) == 1
    assert world.state("b0") == "suspect"
    assert world.claimed("d", 1, 1) == ["b0"]


def test_a_straggler_runs_twice_and_the_second_run_ends_it(world):
    world.seed_worker(CHILD, slots=9, lease=60_000)
    world.seed_worker("d")
    world.seed_service("t", 10, 20)
    world.admit(submission("b0", marks="h"))
    world.seed_earned()
    fill(world)
    assert world.claimed(CHILD) == ["b0"]
    world.now += 1_000
    (second,) = world.claim("d").claims
    assert world.finish("d", settlement("b0", fence=second.fence)) == ["done"]


def test_a_loan(world):
    fill(world)
    call = scripts.lend(
        "p", 1, rule="0.1 1 10000", wanted=3, length_ms=1_000, deeds=[scripts.Deed("f", 0, 9)]
    )
    assert world.run(call).tokens == 3


def test_a_twin_that_waits_is_taken_away(world):
    world.admit(submission("b0", payload=b"p" * 500, twin=Twin("first", "b0", "other").text))
    fill(world)
    assert world.run(scripts.untie(tied("b0"), "other", retention_ms=RETENTION))
    assert world.state("b0") == "cancelled"


def test_looking(world):
    seed(world)
    fill(world)
    assert world.run(scripts.fetch(["a0"]))[0].state == "ready"
    assert world.run(scripts.stats()).ready == 2
    assert world.dead() == []
    assert [job.id for job in world.run(scripts.jobs("", 9)) if job.state == "ready"] == ["a0"]
    report, _ = world.run(scripts.show("b0"))
    assert (report.state, report.argument_bytes) == ("running", 500)
    assert world.run(scripts.survey(["t"])).refused == []


def test_pausing(world):
    fill(world)
    world.run(scripts.pause(paused=True))
    world.run(scripts.pause(paused=False))


def begin():
    """A unit of the job that runs."""
    return scripts.begin(
        CHILD, "b0", 7, "pay", "ab", needs_ms=1, limit_ms=30_000, on_doubt="rerun",
        retention_ms=RETENTION,
    )  # fmt: skip


def test_a_unit_begins_and_is_recorded(world):
    seed(world)
    fill(world)
    assert world.run(begin()).word == "run"
    assert world.run(scripts.record("b0", 7, "pay", "done", 5, b"ok")) == "ok"
    assert world.job("b0")["u:pay"].startswith("done")


@pytest.mark.parametrize("n", [1, 3])
def test_admissions_are_refused_whole(world, n):
    seed(world)
    fill(world)
    before = world.dump()
    with pytest.raises(StoreUnavailable, match="out of memory"):
        world.admit(*(submission(f"f{i}") for i in range(n)))
    assert world.dump() == before
    world.client.config_set("maxmemory", 0)
    assert world.verdict(submission("f0")) == "admitted"


def test_every_script_has_its_row_here():
    rows = {
        "finish", "exchange", "cancel", "leave", "claim", "renew", "release", "register", "fetch",
        "stats", "pause", "begin", "record", "admit", "dead", "jobs", "show", "survey", "lend",
        "untie",
    }  # fmt: skip
    assert rows == set(loader.names())
