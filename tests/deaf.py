"""The deadq command with one option that does nothing, which the tests of that option must notice.

``DEADQ_TEST_DEAF`` names it: ``jobs --state``.
"""

import os

import typer.main

from deadq.cli import main
from tests.commands import every_command

_path, _, _option = os.environ["DEADQ_TEST_DEAF"].rpartition(" ")


def _deafened():
    found = every_command()
    command = found[_path]
    (param,) = [param for param in command.params if _option in param.opts]
    told = command.callback
    command.callback = lambda **given: told(**{**given, param.name: param.default})
    param.callback = None
    return found[""]


_root = _deafened()
typer.main.get_command = lambda _: _root
main()
