"""django.tasks on deadq: the backend in one process, ``deadq work`` in another."""

import contextlib
import importlib.util
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.commands import environment, started
from tests.readme import code
from tests.servers import Server, wait_until
from tests.workers import Process

pytest.importorskip("deadq.contrib.django_tasks")

FUTURE = "timezone.now() + timedelta(hours=1)"


class Site:
    """A Django project: a process of it to ask, and its workers."""

    def __init__(self, server: Server, folder: Path, opened: contextlib.ExitStack) -> None:
        self._opened = opened
        self._settings = {
            "DEADQ_URL": server.url,
            "DJANGO_SETTINGS_MODULE": "tests.django_site",
            "SITE_DATABASE": str(folder / "site.sqlite3"),
            "SITE_BOOK": str(folder / "book"),
        }
        self._folder = folder
        self._asked = opened.enter_context(Process("tests.django_site:asked", **self._settings))

    def do(self, code: str):
        """What the code gives for the name ``said``; an error is its type and text."""
        return self._asked.ask(code)

    def ask(self, expression: str):
        return self.do(f"said = {expression}")

    def work(self, name: str) -> subprocess.Popen[str]:
        """A worker, which serves one queue until the test ends."""
        target = f"deadq.contrib.django_tasks:{name}"
        worker = started("work", target, cwd=self._folder, **self._settings)
        self._opened.enter_context(worker)
        self._opened.callback(worker.kill)
        return worker

    def ends(self, result: str, status: str):
        """Wait until the result that this expression gives has the status."""
        self.do(f"result = {result}; said = None")
        wait_until(lambda: self.ask("(result.refresh(), result.is_finished)[1]"), "its end", 30)
        assert self.ask("result.status") == status

    def book(self) -> list[str]:
        return (self._folder / "book").read_text(encoding="utf-8").splitlines()


@pytest.fixture
def site(valkey_server: Server, tmp_path: Path) -> Iterator[Site]:
    with valkey_server.client() as client:
        client.flushall()
    with contextlib.ExitStack() as opened:
        yield Site(valkey_server, tmp_path, opened)


def test_a_task_runs_and_its_result_is_read(site):
    site.do("result = add.enqueue(3, second=4); said = None")
    assert site.ask("[result.status, result.attempts, result.args]") == ["READY", 0, [3]]
    assert site.ask("add.get_result(result.id).kwargs") == {"second": 4}
    site.work("queue")
    site.ends("result", "SUCCESSFUL")
    value = site.ask("result.return_value")
    assert value["sum"] == 7
    assert 10 < value["within"] <= 20
    assert site.ask("[result.args, result.kwargs, result.attempts, result.errors]") == [
        [3],
        {"second": 4},
        1,
        [],
    ]
    assert site.ask("add.get_result(result.id).return_value['sum']") == 7
    assert site.ask("result.started_at <= result.finished_at <= timezone.now()")
    assert site.ask("timezone.now() - result.started_at < timedelta(seconds=60)")
    steps = ("READY", "RUNNING", "SUCCESSFUL")
    assert site.book() == [f"DeadqBackend add {status}" for status in steps]


def test_a_task_that_takes_its_context_gets_it(site):
    site.work("queue")
    site.ends("told.enqueue('tea')", "SUCCESSFUL")
    assert site.ask("result.return_value == ['tea', result.id, 'RUNNING', 1]")


def test_a_failure_is_told_with_its_type_and_traceback(site):
    site.work("queue")
    site.ends("breaks.enqueue('tea')", "FAILED")
    assert site.ask("[str(e.exception_class) for e in result.errors]") == ["<class 'LookupError'>"]
    assert "in breaks" in site.ask("result.errors[0].traceback")
    assert site.ask("result.args") == ["tea"]
    assert site.ask("result.return_value") == ["Value", "Task failed"]
    steps = ("READY", "RUNNING", "FAILED")
    assert site.book() == [f"DeadqBackend breaks {status}" for status in steps]


def test_a_retry_is_another_attempt(site):
    site.work("queue")
    site.ends("works_later.enqueue()", "SUCCESSFUL")
    assert site.ask("[result.return_value, result.attempts]") == [2, 2]


def test_one_that_is_cut_at_its_deadline_has_failed_and_the_next_one_runs(site):
    site.work("queue")
    site.ends("sleeps.enqueue()", "FAILED")
    assert site.ask("result.errors[0].exception_class.__name__") == "DeadlineExceeded"
    site.ends("told.enqueue('tea')", "SUCCESSFUL")


