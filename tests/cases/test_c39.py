"""C39: SIGTERM before the child has its own handlers.

A terminate signal that came between fork and the child's set-up must not run the handler that the
child inherited: whenever the signal comes, every process is gone in time and no job is lost.
"""

import signal
import time

import pytest

from tests.servers import wait_until
from tests.supervised import Yard, every_runner, passed

PAUSES_MS = (0, 1, 5, 20, 50)
GRACE_S = 1.0
SLACK_S = 2.0


def stopped(yard, worker):
    """It ends in time, with the exit code of a graceful stop, and leaves nothing behind."""
    assert worker.wait(GRACE_S + SLACK_S) == 0, worker.log
    worker.gone(SLACK_S)
    yard.unmanned()
    assert "Traceback" not in worker.log


@pytest.mark.race
@pytest.mark.parametrize(
    ("to", "number"),
    [("parent", signal.SIGTERM), ("group", signal.SIGTERM), ("group", signal.SIGINT)],
)
@every_runner
def test_a_stop_at_any_instant_after_the_spawn_ends_everything(
    runner, to, number, valkey_server, tmp_path
):
    with Yard(valkey_server, tmp_path, runner, lease=0.5) as yard:
        jobs = [yard.tasks.nap.options(within=60.0).enqueue(0.05, n) for n in range(20)]
        for pause_ms in PAUSES_MS:
            worker = yard.worker(slots=2, children=2, grace=GRACE_S)
            wait_until(worker.children, "a child to be spawned")
            passed(pause_ms / 1000, time.monotonic())
            worker.send(number) if to == "parent" else worker.send_all(number)
            stopped(yard, worker)
        heir = yard.worker(slots=2, children=2, grace=GRACE_S)
        assert [job.result() for job in jobs] == list(range(20))
        yard.calm()
        heir.send(number)
        stopped(yard, heir)
