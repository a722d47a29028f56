"""``hedge=True``: what it says of a task, and what it excludes."""

import pytest

from deadq import JobFailed, Queue, current_job, testing


@pytest.mark.parametrize("plain", [False, True])
def test_its_jobs_say_so(plain):
    queue = testing.queue()
    task = queue.task(within=1.0, hedge=not plain)(lambda: None)
    assert task.bind().submission.marks == ("" if plain else "h")


def test_a_job_of_a_hedged_task_has_no_units():
    queue = testing.queue()

    @queue.task(within=9.0, hedge=True)
    def work():
        return current_job().unit("step", dict)

    with pytest.raises(JobFailed, match="UnitError: unit 'step': a task with hedge=True has no"):
        work.call()


def test_it_excludes_at_most_once():
    queue = Queue("q", capacity=1)
    with pytest.raises(ValueError, match=r"hedge=True and on_crash='fail' exclude each other"):
        queue.task(hedge=True, on_crash="fail")


@pytest.mark.parametrize("odd", [1, 0, None, "yes"])
def test_it_is_a_bool(odd):
    with pytest.raises(TypeError, match="hedge must be True or False, not"):
        Queue("q", capacity=1).task(hedge=odd)
