"""What carries deadline, retry budget and idempotency key into a tier, and out of it.

Into a web app: :class:`deadq.edge.asgi.DeadlineMiddleware` and its twin in :mod:`deadq.edge.wsgi`.
Out of it: the transports in :mod:`deadq.edge.httpx`, and the connections in :mod:`deadq.edge.sql`.
A handler asks :func:`inbound` for what its request has brought along.
"""

from .answers import Answer, answer_for
from .headers import DEADLINE_HEADER, GRPC_TIMEOUT_HEADER, TIMEOUT_HEADER, BadHeader
from .inbound import Inbound, inbound

__all__ = [
    "DEADLINE_HEADER",
    "GRPC_TIMEOUT_HEADER",
    "TIMEOUT_HEADER",
    "Answer",
    "BadHeader",
    "Inbound",
    "answer_for",
    "inbound",
]
