"""Tests that run tests, each time in a process of its own."""

import gc
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

import deadq
from tests.forked import run_forked

ROOT = Path(deadq.__path__[0]).parent


def run_tests(
    tests: Iterable[str], folder: Path, prepare: Callable[..., None], *given: Any
) -> tuple[int, str]:
    """Run tests, slow ones too, after ``prepare(*given)``; their exit code, and all they say.

    ``folder`` is short, as sockets are made in it.
    """
    code = run_forked(_run, list(tests), folder, prepare, given)
    return code, (folder / "said").read_text()


def set_environment(settings: Mapping[str, str]) -> None:
    """What modules of the tests go by when they are imported: as yet they are not."""
    os.environ.update(settings)


def _run(
    tests: list[str], folder: Path, prepare: Callable[..., None], given: tuple[Any, ...]
) -> None:
    gc.freeze()  # what was imported before the fork need not be looked through
    said = os.open(folder / "said", os.O_WRONLY | os.O_CREAT)
    os.dup2(said, sys.stdout.fileno())
    os.dup2(said, sys.stderr.fileno())
    prepare(*given)
    os.chdir(ROOT / "tests")
    limits = (
        "-n0",
        "-mnot thorough",
        "-pno:cacheprovider",
        "--timeout=60",
        f"--basetemp={folder / 'inner'}",
    )
    # no assertions rewritten: that would be done anew each time
    sys.exit(pytest.main(["-q", "--assert=plain", "--tb=native", *limits, *tests]))
