"""Ways to live with failure that need no queue: usable by themselves, around any call."""

from .backoff import Backoff, BackoffKind, RandomSource

__all__ = ["Backoff", "BackoffKind", "RandomSource"]
