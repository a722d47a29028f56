"""C37: child closes the parent's connection."""

import pytest

from tests.cases.c37 import CHILDREN
from tests.marks import THOROUGH
from tests.workers import Process, WorkerProcess

ROUNDS, FEWER = 50, 12
AT_ONCE = 4
"""Connections that a parent needs at most: for two or three users of its own."""
PARENTS = ["blocking", "asyncio"]
_slowly = pytest.mark.slow


def check(url, book, parent, how, rounds, **more):
    """No error in parent or child, no mixed reply, no shared connection."""
    target = f"tests.cases.c37:{parent}_parent"
    with (
        WorkerProcess(url, book, concurrency=4),
        Process(target, url=url, book=str(book), rounds=rounds, how=how, **more) as process,
    ):
        told = process.hear()
        assert process.errors == ""
    assert told["faults"] == []
    parents, children = set(told["parent"]), told["children"]
    assert len(set(children)) == len(children) == rounds
    assert not parents & set(children)
    assert len(parents) <= AT_ONCE  # none had to be made anew because a child broke it


def combinations(ways, daily):
    """Parents and ways of having children, and rounds; ``daily`` those that are tried each time."""
    return [
        pytest.param(parent, how, ROUNDS)
        if (parent, how) in daily
        else pytest.param(parent, how, FEWER, marks=_slowly)
        for parent in PARENTS
        for how in ways
        # one that leaves by an exception takes its copy of the parent's running loop with it
        if (parent, how) != ("asyncio", "fork, sys.exit")
    ]


FORKS = [how for how in CHILDREN if "spawn" not in how]
DAILY = [("blocking", "fork"), ("asyncio", "fork, in a loop")]


@pytest.mark.parametrize(("parent", "how", "rounds"), combinations(FORKS, DAILY))
def test_forked_children_leave_their_parent_alone(valkey, parent, how, rounds, tmp_path):
    check(valkey.url, tmp_path / "book", parent, how, rounds)


@pytest.mark.parametrize(
    ("parent", "rounds"),
    [
        ("blocking", 1),  # each takes an interpreter's start, and inherits nothing
        pytest.param("asyncio", 10, marks=_slowly),
    ],
)
def test_spawned_children_leave_their_parent_alone(valkey, parent, rounds, tmp_path):
    check(valkey.url, tmp_path / "book", parent, "multiprocessing spawn", rounds)


@pytest.mark.parametrize(
    ("parent", "how", "rounds"),
    [
        ("asyncio", "fork, in a loop", 5),
        pytest.param("asyncio", "fork, in a loop", ROUNDS, marks=THOROUGH),
        pytest.param("blocking", "fork", FEWER, marks=_slowly),
    ],
)
def test_forked_children_leave_a_tls_line_alone(
    tls_server, tls_files, parent, how, rounds, tmp_path
):
    url = f"{tls_server.tcp_url}?ssl_ca_certs={tls_files.ca}"
    check(url, tmp_path / "book", parent, how, rounds)


@_slowly
def test_a_forked_child_that_runs_to_its_end_leaves_a_tls_line_alone(
    tls_server, tls_files, tmp_path
):
    """Its interpreter frees what it has inherited; OpenSSL is in no call of another thread's."""
    url = f"{tls_server.tcp_url}?ssl_ca_certs={tls_files.ca}"
    check(url, tmp_path / "book", "blocking", "fork, sys.exit", FEWER, beside=False)
