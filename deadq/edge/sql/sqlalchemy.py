"""Deadlines for SQLAlchemy 2 over psycopg 3.

    engine = deadq.edge.sql.sqlalchemy.create_engine("postgresql+psycopg://...")

Takes what SQLAlchemy's own functions take. The engine's connections are those of
:mod:`deadq.edge.sql.psycopg`; the wait for one is bounded by the ambient deadline, too.
"""

from __future__ import annotations

import math
from typing import Any

import sqlalchemy
import sqlalchemy.ext.asyncio
from sqlalchemy import event, exc
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.pool import AsyncAdaptedQueuePool, QueuePool

from ...deadline import Deadline
from ...errors import DeadlineExceeded
from .limits import passed
from .psycopg import AsyncDeadlineConnection, DeadlineConnection

__all__ = [
    "AsyncDeadlineQueuePool",
    "DeadlineQueuePool",
    "PoolDeadlineExceeded",
    "StatementDeadlineExceeded",
    "create_async_engine",
    "create_engine",
]


class StatementDeadlineExceeded(DeadlineExceeded, exc.OperationalError):
    """A statement ran until the deadline, or there was no time for it. To code that knows
    SQLAlchemy alone it is an operational error; ``orig`` is psycopg's."""

    def __init__(self, message: str, statement: str | None, params: Any, orig: Any) -> None:
        exc.OperationalError.__init__(self, statement, params, orig)
        self.units = ()
        self._text = message

    def __str__(self) -> str:
        return self._text

    def __reduce__(self) -> Any:
        return type(self), (self._text, self.statement, self.params, self.orig)


class PoolDeadlineExceeded(DeadlineExceeded, exc.TimeoutError):
    """Until the deadline the engine's pool had no connection to give."""

    def __init__(self, message: str = "the deadline passed before a connection was free") -> None:
        DeadlineExceeded.__init__(self, message)
        self.code = None


class _BoundedPool(QueuePool):
    """A pool in which nobody waits beyond the ambient deadline."""

    # what QueuePool reads each time somebody waits
    @property
    def _timeout(self) -> float:
        deadline = Deadline.current()
        return self._longest if deadline is None else min(self._longest, deadline.remaining())

    @_timeout.setter
    def _timeout(self, longest: float) -> None:
        self._longest = longest

    def _do_get(self) -> Any:
        deadline = Deadline.current()
        if deadline is not None and deadline.expired:
            raise PoolDeadlineExceeded
        try:
            return super()._do_get()
        except exc.TimeoutError as error:
            if passed(deadline):
                raise PoolDeadlineExceeded from error
            raise


class DeadlineQueuePool(_BoundedPool):
    """The pool of :func:`create_engine`."""


class AsyncDeadlineQueuePool(_BoundedPool, AsyncAdaptedQueuePool):
    """The pool of :func:`create_async_engine`."""


def create_engine(url: str | sqlalchemy.URL, **options: Any) -> sqlalchemy.Engine:
    """``sqlalchemy.create_engine``, for an engine whose statements keep to the ambient deadline.

    Raises:
        ValueError: another driver than psycopg; ``creator``, for deadq makes the connections.
    """
    options.setdefault("poolclass", DeadlineQueuePool)
    _check(url, options)
    engine = sqlalchemy.create_engine(url, **options)
    _listen(engine, DeadlineConnection.connect)
    return engine


def create_async_engine(url: str | sqlalchemy.URL, **options: Any) -> AsyncEngine:
    """``sqlalchemy.ext.asyncio.create_async_engine``; see :func:`create_engine`."""
    options.setdefault("poolclass", AsyncDeadlineQueuePool)
    _check(url, options)
    engine = sqlalchemy.ext.asyncio.create_async_engine(url, **options)
    _listen(engine.sync_engine, AsyncDeadlineConnection.connect)
    return engine


def _check(url: str | sqlalchemy.URL, options: dict[str, Any]) -> None:
    driver = sqlalchemy.make_url(url).drivername
    if driver not in ("postgresql+psycopg", "postgresql+psycopg_async"):
        msg = f"deadlines need psycopg 3, not {driver}: the URL begins with postgresql+psycopg://"
        raise ValueError(msg)
    for name in ("creator", "async_creator"):
        if options.get(name) is not None:
            msg = f"{name} makes connections that know no deadline; give connect_args instead"
            raise ValueError(msg)


def _listen(engine: sqlalchemy.Engine, connect: Any) -> None:
    @event.listens_for(engine, "do_connect")
    def do_connect(dialect: Any, _record: Any, cargs: Any, cparams: dict[str, Any]) -> Any:
        deadline = Deadline.current()
        if deadline is not None:
            cparams.setdefault("connect_timeout", max(1, math.ceil(deadline.remaining())))
        if dialect.is_async:
            return dialect.connect(*cargs, async_creator_fn=connect, **cparams)
        return connect(*cargs, **cparams)

    @event.listens_for(engine, "handle_error")
    def handle_error(context: Any) -> None:
        error = context.original_exception
        if isinstance(error, DeadlineExceeded) and not isinstance(error, exc.SQLAlchemyError):
            raise StatementDeadlineExceeded(
                str(error), context.statement, context.parameters, error
            ) from error
