"""Which servers a test runs on, where running it on each takes too long for every day."""

import pytest

_slowly = pytest.mark.slow

THOROUGH = (pytest.mark.slow, pytest.mark.thorough)
"""For rounds by the hundred: minutes each, on a machine that does nothing else."""

on_newest = pytest.mark.parametrize(
    "server",
    ["valkey9", pytest.param("redis62", marks=_slowly), pytest.param("redis7", marks=THOROUGH)],
    indirect=True,
)
"""On one server; on the oldest among the slow tests, on the one between them by the thorough."""

on_newest_and_oldest = pytest.mark.parametrize(
    "server", ["valkey9", "redis62", pytest.param("redis7", marks=THOROUGH)], indirect=True
)
"""On the two that differ most; on the third among the thorough tests."""


def scenes_on_servers(scenes, representative):
    """Every scene on one server, on the others a few of them; the rest among the slow tests."""
    return pytest.mark.parametrize(
        ("server", "title"),
        [
            pytest.param(
                server,
                title,
                marks=() if server == "valkey9" or title in representative else _slowly,
            )
            for server in ("valkey9", "redis62", "redis7")
            for title in scenes
        ],
        indirect=["server"],
    )
