"""What a call to a dependency says of its deadline, and whom it counts for."""

from __future__ import annotations

from ..deadline import Deadline, seconds
from ..errors import DeadlineExceeded
from ..resilience import RETRY_BUDGET_HEADER, outgoing
from . import counts
from .headers import headers_for


class CallTerms:
    """The same for all calls to a dependency.

    Raises:
        ValueError: an odd margin.
    """

    def __init__(self, dependency: str, margin: float, *, trusted: bool) -> None:
        self.dependency = dependency
        self._margin = seconds(margin, "margin", positive=False)
        self._trusted = trusted
        self._count = counts.outbound().labels(dependency)

    def for_call(self) -> tuple[Deadline | None, dict[str, str]]:
        """The deadline of a call that is made now, if any, and the headers that it gets.

        Raises:
            DeadlineExceeded: there is no time for it.
        """
        deadline = Deadline.current()
        told = {RETRY_BUDGET_HEADER: outgoing()} if self._trusted else {}
        if deadline is not None:
            of_time = headers_for(deadline, margin=self._margin, trusted=self._trusted)
            if of_time is None:
                left = max(0.0, deadline.remaining())
                msg = f"nothing was sent to {self.dependency}: {left:.3f} s are left for the call"
                raise DeadlineExceeded(msg)
            told |= of_time
        self._count.inc()
        return deadline, told

    def over(self) -> str:
        """What is said of a call whose time is over."""
        return f"the deadline passed in a call to {self.dependency}"
