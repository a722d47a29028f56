"""A queue whose handlers pay in a database, and whose processes kill themselves meanwhile.

``LEDGER``, an environment variable, describes it: the database's URL, the runner, the worst delay.
Each job's first attempt has its process killed at a random instant, in the unit or around it.
"""

import asyncio
import contextlib
import json
import os
import random
import signal
import sqlite3
import threading
import time
from typing import Any

import psycopg

from deadq import Queue, current_job
from deadq.edge.sql import aunit, create_table, sqlite, unit
from deadq.edge.sql.psycopg import AsyncDeadlineConnection, DeadlineConnection

SERVED = "LEDGER"
"""The environment variable that describes the queue to the worker."""

EFFECTS = "CREATE TABLE IF NOT EXISTS effects (job text, attempt int)"
_PAY = "INSERT INTO effects VALUES ('{}', {})"


def make(url: str | None = None) -> Queue:
    """The queue alone."""
    return Queue("ledger", url=url, capacity=20_000, admission="cap", lease=1.5)


def connect(database: str) -> contextlib.closing[Any]:
    """A blocking connection that keeps to deadlines."""
    if database.startswith("postgresql:"):
        return contextlib.closing(DeadlineConnection.connect(database))
    conn = sqlite.connect(database, timeout=20.0)
    return contextlib.closing(conn)


def prepare(database: str) -> None:
    """The tables."""
    with connect(database) as conn, conn:
        if isinstance(conn, sqlite3.Connection):
            conn.execute("PRAGMA journal_mode = WAL")
        create_table(conn)
        conn.execute(EFFECTS)


def effects(database: str) -> list[tuple[str, int]]:
    """Job and attempt of all effects there are."""
    if database.startswith("postgresql:"):
        with psycopg.connect(database) as conn:
            return conn.execute("SELECT job, attempt FROM effects").fetchall()
    with contextlib.closing(sqlite3.connect(database)) as lite:
        return lite.execute("SELECT job, attempt FROM effects").fetchall()


def doom(worst_s: float) -> None:
    """Let this process be killed at some instant soon."""
    job = current_job()
    if job.attempt > 1 or job.key.startswith("safe"):
        return
    delay = random.Random(job.key).uniform(0.0, worst_s)

    def kill() -> None:
        time.sleep(delay)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=kill, daemon=True).start()


def _pay(conn: Any) -> dict[str, int]:
    job = current_job()
    conn.execute(_PAY.format(job.key, job.attempt))
    time.sleep(0.002)
    return {"attempt": job.attempt}


async def _apay(conn: Any) -> dict[str, int]:
    job = current_job()
    await conn.execute(_PAY.format(job.key, job.attempt))
    await asyncio.sleep(0.002)
    return {"attempt": job.attempt}


def declare(queue: Queue, database: str, runner: str, worst_s: float) -> None:
    """The task ``pay``."""

    def pay() -> dict[str, int]:
        doom(worst_s)
        with connect(database) as conn, conn:
            paid = unit("pay", _pay, conn, conn=conn)
        time.sleep(0.002)
        return paid

    async def apay() -> dict[str, int]:
        doom(worst_s)
        async with await AsyncDeadlineConnection.connect(database) as conn:
            paid = await aunit("pay", _apay, conn, conn=conn)
        await asyncio.sleep(0.002)
        return paid

    handler: Any = pay if runner == "process" else apay
    queue.task(name="pay", within=600.0)(handler)


if SERVED in os.environ:
    queue = make()
    declare(queue, **json.loads(os.environ[SERVED]))
