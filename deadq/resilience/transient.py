"""Which failures may go away by themselves, so that trying again makes sense.

By status 408, 429, 502, 503 and 504; connections that were refused or broke; timeouts; and refusals
of deadq's own that pass. Never what says that the request itself is wrong (400, 422). What a layer
below has given up on (``RetryDenied``) is not tried again, unless it was left to this one.
"""

from __future__ import annotations

import errno
import socket
import ssl
import sys
from collections.abc import Iterator
from typing import Any, Final

from ..errors import Paused, QueueFull, RetryDenied, StoreUnavailable, Unmeetable

TRANSIENT_STATUSES: Final = frozenset({408, 429, 502, 503, 504})
THROTTLED_STATUSES: Final = frozenset({429, 503})

_REFUSALS: Final = (QueueFull, Unmeetable, Paused, StoreUnavailable)

_ERRNOS: Final = frozenset(
    {errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN, errno.ETIMEDOUT}
)
"""Of an ``OSError`` that Python gives no class of its own."""

_OF_LIBRARIES: Final = (
    ("httpx", "TimeoutException", "NetworkError", "RemoteProtocolError", "ProxyError"),
    ("requests.exceptions", "ConnectionError", "Timeout", "ChunkedEncodingError"),
    ("urllib3.exceptions", "TimeoutError", "ProtocolError", "NewConnectionError"),
    ("aiohttp", "ClientConnectionError", "ServerTimeoutError", "ClientPayloadError"),
    ("redis.exceptions", "ConnectionError", "TimeoutError", "BusyLoadingError"),
    ("psycopg", "OperationalError"),
    ("botocore.exceptions", "HTTPClientError"),
)
"""Module, and its classes that stand for a connection or a timeout. None is imported here: whoever
raised one has done so."""

_PERMANENT: Final = (ssl.SSLCertVerificationError, UnicodeError)
"""As a cause of one of these it stays what it is, however often one tries."""


def is_transient(error: BaseException) -> bool:
    """Whether the same call may succeed a little later."""
    if isinstance(error, RetryDenied):
        return (
            error.reason == "layer"
            and error.__cause__ is not None
            and is_transient(error.__cause__)
        )
    if isinstance(error, _REFUSALS):
        return True
    status = status_of(error)
    if status is not None:
        return status in TRANSIENT_STATUSES
    if any(isinstance(cause, _PERMANENT) for cause in _causes(error)):
        return False
    if isinstance(error, socket.gaierror):
        return error.errno == socket.EAI_AGAIN
    if isinstance(error, ConnectionError | TimeoutError):
        return True
    if isinstance(error, OSError) and error.errno in _ERRNOS:
        return True
    return isinstance(error, tuple(_kinds_in_use()))


def is_outage(error: BaseException) -> bool:
    """Whether it is the other side that fails: what may pass by itself, and what it calls its own
    fault (a status from 500 on). A retry that gave up does not hide it."""
    error = failure_of(error)
    return is_transient(error) or (status_of(error) or 0) >= 500


def is_throttled(error: BaseException) -> bool:
    """Whether the other side said that it has too much to do."""
    error = failure_of(error)
    if isinstance(error, _REFUSALS):
        return not isinstance(error, StoreUnavailable)
    return status_of(error) in THROTTLED_STATUSES


def failure_of(error: BaseException) -> BaseException:
    """What went wrong: the error, or that for which a layer below was denied another try."""
    return next((e for e in _causes(error) if not isinstance(e, RetryDenied)), error)


def status_of(error: BaseException) -> int | None:
    """The HTTP status that the error carries, as those of httpx, requests and aiohttp do."""
    found = attribute(response_of(error), "status_code")
    for name in ("status_code", "status", "code"):
        if _is_status(found):
            break
        found = attribute(error, name)
    return found if _is_status(found) else None


def response_of(error: BaseException) -> object:
    """The response that the error carries, or the error itself, as urllib's is both."""
    response = attribute(error, "response")
    return error if response is None else response  # that of requests counts as false


def attribute(owner: object, name: str) -> Any:
    """What an error, or what it carries, has under this name; None: nothing, or it raises.

    What went wrong must not be hidden by what goes wrong in looking at it.
    """
    try:
        return getattr(owner, name, None)
    except Exception:  # noqa: BLE001  a property may raise anything
        return None


def _is_status(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 100 <= value <= 599


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error, and what it came from."""
    seen: set[int] = set()
    found: BaseException | None = error
    while found is not None and id(found) not in seen:
        seen.add(id(found))
        yield found
        cause = attribute(found, "__cause__")
        found = attribute(found, "__context__") if cause is None else cause


def _kinds_in_use() -> Iterator[type[BaseException]]:
    for module, *names in _OF_LIBRARIES:
        loaded = sys.modules.get(module)
        for name in names if loaded is not None else ():
            kind = getattr(loaded, name, None)
            if isinstance(kind, type) and issubclass(kind, BaseException):
                yield kind
