"""The ``deadq`` command. It needs the extra ``cli``; ``deadq --help`` lists what it can do."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line of this process, and exit: 0 good, 1 failed, 2 asked for wrongly."""
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
    sys.exit(code)