def test_coroutine_functions_run_too(site):
    worker = site.work("queues.loops")
    site.do(
        "from asgiref.sync import async_to_sync as sync; result = sync(aadd.aenqueue)(1, 2); "
        "said = None"
    )
    site.ends("result", "SUCCESSFUL")
    assert site.ask("sync(aadd.aget_result)(result.id).return_value") == 3
    site.ends("abreaks.enqueue()", "FAILED")
    assert site.ask("result.id in result.errors[0].traceback")
    site.do("from tests.django_more import more; said = None")
    site.ends("more.enqueue()", "SUCCESSFUL")
    worker.terminate()
    assert worker.wait(20) == 0


def test_a_task_that_waits_for_its_time_has_its_budget_from_then_on(site):
    site.do(f"result = add.using(run_after={FUTURE}).enqueue(1); said = None")
    site.do("queue = task_backends['default'].queue('default'); said = None")
    assert site.ask("queue.name") == "site.default"
    assert site.ask("[job.state for job in queue.jobs()]") == ["later"]
    assert 3_600 < site.ask("queue.jobs()[0].remaining_s") <= 3_620
    assert site.ask("add.get_result(result.id).status") == "READY"


def test_the_deadline_in_force_is_kept(site):
    site.do(
        "from deadq import Deadline\n"
        "with Deadline.after(3.0).scope():\n"
        "    add.enqueue(1)\n"
        "    add.using(within=15.0).enqueue(2)\n"
        "add.using(within=15.0).enqueue(3)\n"
        "add.using(deadline=Deadline.after(12.0)).enqueue(4)\n"
        "left = [job.remaining_s for job in task_backends['default'].queue('default').jobs()]"
    )
    first, second, third, fourth = site.ask("left")
    assert 1.5 < first < 2.86
    assert first < second <= 3.0
    assert 10 < third <= 12 < fourth <= 15


def test_tests_need_no_server(site):
    code = (
        "from deadq import testing\n"
        "queue = task_backends['default'].queue('default')\n"
        "with testing.faked(queue):\n"
        "    result = told.enqueue('tea')\n"
        "    testing.run_until_idle(queue)\n"
        "    result.refresh()\n"
        "    said = [result.status, result.return_value[0]]"
    )
    assert site.do(code) == ["SUCCESSFUL", "tea"]


def test_what_is_refused_is_raised(site):
    site.do("add.using(key='order-17').enqueue(1); said = None")
    site.do("for _ in range(3): add.enqueue(1)")
    assert site.do("add.enqueue(1)")[0] == "QueueFull"
    assert site.do("from asgiref.sync import async_to_sync; async_to_sync(add.aenqueue)(1)")[0] == (
        "QueueFull"
    )
    assert site.do("add.using(priority=3).enqueue(1)")[0] == "InvalidTask"
    assert site.do("add.using(queue_name='other').enqueue(1)")[0] == "InvalidTask"
    assert site.do("add.enqueue(1, third=3)")[0] == "Type"
    assert site.do("told.enqueue()")[0] == "Type"
    assert site.do("add.enqueue(object())")[0] == "Type"
    for odd in ("default:nobody", "default:order-17", f"other:{'0' * 32}", "", "0" * 32):
        assert site.do(f"add.get_result({odd!r})")[0] == "TaskResultDoesNotExist"


def test_a_repeat_under_a_key_is_the_same_result(site):
    site.do("first = add.using(key='order-17').enqueue(1); said = None")
    assert site.ask("add.using(key='order-17').enqueue(1).id == first.id")
    assert site.do("add.using(key='order-17').enqueue(2)")[0] == "KeyReused"
    assert site.ask("add.using(key='order-17', queue_name='mail').enqueue(2).id != first.id")


def test_what_expires_or_is_cancelled_has_failed(site):
    site.do("result = add.using(within=0.05).enqueue(1); said = None")
    site.ends("result", "FAILED")
    assert site.ask("result.errors[0].exception_class.__name__") == "DeadlineExceeded"
    site.do("result = add.enqueue(1); said = None")
    site.do("task_backends['default'].queue('default').cancel(result.id.split(':')[1])")
    site.ends("result", "FAILED")
    assert site.ask("result.errors[0].exception_class.__name__") == "Cancelled"


