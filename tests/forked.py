"""Processes forked from one that has everything imported: for tests that need many of them."""

import multiprocessing
from collections.abc import Callable
from typing import Any

_IMPORTED = [
    *("pytest", "_hypothesis_pytestplugin", "hypothesis.strategies", "pytest_timeout"),
    *("xdist.plugin", "deadq.testing.pytest_plugin", "fakeredis", "lupa", "trustme"),
    *("deadq.cli.app", "deadq.cli.completion", "rich.console", "rich.table", "rich.live"),
]
"""What a run of tests or of the command needs, and takes the most time."""


def run_forked(target: Callable[..., None], *args: Any, timeout: float | None = None) -> int:
    """Call a function in a process of its own, to its end; returns the exit code.

    Raises ``TimeoutError`` when that takes longer than ``timeout`` s; the process is killed.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_IMPORTED)
    process = context.Process(target=target, args=args)
    process.start()
    process.join(timeout)
    if process.exitcode is None:
        process.kill()
        process.join()
        raise TimeoutError(f"{target.__name__}{args} took longer than {timeout} s")
    return process.exitcode
