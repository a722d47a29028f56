"""The ``deadq`` command. It needs the extra ``cli``; ``deadq --help`` lists what it can do."""

from __future__ import annotations

import io
import os
import signal
import sys


def main() -> None:
    """Run the command line of this process, and exit: 0 good, 1 failed, 2 asked for wrongly."""
    _stand_in_for_closed_streams()
    if isinstance(sys.stdout, io.TextIOWrapper):
        # what the terminal's encoding does not hold is written out
        sys.stdout.reconfigure(errors="backslashreplace")
    _let_interrupts_kill()
    try:
        from .app import run

        code = run(sys.argv[1:])
    except ModuleNotFoundError as missing:
        if (missing.name or "").split(".")[0] not in {"typer", "rich", "click"}:
            raise
        sys.stderr.write(
            f"deadq: the command needs {missing.name}: pip install 'deadq[cli]'"
            " (the library itself does not)\n"
        )
        sys.exit(2)
    _let_interrupts_kill()
    sys.exit(_delivered(code))


def _let_interrupts_kill() -> None:
    """Outside of a command there is nothing to clean up, and none to tell of a Ctrl-C; one that is
    ignored, as by nohup, stays so."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def _delivered(code: int) -> int:
    """The exit code, once what was printed has gone where it was to go."""
    try:
        sys.stdout.flush()
    except OSError as error:
        if not code and not isinstance(error, BrokenPipeError):  # | head -1 wants no more of it
            sys.stderr.write(f"deadq: {error}\n")
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())  # the interpreter flushes once more
        return code or 1
    return code


def _stand_in_for_closed_streams() -> None:
    """As daemons are started, with ``2>&-``: what is said goes nowhere, and no connection gets the
    number of a stream."""
    null = os.open(os.devnull, os.O_RDWR)
    while null <= 2:
        null = os.dup(null)
    os.close(null)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115  to the end