@pytest.mark.parametrize(
    ("task", "open_before_and_after"),
    [("mail connected.enqueue()", [False, True]), ("loops aadd.enqueue(1, 2)", [False, False])],
)
def test_database_connections_are_looked_after_before_and_after_a_job(
    site, task, open_before_and_after
):
    queue, _, call = task.partition(" ")
    code = (
        "from deadq import testing\n"
        "from deadq.contrib import django_results\n"
        "os.environ['DJANGO_ALLOW_ASYNC_UNSAFE'] = '1'\n"  # run_until_idle is on a loop
        "said = []\n"
        "look = lambda: said.append(connection.connection is not None)\n"
        "django_results.close_old_connections = look\n"
        f"queue = queues.{queue}\n"
        "with testing.faked(queue):\n"
        f"    result = {call}\n"
        "    testing.run_until_idle(queue)\n"
    )
    site.do("from deadq.contrib.django_tasks import queues; said = None")
    assert site.do(code) == open_before_and_after


def test_database_connections_of_a_worker_are_its_own(site):
    site.work("queues.mail")
    for _ in range(2):
        site.ends("connected.enqueue()", "SUCCESSFUL")
        assert site.ask("result.return_value") == [False, True]


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"OPTIONS": {"capacity": 0}}, "OPTIONS of the task backend 'odd': capacity"),
        ({"OPTIONS": {"capacity": 1, "color": 0}}, "'color'"),
        ({"OPTIONS": {}}, "'capacity'"),
        ({"QUEUES": [], "OPTIONS": {"capacity": 1}}, "the task backend 'odd' needs QUEUES"),
    ],
)
def test_a_setting_that_makes_no_sense_is_named(site, settings, fault):
    code = (
        "from deadq.contrib.django_tasks import DeadqBackend\n"
        "from django.core.exceptions import ImproperlyConfigured\n"
        f"try: DeadqBackend('odd', {settings})\n"
        "except ImproperlyConfigured as error: said = str(error)"
    )
    assert fault in site.do(code)


def test_a_task_is_enqueued_on_commit(site):
    code = (
        "from django.db import transaction\n"
        "from deadq.contrib.django import on_commit\n"
        "with transaction.atomic():\n"
        "    pending = on_commit(add.using(key='order-17').bound()).enqueue(1, second=2)\n"
        "    said = str(pending.fate)\n"
    )
    assert site.do(code) == "waiting"
    assert site.ask("add.get_result(f'default:{pending.job.id}').kwargs") == {"second": 2}
    assert site.ask("add.get_result(f'default:{pending.job.id}').status") == "READY"


def test_a_queue_that_there_is_not_is_named(site, tmp_path):
    worker = site.work("queues.male")
    assert worker.wait(30) == 2
    assert "no queue `queues.male`" in worker.stderr.read()


# The README's project.


def test_the_readmes_project_under_a_server_of_its_own(valkey_server, tmp_path):
    with valkey_server.client() as client:
        client.flushall()
    for name in ("settings.py", "tasks.py", "urls.py"):
        text = code(name)
        if importlib.util.find_spec("django.tasks") is None:
            text = text.replace("from django.tasks", "from django_tasks")
        (tmp_path / name).write_text(text, encoding="utf-8")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    given = {"DEADQ_URL": valkey_server.url, "DJANGO_SETTINGS_MODULE": "settings"}
    with contextlib.ExitStack() as opened:
        web = subprocess.Popen(
            [sys.executable, "-m", "django", "runserver", "--noreload", str(port)],
            cwd=tmp_path,
            env=environment(**given),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        opened.callback(web.wait, 10)
        opened.callback(web.terminate)
        worker = started("work", "deadq.contrib.django_tasks:queue", cwd=tmp_path, **given)
        opened.enter_context(worker)
        opened.callback(worker.kill)
        client = opened.enter_context(httpx.Client(base_url=f"http://127.0.0.1:{port}"))

        def listens() -> bool:
            with contextlib.suppress(httpx.ConnectError):
                return client.get("/results/nobody", headers={"host": "localhost"}).is_error
            return False

        wait_until(listens, "the web app", 30)
        client.headers["host"] = "localhost"
        asked = client.get("/greet/Ada")
        assert asked.status_code == 202
        ident = asked.json()["result"]
        assert client.get("/greet/Ada").json() == {"result": ident}

        def done() -> bool:
            return client.get(f"/results/{ident}").json()["status"] == "SUCCESSFUL"

        wait_until(done, "the result", 30)
        assert client.get(f"/results/{ident}").json()["value"] == "Hello, Ada"
        assert client.get("/results/nobody").status_code == 404
