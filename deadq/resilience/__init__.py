"""Ways to live with failure that need no queue: usable by themselves, around any call."""

from .allowance import RETRY_BUDGET_HEADER, Allowance, outgoing, pass_on
from .backoff import Backoff, BackoffKind, RandomSource
from .breaker import Breaker, Permit
from .budget import Budget, RetryBudget
from .chain import ChainFault, ChainFaultKind, ChainVerdict, TierFigures
from .circuit import BreakerState
from .hedge import ahedge
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
    "Breaker",
    "BreakerState",
    "Budget",
    "BudgetRule",
    "ChainFault",
    "ChainFaultKind",
    "ChainVerdict",
    "Permit",
    "QuotaRule",
    "RandomSource",
    "RetryBudget",
    "Rule",
    "TierFigures",
    "ahedge",
    "aretry",
    "hint_of",
    "is_transient",
    "outgoing",
    "parse",
    "pass_on",
    "retry",
]
