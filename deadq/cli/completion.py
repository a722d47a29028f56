"""``deadq completion``: what makes a shell complete deadq's command line."""

from __future__ import annotations

import sys
from typing import Final

from typer.completion import (  # type: ignore[attr-defined]  # they are imported there for use
    completion_init,
    get_completion_script,
)

from .faults import Fault
from .words import COMPLETING, SHELLS

_AT_THE_FIRST_TAB: Final = """
# loaded from a file on $fpath, by the first Tab: which is to complete as well
if [ "$funcstack[1]" = _deadq ]; then
    _deadq_completion
fi
"""


def print_script(shell: str) -> None:
    """Print the script for this shell.

    Raises:
        Fault: there is none.
    """
    if shell not in SHELLS:
        msg = f"there is no completion for `{shell}`; name one of {', '.join(SHELLS)}"
        raise Fault(msg)
    script = get_completion_script(prog_name="deadq", complete_var=COMPLETING, shell=shell)
    sys.stdout.write(f"{script}\n{_AT_THE_FIRST_TAB if shell == 'zsh' else ''}")


def prepare() -> None:
    """Teach the parser what each shell asks, and how it is answered."""
    completion_init()
