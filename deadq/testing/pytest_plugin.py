"""Fixtures that pytest finds by itself where deadq is installed. None acts unless it is named."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ..queue import Queue
from .fake import queue
from .moving_clock import Clock, clock


@pytest.fixture
def deadq_clock() -> Iterator[Clock]:
    """A clock that stands still until the test calls ``deadq_clock.advance(seconds)``."""
    with clock() as made:
        yield made


@pytest.fixture
def deadq_queue(deadq_clock: Clock) -> Queue:  # noqa: ARG001  it has to be there first
    """An empty queue named ``test``, with room for 64 jobs, on a fake server of its own."""
    return queue()
