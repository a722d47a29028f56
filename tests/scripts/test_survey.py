"""survey: service times, and what the user may do; it leaves nothing behind."""

from deadq.store import scripts
from tests.scripts.world import settlement


def survey(world, *tasks):
    with world.changes() as changed:
        found = world.run(scripts.survey(tasks))
    assert changed == {}
    return found


def test_an_empty_queue_has_no_samples_and_everybody_may_do_all(world):
    assert survey(world, "t", "u") == (0, [], {})
    assert world.client.keys("*") == []


def test_service_times_are_told_for_each_task_that_has_run(world):
    world.seed_worker("c", slots=9)
    for number in range(10):
        world.seed_job(f"j{number}", state="running", owner="c", seq=number)
        world.finish("c", settlement(f"j{number}", "done", ms=100))
    found = survey(world, "u", "t")
    assert 90 <= found.mean_ms <= 110
    assert list(found.tasks) == ["t"]
    p50, p95 = found.tasks["t"]
    assert 90 <= p50 <= p95 <= 120
    world.pass_time(10_000)  # admission's estimate is next to nothing by now
    assert survey(world, "u", "t") == found
