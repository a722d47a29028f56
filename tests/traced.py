"""A queue under OpenTelemetry, and a worker for it whose spans go into a file."""

import asyncio
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import (
    BatchSpanProcessor,
    SimpleSpanProcessor,
    SpanExporter,
    SpanExportResult,
)

from deadq import Queue, Worker, current_job
from deadq.contrib.opentelemetry import instrument
from tests.workers import tell


class IntoFile(SpanExporter):
    """Each span as a line of JSON: one write, whatever process it comes from."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o600)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        for span in spans:
            told = {**json.loads(span.to_json()), "pid": os.getpid()}
            os.write(self._file, json.dumps(told).encode() + b"\n")
        return SpanExportResult.SUCCESS


def provider(path: Path, *, batches: bool = False) -> TracerProvider:
    """As one sets it up in production with ``batches``: a thread exports, and the process's end."""
    made = TracerProvider()
    processor = BatchSpanProcessor if batches else SimpleSpanProcessor
    made.add_span_processor(processor(IntoFile(path)))
    return made


def queue(url: str, name: str, spans: TracerProvider) -> Queue:
    made = Queue(name, capacity=20, url=url)
    instrument(made, spans)
    tracer = spans.get_tracer("handler")

    def step(word: str) -> str:
        with tracer.start_as_current_span("in the unit"):
            return word

    async def asleeps(word: str) -> str:
        with tracer.start_as_current_span("in the handler"):
            await asyncio.sleep(0)
        if word == "on":
            await made.tasks["pay"].aenqueue("off")
        said: str = await current_job().unit("step", step, word)
        return said

    def pays(word: str) -> str:
        with tracer.start_as_current_span("in the handler"):
            pass
        if word == "on":
            made.tasks["pay"].enqueue("off")
        said: str = current_job().unit("step", step, word)
        return said

    made.task(name="pay", within=30.0)(asleeps if name == "loop" else pays)
    return made


def work(url: str, name: str, path: str, *, batches: bool = False) -> None:
    """A worker, made and traced before its supervisor and its children are forked from it."""
    spans = provider(Path(path), batches=batches)
    trace.set_tracer_provider(spans)
    made = queue(url, name, spans)
    tell("begins")
    Worker(made, concurrency=2).run()


def told(path: Path) -> list[dict[str, Any]]:
    """The spans so far."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
