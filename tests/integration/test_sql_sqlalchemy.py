"""Engines of SQLAlchemy whose statements keep to the deadline."""

import asyncio
import contextlib
import pickle
import time

import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from deadq import Deadline, DeadlineExceeded
from deadq.edge.sql.limits import in_ms
from deadq.edge.sql.sqlalchemy import create_async_engine, create_engine
from tests.workers import eventually

LATE_S = 0.05
SLEEP = sa.text("SELECT pg_sleep(20)")
LIMIT = sa.text("SHOW statement_timeout")


@pytest.fixture
def engine(postgres):
    made = create_engine(postgres.alchemy_url, pool_size=1, max_overflow=0, pool_timeout=5)
    with made.connect():
        pass  # what the dialect asks for once
    yield made
    made.dispose()


@contextlib.contextmanager
def exceeded(seconds, error):
    since = time.monotonic()
    with pytest.raises(DeadlineExceeded) as caught, Deadline.after(seconds).scope():
        yield caught
    assert isinstance(caught.value, error)
    assert seconds - 0.002 <= time.monotonic() - since < seconds + LATE_S


def clean(engine):
    assert engine.pool.checkedout() == 0
    with engine.connect() as conn:
        assert conn.scalar(LIMIT) == "0"


def test_a_statement_ends_at_the_deadline_and_its_error_is_both(engine):
    with exceeded(0.2, sa.exc.OperationalError) as caught, engine.begin() as conn:
        conn.execute(SLEEP)
    assert isinstance(caught.value.orig, psycopg.errors.QueryCanceled)
    assert str(caught.value) == "the deadline passed in a statement"
    clean(engine)


def test_a_session_keeps_to_it_too(engine):
    with exceeded(0.2, sa.exc.OperationalError), Session(engine) as session:
        session.execute(SLEEP)
    clean(engine)


def test_the_error_can_be_sent_to_another_process(engine):
    with pytest.raises(DeadlineExceeded) as caught, Deadline.after(0.05).scope():
        with engine.connect() as conn:
            conn.execute(SLEEP)
    caught.value.orig = None
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (type(copy), str(copy)) == (type(caught.value), str(caught.value))


def test_the_limit_is_gone_with_the_transaction_and_with_the_scope(engine):
    with engine.connect() as conn:
        with Deadline.after(5).scope():
            assert 4000 < in_ms(conn.scalar(LIMIT)) <= 5000
        assert conn.scalar(LIMIT) == "0"
        with Deadline.after(5).scope():
            conn.commit()
        assert conn.scalar(LIMIT) == "0"


def test_without_transactions_a_statement_is_cancelled(engine):
    with exceeded(0.2, sa.exc.OperationalError):
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as conn:
            conn.execute(SLEEP)
    clean(engine)


def test_the_pool_is_waited_for_no_longer_than_the_deadline(engine):
    with engine.connect(), exceeded(0.2, sa.exc.TimeoutError):
        engine.connect()
    with pytest.raises(DeadlineExceeded), Deadline.after(0).scope():
        engine.connect()
    clean(engine)


def test_without_a_deadline_the_pools_own_patience_holds(postgres):
    made = create_engine(postgres.alchemy_url, pool_size=1, max_overflow=0, pool_timeout=0.1)
    with made.connect(), pytest.raises(sa.exc.TimeoutError) as caught:
        made.connect()
    assert not isinstance(caught.value, DeadlineExceeded)
    made.dispose()


@pytest.mark.parametrize(
    ("url", "options", "says"),
    [
        ("sqlite://", {}, "deadlines need psycopg 3, not sqlite"),
        ("postgresql://h/x", {}, r"begins with postgresql\+psycopg"),
        ("postgresql+psycopg://h/x", {"creator": print}, "creator makes connections"),
    ],
)
def test_what_would_know_no_deadline_is_refused(url, options, says):
    for create in (create_engine, create_async_engine):
        with pytest.raises(ValueError, match=says):
            create(url, **options)


# On an event loop.


def run(test, postgres):
    async def main():
        engine = create_async_engine(
            postgres.alchemy_url, pool_size=1, max_overflow=0, pool_timeout=5
        )
        async with engine.connect():
            pass
        try:
            await test(engine)
            assert engine.pool.checkedout() == 0
            async with engine.connect() as conn:
                assert await conn.scalar(LIMIT) == "0"
        finally:
            await engine.dispose()

    asyncio.run(main())


def test_on_a_loop_a_statement_ends_at_the_deadline(postgres):
    async def test(engine):
        with exceeded(0.2, sa.exc.OperationalError):
            async with AsyncSession(engine) as session:
                await session.execute(SLEEP)

    run(test, postgres)


def test_on_a_loop_the_pool_is_waited_for_no_longer(postgres):
    async def test(engine):
        async with engine.connect():
            with exceeded(0.2, sa.exc.TimeoutError):
                await engine.connect()

    run(test, postgres)


def running(postgres):
    with postgres.connect() as conn:
        (count,) = conn.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' "
            "AND query = 'SELECT pg_sleep(20)'"
        ).fetchone()
    return count


@pytest.mark.parametrize("times", [1, 3])
def test_a_cancelled_task_ends_its_statement_and_its_connection_comes_back(postgres, times):
    async def test(engine):
        async def work():
            async with AsyncSession(engine) as session:
                await session.execute(SLEEP)

        for _ in range(3):
            task = asyncio.ensure_future(work())
            await eventually(lambda: running(postgres), "the statement to run")
            for _ in range(times):
                task.cancel()
                await asyncio.sleep(0)
            with contextlib.suppress(asyncio.CancelledError):
                await task
            assert not running(postgres)
            await eventually(lambda: engine.pool.checkedout() == 0, "the connection to be back")

    run(test, postgres)
