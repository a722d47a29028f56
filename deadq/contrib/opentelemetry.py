"""OpenTelemetry: the trace goes with the job, from whoever submits it into its handler.

::

    queue = Queue("checkout", capacity=64)
    instrument(queue)

Four kinds of spans, by the semantic conventions for messaging:

    submit QUEUE   producer: from the call to the server's answer; one for a batch
    wait QUEUE     from the submit to the first start, by the server's clock
    run QUEUE      consumer: one for each attempt that gets as far as the handler
    unit NAME      within it

``wait`` and ``run`` are children of ``submit``, wherever it was; ``run`` is linked to it besides,
as the conventions have it. What travels is W3C trace context, without baggage.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, ParamSpec, TypeVar

from opentelemetry import context, trace
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    Span,
    SpanKind,
    Status,
    StatusCode,
    TracerProvider,
)

from .. import codec
from ..errors import Rejected
from ..handle import JobHandle
from ..job import Claim, Outcome, Settlement, Submission
from ..prepared import Prepared
from ..queue import Queue
from .trace_context import packed, unpacked

__all__ = ["instrument"]

P = ParamSpec("P")
R = TypeVar("R")

_FLUSH_MS: Final = 3_000
"""How long a worker that ends tries to export what is left (ms)."""

_log: Final = logging.getLogger("deadq.contrib")


def instrument(queue: Queue, provider: TracerProvider | None = None) -> None:
    """Trace what is submitted to a queue, and what a worker runs of it; once for each queue.

    The provider is the global one, as set by the time of each span, unless another is given.
    """
    if queue.tracer is None:
        tracer = trace.get_tracer("deadq", tracer_provider=provider)
        submits, queue.tracer = _Submits(queue, tracer), _Runs(queue, tracer)
        queue.submit = submits.submit  # type: ignore[method-assign]
        queue.asubmit = submits.asubmit  # type: ignore[method-assign]
        queue.submit_many = submits.submit_many  # type: ignore[method-assign]
        queue.asubmit_many = submits.asubmit_many  # type: ignore[method-assign]
        queue.lifespan(functools.partial(_flushed, provider))


@contextlib.contextmanager
def _flushed(provider: TracerProvider | None) -> Iterator[None]:
    """A worker's child may have been forked from who has made the provider, and then it is nobody
    but this who sends at its end what still waits to be exported."""
    try:
        yield
    finally:
        flush = getattr(provider or trace.get_tracer_provider(), "force_flush", None)
        if flush is not None:
            _quietly(flush)(_FLUSH_MS)


def _quietly(fn: Callable[P, R]) -> Callable[P, R | None]:
    """A fault of a tracer's, or of what exports for it, is not the job's: it goes to the log."""

    @functools.wraps(fn)
    def call(*args: P.args, **kwargs: P.kwargs) -> R | None:
        try:
            return fn(*args, **kwargs)
        except Exception:  # noqa: BLE001  whatever it is
            _log.exception("tracing failed")
            return None

    return call


@contextlib.contextmanager
def _spanning(tracer: trace.Tracer, name: str, **given: Any) -> Iterator[Span]:
    """A span around a block, and as the current one in it."""
    span = _quietly(tracer.start_span)(name, **given) or trace.INVALID_SPAN
    token = context.attach(trace.set_span_in_context(span))
    try:
        yield span
    except BaseException as error:
        span.set_attribute("error.type", type(error).__qualname__)
        if isinstance(error, Exception):
            span.set_status(Status(StatusCode.ERROR, str(error)))
        raise
    finally:
        context.detach(token)
        _quietly(span.end)()


# Submitting.


class _Submits:
    """A queue's submits, traced."""

    def __init__(self, queue: Queue, tracer: trace.Tracer) -> None:
        self._queue = queue
        self._tracer = tracer
        self._submit, self._asubmit = queue.submit, queue.asubmit
        self._submit_many, self._asubmit_many = queue.submit_many, queue.asubmit_many

    def submit(self, prepared: Prepared[Any]) -> JobHandle[Any]:
        with self._span(_of_one(prepared.submission)) as span:
            return _answered(span, self._submit(self._marked(span, prepared)))

    async def asubmit(self, prepared: Prepared[Any]) -> JobHandle[Any]:
        with self._span(_of_one(prepared.submission)) as span:
            return _answered(span, await self._asubmit(self._marked(span, prepared)))

    def submit_many(
        self, calls: Iterable[Prepared[Any] | Rejected]
    ) -> list[JobHandle[Any] | Rejected]:
        with self._span({}) as span:
            return _counted(span, self._submit_many(self._all_marked(span, calls)))

    async def asubmit_many(
        self, calls: Iterable[Prepared[Any] | Rejected]
    ) -> list[JobHandle[Any] | Rejected]:
        with self._span({}) as span:
            return _counted(span, await self._asubmit_many(self._all_marked(span, calls)))

    def _span(self, more: dict[str, Any]) -> contextlib.AbstractContextManager[Span]:
        name = self._queue.name
        about = {**_about(name, "submit", "send"), **more}
        return _spanning(self._tracer, f"submit {name}", kind=SpanKind.PRODUCER, attributes=about)

    def _all_marked(
        self, span: Span, calls: Iterable[Prepared[Any] | Rejected]
    ) -> Iterator[Prepared[Any] | Rejected]:
        for call in calls:
            yield self._marked(span, call) if isinstance(call, Prepared) else call

    def _marked(self, span: Span, prepared: Prepared[Any]) -> Prepared[Any]:
        submission = prepared.submission
        marks = submission.marks + packed(span.get_span_context(), self._queue.clock.now_ms())
        return Prepared(
            submission._replace(marks=marks),
            prepared.deadline,
            prepared.owner,
            keyed=prepared.keyed,
        )


