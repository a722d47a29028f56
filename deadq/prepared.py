"""A call that is ready to be submitted."""

from __future__ import annotations

from typing import Generic, TypeVar

from .deadline import Deadline
from .errors import DeadlineExpired, Rejected, shown
from .job import Submission

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Prepared(Generic[R_co]):
    """A call ready to be submitted: made by :meth:`Task.bind`, taken by ``Queue.enqueue_many``."""

    __slots__ = ("deadline", "submission")

    def __init__(self, submission: Submission, deadline: Deadline) -> None:
        self.submission = submission
        self.deadline = deadline


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
