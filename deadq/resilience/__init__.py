"""Ways to live with failure that need no queue: usable by themselves, around any call."""

from .allowance import RETRY_BUDGET_HEADER, Allowance, outgoing, pass_on
from .backoff import Backoff, BackoffKind, RandomSource
from .budget import Budget, RetryBudget
from .retry import aretry, retry
from .retry_after import hint_of, parse
from .rules import PRESETS, BudgetRule, QuotaRule, Rule
from .transient import is_transient

__all__ = [
    "PRESETS",
    "RETRY_BUDGET_HEADER",
    "Allowance",
    "Backoff",
    "BackoffKind",
    "Budget",
    "BudgetRule",
    "QuotaRule",
    "RandomSource",
    "RetryBudget",
    "Rule",
    "aretry",
    "hint_of",
    "is_transient",
    "outgoing",
    "parse",
    "pass_on",
    "retry",
]
