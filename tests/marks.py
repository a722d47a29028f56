"""Which servers a test runs on, where running it on each takes too long for every day."""

import itertools
import re
from collections.abc import Iterable
from typing import Any

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
    """Every scene on the newest server, on the others a few of them; the rest among the slow tests
    on the oldest, and among the thorough ones on the one between."""

    def marks(server, title):
        if server == "valkey9" or title in representative:
            return ()
        return _slowly if server == "redis62" else THOROUGH

    return pytest.mark.parametrize(
        ("server", "title"),
        [
            pytest.param(server, title, marks=marks(server, title))
            for server in ("valkey9", "redis62", "redis7")
            for title in scenes
        ],
        indirect=["server"],
    )


def sampled(*axes: Iterable[Any]) -> list[Any]:
    """Every combination; those beyond a diagonal, on which each value stands once, are slow."""
    lists = [list(axis) for axis in axes]
    longest = max(map(len, lists))
    diagonal = {tuple(i % len(axis) for axis in lists) for i in range(longest)}
    rows = []
    for places in itertools.product(*(range(len(axis)) for axis in lists)):
        values = [axis[i] for axis, i in zip(lists, places, strict=True)]
        marks = () if places in diagonal else (pytest.mark.slow,)
        name = "-".join(re.sub(r"\s+", " ", brief(value)) for value in values)
        rows.append(pytest.param(*values, marks=marks, id=name))
    return rows


def brief(value: Any) -> str:
    """A test id."""
    try:
        return repr(value)[:30]
    except ValueError:
        return type(value).__name__  # an int of too many digits
