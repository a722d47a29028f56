"""Enqueueing once a session of SQLAlchemy's has committed, and not if it is rolled back.

::

    with Session(engine) as session, session.begin():
        session.add(order)
        pending = on_commit(charge.options(key="order-17"), session).enqueue("17", 999)
    job = pending.job  # raises what it was refused with

With an ``AsyncSession``: ``pending = await on_commit(charge, session).aenqueue("17", 999)``.

Arguments and deadline are fixed at the call. What was called within a savepoint is dropped with it;
once that is released it waits for the transaction around it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, TypeVar

from sqlalchemy import event
from sqlalchemy.orm import Session, SessionTransaction, scoped_session

from ..task import BoundCall
from .pending import Fate, Pending

if TYPE_CHECKING:  # it needs greenlet, which who runs no event loop need not have
    from sqlalchemy.ext.asyncio import AsyncSession

__all__ = ["Fate", "OnCommit", "Pending", "on_commit"]

P = ParamSpec("P")
R = TypeVar("R")

_WAITING: Final = "deadq.on_commit"
"""Where a session keeps what waits for its commits."""


@dataclass(slots=True)
class _Waiting:
    """What waits, for which transaction: the root, or a savepoint."""

    within: SessionTransaction
    pending: Pending[Any]
    send: Callable[[], None]


class OnCommit(Generic[P, R]):
    """A call that is submitted on commit."""

    def __init__(self, call: BoundCall[P, R], session: Session) -> None:
        self._call = call
        self._session = session

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Pending[R]:
        """Submit once the session has committed.

        Raises:
            Rejected: the call would be refused here and now, for its size or its deadline.
            TypeError, ValueError: as ``enqueue`` of the task.
        """
        pending = Pending(self._call.bind(*args, **kwargs))
        return self._wait(pending, pending.send)

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Pending[R]:
        """The twin of :meth:`enqueue` for an ``AsyncSession``."""
        from sqlalchemy.util import await_only

        pending = Pending(await self._call.abind(*args, **kwargs))
        return self._wait(pending, lambda: await_only(pending.asend()))

    def _wait(self, pending: Pending[R], send: Callable[[], None]) -> Pending[R]:
        session = self._session
        within = session.get_nested_transaction() or session.get_transaction() or session.begin()
        if _WAITING not in session.info:
            session.info[_WAITING] = []
            event.listen(session, "after_commit", _committed)
            event.listen(session, "after_transaction_end", _ended)
        session.info[_WAITING].append(_Waiting(within, pending, send))
        return pending


def on_commit(
    call: BoundCall[P, R], session: Session | AsyncSession | scoped_session[Any]
) -> OnCommit[P, R]:
    """The call of a task, or of ``task.options(...)``, for the commit of a session."""
    found: Any = session() if isinstance(session, scoped_session) else session
    return OnCommit(call, getattr(found, "sync_session", found))


def _committed(session: Session) -> None:
    """The transaction's end, or that of its innermost savepoint, is good."""
    savepoint = session.get_nested_transaction()
    if savepoint is None:
        waiting, session.info[_WAITING] = session.info[_WAITING], []
        for each in waiting:
            each.send()
        return
    around = savepoint.parent
    while around is not None and around.parent is not None and not around.nested:
        around = around.parent
    for each in session.info[_WAITING]:
        if each.within is savepoint and around is not None:
            each.within = around


def _ended(session: Session, transaction: SessionTransaction) -> None:
    """What still waits for a transaction that is over was rolled back with it."""
    waiting = session.info[_WAITING]
    session.info[_WAITING] = [each for each in waiting if each.within is not transaction]
    for each in waiting:
        if each.within is transaction:
            each.pending.drop()
