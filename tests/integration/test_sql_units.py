"""A unit's effect and its record become true together, whatever library the connection is of."""

import asyncio
import contextlib
import contextvars
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.ext.asyncio import create_async_engine as plain_async_engine
from sqlalchemy.orm import Session

import deadq.edge.sql.sqlalchemy as deadq_sqlalchemy
from deadq import Deadline, DeadlineExceeded, JobFailed, Retry, UnitError, current_job, testing
from deadq.edge.sql import aunit, create_table, sqlite, table_ddl, unit
from deadq.edge.sql.psycopg import AsyncDeadlineConnection, DeadlineConnection

BLOCKING = (
    *("psycopg", "psycopg limited", "sqlite3", "sqlite3 limited"),
    *("alchemy connection", "alchemy session", "alchemy limited", "alchemy on sqlite"),
)
ON_A_LOOP = ("psycopg", "psycopg limited", "alchemy connection", "alchemy session")


@pytest.fixture
def bank(postgres, tmp_path):
    """Where the effects are counted: in both databases."""
    path = tmp_path / "bank.db"
    with postgres.connect() as conn, contextlib.closing(sqlite3.connect(path)) as lite:
        for each, dialect in ((conn, "postgresql"), (lite, "sqlite")):
            each.execute(table_ddl(dialect))
            each.execute("CREATE TABLE effects (what text)")
        lite.commit()
    return SimpleNamespace(postgres=postgres, path=path)


@contextlib.contextmanager
def opened(bank, kind):
    """A transaction on a connection of this kind: commits, or rolls back."""
    if kind.startswith("sqlite3"):
        connect = sqlite.connect if kind.endswith("limited") else sqlite3.connect
        with contextlib.closing(connect(bank.path)) as conn, conn:
            yield conn
    elif kind.startswith("psycopg"):
        library = DeadlineConnection if kind.endswith("limited") else psycopg.Connection
        with library.connect(bank.postgres.url) as conn:
            yield conn
    else:
        create = deadq_sqlalchemy.create_engine if kind.endswith("limited") else sa.create_engine
        url = f"sqlite:///{bank.path}" if kind.endswith("sqlite") else bank.postgres.alchemy_url
        engine = create(url)
        try:
            if kind.endswith("session"):
                with Session(engine) as session, session.begin():
                    yield session
            else:
                with engine.begin() as conn:
                    yield conn
        finally:
            engine.dispose()


@contextlib.asynccontextmanager
async def aopened(bank, kind):
    if kind.startswith("psycopg"):
        limited = kind.endswith("limited")
        library = AsyncDeadlineConnection if limited else psycopg.AsyncConnection
        async with await library.connect(bank.postgres.url) as conn:
            yield conn
        return
    engine = plain_async_engine(bank.postgres.alchemy_url)
    try:
        if kind.endswith("session"):
            async with AsyncSession(engine) as session, session.begin():
                yield session
        else:
            async with engine.begin() as conn:
                yield conn
    finally:
        await engine.dispose()


def statement(conn, words):
    return sa.text(words) if "sqlalchemy" in type(conn).__module__ else words


def act(conn, what, fails=False):
    conn.execute(statement(conn, f"INSERT INTO effects VALUES ('{what}')"))
    if fails:
        raise KeyError(what)
    return {"did": what}


async def aact(conn, what, fails=False):
    await conn.execute(statement(conn, f"INSERT INTO effects VALUES ('{what}')"))
    if fails:
        raise KeyError(what)
    return {"did": what}


def counted(bank, kind, table="effects"):
    with opened(bank, "sqlite3" if "sqlite" in kind else "psycopg") as conn:
        return conn.execute(f"SELECT count(*) FROM {table}").fetchone()[0]


def ran(handler, **options):
    """The result of a job that runs here and now."""
    queue = testing.queue("bank", capacity=8)
    task = queue.task(within=20.0, retries=3, **options)(handler)
    return task.call()


@pytest.mark.parametrize("kind", BLOCKING)
def test_a_second_attempt_gets_the_recorded_result(bank, kind):
    seen = []

    def handler():
        with opened(bank, kind) as conn:
            seen.append(unit("pay", act, conn, "paid", conn=conn))
        if len(seen) == 1:
            raise Retry(0)
        return seen[-1]

    with testing.clock():
        assert ran(handler) == {"did": "paid"}
    assert seen == [{"did": "paid"}] * 2
    assert counted(bank, kind) == counted(bank, kind, "deadq_units") == 1


