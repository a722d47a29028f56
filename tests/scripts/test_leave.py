"""leave: giving up tokens; the last live one leaving cancels its job."""

import pytest

from tests.scripts.world import T0, settlement, submission

ONE, TWO = "w:pC.1", "w:pC.2"
PLACES = ("ready", "suspect", "later", "strange", "running")


def seed(world, state, **fields):
    if state == "running":
        world.seed_worker("c", slots=2)
        fields["owner"] = "c"
    world.seed_job("a", state=state, ready_at=2_000, **fields)


@pytest.mark.parametrize("state", PLACES)
def test_while_others_wait_the_job_goes_on(world, state):
    seed(world, state, **{TWO: T0 + 9_000})
    with world.changes() as changed:
        assert world.leave(("a", ONE)) == ["awaited"]
    assert changed.keys() == {"job:a"}
    record = world.job("a")
    assert ONE not in record
    assert TWO in record
    assert record["state"] == state


@pytest.mark.parametrize("state", PLACES)
def test_the_last_one_leaving_cancels_the_job(world, state):
    seed(world, state)
    answer = "running" if state == "running" else "cancelled"
    assert world.leave(("a", ONE)) == [answer]
    if state == "running":
        assert world.job("a")["cancel"] == "1"
        assert world.get("ctl:c") == ["cancel a 7"]
    else:
        assert world.state("a") == "cancelled"
        assert world.places("a") == set()


@pytest.mark.parametrize(("at", "answer"), [(899, "awaited"), (900, "cancelled")])
def test_tokens_past_their_deadline_do_not_count(world, at, answer):
    seed(world, "ready", **{TWO: T0 + 900})
    world.now += at
    assert world.leave(("a", ONE)) == [answer]


def test_several_leave_at_once_in_their_order(world):
    seed(world, "ready", **{TWO: T0 + 9_000})
    world.seed_job("b", seq=2)
    assert world.leave(("a", ONE), ("b", ONE), ("a", TWO)) == ["awaited", "cancelled", "cancelled"]


@pytest.mark.parametrize("state", PLACES)
def test_a_token_that_is_not_held_hangs_nothing_on_the_job(world, state):
    seed(world, state)
    with world.changes() as changed:
        assert world.leave(("a", "w:pX.1")) == ["awaited"]
    assert changed == {}


@pytest.mark.parametrize("state", PLACES)
@pytest.mark.parametrize("others", [0, 1])
def test_a_repeat_hears_the_same_and_changes_nothing(world, state, others):
    seed(world, state, **({TWO: T0 + 9_000} if others else {}))
    first = world.leave(("a", ONE))
    with world.changes() as changed:
        assert world.leave(("a", ONE)) == first
    assert changed == {}


@pytest.mark.parametrize("state", ["done", "failed", "exhausted", "exceeded", "expired"])
def test_what_has_ended_stays_as_it_is(world, state):
    world.seed_ended("a", state)
    with world.changes() as changed:
        assert world.leave(("a", ONE)) == [state]
    assert changed == {}


def test_a_job_that_is_no_more_is_gone(world):
    assert world.leave(("a", ONE)) == ["gone"]


def test_a_leave_that_is_late_by_a_life_does_not_touch_the_next(world):
    """A cancels by leaving, B submits the key anew, A's leave comes a second time."""
    seed(world, "ready")
    assert world.leave(("a", ONE)) == ["cancelled"]
    assert world.verdict(submission("a", token=TWO)) == "admitted"
    assert world.leave(("a", ONE)) == ["awaited"]
    assert world.state("a") == "ready"


def test_the_deadline_of_one_who_left_stays_in_force_for_nobody_else_but_the_job(world):
    """The job keeps the latest deadline that was attached; the waiter who is left has its own."""
    seed(world, "ready", deadline=5_000)
    world.admit(submission("a", token=TWO, within=9_000))
    assert world.leave(("a", TWO)) == ["awaited"]
    assert world.get("due") == {"a": T0 + 9_000}
    world.now += 5_000
    assert world.leave(("a", ONE)) == ["cancelled"], "its own token is past its deadline too"


def test_who_came_back_to_a_cancelled_run_and_leaves_again_takes_it_along(world):
    seed(world, "running")
    assert world.leave(("a", ONE)) == ["running"]
    assert world.verdict(submission("a", token=TWO)) == "duplicate"
    assert world.leave(("a", TWO)) == ["running"]
    assert world.finish("c", settlement("a", "cancelled")) == ["cancelled"]


def test_of_two_who_came_back_one_may_leave(world):
    seed(world, "running")
    world.leave(("a", ONE))
    world.admit(submission("a", token=TWO))
    world.admit(submission("a", token="w:pC.3"))
    assert world.leave(("a", TWO)) == ["awaited"]
    assert world.finish("c", settlement("a", "cancelled")) == ["ready"]


def test_a_submit_that_nobody_waits_for_holds_its_token_until_its_deadline(world):
    world.admit(submission("a", within=5_000))
    world.admit(submission("a", within=2_000, token=TWO))
    world.now += 4_999
    assert world.leave(("a", TWO)) == ["awaited"]
