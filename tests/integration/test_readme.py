"""The README's words about code are run, not believed."""

import json
import re
import shlex
import socket
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

import deadq
import deadq.testing
from deadq.edge import answer_for
from deadq.edge.sql import TABLE, create_table
from deadq.resilience import course, race
from tests.commands import deadq_command
from tests.postgres import Postgres
from tests.readme import README, blocks, code, section
from tests.servers import Server

CHAINS = Path(__file__).parents[1] / "chains"


@pytest.fixture
def shop(tmp_path: Path, valkey_server: Server, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the README's shop.py, and a server for it."""
    with valkey_server.client() as client:
        client.flushall()
    monkeypatch.setenv("DEADQ_URL", valkey_server.url)
    (tmp_path / "shop.py").write_text(code("shop.py"), encoding="utf-8")
    return tmp_path


def run(code: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_first_two_sh_blocks_are_the_demo_and_the_tests_one_line_each() -> None:
    first, second = blocks("sh")[:2]
    assert first.count("\n") == second.count("\n") == 1
    assert first.endswith("deadq demo\n")
    assert "pytest" in second


def test_sync_code_gets_a_handle(shop: Path) -> None:
    script = next(block for block in blocks("python") if "job.state()" in block)
    job, state, duplicate = run(script, shop).split()
    assert (len(job), state, duplicate) == (32, "ready", "False")


def test_a_deadline_is_inherited_less_the_way_back(shop: Path) -> None:
    example = next(block for block in blocks("python") if "edge.scope()" in block)
    assert example.count("assert ") == 2
    run(example, shop)


def test_the_example_of_testing_holds() -> None:
    example = next(block for block in blocks("python") if "testing.queue(" in block)
    exec(compile(example, "README.md", "exec"), {})  # its own asserts are the test
    assert "assert job.result() == 42" in example


def test_the_example_of_a_retry_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    example = next(block for block in blocks("python") if "@retry(" in block)
    seen = []

    def get(url: str, *, timeout: float, headers: dict[str, str]) -> httpx.Response:
        seen.append((url, timeout, headers))
        request = httpx.Request("GET", url)
        return httpx.Response(503 if len(seen) == 1 else 200, json={"cents": 5}, request=request)

    monkeypatch.setattr(httpx, "get", get)
    monkeypatch.setenv("DEADQ_URL", "redis://127.0.0.1:1/0")  # away: the budget is local then
    names: dict[str, Any] = {}
    exec(compile(example, "README.md", "exec"), names)
    assert names["quote"]("tea") == {"cents": 5}
    names["quotes"].close()
    assert [url for url, *_ in seen] == ["http://quotes.internal/tea"] * 2
    assert all(0 < timeout <= 0.5 for _, timeout, _ in seen)
    assert seen[0][2] == {"x-retry-budget": "0"}


def test_every_reason_for_no_retry_is_in_the_readme() -> None:
    reasons = re.findall(r"^    (\w+) {2,}", course.__doc__ or "", flags=re.MULTILINE)
    assert len(reasons) == 6
    assert sorted(re.findall(r"^\| `(\w+)` \|", section("Retries"), flags=re.MULTILINE)) == sorted(
        reasons
    )


def test_the_example_of_hedging_holds() -> None:
    example = next(block for block in blocks("python") if "@ahedge(" in block)
    exec(compile(example, "README.md", "exec"), {})  # its own assert is the test
    assert "    assert await quote(" in example


def test_the_example_of_sql_holds(postgres: Postgres) -> None:
    names: dict[str, Any] = {}
    example = code("accounts.py").replace("postgresql://localhost/accounts", postgres.url)
    exec(compile(example, "accounts.py", "exec"), names)
    with postgres.connect() as conn:
        conn.execute("CREATE TABLE accounts AS SELECT 'ann' AS name, 100 AS cents")
        create_table(conn)
        with deadq.testing.faked(names["queue"]):
            for _ in range(2):
                assert names["pay"].options(key="17").call("ann", 30) == 30
            names["pay"].options(key="18").call("ann", 30)
        assert conn.execute("SELECT cents FROM accounts").fetchall() == [(40,)]
        assert conn.execute(f"SELECT count(*) FROM {TABLE}").fetchone() == (2,)
    (check,) = blocks("console", section("SQL"))
    assert check == "$ deadq check --sql postgresql://localhost/accounts --create\n"


def test_every_reason_for_no_second_call_is_in_the_readme() -> None:
    reasons = re.findall(r"^    (\w+) {2,}", race.__doc__ or "", flags=re.MULTILINE)
    assert len(reasons) == 8
    assert sorted(re.findall(r"^\| `(\w+)` \|", section("Hedging"), flags=re.MULTILINE)) == sorted(
        reasons
    )


def test_the_example_of_the_breaker_holds() -> None:
    example = next(block for block in blocks("python") if "Breaker(" in block)
    exec(compile(example, "README.md", "exec"), {})  # its own asserts are the test
    assert "assert 10 < refusal.retry_after" in example


def test_the_chain_is_judged_as_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "chain.toml").write_text(blocks("toml", section("Chain check"))[0])
    typed, _, printed = blocks("console", section("Chain check"))[0].partition("\n")
    done = deadq_command(*typed.split()[2:], cwd=tmp_path, COLUMNS="100")
    assert done.returncode == 1, done.stderr
    assert [line.rstrip() for line in done.stdout.splitlines()] == printed.splitlines()
    (tmp_path / "chain.toml").write_text((CHAINS / "fits.toml").read_text())
    monkeypatch.chdir(tmp_path)
    example = next(block for block in blocks("python") if "assert_chain(" in block)
    exec(compile(example, "README.md", "exec"), {})  # its own assert is the test
    assert example.endswith('assert assert_chain("chain.toml").worst_s < 3\n')


def test_the_dead_list_can_be_replayed(shop: Path) -> None:
    example = next(block for block in blocks("python") if "queue.replay(" in block)
    out = run(
        "import asyncio\nfrom deadq import JobFailed, Worker\nimport shop\n"
        "async def no_money(order_id, cents):\n    raise LookupError('no money')\n"
        "async def work(then):\n"
        "    worker = Worker(shop.queue)\n"
        "    running = asyncio.create_task(worker.arun())\n"
        "    await then()\n"
        "    worker.stop()\n    await running\n    await shop.queue.aclose()\n"
        "pay = shop.pay\n"
        "async def fail():\n"
        "    shop.pay = no_money\n"
        "    job = await shop.charge.options(key='order-17').aenqueue('17', 999)\n"
        "    try:\n        await job.aresult()\n"
        "    except JobFailed as failure:\n        print(failure.type_name)\n"
        "asyncio.run(work(fail))\n"
        f"{example}\n"
        "print(queue.dead(), queue.stats().ready)\n",
        shop,
    )
    assert out == "LookupError\norder-17 charge failed LookupError no money\n[] 1\n"


def test_a_job_that_runs_is_cancelled_and_cleans_up(shop: Path) -> None:
    (shop / "exports.py").write_text(code("exports.py"), encoding="utf-8")
    out = run(
        "import asyncio\nfrom deadq import Cancelled, Worker\nfrom exports import export, queue\n"
        "async def main():\n"
        "    worker = Worker(queue)\n"
        "    running = asyncio.create_task(worker.arun())\n"
        "    job = await export.options(key='export-17').aenqueue('17')\n"
        "    while await job.astate() != 'running':\n        pass\n"
        "    print(await queue.acancel('export-17'))\n"
        "    try:\n        await job.aresult()\n"
        "    except Cancelled:\n        print('Cancelled')\n"
        "    worker.stop()\n    await running\n    await queue.aclose()\n"
        "asyncio.run(main())\n",
        shop,
    )
    assert out == "running\nexport of 17 is called off\nCancelled\n"


def test_an_order_is_enqueued_on_commit(shop: Path) -> None:
    example = code("orders.py")
    assert example.count("assert ") == 2
    run(example, shop)


def test_a_traced_queue_tells_of_its_submits(shop: Path) -> None:
    out = run(
        "from opentelemetry import trace\n"
        "from opentelemetry.sdk.trace import TracerProvider\n"
        "from opentelemetry.sdk.trace.export import SimpleSpanProcessor\n"
        "from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter\n"
        "spans = InMemorySpanExporter()\n"
        "provider = TracerProvider()\n"
        "provider.add_span_processor(SimpleSpanProcessor(spans))\n"
        "trace.set_tracer_provider(provider)\n"
        f"{code('traced.py')}\n"
        "from shop import charge\n"
        "charge.enqueue('17', 999)\n"
        "print([span.name for span in spans.get_finished_spans()])\n",
        shop,
    )
    assert out == "['submit checkout']\n"


def test_the_table_of_refusals_and_the_answers_to_http_agree() -> None:
    table = re.findall(
        r"^\| `(\w+)` \| `(\w+)` \|.*\| (\d{3})\b.*\|$", section("Shed"), re.MULTILINE
    )
    assert len(table) == len(deadq.Rejected.__subclasses__())
    for name, reason, status in table:
        told = answer_for(getattr(deadq, name)(""))
        assert (told.status, json.loads(told.body)["error"]) == (int(status), reason)


def test_the_tree_of_errors_is_that_of_the_code() -> None:
    tree = "DeadqError\n" + README.partition("```\nDeadqError\n")[2].partition("```")[0]
    shown = set(re.findall(r"\b[A-Z][A-Za-z]+[a-z]\b", re.sub(r" {4}.*", "", tree)))
    # of handlers, and of calls that are no jobs
    inside = {"BreakerOpen", "LeaseLost", "RetryDenied", "UnitError", "UnitInDoubt"}
    tops = {deadq.DeadqError, *deadq.DeadqError.__subclasses__(), *deadq.Rejected.__subclasses__()}
    assert shown == {kind.__name__ for kind in tops if kind.__module__ == "deadq.errors"} - inside


def test_the_extras_of_the_readme_are_those_of_the_package() -> None:
    table = README.partition("| extra |")[2].partition("\n\n")[0]
    named = [name for row in table.splitlines()[1:] for name in re.findall(r"`(\w+)`", row[:22])]
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    assert sorted(named) == sorted(project["project"]["optional-dependencies"])


@pytest.mark.slow
def test_the_commands_of_an_operator_do_what_they_say(shop: Path) -> None:
    fail = (
        "import asyncio\nfrom deadq import JobFailed, Worker\nimport shop\n"
        "async def no_money(order_id, cents):\n    raise LookupError('no money')\n"
        "async def main():\n"
        "    shop.pay = no_money\n"
        "    worker = Worker(shop.queue)\n"
        "    running = asyncio.create_task(worker.arun())\n"
        "    try:\n        await shop.charge.options(key='order-17').acall('17', 999)\n"
        "    except JobFailed:\n        pass\n"
        "    worker.stop()\n    await running\n    await shop.queue.aclose()\n"
        "asyncio.run(main())\n"
    )
    wait = "from shop import charge\ncharge.options(key='order-17', within=60).enqueue('17', 999)"
    before = {
        "show": wait,
        "dead": fail,
        "drain": f"{wait}.cancel()",
    }
    shown = {
        "check": "noeviction",
        "stats": "ready",
        "jobs": "",
        "show": "order-17",
        "cancel": "order-17: cancelled",
        "dead": "LookupError",
        "requeue": "requeued 1 of 1",
        "pause": "refuses new jobs",
        "drain": "checkout",
    }
    typed = [line[8:] for line in blocks("console", section("Operate"))[0].splitlines()]
    assert [line.split()[0] for line in typed] == list(shown)
    for line in typed:
        name, *args = shlex.split(line, comments=True)
        if name in before:
            run(before[name], shop)
        done = deadq_command(name, *args, cwd=shop)
        # what it checks is a test's server, which keeps nothing on disk
        assert done.returncode == 0 or name == "check", done.stderr
        assert shown[name] in done.stdout + done.stderr


def test_a_call_to_a_service_that_is_slow_ends_in_time() -> None:
    (block,) = blocks("python", section("Calls to other services"))
    names: dict[str, Any] = {}
    exec(compile(block, "README", "exec"), names)
    assert names["bank"].get_adapter("https://bank.internal/")._terms.dependency == "bank"
    with socket.create_server(("127.0.0.1", 0)) as silent:
        here = f"http://127.0.0.1:{silent.getsockname()[1]}"
        client, begun = names["quotes"], time.monotonic()
        names["quotes"] = SimpleNamespace(get=lambda url: client.get(here))
        assert names["quote"]("17") == "no quote in time"
        assert time.monotonic() - begun < 5.0


def test_every_python_block_is_run_by_a_test() -> None:
    """Nine of them above, and exports.py, orders.py and traced.py; the files of the quick start in
    test_quick_start, those of a Django project in test_contrib_django_tasks."""
    named = [block.partition("\n")[0] for block in blocks("python") if block.startswith("# ")]
    files = ["shop.py", "app.py", "flask_app.py", "site_wsgi.py", "views.py"]
    files += ["cancel.py", "exports.py", "accounts.py"]
    files += ["settings.py", "tasks.py", "urls.py", "orders.py", "traced.py"]
    assert named == [f"# {name}" for name in files]
    assert len(blocks("python")) == len(files) + 9


def test_every_link_within_the_project_leads_somewhere() -> None:
    headings = re.findall(r"^#+ (.*)", README, re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in headings}
    targets = re.findall(r"\]\(([^)]+)\)", README)
    assert {target[1:] for target in targets if target.startswith("#")} <= anchors
    for target in targets:
        assert target.startswith(("#", "https://")), target
    for path in re.findall(r"`((?:workers|benchmarks|tests)/[\w/.]+)`", README):
        assert (Path(__file__).parents[2] / path).exists(), path


def test_the_acl_of_the_readme_is_enough_for_a_queue_and_its_worker(
    shop: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    stated = re.search(r"An ACL for one\n  queue: `(.*?)`", README, re.DOTALL)
    assert stated is not None
    rules = stated[1].replace("{name}", "{checkout}").split()
    with server.client() as client:
        client.execute_command(
            "ACL", "SETUSER", "shop", "reset", "resetchannels", "on", ">secret", *rules
        )
    path = server.url.removeprefix("unix://")
    monkeypatch.setenv("DEADQ_URL", f"unix://shop:secret@{path}")
    out = run(
        "import asyncio\nfrom deadq import Worker\nfrom shop import charge, queue\n"
        "async def main():\n"
        "    worker = Worker(queue)\n"
        "    running = asyncio.create_task(worker.arun())\n"
        "    print(await charge.acall('17', 999))\n"
        "    worker.stop()\n    await running\n    await queue.aclose()\n"
        "asyncio.run(main())\n",
        shop,
    )
    assert out == "{'order': '17', 'paid': 999}\n"
