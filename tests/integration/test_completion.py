"""Completion of the command line: by the Tab key of real shells, as its users have it installed."""

import json
import os
import pty
import shutil
import subprocess
import sys

import pytest

from deadq import State
from tests.commands import COMMAND, deadq_command, environment
from tests.forked import take_terminal
from tests.servers import wait_until

DEADQ = """#!{python}
import json, os, sys
if not sys.stdout.isatty() or "_DEADQ_COMPLETE" in os.environ:
    os.execv({python!r}, [*{command!r}, *sys.argv[1:]])
with open({ran!r} + ".part", "w") as file:
    json.dump(sys.argv[1:], file)
os.rename({ran!r} + ".part", {ran!r})
"""
"""The real one where a script is written or the shell asks; at the terminal it only writes down how
it was called."""

INSTALLED = {
    "bash": "deadq completion bash >> ~/.bashrc",
    "zsh": "mkdir ~/comp; deadq completion zsh > ~/comp/_deadq;"
    " echo 'fpath+=~/comp; autoload -Uz compinit; compinit -u' > ~/.zshrc",
    "zsh, loaded at once": "(echo 'autoload -Uz compinit; compinit -u'; deadq completion zsh)"
    " > ~/.zshrc",
    "fish": "mkdir -p ~/.config/fish/completions;"
    " deadq completion fish > ~/.config/fish/completions/deadq.fish",
}
"""What its user types, once."""


class Terminal:
    """A shell for which completion has been installed, and the keys to type there."""

    def __init__(self, shell, install, folder):
        self._ran = folder / "ran"
        (folder / "bin").mkdir()
        deadq = folder / "bin" / "deadq"
        deadq.write_text(DEADQ.format(python=sys.executable, command=COMMAND, ran=str(self._ran)))
        deadq.chmod(0o755)
        (folder / "shop.py").touch()
        settings = environment(
            PATH=f"{deadq.parent}{os.pathsep}{os.environ['PATH']}",
            HOME=str(folder),
            TERM="dumb",
            LC_ALL="C.UTF-8",
        )
        settings = {name: value for name, value in settings.items() if "XDG" not in name}
        subprocess.run([shell, "-c", install], cwd=folder, env=settings, check=True)
        self._keys, theirs = pty.openpty()
        self._shell = subprocess.Popen(
            [shell, "-i"],
            cwd=folder,
            env=settings,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=take_terminal,  # noqa: PLW1509  no locks are taken there
        )
        os.close(theirs)

    def runs(self, keys):
        """What ``deadq`` is called with when this is typed, and Return."""
        self._ran.unlink(missing_ok=True)
        os.write(self._keys, f"deadq {keys}\n".encode())
        wait_until(self._ran.exists, f"the command of {keys!r}", 30.0)
        return json.loads(self._ran.read_text())

    def close(self):
        os.write(self._keys, b"exit\n")  # killed, it would leave what it has just started behind
        try:
            self._shell.wait(10)
        finally:
            self._shell.kill()
            self._shell.wait()
        os.close(self._keys)


def test_bash_is_given_what_can_follow(tmp_path):
    ask = """
        source <("$@" completion bash)
        complete -p deadq | grep -q -- "-F _deadq_completion"
        COMP_WORDS=(deadq jobs shop : q --state "") COMP_CWORD=6  # as bash divides a:b
        _deadq_completion "$work/deadq"
        printf "%s\\n" "${COMPREPLY[@]}"
    """
    (tmp_path / "deadq").write_text(f'#!/bin/sh\nexec {" ".join(COMMAND)} "$@"\n')
    (tmp_path / "deadq").chmod(0o755)
    done = subprocess.run(
        ["bash", "-ec", ask, "ask", *COMMAND],
        env=environment(work=str(tmp_path)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == [state for state in State if not state.final]


@pytest.mark.slow
@pytest.mark.parametrize("installed", INSTALLED)
def test_the_tab_key_completes_commands_options_and_their_values(installed, tmp_path):
    shell = installed.split(",")[0]
    if shutil.which(shell) is None:
        pytest.skip(f"this machine has no {shell}")
    terminal = Terminal(shell, INSTALLED[installed], tmp_path)
    try:
        assert terminal.runs("requ\t shop:q --al\t") == ["requeue", "shop:q", "--all"]
        assert terminal.runs("server stat\t") == ["server", "status"]
        assert terminal.runs("jobs shop:q --state ru\t") == ["jobs", "shop:q", "--state", "running"]
        assert terminal.runs("completion zs\t") == ["completion", "zsh"]
        assert terminal.runs("health sh\t") == ["health", "shop.py"]  # the shell's own
    finally:
        terminal.close()


def test_a_shell_without_completion_is_named(tmp_path):
    done = deadq_command("completion", "tcsh", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "deadq: there is no completion for `tcsh`; name one of bash, zsh, fish\n"
    )
