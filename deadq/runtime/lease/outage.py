"""What is said of renewals that fail in a row: the first and the end, not each of many a second."""

from __future__ import annotations

from ...events import Event, log


class Outage:
    """The failures since the last good renewal."""

    def __init__(self) -> None:
        self.failures = 0

    def failed(self, error: Exception) -> None:
        """One more; only the first is a warning, the others are for who debugs."""
        self.failures += 1
        say = log.warning if self.failures == 1 else log.debug
        say("%s: %s; trying again", Event.RENEWAL_FAILED, error)

    def over(self) -> None:
        """A renewal was good."""
        if self.failures:
            log.warning("%s: renewed after %d failures", Event.STORE_BACK, self.failures)
        self.failures = 0