@pytest.mark.parametrize("kind", ON_A_LOOP)
def test_a_second_attempt_on_a_loop_gets_the_recorded_result(bank, kind):
    seen = []

    async def handler():
        async with aopened(bank, kind) as conn:
            seen.append(await aunit("pay", aact, conn, "paid", conn=conn))
        if len(seen) == 1:
            raise Retry(0)
        return seen[-1]

    with testing.clock():
        assert ran(handler) == {"did": "paid"}
    assert seen == [{"did": "paid"}] * 2
    assert counted(bank, kind) == counted(bank, kind, "deadq_units") == 1


@pytest.mark.parametrize("kind", BLOCKING)
def test_what_is_rolled_back_was_never_recorded(bank, kind):
    seen = []

    def handler():
        with opened(bank, kind) as conn:
            seen.append(unit("pay", act, conn, "paid", conn=conn))
            if len(seen) == 1:
                raise Retry(0)

    with testing.clock():
        ran(handler)
    assert counted(bank, kind) == counted(bank, kind, "deadq_units") == 1


@pytest.mark.parametrize("kind", BLOCKING)
def test_nothing_stays_of_a_function_that_raises_and_the_transaction_goes_on(bank, kind):
    def handler():
        with opened(bank, kind) as conn:
            act(conn, "before")
            with pytest.raises(KeyError):
                unit("pay", act, conn, "paid", fails=True, conn=conn)
            act(conn, "after")

    ran(handler)
    assert counted(bank, kind) == 2
    assert counted(bank, kind, "deadq_units") == 0


@pytest.mark.parametrize("kind", ON_A_LOOP)
def test_nothing_stays_of_a_coroutine_that_raises(bank, kind):
    async def handler():
        async with aopened(bank, kind) as conn:
            await aact(conn, "before")
            with pytest.raises(KeyError):
                await aunit("pay", aact, conn, "paid", fails=True, conn=conn)
            await aact(conn, "after")

    ran(handler)
    assert counted(bank, kind) == 2
    assert counted(bank, kind, "deadq_units") == 0


@pytest.mark.parametrize("kind", BLOCKING)
def test_a_record_with_other_arguments_is_an_error(bank, kind):
    def handler():
        with opened(bank, kind) as conn:
            unit("pay", act, conn, "paid", conn=conn)
            with pytest.raises(UnitError, match="other arguments"):
                unit("pay", act, conn, "more", conn=conn)

    ran(handler)
    assert counted(bank, kind) == 1


@pytest.mark.parametrize("kind", BLOCKING)
def test_a_result_that_cannot_be_kept_undoes_its_effect(bank, kind):
    def handler():
        with opened(bank, kind) as conn:
            unit("pay", lambda: act(conn, "paid") and object(), conn=conn)

    with pytest.raises(JobFailed, match="EncodeError"):
        ran(handler)
    assert counted(bank, kind) == 0


@pytest.mark.parametrize("kind", BLOCKING)
def test_outside_of_a_job_it_is_a_plain_call(bank, kind):
    with opened(bank, kind) as conn:
        for _ in range(2):
            assert unit("pay", act, conn, "paid", conn=conn) == {"did": "paid"}
    assert counted(bank, kind) == 2
    assert counted(bank, kind, "deadq_units") == 0


@pytest.mark.parametrize("kind", ON_A_LOOP)
def test_outside_of_a_job_it_is_a_plain_call_on_a_loop_too(bank, kind):
    async def main():
        async with aopened(bank, kind) as conn:
            assert await aunit("pay", aact, conn, "paid", conn=conn) == {"did": "paid"}

    asyncio.run(main())
    assert counted(bank, kind, "deadq_units") == 0


