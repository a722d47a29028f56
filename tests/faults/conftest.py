"""Fixtures of the fault tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers import Server
from tests.supervised import LEASE_S, Yard


@pytest.fixture
def yard(runner: str, valkey_server: Server, tmp_path: Path) -> Iterator[Yard]:
    """A depot with a short lease, for tests marked with ``every_runner``."""
    with Yard(valkey_server, tmp_path, runner, lease=LEASE_S) as made:
        yield made
