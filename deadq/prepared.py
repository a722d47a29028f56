"""A call that is ready to be submitted."""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

from .clock import ServerClock
from .deadline import Deadline
from .errors import DeadlineExpired, Rejected, shown
from .handle import JobHandle
from .job import Submission
from .producer import Producer
from .store.connect import Backend
from .tracing import Tracer

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Owner(Protocol):
    """The queue that a call is for."""

    backend: Backend
    producer: Producer
    tracer: Tracer | None

    @property
    def name(self) -> str: ...
    @property
    def clock(self) -> ServerClock: ...
    def submit(self, prepared: Prepared[R]) -> JobHandle[R]: ...
    async def asubmit(self, prepared: Prepared[R]) -> JobHandle[R]: ...


class Prepared(Generic[R_co]):
    """A call ready to be submitted: made by :meth:`Task.bind`, taken by ``Queue.enqueue_many``."""

    __slots__ = ("deadline", "keyed", "owner", "submission")

    def __init__(
        self, submission: Submission, deadline: Deadline, owner: Owner, *, keyed: bool
    ) -> None:
        self.submission = submission
        self.deadline = deadline
        self.owner = owner
        self.keyed = keyed
        """Whether its key was given, and not made."""


def check_in_time(prepared: Prepared[R_co]) -> None:
    """What is over by this process's own count need not be asked of the server, whose clock is
    known to half a round trip only.

    Raises:
        DeadlineExpired: the deadline has passed.
    """
    if prepared.deadline.expired and not prepared.deadline.exact:
        msg = "the deadline has passed"
        raise DeadlineExpired(msg)


def submittable(call: Prepared[R] | Rejected) -> Prepared[R] | Rejected:
    """An item of a batch, or an error that says what it should be.

    Raises:
        TypeError: it is something else.
    """
    if not isinstance(call, Prepared | Rejected):
        msg = f"enqueue_many takes what task.bind(...) makes, not {shown(call)}"
        raise TypeError(msg)
    return call
