"""Ways to live with failure that need no queue: usable by themselves, around any call."""

from .backoff import Backoff, BackoffKind, RandomSource
from .breaker import Breaker, Permit
from .chain import ChainFault, ChainFaultKind, ChainVerdict, TierFigures
from .circuit import BreakerState

__all__ = [
    "Backoff",
    "BackoffKind",
    "Breaker",
    "BreakerState",
    "ChainFault",
    "ChainFaultKind",
    "ChainVerdict",
    "Permit",
    "RandomSource",
    "TierFigures",
]
