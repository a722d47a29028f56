"""Fixtures of the cases."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cases.support import Declare, Scene
from tests.servers import Server
from tests.shifts import plain_scenes


@pytest.fixture
def valkey(valkey_server: Server) -> Server:
    """Valkey 9, emptied before the test: for what does not depend on the kind of server."""
    with valkey_server.client() as client:
        client.flushall()
        client.config_resetstat()
    return valkey_server


@pytest.fixture
def scene(
    request: pytest.FixtureRequest, valkey_server: Server, tmp_path: Path
) -> Iterator[Callable[..., Any]]:
    """A factory of scenes: ``scene(declare, capacity=5, ...)``, on an emptied Valkey unless
    ``server=`` names another.

    With the parameter "process" its workers run plain handlers in processes of their own: those
    that the test's module names in ``PLAIN``, for each of its declarations.
    """
    if getattr(request, "param", "loop") == "process":
        with plain_scenes(valkey_server, tmp_path, request.module.PLAIN) as factory:
            yield factory
        return
    with contextlib.ExitStack() as stack:

        def make(declare: Declare, *, server: Server | None = None, **settings: Any) -> Scene:
            if server is None:
                server = valkey_server
                with server.client() as client:
                    client.flushall()
                    client.config_resetstat()
            return stack.enter_context(Scene(server.url, tmp_path, declare, **settings))

        yield make
