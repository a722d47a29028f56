"""A queue's settings, as they travel to a worker in another process."""

import dataclasses
from typing import Any, Final

from deadq import Queue
from deadq.resilience import BudgetRule

ALL_RETRIES: Final = BudgetRule(ratio=1000, floor=1000)
"""For tests of other things than the budget."""


def told(queue: Queue) -> dict[str, Any]:
    """In plain values."""
    settings = dataclasses.asdict(queue.config)
    ratio, floor, window_ms = map(float, settings.pop("budget").split())
    return {**settings, "retry_budget": [ratio, floor, window_ms / 1000]}


def heard(settings: dict[str, Any]) -> dict[str, Any]:
    """What a queue is made of."""
    return {**settings, "retry_budget": BudgetRule(*settings["retry_budget"])}
