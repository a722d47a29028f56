"""OpenTelemetry: one trace from the submit into the handler, in another process."""

import asyncio
import os
from collections import Counter
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanContext, SpanKind, StatusCode, TraceFlags, TraceState

from deadq import DeadlineExceeded, JobFailed, Queue, QueueFull, Retry, current_job, testing, tie
from deadq.contrib.opentelemetry import instrument
from deadq.contrib.trace_context import packed, unpacked
from deadq.job import BOUNDED, HEDGED
from deadq.resilience.allowance import Allowance
from tests import traced
from tests.servers import wait_until
from tests.workers import Process

SLACK = timedelta(milliseconds=100)
"""What a process may be wrong by about the server's clock, on a busy machine."""

# As it travels.

STATES = st.dictionaries(
    st.from_regex(r"[a-z][a-z0-9]{0,8}", fullmatch=True),
    st.from_regex(r"[a-z0-9]{1,8}", fullmatch=True),
    max_size=4,
)


@given(
    st.integers(1, 2**128 - 1),
    st.integers(1, 2**64 - 1),
    st.integers(0, 255),
    STATES,
    st.integers(0, 2**43),
    st.sampled_from(["", BOUNDED, HEDGED, BOUNDED + HEDGED]),
)
def test_a_context_comes_out_as_it_went_in(trace_id, span_id, flags, state, at, marks):
    origin = SpanContext(trace_id, span_id, False, TraceFlags(flags), TraceState(state.items()))
    text = packed(origin, at)
    found, since = unpacked(marks + text)
    assert found == SpanContext(
        trace_id, span_id, True, TraceFlags(flags), TraceState(state.items())
    )
    assert since == at
    assert text == text.upper()  # a small letter would be a mark
    assert state or len(marks + text) <= 64
    assert unpacked((marks + text).partition("@")[0]) == (found, None)  # replayed


@given(st.text("0123456789ABCDEFbh@=", max_size=70))
def test_what_is_no_context_is_none(marks):
    found, _ = unpacked(marks)
    assert found is None or len(marks) >= 50


def test_a_state_that_is_too_long_stays_behind():
    state = TraceState([(f"k{i}", "v" * 200) for i in range(4)])
    found, _ = unpacked(packed(SpanContext(1, 2, False, TraceFlags(1), state), 5))
    assert found == SpanContext(1, 2, True, TraceFlags(1))


# In one process.


@pytest.fixture
def memory():
    return InMemorySpanExporter()


@pytest.fixture
def provider(memory):
    made = TracerProvider()
    made.add_span_processor(SimpleSpanProcessor(memory))
    return made


@pytest.fixture
def queue(provider):
    queue = testing.queue("shop", capacity=4)
    instrument(queue, provider)
    return queue


def only(memory, name):
    (found,) = [span for span in memory.get_finished_spans() if span.name == name]
    return found


