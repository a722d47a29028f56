"""Fixtures of the cases."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cases.support import Declare, Scene
from tests.servers import Server


@pytest.fixture
def valkey(valkey_server: Server) -> Server:
    """Valkey 9, emptied before the test: for what does not depend on the kind of server."""
    with valkey_server.client() as client:
        client.flushall()
        client.config_resetstat()
    return valkey_server


@pytest.fixture
def scene(valkey_server: Server, tmp_path: Path) -> Iterator[Callable[..., Scene]]:
    """A factory of scenes: ``scene(declare, capacity=5, ...)``, on an emptied Valkey unless
    ``server=`` names another."""
    with contextlib.ExitStack() as stack:

        def make(declare: Declare, *, server: Server | None = None, **settings: Any) -> Scene:
            if server is None:
                server = valkey_server
                with server.client() as client:
                    client.flushall()
                    client.config_resetstat()
            return stack.enter_context(Scene(server.url, tmp_path, declare, **settings))

        yield make