def test_without_a_transaction_there_is_no_unit(bank):
    def handler():
        with bank.postgres.connect() as conn:
            with pytest.raises(UnitError, match=r"with conn\.transaction"):
                unit("pay", act, conn, "paid", conn=conn)
            with conn.transaction():
                unit("pay", act, conn, "paid", conn=conn)
        with contextlib.closing(sqlite3.connect(bank.path, isolation_level=None)) as conn:
            with pytest.raises(UnitError, match="BEGIN IMMEDIATE"):
                unit("pay", act, conn, "paid", conn=conn)
            conn.execute("BEGIN")
            unit("pay", act, conn, "paid", conn=conn)
            conn.execute("COMMIT")
        for url in (bank.postgres.alchemy_url, f"sqlite:///{bank.path}"):
            engine = sa.create_engine(url, isolation_level="AUTOCOMMIT")
            with engine.connect() as conn, pytest.raises(UnitError, match="begin one"):
                unit("pay", act, conn, "paid", conn=conn)
            engine.dispose()

    ran(handler)
    assert counted(bank, "psycopg") == counted(bank, "sqlite3") == 1


def test_each_kind_of_call_wants_its_own_kind_of_connection(bank):
    async def main():
        async with aopened(bank, "psycopg") as conn:
            with pytest.raises(TypeError, match="use aunit"):
                unit("pay", act, conn, "paid", conn=conn)
        with opened(bank, "psycopg") as conn:
            with pytest.raises(TypeError, match="use aunit"):
                unit("pay", aact, conn, "paid", conn=conn)
            with pytest.raises(TypeError, match="use unit"):
                await aunit("pay", act, conn, "paid", conn=conn)
        with pytest.raises(TypeError, match="not object"):
            unit("pay", act, conn=object())

    asyncio.run(main())


def test_two_queues_may_use_the_same_key(bank):
    def handler():
        with opened(bank, "sqlite3") as conn:
            unit("pay", act, conn, current_job().queue, conn=conn)

    for name in ("east", "west"):
        queue = testing.queue(name, capacity=8)
        queue.task(within=20.0)(handler).options(key="order-17").call()
    assert counted(bank, "sqlite3") == 2


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("kind", BLOCKING)
def test_an_attempt_at_the_same_time_waits_for_the_others_commit(bank, kind, commits):
    """As where a worker was believed dead, and is not."""
    inside, go = threading.Event(), threading.Event()

    def slowly(conn):
        act(conn, "first")
        inside.set()
        assert go.wait(10)
        return "first"

    def first():
        with contextlib.suppress(KeyError), opened(bank, kind) as conn:
            unit("pay", slowly, conn, conn=conn)
            if not commits:
                raise KeyError

    def second():
        with opened(bank, kind) as conn:
            return unit("pay", lambda conn: act(conn, "second") and "second", conn, conn=conn)

    def handler():
        context = contextvars.copy_context()
        with ThreadPoolExecutor(2) as threads:
            one = threads.submit(context.copy().run, first)
            assert inside.wait(10)
            two = threads.submit(context.copy().run, second)
            with pytest.raises(TimeoutError):
                two.result(timeout=0.1)
            go.set()
            one.result()
            return two.result()

    assert ran(handler) == ("first" if commits else "second")
    assert counted(bank, kind) == counted(bank, kind, "deadq_units") == 1


@pytest.mark.parametrize("kind", ["psycopg limited", "alchemy limited", "sqlite3 limited"])
def test_a_function_that_is_cut_at_the_deadline_leaves_nothing(bank, kind):
    forever = (
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT count(*) FROM r"
    )

    def pay(conn):
        act(conn, "paid")
        with Deadline.after(0.2).scope():
            conn.execute(statement(conn, forever)).fetchall()

    def handler():
        with opened(bank, kind) as conn:
            act(conn, "before")
            with pytest.raises(DeadlineExceeded):
                unit("pay", pay, conn, conn=conn)
            act(conn, "after")

    ran(handler)
    assert counted(bank, kind) == 2
    assert counted(bank, kind, "deadq_units") == 0


@pytest.mark.parametrize("kind", ["psycopg", "sqlite3", "alchemy session"])
def test_the_table_is_made_where_there_is_none(postgres, tmp_path, kind):
    empty = SimpleNamespace(postgres=postgres, path=tmp_path / "empty.db")
    for _ in range(2):
        with opened(empty, kind) as conn:
            create_table(conn)
    assert counted(empty, kind, "deadq_units") == 0


def test_the_table_is_known_for_two_databases():
    assert "bytea" in table_ddl()
    assert "blob" in table_ddl("sqlite")
    with pytest.raises(ValueError, match="knows no oracle"):
        table_ddl("oracle")
