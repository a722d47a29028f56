"""stats: depths and counters; it changes nothing."""

from deadq.store import scripts
from tests.scripts.world import T0, submission


def stats(world):
    with world.changes() as changed:
        found = world.run(scripts.stats())
    assert changed == {}
    return found


def test_an_empty_queue(world):
    assert stats(world) == scripts.Stats(0, 0, 0, 0, 0, 0, 0, 0, 0, {})


def test_each_depth_is_counted_apart(world):
    world.seed_worker("c", slots=4)
    world.seed_worker("d", slots=2)
    for i in range(3):
        world.seed_job(f"a{i}", seq=i)
    for i in range(2):
        world.seed_job(f"b{i}", state="later", ready_at=1_000)
    world.seed_job("c0", state="strange")
    for i in range(5):
        world.seed_job(f"ca{i}", state="suspect", seq=10 + i)
    world.seed_job("d0", state="running", owner="c")
    world.seed_job("e0", state="running", owner="c", deadline=0)  # past its deadline
    world.seed_ended("f0", "done")
    world.client.zadd(world.key("dead"), {"f1": T0})
    found = stats(world)
    assert found._replace(counters={}) == scripts.Stats(
        live=12,
        ready=3,
        suspects=5,
        later=2,
        strange=1,
        unfinished=13,
        workers=2,
        slots=6,
        dead=1,
        counters={},
    )


def test_counters_tell_what_was_asked_and_what_became_of_it(world):
    world.capacity = 1
    world.admit(submission("a"), submission("b"), submission("a", token="w:pC.2"))
    counters = stats(world).counters
    assert counters == {"offered": 3, "admitted": 1, "rejected:full": 1, "duplicate": 1}


def test_a_paused_queue_says_so(world):
    assert not stats(world).paused
    world.run(scripts.pause(paused=True))
    assert stats(world).paused


def test_workers_whose_lease_has_lapsed_count_neither_by_head_nor_by_slot(world):
    world.seed_worker("c", slots=4, lease=100)
    world.seed_worker("d", slots=2, lease=5_000)
    world.now += 100
    found = stats(world)
    assert (found.workers, found.slots) == (1, 2)
