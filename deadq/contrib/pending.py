"""A submit that waits for a transaction: fixed at the call, sent once the transaction is committed.

The deadline is that of the call: it does not slide while the transaction lasts. What has expired
by then, or is refused for another reason, must not undo a commit that has happened: it is logged,
and whoever asks for :attr:`Pending.job` gets it raised.
"""

from __future__ import annotations

import logging
from enum import StrEnum
from typing import Final, Generic, TypeVar

from ..errors import DeadqError
from ..handle import JobHandle
from ..prepared import Prepared

__all__ = ["Fate", "Pending"]

R = TypeVar("R")

_log: Final = logging.getLogger("deadq.contrib")


class Fate(StrEnum):
    """What has become of a submit that waits for a commit."""

    WAITING = "waiting"
    """Not committed so far; under Django also: rolled back, of which it tells nobody."""
    ENQUEUED = "enqueued"
    REFUSED = "refused"
    DROPPED = "dropped"
    """Rolled back: nothing was sent."""


class Pending(Generic[R]):
    """A submit that waits for a commit."""

    def __init__(self, prepared: Prepared[R]) -> None:
        self._prepared = prepared
        self._job: JobHandle[R] | None = None
        self._error: Exception | None = None
        self.fate = Fate.WAITING

    @property
    def job(self) -> JobHandle[R]:
        """The job's handle.

        Raises:
            Rejected: it was refused at the commit; ``DeadlineExpired``: the transaction outlasted
                its deadline.
            DeadqError: nothing was sent: the transaction is not committed, or was rolled back.
        """
        if self._job is not None:
            return self._job
        if self._error is not None:
            raise self._error
        rolled_back = self.fate is Fate.DROPPED
        msg = f"the transaction {'was rolled back' if rolled_back else 'is not committed'}"
        raise DeadqError(msg)

    def send(self) -> None:
        """Submit: the transaction is committed."""
        try:
            self._accepted(self._prepared.owner.submit(self._prepared))
        except Exception as error:  # noqa: BLE001  the commit has happened, and must not fail
            self._refused(error)

    async def asend(self) -> None:
        """The asyncio twin of :meth:`send`."""
        try:
            self._accepted(await self._prepared.owner.asubmit(self._prepared))
        except Exception as error:  # noqa: BLE001  the commit has happened, and must not fail
            self._refused(error)

    def drop(self) -> None:
        """Forget it: the transaction was rolled back."""
        self.fate = Fate.DROPPED

    def _accepted(self, job: JobHandle[R]) -> None:
        self._job, self.fate = job, Fate.ENQUEUED

    def _refused(self, error: Exception) -> None:
        self._error, self.fate = error, Fate.REFUSED
        submission = self._prepared.submission
        _log.error(
            "committed, but job %s of task %s was refused: %s: %s",
            submission.id,
            submission.task,
            type(error).__name__,
            error,
        )

    def __repr__(self) -> str:
        return f"<Pending {self._prepared.submission.id} {self.fate}>"
