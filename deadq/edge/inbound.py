"""What a request has brought along: for the handler, and for all that it calls."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Any, Final, TypedDict, TypeVar
from urllib.parse import quote

from .. import deadline
from ..ambient import Ambient
from ..config import MAX_RETRIES, whole
from ..deadline import NETWORK_MARGIN_S, Deadline, seconds
from ..errors import DeadlineExceeded, shown
from ..handle import JobHandle
from ..resilience import RETRY_BUDGET_HEADER, Allowance
from ..resilience import allowance as retries
from . import counts
from .headers import BadHeader, deadline_of

T = TypeVar("T")

KEY_HEADER: Final = "idempotency-key"
REPLAYED_HEADER: Final = "idempotency-replayed"

_DEADLINE: Final = "deadq.deadline"
"""Where a middleware leaves the deadline for those further in."""

_LONGEST_KEY: Final = 255
"""Characters: what public payment APIs take."""

Header = Callable[[str], str | None]
"""Gives a header's value by its name in lower case."""


@dataclass(slots=True, eq=False)
class Inbound:
    """A request that is being handled."""

    deadline: Deadline
    key: str | None
    """Its ``Idempotency-Key`` as a job's key, which no other caller can name where the middleware
    knows who calls; None: it has none."""
    replayed: bool = field(default=False, init=False)
    """Whether it was answered with what an earlier one had brought about."""

    def check(self) -> None:
        """Between two steps of a handler that nothing interrupts.

        Raises:
            DeadlineExceeded: nobody awaits the answer any more.
        """
        if self.deadline.expired:
            msg = "the request's deadline has passed"
            raise DeadlineExceeded(msg)

    def answered_by(self, job: JobHandle[T]) -> JobHandle[T]:
        """Say that a job's result is this request's answer: a repeat is marked as one, by the
        header ``Idempotency-Replayed: true``."""
        self.replayed = self.replayed or job.duplicate
        return job


def inbound() -> Inbound:
    """The request that is being handled.

    Raises:
        RuntimeError: none is, or no middleware has seen it.
    """
    request = _ambient.get()
    if request is None:
        msg = "no request is being handled here; is the app wrapped in a DeadlineMiddleware?"
        raise RuntimeError(msg)
    return request


_ambient: Ambient[Inbound] = Ambient("deadq_inbound")


class TermsGiven(TypedDict, total=False):
    """The settings of both middlewares."""

    within: float
    reserve: float
    retries: int
    trusted: bool
    service: str
    caller: Callable[[Any], str] | None


class Terms:
    """What a service grants to the requests that come in: see
    :class:`deadq.edge.asgi.DeadlineMiddleware`.

    Raises:
        ValueError, TypeError: an odd setting, by its name.
    """

    def __init__(
        self,
        *,
        within: float = 30.0,
        reserve: float = NETWORK_MARGIN_S,
        retries: int = MAX_RETRIES,
        trusted: bool = False,
        service: str = "web",
        caller: Callable[[Any], str] | None = None,
    ) -> None:
        self.within = seconds(within, "within")
        self.reserve = seconds(reserve, "reserve", positive=False)
        if self.reserve >= self.within:
            msg = f"reserve={reserve} is no less than within={within}: no time would be left"
            raise ValueError(msg)
        self._retries = whole(retries, "retries", 0, MAX_RETRIES)
        self._trusted = trusted
        self._count = counts.inbound().labels(service)
        self._caller = caller

    def read(self, header: Header, source: MutableMapping[str, Any]) -> tuple[Inbound, Allowance]:
        """What a request brings along.

        ``source`` is the scope or the environ, which a middleware further in sees too: it can
        only lower what this one gives.

        Raises:
            BadHeader: something in it cannot be meant.
        """
        self._count.inc()
        deadline = deadline_of(header, self.within)
        outer = source.get(_DEADLINE)
        if isinstance(outer, Deadline):
            deadline = deadline.tighten(outer)
        source[_DEADLINE] = deadline
        budget = header(RETRY_BUDGET_HEADER)
        allowance = Allowance.incoming(budget, edge=self._retries, trusted=self._trusted)
        return Inbound(deadline, self._key(header, source)), allowance

    def hopeless(self, request: Inbound) -> bool:
        """Whether nothing useful could be done in the time that is left."""
        return request.deadline.remaining() <= self.reserve

    def _key(self, header: Header, source: Any) -> str | None:
        said = header(KEY_HEADER)
        if said is None:
            return None
        if not said or len(said) > _LONGEST_KEY or not said.isprintable():
            msg = f"{KEY_HEADER} is {shown(said)}; give 1 to {_LONGEST_KEY} printable characters"
            raise BadHeader(msg)
        if self._caller is None:
            return said
        return f"{quote(self._caller(source), safe='')}:{said}"


def set_ambient(request: Inbound, allowance: Allowance) -> None:
    """Make them what the current context goes by, for good: it is to be the request's own."""
    _ambient.set(request)
    deadline.AMBIENT.set(request.deadline)
    retries.AMBIENT.set(allowance)


class ambient:  # noqa: N801  a block, as those of contextlib; by hand, as it is part of each request
    """Makes them what the block goes by.

    Nothing is inherited: a server may take up a connection's next request in the context in which
    the last one was answered.
    """

    __slots__ = ("_allowance", "_entered", "_request")

    def __init__(self, request: Inbound, allowance: Allowance) -> None:
        self._request = request
        self._allowance = allowance

    def __enter__(self) -> None:
        self._entered = (
            _ambient.enter(self._request),
            deadline.AMBIENT.enter(self._request.deadline),
            retries.AMBIENT.enter(self._allowance),
        )

    def __exit__(self, *_: object) -> None:
        request, until, allowance = self._entered
        _ambient.leave(request)
        deadline.AMBIENT.leave(until)
        retries.AMBIENT.leave(allowance)
