"""The README's quick start as it stands: each framework's web app, and what is typed in bash."""

import os
import re
import shutil
import socket
import subprocess
import sys
import textwrap
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.commands import environment
from tests.readme import blocks, code, section
from tests.servers import wait_until

PLACES = {
    "fastapi": ("-m", "uvicorn", "app:app", "--port", "{port}"),
    "flask": ("-m", "flask", "--app", "flask_app", "run", "--port", "{port}"),
    "cancelling": ("-m", "uvicorn", "cancel:app", "--port", "{port}"),
    "django": ("-m", "django", "runserver", "--noreload", "--settings=settings", "{port}"),
}

SETTINGS = """
    ROOT_URLCONF = "views"
    WSGI_APPLICATION = "site_wsgi.application"
    ALLOWED_HOSTS = ["localhost"]
"""

READY = """
    until deadq stats checkout --json | grep -q '"slots": 64'; do sleep 0.05; done
"""
"""A person waits for the worker's first line."""


class Desk:
    """A folder with the files of the quick start, and a web app that was started in it."""

    def __init__(self, folder: Path, url: str, framework: str, opened: ExitStack) -> None:
        self.folder = folder
        files = ("shop.py", "app.py", "flask_app.py", "site_wsgi.py", "views.py", "cancel.py")
        for name in files:
            (folder / name).write_text(code(name), encoding="utf-8")
        (folder / "settings.py").write_text(textwrap.dedent(SETTINGS), encoding="utf-8")
        tools = Path(sys.executable).parent
        self._environment = environment(DEADQ_URL=url, PATH=f"{tools}:{os.environ['PATH']}")
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        log = opened.enter_context((folder / "log").open("wb"))
        web = subprocess.Popen(
            [sys.executable, *(word.format(port=self.port) for word in PLACES[framework])],
            cwd=folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        opened.callback(web.wait, 10)
        opened.callback(web.terminate)
        wait_until(self._listens, "the web app")

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def type(self, commands: str) -> list[str]:
        """What bash prints for these lines."""
        done = subprocess.run(
            ["bash", "-c", commands.replace("localhost:8000", f"localhost:{self.port}")],
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()


def parts(console: str) -> tuple[str, list[str]]:
    """The lines that are typed, and those that are shown."""
    lines = console.splitlines()
    typed = "\n".join(line[2:] for line in lines if line.startswith("$ "))
    return typed, [line for line in lines if not line.startswith("$ ")]


@pytest.fixture(params=["fastapi", "flask", "django"])
def framework(request):
    return request.param


@pytest.fixture
def desk(framework, tmp_path, valkey_server):
    if shutil.which("curl") is None:
        pytest.skip("there is no curl")
    with valkey_server.client() as client:
        client.flushall()
    with ExitStack() as opened:
        yield Desk(tmp_path, valkey_server.url, framework, opened)


@pytest.mark.slow
def test_the_session_shows_what_the_readme_shows(desk):
    crowd, repeats, cancelled = blocks("console", section("Quick start"))

    typed, shown = parts(crowd)
    counted = Counter(dict(map(reversed, (line.split() for line in desk.type(typed)))))
    assert sum(map(int, counted.values())) == 70
    # on a crowded machine the last may come when the first have gone
    assert set(counted) == {"429", "504"} == {line.split()[1] for line in shown}

    typed, shown = parts(repeats)
    first, rest = typed.split("\n", 1)
    said = desk.type(f"{first}\n{textwrap.dedent(READY)}\n{rest}\nwait")
    assert [spaceless(line) for line in said] == [spaceless(line) for line in shown]

    typed, shown = parts(cancelled)
    said = desk.type(f"({typed}\n) 2>&1")
    assert sorted(map(spaceless, split(said))) == sorted(map(spaceless, shown))


@pytest.mark.parametrize("framework", ["cancelling"])
def test_an_order_is_cancelled_by_its_key_over_http(desk):
    order = f"curl -s -X POST localhost:{desk.port}/orders/19?cents=9"
    delete = f"curl -s -X DELETE localhost:{desk.port}/orders"
    key = '-H "Idempotency-Key: order-19"'
    waits = "until deadq show checkout order-19 >show 2>&1; do sleep 0.05; done"
    said = desk.type(
        f"{order} {key} >order & {waits}; {delete} {key}; echo; wait; cat order; echo; "
        f'{delete} -H "Idempotency-Key: nobodys"'
    )
    cancelled = '{"error": "Cancelled", "detail": "the job was cancelled"}'
    assert said == ['{"state":"cancelled"}', cancelled, '{"detail":"no such order"}']


def spaceless(line: str) -> str:
    """Frameworks write headers and JSON each in a way of their own."""
    return re.sub(r"\s", "", line).lower()


def split(lines: list[str]) -> list[str]:
    """An answer that has no line end of its own, apart from what the next command says."""
    return [part for line in lines for part in re.split(r"(?<=})(?=\S)", line)]


def test_a_budget_that_makes_no_sense_is_the_callers_fault(desk):
    call = f'curl -s -o /dev/null -w "%{{http_code}} " -X POST localhost:{desk.port}/orders/1'
    odd = ("inf", "nan", "-1", "1e30", "1.5s")
    budgets = "; ".join(f'{call}?cents=9 -H "X-Timeout-Ms: {text}"' for text in odd)
    (said,) = desk.type(f'{budgets}; {call}?cents=x; {call}?cents=9 -H "X-Timeout-Ms: 1"')
    *no_budgets, no_number, too_late = said.split()
    assert no_budgets == ["400"] * len(odd)
    assert no_number in ("400", "422")
    assert too_late == "504"


def test_a_handler_inherits_what_its_request_says(desk):
    """No worker is there: the wait ends at the deadline that the header gives, less 150 ms."""
    order = f"curl -s -X POST localhost:{desk.port}/orders/1?cents=9 -w ' %{{time_total}}'"
    (said,) = desk.type(f'{order} -H "X-Timeout-Ms: 1000"')
    answer, took = said.rsplit(" ", 1)
    assert "DeadlineExceeded" in answer
    assert 0.7 < float(took) < 4.0
