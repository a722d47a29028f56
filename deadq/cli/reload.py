"""``deadq work --reload``: a worker for development, started anew when its source changes.

The worker is in this process's own group, so that a terminal's Ctrl-C and Ctrl-Z, and a debugger
within a handler, work as they do without ``--reload``.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Final, Self

from .. import clock
from ..deadline import seconds
from .faults import Fault, asked

_PR_SET_PDEATHSIG: Final = 1
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_STOPPED: Final = {0, *(128 + number for number in _SIGNALS)}
"""Exit codes of a worker that somebody has stopped; any other is a failure."""
_LOOK_EVERY_S: Final = 0.1
_LEAVE_S: Final = 10.0
"""What a worker may take beyond its grace, to give back what it holds."""


def run_reloading(argv: Sequence[str], folder: Path, grace: float) -> int:
    """Run ``deadq *argv`` until Ctrl-C or SIGTERM; ``argv`` is ``work …`` without ``--reload``.

    The worker is started anew when a Python file below ``folder`` changes, also after a failure.
    ``grace`` is the one that the worker was given, in seconds. Returns its last exit code.

    Raises:
        Fault: watchfiles is not installed, ``folder`` cannot be watched, or ``grace`` is odd.
    """
    with asked():
        grace = seconds(grace, "grace", positive=False)
    with _signals_noted() as came, closing(_changes(folder)) as changes:
        next(changes)  # from now on none is missed
        with _Worker(argv, grace, came) as worker:
            for changed in changes:
                if came:
                    break
                if changed:
                    _say(f"{os.path.relpath(changed[0])} has changed; starting the worker anew")
                    worker.stop()
                    worker.start()
                elif worker.has_ended():
                    if worker.code in _STOPPED:
                        break
                    ending = f"the worker has failed (exit code {worker.code})"
                    _say(f"{ending}; waiting for a Python file in {folder} to change")
        return worker.code


class _Worker:
    """The process: started with the block, and never left behind it.

    ``came`` holds the signals that this process has got, each with whether the worker has it too.
    """

    def __init__(self, argv: Sequence[str], grace: float, came: list[bool]) -> None:
        self._command = [sys.executable, "-m", "deadq.cli", *argv]
        self._grace = grace
        self._came = came
        self._process: subprocess.Popen[bytes] | None = None
        self.code = 0
        """How the last one ended; 128 + n for signal n, as shells have it."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start it, unless a signal says that this is the end."""
        if not self._came:
            # an edit within the second of the last one that leaves the size as it is would find
            # the .pyc of the old source still good
            environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
            self._process = subprocess.Popen(
                self._command,
                env=environment,
                preexec_fn=_tied(),  # noqa: PLW1509  no other Python thread is there
            )

    def has_ended(self) -> bool:
        """Whether it has ended by itself since the last look."""
        return self._process is not None and self._noted_end(self._process)

    def stop(self) -> None:
        """SIGTERM; SIGKILL for one that stays longer than its grace and some seconds."""
        process = self._process
        if process is None:
            return
        passed_on = len(self._came)
        # one that has the terminal's Ctrl-C would take another signal for the wish to hurry
        told_already = passed_on > 0 and all(self._came)
        tell_at = clock.monotonic() + (self._grace if told_already else 0.0)
        kill_at = tell_at + self._grace + _LEAVE_S
        while not self._noted_end(process):
            now = clock.monotonic()
            more = self._came[passed_on:]
            passed_on += len(more)
            if now >= kill_at:
                process.kill()
            elif now >= tell_at or not all(more):
                process.terminate()
                tell_at = kill_at
            with suppress(subprocess.TimeoutExpired):
                process.wait(_LOOK_EVERY_S)

    def _noted_end(self, process: subprocess.Popen[bytes]) -> bool:
        code = process.poll()
        if code is None:
            return False
        self.code = code if code >= 0 else 128 - code
        self._process = None
        return True


def _tied() -> Callable[[], object] | None:
    """A worker's first act, on Linux: to ask for SIGTERM should this process be killed outright."""
    if sys.platform != "linux":
        return None
    return partial(ctypes.CDLL(None).prctl, _PR_SET_PDEATHSIG, signal.SIGTERM)


@contextmanager
def _signals_noted() -> Iterator[list[bool]]:
    """Signals only add to the list: whether the terminal has sent them to the worker as well."""
    came: list[bool] = []

    def note(number: int, _: FrameType | None) -> None:
        came.append(number == signal.SIGINT and _in_the_foreground())

    before = {number: signal.signal(number, note) for number in _SIGNALS}
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _in_the_foreground() -> bool:
    """Whether a Ctrl-C in the terminal reaches this process's group."""
    try:
        with Path("/dev/tty").open("rb") as terminal:
            return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except OSError:
        return False


def _changes(folder: Path) -> Generator[list[Path]]:
    """The Python files that have changed; an empty list, about ten times a second, while none has.

    Raises:
        Fault: watchfiles is not installed, or ``folder`` cannot be watched.
    """
    try:
        from watchfiles import watch
    except ModuleNotFoundError:
        raise Fault("--reload needs watchfiles: pip install 'deadq[cli]'") from None
    top = folder.resolve()
    if not top.is_dir():
        raise Fault(f"there is no folder {folder} to watch; --reload watches a folder of sources")
    try:
        # filtered here: there, a log file that grows in the folder would keep us from looking up
        for changes in watch(
            top,
            watch_filter=None,
            yield_on_timeout=True,
            rust_timeout=int(_LOOK_EVERY_S * 1000),
            ignore_permission_denied=True,
        ):
            yield sorted({path for _, name in changes if _is_source(path := Path(name), top)})
    except (OSError, RuntimeError) as error:
        msg = (
            f"cannot watch {folder}: {error}; start deadq in a folder with fewer files, raise the "
            "system's limit, or set WATCHFILES_FORCE_POLLING=1"
        )
        raise Fault(msg, code=1) from error


def _is_source(path: Path, top: Path) -> bool:
    """Whether a Python file below ``top`` is the user's own."""
    if path.suffix != ".py" or not path.is_relative_to(top):
        return False
    *folders, _ = path.relative_to(top).parts
    if any(name.startswith(".") or name == "__pycache__" for name in folders):
        return False
    inner = [top.joinpath(*folders[:depth]) for depth in range(1, len(folders) + 1)]
    return not any((place / "pyvenv.cfg").exists() for place in inner)  # a virtual environment


def _say(line: str) -> None:
    sys.stderr.write(f"deadq: {line}\n")
