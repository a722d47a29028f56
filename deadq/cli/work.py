"""``deadq work``: a worker for one or several queues."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

from ..queue import Queue
from ..runtime.memory import size_of
from ..runtime.settings import RunnerName, WorkerConfig, shares
from ..runtime.supervisor.spawn import Facts, LoadFailed
from ..runtime.supervisor.supervisor import Supervisor
from ..runtime.vitals.vitals import Vitals
from .addresses import address_in
from .faults import Fault, asked
from .loading import load_queue
from .printing import printable

_FORMAT = "%(asctime)s %(levelname)s %(message)s"


def work(
    targets: Sequence[str],
    config: WorkerConfig,
    *,
    health_file: Path | None,
    health: str | None,
    url: str | None,
    verbose: int,
) -> None:
    """Run the jobs of queues until SIGTERM or SIGINT.

    Raises:
        Fault: there is no such queue, it has no tasks, or a setting is odd.
        StoreUnavailable: there is no embedded server to be had.
    """
    names, weights = zip(*map(_weighed, targets), strict=True)
    configs = [config] * len(names)
    if config.concurrency is not None:
        with asked():
            slots = shares(config.concurrency, weights)
        configs = [replace(config, concurrency=share) for share in slots]
    log_to_stderr(verbose)
    vitals = Vitals(file=health_file, address=None if health is None else _address(health))
    if vitals.address is not None:
        host, port = vitals.address
        shown_host = f"[{host}]" if ":" in host else host
        sys.stderr.write(f"deadq: health at http://{shown_host}:{port}/health\n")
    crews = [(_loader(name, url), each) for name, each in zip(names, configs, strict=True)]
    try:
        Supervisor(crews, known=_announce, vitals=vitals).run()
    except LoadFailed as failure:
        raise Fault(str(failure), code=failure.code) from failure


def chosen(
    concurrency: int | None,
    grace: float,
    runner: str,
    children: int | None,
    max_jobs: int | None,
    max_memory: str | None,
) -> WorkerConfig:
    """The settings as they were typed.

    Raises:
        Fault: one is odd.
    """
    with asked():
        size = None if max_memory is None else size_of(max_memory)
        named = cast("RunnerName", runner)
        return WorkerConfig(concurrency, grace, named, children, max_jobs, size)


def _weighed(target: str) -> tuple[str, int]:
    """``MODULE:QUEUE=3`` as name and weight."""
    name, equals, weight = target.partition("=")
    if not equals:
        return name, 1
    if not (weight.isascii() and weight.isdigit() and 0 < int(weight) <= 1000):
        msg = f"the weight in `{target}` must be a whole number from 1 to 1000"
        raise Fault(msg)
    return name, int(weight)


def _address(text: str) -> tuple[str, int]:
    found = address_in(text)
    if found is None:
        msg = f"`{text}` is no address to listen at; write PORT, HOST:PORT or [IPV6]:PORT"
        raise Fault(msg)
    return found


def _loader(target: str, url: str | None) -> Callable[[], Queue]:
    def load() -> Queue:
        try:
            return load_queue(target, url)
        except Fault as fault:
            raise LoadFailed(str(fault), fault.code) from fault

    return load


def _announce(known: Sequence[Facts]) -> None:
    with contextlib.suppress(OSError, ValueError):  # a terminal that has been closed
        for facts in known:
            sys.stderr.write(
                f"deadq: working on queue {printable(facts.name)} ({', '.join(facts.tasks)})"
                f" on {printable(facts.server)}, {sum(facts.slots)} at a time"
                f"{_processes(facts)}; Ctrl-C stops\n"
            )
        sys.stderr.flush()


def _processes(facts: Facts) -> str:
    count = len(facts.slots)
    return "" if count == 1 else f" in {count} processes"


def log_to_stderr(verbose: int) -> None:
    """Warnings; decisions too with ``-v``. Only deadq's own logger: the root logger, and what the
    user's module does with it, is left alone."""
    logger = logging.getLogger("deadq")
    if not logger.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter(_FORMAT))
        logger.addHandler(handler)
        logger.propagate = False
    level = {0: logging.WARNING, 1: logging.INFO}.get(verbose, logging.DEBUG)
    logger.setLevel(level)
