"""The world in which each table test takes place: every server of this machine, and a fake."""

from collections.abc import Iterator

import pytest

from tests.scripts.world import World
from tests.servers import Server, binaries


@pytest.fixture(params=[*binaries(), "fake"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    if request.param == "fake":
        client = request.getfixturevalue("fakes")().sync
    else:
        shared = "valkey_server" if request.param == "valkey9" else f"{request.param}_server"
        server: Server = request.getfixturevalue(shared)
        client = server.client()
        client.flushall()
    with client:
        yield World(client)
