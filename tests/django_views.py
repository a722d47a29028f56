"""Tasks of ``tests.django_site``, and the program that a test asks to use them."""

import os
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.db import connection
from django.utils import timezone

from deadq import Rejected, Retry, current_job
from tests.workers import hear, tell

try:
    from django.tasks import task, task_backends
    from django.tasks.exceptions import InvalidTask, TaskResultDoesNotExist
    from django.tasks.signals import task_enqueued, task_finished, task_started
except ModuleNotFoundError:
    from django_tasks import task, task_backends
    from django_tasks.exceptions import InvalidTaskError as InvalidTask
    from django_tasks.exceptions import TaskResultDoesNotExist
    from django_tasks.signals import task_enqueued, task_finished, task_started

urlpatterns: list[Any] = []


@task
def add(first, second=1):
    return {"sum": first + second, "within": current_job().deadline.remaining()}


@task(within=30.0, takes_context=True)
def told(context, name):
    result = context.task_result
    return [name, result.id, result.status, context.attempt]


@task(retries=1)
def breaks(name):
    raise LookupError(name)


@task(retries=1, takes_context=True)
def works_later(context):
    if context.attempt == 1:
        raise Retry(after=0.0)
    return context.attempt


@task(within=1.0)
def sleeps():
    time.sleep(60)


@task(queue_name="mail")
def connected():
    """Whether a connection is open that was used before; and after it is used here."""
    before = connection.connection is not None
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
        return [before, connection.connection is not None]


@task(backend="loops", queue_name="loops")
async def aadd(first, second):
    return first + second


@task(backend="loops", queue_name="loops", takes_context=True)
async def abreaks(context):
    raise LookupError(context.task_result.id)


def note(sender, task_result, **_: Any) -> None:
    """Both signals, in a book."""
    if "SITE_BOOK" in os.environ:
        with Path(os.environ["SITE_BOOK"]).open("a", encoding="utf-8") as book:
            book.write(f"{sender.__name__} {task_result.task.name} {task_result.status}\n")


task_enqueued.connect(note)
task_started.connect(note)
task_finished.connect(note)


def answer() -> None:
    """Do what the test asks for, one Python expression after the other."""
    names = {**globals(), "task_backends": task_backends, "timezone": timezone}
    names["timedelta"] = timedelta
    while True:
        said = hear()
        try:
            exec(said, names)
            tell(names.pop("said", None))
        except (Rejected, InvalidTask, TaskResultDoesNotExist, TypeError, ValueError) as error:
            tell([type(error).__name__.removesuffix("Error"), str(error)])
