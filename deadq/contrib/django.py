"""Enqueueing once a transaction of Django's is committed, and not if it is rolled back.

::

    with transaction.atomic():
        order.save()
        pending = on_commit(charge.options(key="order-17")).enqueue("17", 999)
    job = pending.job  # raises what it was refused with

Arguments and deadline are fixed at the call; with no transaction open it is sent at once. Django
keeps the order, and drops what belongs to a savepoint that is rolled back.
"""

from __future__ import annotations

from typing import Generic, ParamSpec, TypeVar

from django.db import transaction

from ..task import BoundCall
from .pending import Fate, Pending

__all__ = ["Fate", "OnCommit", "Pending", "on_commit"]

P = ParamSpec("P")
R = TypeVar("R")


class OnCommit(Generic[P, R]):
    """A call that is submitted on commit."""

    def __init__(self, call: BoundCall[P, R], using: str | None) -> None:
        self._call = call
        self._using = using

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Pending[R]:
        """Submit once the innermost open transaction, and all around it, are committed.

        Raises:
            Rejected: the call would be refused here and now, for its size or its deadline.
            TypeError, ValueError: as ``enqueue`` of the task.
        """
        pending = Pending(self._call.bind(*args, **kwargs))
        transaction.on_commit(pending.send, using=self._using)
        return pending


def on_commit(call: BoundCall[P, R], *, using: str | None = None) -> OnCommit[P, R]:
    """The call of a task, or of ``task.options(...)``, for the database ``using``."""
    return OnCommit(call, using)
