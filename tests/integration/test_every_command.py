"""Whatever is typed: one clear line and an exit code of 1 or 2, for every command that there is.

The command line runs in this process, as there are hundreds of cases; nothing but ``deadq work``
itself, whose own tests are elsewhere, would differ in a process of its own.
"""

import sys

import pytest

from deadq.cli.app import run
from deadq.runtime.supervisor.spawn import LoadFailed
from tests.commands import every_command

COMMANDS = {name: command for name, command in every_command().items() if name}
USUAL = {
    "work": ["jobs:queue"],
    "health": ["/nowhere/health"],
    "completion": ["tcsh"],
    "stats": ["shop"],
    "check": ["jobs:queue"],
    "jobs": ["shop"],
    "show": ["shop", "17"],
    "cancel": ["jobs:queue", "17"],
    "dead": ["shop"],
    "requeue": ["jobs:queue", "17"],
    "pause": ["shop"],
    "resume": ["shop"],
    "drain": ["shop"],
}
"""Arguments that a command takes, and with which it fails where there is no server."""

ALONE = {"demo", "server", "server start", "server status", "server stop"}
"""They take no argument."""

SEVERAL = {"work", "cancel", "requeue"}
"""Their last argument may be given many times."""

JOBS = """
from deadq import Queue
queue = Queue("shop", capacity=5)
@queue.task(within=5.0)
async def pay(order: str) -> str: ...
"""

BREAK = {
    "exits": "import sys; sys.exit(3)",
    "exits_with_a_text": "import sys; sys.exit('good\\nbye')",
    "raises": r"raise ValueError('two\nlines and \x1b[31mred')",
    "raises_no_exception": "class Odd(BaseException): ...\nraise Odd('odd')",
    "has_no_message": "class Odd(Exception):\n  def __str__(self): return 1 / 0\nraise Odd",
    "never_ends": "def f(): f()\nf()",
    "is_no_python": "def f(:",
    "needs_another": "import nowhere_to_be_found",
    "answers_nothing": "def __getattr__(name): raise RuntimeError(name)",
    "is_no_module": "import sys; sys.modules[__name__] = None",
    "has_no_queue": "queue = 17",
}
"""Modules that give no queue."""

NO_NUMBERS = ["", "x", "0x10", "--", "1,5", "٣x", "\0", "\x1b[31m", "9 9"]
ODD = ["nan", "inf", "-inf", "-1", "1e400", "9" * 400, "-0.0", "1e-400", *NO_NUMBERS, "é" * 5_000]
NAMES = ["", " ", "a b", "a\nb", "a\0b", "{}", "*", "x" * 10_000, "né", "\x1b[31m", "../..", "-"]
NAMES += ["a:b:c", ":", "x:", ":x", "x.py:y", ".:x", "..x:y", "jobs:queue.name", "\udcff", "\u202e"]
URLS = [
    "x",
    "http://x",
    "redis://h:99999999",
    "redis://[::1",
    "redis://h?a=\x1b[31m",
]


class Nobody:
    """A supervisor that stops where the real one begins."""

    def __init__(self, crews, **_):
        self._crews = crews

    def run(self):
        for load, _ in self._crews:
            load()
        raise LoadFailed("it would have begun", 2)


@pytest.fixture
def typed(tmp_path, monkeypatch, capsys):
    """Types a command line where no server is; what it says, in one line."""
    (tmp_path / "jobs.py").write_text(JOBS)
    for name, source in BREAK.items():
        (tmp_path / f"{name}.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DEADQ_URL", "unix:///nowhere/socket")
    monkeypatch.setattr("deadq.cli.work.Supervisor", Nobody)
    monkeypatch.setattr("deadq.cli.work.log_to_stderr", lambda _: None)
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = set(sys.modules)

    def typed(*args):
        code = run(list(args))
        said = capsys.readouterr()
        line = said.out + said.err
        assert code in {1, 2}, line
        assert line.startswith("deadq: ")
        assert line.endswith("\n")
        assert line[:-1].isprintable()
        assert len(line) < 1_000
        assert not said.out or (args[0], code) == ("health", 1)  # its answer: there is no worker
        return line

    yield typed
    for name in set(sys.modules) - before:
        if name in {"jobs", *BREAK}:
            del sys.modules[name]


def valued(command):
    return [
        param.opts[0]
        for param in COMMANDS[command].params
        if param.param_type_name == "option" and not (param.is_flag or param.count)
    ]


of_every_command = pytest.mark.parametrize("command", USUAL)
of_what_asks_a_server = pytest.mark.parametrize(
    "command", [command for command in USUAL if "--url" in valued(command)]
)


def test_every_command_is_known_here():
    assert set(COMMANDS) == set(USUAL) | ALONE


@pytest.mark.parametrize("columns", ["80", "20"])
@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example(command, columns, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", columns)
    assert run([*command.split(), "--help"]) == 0
    said = capsys.readouterr()
    assert f"Example: deadq {command}" in " ".join(said.out.split())
    assert said.err == ""
    if columns == "80":
        assert max(map(len, said.out.splitlines())) <= 80


@pytest.mark.parametrize("command", COMMANDS)
def test_an_option_that_there_is_not(command, typed):
    line = typed(*command.split(), *USUAL.get(command, ()), "--frobnicate")
    assert "No such option: --frobnicate" in line


@pytest.mark.parametrize("command", sorted(set(COMMANDS) - SEVERAL - {"server"}))
def test_an_argument_too_many(command, typed):
    line = typed(*command.split(), *USUAL.get(command, ()), "another")
    assert "unexpected extra argument" in line


@of_every_command
def test_an_argument_too_few(command, typed):
    for count in range(len(USUAL[command])):
        line = typed(command, *USUAL[command][:count])
        wanted = ("Missing argument", "name the jobs to requeue", "name what to check")
        assert any(words in line for words in wanted)


@of_every_command
def test_odd_values(command, typed):
    for option in valued(command):
        assert "requires an argument" in typed(command, *USUAL[command], option)
        for value in ODD:
            typed(command, *USUAL[command], f"{option}={value}")
    for option in {*valued(command)} - {
        "--url",
        "--state",
        "--health-file",
        "--health",
        "--runner",
    }:
        for value in NO_NUMBERS:
            line = typed(command, *USUAL[command], f"{option}={value}")
            assert option.lstrip("-") in line or "memory" in line


@of_every_command
def test_odd_names(command, typed):
    usual = USUAL[command]
    for place in range(len(usual)):
        for name in NAMES:
            typed(command, "--", *usual[:place], name, *usual[place + 1 :])


def test_odd_names_of_files(typed):
    for name in [*NAMES, ".", "/", "jobs.py", "/dev/null", "/dev/zero"]:
        typed("check", f"--chain={name}")


@of_what_asks_a_server
def test_odd_addresses_of_the_server(command, typed, monkeypatch):
    for url in URLS:
        assert "cannot read the server's URL" in typed(command, *USUAL[command], "--url", url)
        monkeypatch.setenv("DEADQ_URL", url)
        assert "cannot read the server's URL" in typed(command, *USUAL[command])


@pytest.mark.parametrize("module", BREAK)
@of_what_asks_a_server
def test_modules_without_a_queue(command, module, typed):
    line = typed(command, f"{module}:queue", *USUAL[command][1:])
    assert f"importing {module} failed: " in line or "no queue" in line