def _about(queue: str, name: str, kind: str = "") -> dict[str, Any]:
    about = {
        "messaging.system": "deadq",
        "messaging.destination.name": queue,
        "messaging.operation.name": name,
    }
    return {**about, "messaging.operation.type": kind} if kind else about


def _of_one(job: Submission | Claim) -> dict[str, Any]:
    return {"messaging.message.id": job.id, "deadq.task": job.task}


def _answered(span: Span, handle: JobHandle[R]) -> JobHandle[R]:
    span.set_attribute("deadq.duplicate", handle.duplicate)
    return handle


def _counted(
    span: Span, outcomes: list[JobHandle[Any] | Rejected]
) -> list[JobHandle[Any] | Rejected]:
    span.set_attribute("messaging.batch.message_count", len(outcomes))
    span.set_attribute("deadq.refused", sum(isinstance(one, Rejected) for one in outcomes))
    return outcomes


# Running.


class _Runs:
    """A worker's runs, traced."""

    def __init__(self, queue: Queue, tracer: trace.Tracer) -> None:
        self._queue = queue
        self._tracer = tracer

    def begin(self, claim: Claim) -> _Run:
        return _Run(self._tracer, self._begin(claim) or trace.INVALID_SPAN)

    @_quietly
    def _begin(self, claim: Claim) -> Span:
        origin, since_ms = unpacked(claim.marks)
        parent = context.Context()
        links = []
        if origin is not None:
            parent = trace.set_span_in_context(NonRecordingSpan(origin), parent)
            links.append(Link(origin))
        name, about = self._queue.name, _of_one(claim)
        if since_ms is not None and claim.attempt == 1:
            self._waited(parent, since_ms, {**_about(name, "wait"), **about})
        span = self._tracer.start_span(
            f"run {name}",
            parent,
            kind=SpanKind.CONSUMER,
            links=links,
            attributes={
                **_about(name, "run", "process"),
                **about,
                "deadq.attempt": claim.attempt,
            },
        )
        context.attach(trace.set_span_in_context(span))  # for good: it is the run's own context
        return span

    def _waited(self, parent: context.Context, since_ms: float, about: dict[str, Any]) -> None:
        """How long it has waited, in the wall clock that this host's other spans have."""
        now = time.time_ns()
        waited_ns = max(0, int((self._queue.clock.now_ms() - since_ms) * 1e6))
        self._tracer.start_span(
            f"wait {self._queue.name}", parent, attributes=about, start_time=now - waited_ns
        ).end(now)


class _Run:
    """One run."""

    def __init__(self, tracer: trace.Tracer, span: Span) -> None:
        self._tracer = tracer
        self._span = span

    def units(self, unit: Callable[[Any], Any]) -> Callable[[Any], Any]:
        if inspect.iscoroutinefunction(unit):

            async def aunit(call: Any) -> Any:
                with self._unit(call.name):
                    return await unit(call)

            return aunit

        def traced(call: Any) -> Any:
            with self._unit(call.name):
                return unit(call)

        return traced

    def _unit(self, name: str) -> contextlib.AbstractContextManager[Span]:
        return _spanning(self._tracer, f"unit {name}", attributes={"deadq.unit": name})

    @_quietly
    def end(self, report: Settlement | None) -> None:
        span = self._span
        outcome = "lost" if report is None else str(report.outcome)
        span.set_attribute("deadq.outcome", outcome)
        if report is not None and report.outcome in _BAD:
            _failed(span, outcome, report.blob)
        span.end()


_BAD: Final = {Outcome.FAILED, Outcome.RETRY, Outcome.CUT}
"""Interrupted for any other reason it has not failed."""


def _failed(span: Span, outcome: str, blob: bytes) -> None:
    """A run's error, as its job's record has it."""
    name, message, traceback = codec.read_exception(blob) if blob else (outcome, "", "")
    span.set_attribute("error.type", name)
    span.set_status(Status(StatusCode.ERROR, f"{name}: {message}" if message else name))
    if blob:
        span.add_event(
            "exception",
            {
                "exception.type": name,
                "exception.message": message,
                "exception.stacktrace": traceback,
            },
        )
