"""The command line as a whole: its commands, and how a failure comes out."""

from __future__ import annotations

import os
import signal
import sys
from typing import Annotated

import typer

from .. import __version__
from ..errors import DeadqError
from . import operating, running
from .faults import Fault
from .printing import one_line
from .words import COMPLETING, help_unless_told

app = typer.Typer(
    name="deadq",
    invoke_without_command=True,
    add_completion=False,  # see deadq completion
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(running.commands)
app.add_typer(operating.commands)

_INTERRUPTED = 130
"""What a shell expects of a command that Ctrl-C has ended."""


def run(args: list[str]) -> int:
    """Run one command line; errors come out as one line on stderr. Returns the exit code."""
    if COMPLETING in os.environ:
        from .completion import prepare

        prepare()
    try:
        if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        code = app(args, prog_name="deadq", standalone_mode=False)
    except Fault as fault:
        return _fail(str(fault), fault.code)
    except DeadqError as error:
        return _fail(str(error), 1)
    except (KeyboardInterrupt, typer.Abort):
        return _fail("interrupted", _INTERRUPTED)
    except BrokenPipeError:
        return 1  # its reader has gone, and so may this
    except OSError as error:
        return _fail(str(error), 1)
    except Exception as error:
        # the parser's own errors; their base class has moved between its releases
        message = getattr(error, "format_message", None)
        if message is None:
            raise
        command = getattr(getattr(error, "ctx", None), "command_path", "deadq")
        return _fail(f"{message()} (see {command} --help)", 2)
    if code == _INTERRUPTED:  # newer parsers swallow the exception
        return _fail("interrupted", _INTERRUPTED)
    return code if isinstance(code, int) else 0


def _fail(line: str, code: int) -> int:
    sys.stderr.write(f"deadq: {one_line(' '.join(line.split()))}\n")
    return code


def _print_version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"deadq {__version__}\n")
        raise typer.Exit


@app.callback()
def root(
    context: typer.Context,
    version: Annotated[  # noqa: ARG001  its callback does it all
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """A bounded job queue on Redis or Valkey that never forgets a deadline.

    Example: deadq demo
    """
    help_unless_told(context)