def test_the_spans_of_a_job_that_succeeds(queue, memory, provider):
    @queue.task(within=5.0)
    async def pay(cents):
        return await current_job().unit("charge", lambda: cents)

    with provider.get_tracer("web").start_as_current_span("request") as request:
        handle = pay.enqueue(5)
    assert handle.result() == 5
    submit, wait, run = (only(memory, f"{what} shop") for what in ("submit", "wait", "run"))
    unit = only(memory, "unit charge")
    assert submit.parent == request.get_span_context()
    assert run.parent.span_id == wait.parent.span_id == submit.context.span_id
    assert unit.parent.span_id == run.context.span_id
    traces = {span.context.trace_id for span in (submit, wait, run, unit)}
    assert traces == {request.get_span_context().trace_id}
    assert (submit.kind, run.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert [link.context.span_id for link in run.links] == [submit.context.span_id]
    assert run.attributes["deadq.outcome"] == "done"
    assert submit.attributes["messaging.message.id"] == run.attributes["messaging.message.id"]
    assert submit.attributes["deadq.duplicate"] is False
    assert run.status.status_code is StatusCode.UNSET
    assert wait.end_time <= run.start_time


def test_a_plain_handler_has_the_same(queue, memory):
    @queue.task(within=5.0)
    def pay(cents):
        assert trace.get_current_span().is_recording()
        return current_job().unit("charge", lambda: cents)

    assert pay.call(5) == 5
    assert only(memory, "unit charge").parent.span_id == only(memory, "run shop").context.span_id
    assert not trace.get_current_span().get_span_context().is_valid


def test_a_failure_is_told_and_each_attempt_has_its_span(queue, memory):
    @queue.task(within=5.0, retries=1, backoff=lambda _: 0.0)
    async def pay():
        if current_job().attempt == 1:
            raise Retry
        raise LookupError("no money")

    with pytest.raises(JobFailed):
        pay.call()
    runs = [span for span in memory.get_finished_spans() if span.name == "run shop"]
    assert [span.attributes["deadq.attempt"] for span in runs] == [1, 2]
    assert [span.attributes["deadq.outcome"] for span in runs] == ["retry", "failed"]
    assert {span.status.status_code for span in runs} == {StatusCode.ERROR}
    assert runs[1].attributes["error.type"] == "LookupError"
    assert runs[1].events[0].attributes["exception.message"] == "no money"
    only(memory, "wait shop")


def test_one_that_is_cut_at_its_deadline(provider, memory):
    with testing.clock() as clock:
        queue = testing.queue("shop", capacity=4)
        instrument(queue, provider)

        @queue.task(within=5.0)
        async def pay():
            await asyncio.sleep(60)

        with pytest.raises(DeadlineExceeded):
            pay.call()
        del clock
    assert only(memory, "run shop").attributes["error.type"] == "cut"


def test_a_refusal_is_the_submits(queue, memory):
    @queue.task(within=5.0)
    async def pay(cents): ...

    outcomes = pay.enqueue_many([(i,) for i in range(6)])
    batch = only(memory, "submit shop")
    assert batch.attributes["messaging.batch.message_count"] == len(outcomes) == 6
    assert batch.attributes["deadq.refused"] == 2
    memory.clear()
    with pytest.raises(QueueFull):
        pay.enqueue(9)
    refused = only(memory, "submit shop")
    assert refused.attributes["error.type"] == "QueueFull"
    assert refused.status.status_code is StatusCode.ERROR
    testing.run_until_idle(queue)
    runs = [span for span in memory.get_finished_spans() if span.name == "run shop"]
    assert {span.parent.span_id for span in runs} == {batch.context.span_id}


def test_a_job_from_who_is_not_traced_begins_a_trace(queue, memory):
    @queue.task(within=5.0)
    async def pay(): ...

    queue.submit_plainly = Queue.submit.__get__(queue)
    queue.submit = queue.submit_plainly
    pay.call()
    assert only(memory, "run shop").parent is None
    assert Counter(span.name for span in memory.get_finished_spans()) == {"run shop": 1}


def test_a_worker_that_traces_nothing_runs_it_as_any_job(queue, memory):
    @queue.task(within=5.0, retries=0)
    async def pay():
        current_job().check()
        allowance = Allowance.current()
        return allowance is None, await current_job().unit("charge", lambda: 5)

    handle = pay.enqueue()
    queue.tracer = None
    assert handle.result() == (True, 5)
    assert Counter(span.name for span in memory.get_finished_spans()) == {"submit shop": 1}


def test_marks_go_before_it(queue):
    seen = []

    @queue.task(within=5.0, hedge=True)
    async def pay(): ...

    submit = queue.producer.admit
    queue.producer.admit = lambda submission: (seen.append(submission.marks), submit(submission))[1]
    with Allowance(2).scope():
        pay.enqueue()
    (marks,) = seen
    assert marks.startswith(BOUNDED + HEDGED)
    assert len(marks) <= 64


def test_without_a_tracer_nothing_travels(memory):
    queue = testing.queue("shop", capacity=4)

    @queue.task(within=5.0)
    async def pay(): ...

    assert queue.tracer is None
    prepared = pay.bind()
    assert prepared.submission.marks == ""
    assert "submit" not in vars(queue)


def test_instrumenting_twice_is_once(queue, memory, provider):
    instrument(queue, provider)

    @queue.task(within=5.0)
    async def pay(): ...

    pay.call()
    only(memory, "submit shop")


@pytest.mark.parametrize("odd", ["submit shop", "run shop", "wait shop", "unit charge"])
@pytest.mark.parametrize("hook", ["on_start", "on_end"])
def test_a_tracer_that_fails_costs_no_job(caplog, odd, hook):
    class Broken(InMemorySpanExporter):
        def export(self, spans):
            raise LookupError("no collector")

    def fails(span, *_, **__):
        if span.name == odd:
            raise LookupError("odd")

    processor = SimpleSpanProcessor(Broken())
    setattr(processor, hook, fails)
    provider = TracerProvider()
    provider.add_span_processor(processor)
    queue = testing.queue("shop", capacity=4)
    instrument(queue, provider)

    @queue.task(within=5.0)
    async def pay():
        return await current_job().unit("charge", lambda: 5)

    assert pay.call() == 5
    assert "tracing failed" in caplog.text


# Across processes.


@pytest.mark.parametrize("runner", ["loop", "process"])
def test_a_trace_goes_through_a_worker_that_forks(valkey_server, tmp_path, runner):
    with valkey_server.client() as client:
        client.flushall()
    path = tmp_path / "spans"
    spans = traced.provider(path)
    queue = traced.queue(valkey_server.url, runner, spans)
    given = {"url": valkey_server.url, "name": runner, "path": str(path)}
    with Process("tests.traced:work", **given) as worker:
        assert worker.hear() == "begins"
        with spans.get_tracer("web").start_as_current_span("request") as request:
            job = queue.tasks["pay"].enqueue("on")
        assert job.result() == "on"
        wait_until(lambda: len(traced.told(path)) == 13, "all spans")
        pid = worker.pid
        assert worker.stop() == 0
    queue.close()
    told = traced.told(path)
    assert Counter(span["name"].replace(runner, "Q") for span in told) == {
        "request": 1,
        **dict.fromkeys(("submit Q", "wait Q", "run Q"), 2),
        **dict.fromkeys(("in the handler", "unit step", "in the unit"), 2),
    }
    wanted = f"0x{request.get_span_context().trace_id:032x}"
    assert {span["context"]["trace_id"] for span in told} == {wanted}
    by_id = {span["context"]["span_id"]: span for span in told}

    def above(span):
        return by_id[span["parent_id"]]["name"] if span["parent_id"] else None

    q = runner
    assert {(span["name"], above(span)) for span in told} == {
        ("request", None),
        (f"submit {q}", "request"),
        (f"wait {q}", f"submit {q}"),
        (f"run {q}", f"submit {q}"),
        ("in the handler", f"run {q}"),
        (f"submit {q}", f"run {q}"),
        ("unit step", f"run {q}"),
        ("in the unit", "unit step"),
    }
    runs = [span for span in told if span["name"] == f"run {q}"]
    assert not {span["pid"] for span in runs} & {os.getpid(), pid}
    for wait in (span for span in told if span["name"] == f"wait {q}"):
        submit = by_id[wait["parent_id"]]
        after = datetime.fromisoformat(wait["start_time"]) - SLACK
        assert after <= datetime.fromisoformat(submit["end_time"])
        assert datetime.fromisoformat(submit["start_time"]) <= after + 2 * SLACK
        (run,) = (each for each in runs if each["parent_id"] == wait["parent_id"])
        assert wait["end_time"] <= run["start_time"]


@pytest.mark.parametrize("runner", ["loop", "process"])
def test_what_is_exported_in_batches_is_not_lost_with_a_worker_that_stops(
    valkey_server, tmp_path, runner
):
    with valkey_server.client() as client:
        client.flushall()
    path = tmp_path / "spans"
    queue = traced.queue(valkey_server.url, runner, traced.provider(path))
    given = {"url": valkey_server.url, "name": runner, "path": str(path), "batches": True}
    with Process("tests.traced:work", **given) as worker:
        assert worker.hear() == "begins"
        assert queue.tasks["pay"].enqueue("off").result() == "off"
        assert worker.stop() == 0
        assert "left_behind" not in worker.errors
    queue.close()
    assert Counter(
        span["name"].replace(runner, "Q") for span in traced.told(path)
    ) == dict.fromkeys(
        ("submit Q", "wait Q", "run Q", "in the handler", "unit step", "in the unit"), 1
    )


def test_tied_jobs_have_a_submit_each(valkey_server, provider, memory):
    queues = [Queue(name, capacity=4, url=valkey_server.url) for name in ("one", "two")]
    for queue in queues:
        instrument(queue, provider)
        queue.task(name="pay", within=5.0)(traced.told)
    tied = tie(*(queue.tasks["pay"].bind("x") for queue in queues))
    wait_until(lambda: len(memory.get_finished_spans()) == 2, "the second submit")
    assert {span.name for span in memory.get_finished_spans()} == {"submit one", "submit two"}
    tied.cancel()
    for queue in queues:
        queue.close()
