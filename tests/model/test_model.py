"""The scripts on a real server against the design in plain Python, over random sequences.

pytest tests/model                some sequences, on the newest server
pytest tests/model -m slow        and the same ones on the oldest
pytest tests/model -m thorough    many more and longer ones on each

They are the same each time, so that a fault found is a fault of the change at hand. To go further
afield, raise ``max_examples`` and set ``derandomize=False`` below.
"""

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.model.machine import QueueMachine
from tests.scripts.world import World

QUICK = settings(
    max_examples=120,
    stateful_step_count=40,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.generate, Phase.shrink),
)
THOROUGH = settings(QUICK, max_examples=400, stateful_step_count=60)


on_newest = pytest.mark.parametrize(
    "world", ["valkey9", pytest.param("redis62", marks=pytest.mark.slow)], indirect=True
)


@pytest.fixture(params=["valkey9", "redis62"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    shared = "valkey_server" if request.param == "valkey9" else "redis62_server"
    with request.getfixturevalue(shared).client() as client:
        yield World(client)


def run(on: World, profile: settings) -> None:
    class Machine(QueueMachine):
        world = on

    run_state_machine_as_test(Machine, settings=profile)


@on_newest
def test_the_scripts_do_what_the_design_says(world):
    run(world, QUICK)


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_the_scripts_do_what_the_design_says_over_many_more_sequences(world):
    run(world, THOROUGH)
