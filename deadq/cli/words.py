"""What several commands take as arguments, and what they say without any."""

from __future__ import annotations

import sys
from typing import Annotated, Final, get_args

import typer

from ..job import State
from ..runtime.settings import RunnerName

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Url = Annotated[
    str | None,
    typer.Option(help="The server; else $DEADQ_URL, else the embedded server.", show_default=False),
]
Target = Annotated[str, typer.Argument(metavar="MODULE:QUEUE|NAME")]
Limit = Annotated[int, typer.Option(help="How many at most.")]


COMPLETING: Final = "_DEADQ_COMPLETE"
"""The variable by which a shell's script asks what could stand at the cursor."""

SHELLS: Final = ("bash", "zsh", "fish")


def shells() -> list[str]:
    """What completes ``deadq completion``."""
    return list(SHELLS)


def runners() -> list[str]:
    """What completes ``--runner``."""
    return list(get_args(RunnerName))


def open_states() -> list[str]:
    """What completes ``--state``."""
    return [state.value for state in State if not state.final]


def help_unless_told(context: typer.Context) -> None:
    """Where a command was to be named and was not: the help on stderr, and exit code 2."""
    if context.invoked_subcommand is None:
        sys.stderr.write(f"{context.get_help()}\n")
        raise typer.Exit(2)
