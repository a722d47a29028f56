"""Blocking network calls that keep to a deadline in all their parts.

A timeout of a socket bounds one wait; a peer that sends a byte now and then keeps a call alive
for ever (encode/httpx issue 1450). So each wait is bounded by what is left of the whole.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final, TypeVar

from ..ambient import Ambient
from ..deadline import Deadline

T = TypeVar("T")

_LEAST_S: Final = 0.001
"""A timeout of 0 would mean not to wait at all, and to fail for another reason."""

_deadline: Ambient[Deadline] = Ambient("deadq_blocking_deadline")


def keeping_to(deadline: Deadline) -> AbstractContextManager[Deadline]:
    """Bound every wait of the block."""
    return _deadline.held(deadline)


def left_of(timeout: float | None, deadline: Deadline | None = None) -> float | None:
    """What a wait may take (s), if it may take ``timeout`` by itself: by the deadline that is
    given, or else by the one that is kept to."""
    deadline = deadline or _deadline.get()
    if deadline is None:
        return timeout
    left = max(deadline.remaining(), _LEAST_S)
    return left if timeout is None else min(timeout, left)


def addresses(host: str, port: int, timeout: float | None) -> list[str]:
    """Addresses of a host, in the order in which they are to be tried.

    Raises:
        TimeoutError: the name was not resolved within ``timeout`` s.
        OSError: it cannot be.
    """
    if timeout is None:
        return [host]  # whoever connects resolves it
    found = _within(timeout, lambda: socket.getaddrinfo(host, port, 0, socket.SOCK_STREAM))
    return [str(entry[4][0]) for entry in found]


def _within(timeout: float, call: Callable[[], T]) -> T:
    """Of a call that nothing can interrupt: what it returned, unless that takes too long."""
    answers: list[T] = []
    errors: list[Exception] = []

    def work() -> None:
        try:
            answers.append(call())
        except Exception as error:  # noqa: BLE001  raised where it is waited for
            errors.append(error)

    thread = threading.Thread(target=work, name="deadq-resolver", daemon=True)
    thread.start()
    thread.join(timeout)
    if errors:
        raise errors[0]
    if not answers:
        msg = "the name was not resolved in time"
        raise TimeoutError(msg)
    return answers[0]
