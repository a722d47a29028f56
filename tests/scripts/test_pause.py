"""pause: new submits are refused, or taken again; what is under way goes on."""

from deadq.store import scripts
from tests.scripts.world import settlement, submission


def pause(world, *, paused):
    world.run(scripts.pause(paused=paused))


def test_a_paused_queue_refuses_until_it_is_resumed(world):
    pause(world, paused=True)
    assert world.verdict(submission("a")) == "paused"
    pause(world, paused=False)
    assert world.verdict(submission("a")) == "admitted"


def test_it_touches_nothing_but_its_mark(world):
    world.seed_worker("c")
    world.seed_job("a")
    before = world.dump()
    with world.changes() as changed:
        pause(world, paused=True)
    assert changed == {"fleet": before["fleet"] | {"paused": "1"}}
    pause(world, paused=False)
    assert world.dump() == before


def test_twice_is_as_good_as_once(world):
    for paused in (True, False):
        pause(world, paused=paused)
        with world.changes() as changed:
            pause(world, paused=paused)
        assert changed == {}


def test_what_was_accepted_is_worked_off(world):
    world.seed_worker("c")
    world.seed_job("a")
    pause(world, paused=True)
    (claim,) = world.claim("c").claims
    assert world.finish("c", settlement("a", fence=claim.fence)) == ["done"]


def test_it_outlasts_the_coming_and_going_of_workers(world):
    pause(world, paused=True)
    world.register("c")
    world.release("c")
    world.register("d")
    world.now += 6_000
    world.register("e")
    assert world.verdict(submission("a")) == "paused"
