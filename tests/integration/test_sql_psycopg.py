"""Statements by psycopg keep to the deadline; what uses the pool besides never notices."""

import asyncio
import contextlib
import signal
import sys
import threading
import time

import psycopg
import pytest
from psycopg_pool import AsyncConnectionPool, ConnectionPool, PoolTimeout

from deadq import Deadline, DeadlineExceeded, Interrupt
from deadq.edge.sql.limits import in_ms
from deadq.edge.sql.psycopg import (
    AsyncDeadlineConnection,
    DeadlineConnection,
    aconnection,
    connection,
)
from tests.servers import wait_until
from tests.workers import eventually

LATE_S = 0.05
SLEEP = "SELECT pg_sleep(20)"


@pytest.fixture
def pool(postgres):
    with ConnectionPool(
        postgres.url, connection_class=DeadlineConnection, min_size=1, max_size=1, timeout=5
    ) as made:
        made.wait()
        yield made


@pytest.fixture
def conn(postgres):
    with DeadlineConnection.connect(postgres.url) as made:
        yield made


def limit(conn):
    return conn.execute("SHOW statement_timeout").fetchone()[0]


@contextlib.contextmanager
def exceeded(seconds, error=DeadlineExceeded):
    """The block raises it, at the deadline of so many seconds."""
    since = time.monotonic()
    with pytest.raises(error) as caught:
        with Deadline.after(seconds).scope():
            yield caught
    assert seconds - 0.002 <= time.monotonic() - since < seconds + LATE_S


def idle(postgres, words="pg_sleep"):
    """Whether nothing of the kind runs on the server."""
    with postgres.connect() as conn:
        (count,) = conn.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE %s "
            "AND pid <> pg_backend_pid()",
            [f"%{words}%"],
        ).fetchone()
    return count == 0


def clean(pool):
    """The pool has its connection, and that is as good as new."""
    stats = pool.get_stats()
    assert (stats["pool_size"], stats["pool_available"]) == (1, 1), stats
    with pool.connection() as conn:
        assert limit(conn) == "0"
        assert conn.execute("SELECT 1").fetchone() == (1,)


# The limit.


def test_a_statement_ends_at_the_deadline_on_the_server_and_is_both_errors(pool, postgres):
    with exceeded(0.2) as caught:
        with connection(pool) as conn:
            conn.execute(SLEEP)
    assert isinstance(caught.value, psycopg.errors.QueryCanceled)
    assert caught.value.sqlstate == "57014"
    assert idle(postgres)
    clean(pool)


def test_a_limit_that_came_early_is_the_deadlines_too(conn):
    """It is told less what telling it took before; this time that is quicker."""
    conn._ways_s.extend([0.3] * 8)
    with Deadline.after(0.8).scope() as deadline:
        with pytest.raises(DeadlineExceeded):
            conn.execute(SLEEP)
        assert 0.1 < deadline.remaining() < 0.4


@pytest.mark.parametrize("left", [0.0002, 0.0009])
def test_less_than_a_millisecond_is_no_lack_of_a_limit(conn, monkeypatch, left):
    monkeypatch.setattr(Deadline, "expired", property(lambda _: False))
    monkeypatch.setattr(Deadline, "remaining", lambda _: left)
    with Deadline.after(10).scope():
        assert limit(conn) == "1ms"


def test_with_no_time_left_nothing_is_sent(conn):
    with Deadline.after(0).scope():
        with pytest.raises(DeadlineExceeded, match="was not sent"):
            conn.execute("SELECT 1")
    assert conn.info.transaction_status == psycopg.pq.TransactionStatus.IDLE


def test_the_limit_shrinks_from_statement_to_statement_and_ends_with_its_scope(conn):
    with Deadline.after(30).scope():
        first = limit(conn)
        with Deadline.after(0.5).scope():
            inner = limit(conn)
        outer = limit(conn)
    assert [in_ms(word) for word in (first, inner, outer)] == [
        pytest.approx(30_000, abs=200),
        pytest.approx(500, abs=200),
        pytest.approx(30_000, abs=400),
    ]
    assert limit(conn) == "0"
    conn.rollback()
    assert limit(conn) == "0"


def test_a_smaller_limit_of_the_users_own_stays_in_force_and_its_error_too(conn):
    conn.execute("SET LOCAL statement_timeout = 30")
    with Deadline.after(10).scope():
        assert limit(conn) == "30ms"
        with pytest.raises(psycopg.errors.QueryCanceled) as caught:
            conn.execute(SLEEP)
    assert not isinstance(caught.value, DeadlineExceeded)


@pytest.mark.parametrize("own", ["5s", "1min", "2h", "1d", "1234"])
def test_a_larger_limit_of_the_users_own_comes_back(conn, own):
    conn.execute("SELECT set_config('statement_timeout', %s, true)", [own])
    before = limit(conn)
    with Deadline.after(0.5).scope():
        assert in_ms(limit(conn)) <= 500
    assert limit(conn) == before


def test_a_savepoint_that_is_rolled_back_brings_no_limit_to_stay(conn):
    with Deadline.after(30).scope():
        conn.execute("SELECT 1")
        with contextlib.suppress(psycopg.Rollback):
            with conn.transaction(force_rollback=True):
                with Deadline.after(5).scope():
                    conn.execute("SELECT 1")
    assert limit(conn) == "0"


def test_a_savepoint_brings_no_limit_back(conn):
    with Deadline.after(30).scope():
        conn.execute("SELECT 1")
    conn.execute("SAVEPOINT here")
    assert limit(conn) == "0"
    conn.execute("ROLLBACK TO SAVEPOINT here")
    assert limit(conn) == "0"


def test_a_statement_that_somebody_else_cancels_is_not_the_deadlines(conn, postgres):
    pid = conn.info.backend_pid

    def cancel():
        with postgres.connect() as other:
            wait_until(lambda: not idle(postgres), "the statement to run")
            other.execute("SELECT pg_cancel_backend(%s)", [pid])

    thread = threading.Thread(target=cancel)
    thread.start()
    with Deadline.after(10).scope(), pytest.raises(psycopg.errors.QueryCanceled) as caught:
        conn.execute(SLEEP)
    thread.join()
    assert not isinstance(caught.value, DeadlineExceeded)


def test_a_transactions_own_settings_may_still_be_made_first(conn):
    with Deadline.after(10).scope():
        conn.execute("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
        assert conn.execute("SHOW transaction_isolation").fetchone() == ("serializable",)


def test_after_an_error_a_transaction_can_be_mended(conn):
    with Deadline.after(10).scope():
        conn.execute("SAVEPOINT here")
        with pytest.raises(psycopg.errors.DivisionByZero):
            conn.execute("SELECT 1 / 0")
        conn.execute("ROLLBACK TO SAVEPOINT here")
        assert conn.execute("SELECT 1").fetchone() == (1,)


# Every kind of statement.


def test_fetches_of_a_named_cursor_are_limited_each(conn):
    with Deadline.after(10).scope():
        cursor = conn.cursor("slow")
        cursor.execute("SELECT n, pg_sleep(0.02 * n) FROM generate_series(0, 100) n")
        assert cursor.fetchone()[0] == 0
    with exceeded(0.2):
        cursor.fetchall()


def test_a_stream_of_rows_is_limited(conn):
    with exceeded(0.2):
        for _ in conn.cursor().stream("SELECT pg_sleep(0.01) FROM generate_series(0, 1000)"):
            pass


def test_a_copy_is_limited(conn):
    with exceeded(0.2):
        with conn.cursor().copy("COPY (SELECT pg_sleep(20)) TO STDOUT") as copy:
            list(copy)


def test_many_executions_are_limited_together(pool):
    with exceeded(0.3):
        with connection(pool) as conn:
            conn.cursor().executemany("SELECT pg_sleep(%s)", [(0.05,)] * 100)
    wait_until(lambda: pool.get_stats()["pool_available"] == 1, "the pool to be full")
    clean(pool)


def test_a_commit_is_limited_too(conn):
    conn.execute(
        "CREATE TABLE slow (n int);"
        "CREATE FUNCTION nap() RETURNS trigger LANGUAGE plpgsql AS "
        "'BEGIN PERFORM pg_sleep(20); RETURN NULL; END';"
        "CREATE CONSTRAINT TRIGGER late AFTER INSERT ON slow DEFERRABLE INITIALLY DEFERRED "
        "FOR EACH ROW EXECUTE FUNCTION nap()"
    )
    conn.commit()
    with exceeded(0.3):
        conn.execute("INSERT INTO slow VALUES (1)")
        conn.commit()
    assert conn.execute("SELECT count(*) FROM slow").fetchone() == (0,)


@pytest.mark.parametrize("words", [SLEEP, "VACUUM"])
def test_outside_of_a_transaction_a_statement_is_cancelled_at_the_deadline(postgres, words):
    with DeadlineConnection.connect(postgres.url, autocommit=True) as conn:
        with Deadline.after(10).scope():
            conn.execute("VACUUM pg_class")
        with exceeded(0.2):
            conn.execute(SLEEP)
        assert limit(conn) == "0"
    assert idle(postgres)


def test_a_transaction_begun_by_hand_is_the_users(postgres):
    with DeadlineConnection.connect(postgres.url, autocommit=True) as conn:
        with Deadline.after(10).scope():
            conn.execute("BEGIN")
            conn.execute("CREATE TABLE t (n int)")
            assert limit(conn) != "0"
            conn.execute("ROLLBACK")
        assert limit(conn) == "0"
        assert conn.execute("SELECT to_regclass('t')").fetchone() == (None,)


def test_a_pipeline_is_cancelled_at_the_deadline(conn):
    with exceeded(0.2):
        with conn.pipeline():
            conn.execute("SELECT 1")
            conn.execute(SLEEP)


@pytest.mark.slow
def test_a_server_that_says_nothing_is_waited_for_no_longer_than_a_little(pool, postgres):
    with pool.connection() as conn:
        pid = conn.info.backend_pid

    def frozen():
        with connection(pool) as conn:
            conn.execute("SELECT 1")
            postgres.freeze(pid)
            conn.execute(SLEEP)

    since = time.monotonic()
    try:
        with Deadline.after(0.2).scope(), pytest.raises(DeadlineExceeded):
            frozen()
        assert time.monotonic() - since < 4.5
    finally:
        postgres.thaw(pid)
    wait_until(lambda: pool.get_stats()["pool_available"] == 1, "another connection")
    clean(pool)


@pytest.mark.slow
def test_a_transaction_that_cannot_be_rolled_back_is_closed(pool, postgres):
    with pool.connection() as conn:
        pid = conn.info.backend_pid
    since = time.monotonic()
    try:
        with contextlib.suppress(KeyError), connection(pool) as conn:
            conn.execute("SELECT 1")
            postgres.freeze(pid)
            raise KeyError
        assert time.monotonic() - since < 6.0
    finally:
        postgres.thaw(pid)
    wait_until(lambda: pool.get_stats()["pool_available"] == 1, "another connection")
    clean(pool)


# The pool.


def test_a_connection_is_tried_out_under_the_deadline(postgres):
    with ConnectionPool(
        postgres.url,
        connection_class=DeadlineConnection,
        check=lambda conn: conn.execute(SLEEP),
        min_size=1,
        max_size=1,
    ) as pool:
        with exceeded(0.3):
            with connection(pool):
                pass


def test_a_pool_is_waited_for_no_longer_than_the_deadline(pool):
    with connection(pool):
        with exceeded(0.2) as caught:
            with connection(pool):
                pass
        assert isinstance(caught.value, PoolTimeout)
    with pytest.raises(DeadlineExceeded), Deadline.after(0).scope(), connection(pool):
        pass
    clean(pool)


def test_a_pool_whose_connections_know_no_deadline_is_refused(postgres):
    with ConnectionPool(postgres.url, min_size=0, max_size=1, open=False) as pool:
        with pytest.raises(TypeError, match="connection_class=DeadlineConnection"):
            connection(pool)


def test_a_block_commits_and_an_error_rolls_back(pool):
    with connection(pool) as conn:
        conn.execute("CREATE TABLE t (n int)")
    with contextlib.suppress(KeyError), connection(pool) as conn:
        conn.execute("INSERT INTO t VALUES (1)")
        raise KeyError
    with connection(pool) as conn:
        assert conn.execute("SELECT count(*) FROM t").fetchone() == (0,)
    clean(pool)


# Interruption.


@pytest.fixture
def alarm():
    """Raises an Interrupt in so many seconds, and then every few milliseconds."""

    def ring(number, frame):
        raise Interrupt

    def after(seconds, again=0.0):
        signal.setitimer(signal.ITIMER_REAL, seconds, again)

    before = signal.signal(signal.SIGALRM, ring)
    yield after
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def test_an_interrupt_ends_what_runs_on_the_server(pool, postgres, alarm):
    since = time.monotonic()
    with contextlib.suppress(Interrupt), connection(pool) as conn:
        alarm(0.1)
        conn.execute(SLEEP)
        pytest.fail("it was not interrupted")
    assert time.monotonic() - since < 1.0
    assert idle(postgres)
    clean(pool)


@pytest.mark.parametrize("rounds", [40, pytest.param(1_000, marks=pytest.mark.slow)])
def test_whenever_interrupts_come_the_connection_comes_back_once_and_clean(
    pool, alarm, rounds, monkeypatch
):
    # what a signal handler raises in a finalizer goes nowhere; a later one comes
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    returned = []
    give = pool.putconn
    pool.putconn = lambda conn: (returned.append(conn), give(conn))
    taken = 0
    take = pool.getconn

    def counted(timeout):
        nonlocal taken
        conn = take(timeout)
        taken += 1
        return conn

    pool.getconn = counted
    for number in range(rounds):
        with contextlib.suppress(Interrupt):
            alarm(0.0002 + 0.006 * number / rounds, 0.005)
            try:
                with connection(pool) as conn:
                    conn.execute("SELECT pg_sleep(0.001)")
                    conn.execute("SELECT 1")
            finally:
                alarm(0)
        alarm(0)
    wait_until(lambda: pool.get_stats()["pool_available"] == 1, "the connection to be back")
    assert len(returned) == taken
    clean(pool)


# On an event loop.


def run(test, postgres, **settings):
    async def main():
        async with AsyncConnectionPool(
            postgres.url,
            connection_class=AsyncDeadlineConnection,
            **{"min_size": 1, "max_size": 1, "timeout": 5.0, "open": False, **settings},
        ) as pool:
            await pool.wait()
            await test(pool)
            stats = pool.get_stats()
            assert (stats["pool_size"], stats["pool_available"]) == (1, 1), stats
            async with pool.connection() as conn:
                cursor = await conn.execute("SHOW statement_timeout")
                assert await cursor.fetchone() == ("0",)

    asyncio.run(main())


def test_a_statement_on_a_loop_ends_at_the_deadline(postgres):
    async def test(pool):
        with exceeded(0.2) as caught:
            async with aconnection(pool) as conn:
                await conn.execute(SLEEP)
        assert isinstance(caught.value, psycopg.errors.QueryCanceled)
        assert idle(postgres)

    run(test, postgres)


def test_a_loop_waits_for_the_pool_no_longer_than_the_deadline(postgres):
    async def test(pool):
        async with aconnection(pool):
            with exceeded(0.2):
                async with aconnection(pool):
                    pass

    run(test, postgres)


def test_outside_of_a_transaction_a_loops_statement_is_cancelled_too(postgres):
    async def test(pool):
        with exceeded(0.2):
            async with aconnection(pool) as conn:
                await conn.execute(SLEEP)

    run(test, postgres, kwargs={"autocommit": True})


@pytest.mark.parametrize("times", [1, 3])
def test_a_task_that_is_cancelled_ends_its_statement_and_gives_back_a_clean_connection(
    postgres, times
):
    async def test(pool):
        pids = []

        async def work():
            async with aconnection(pool) as conn:
                pids.append(conn.info.backend_pid)
                await conn.execute(SLEEP)

        for _ in range(3):
            task = asyncio.ensure_future(work())
            await eventually(lambda: not idle(postgres), "the statement to run")
            for _ in range(times):
                task.cancel()
                await asyncio.sleep(0)
            with pytest.raises(asyncio.CancelledError):
                await task
            assert idle(postgres)
        assert len(set(pids)) == 1  # it was cleaned, not thrown away

    run(test, postgres)


@pytest.mark.parametrize("rounds", [60, pytest.param(1_000, marks=pytest.mark.slow)])
def test_whenever_a_task_is_cancelled_its_connection_comes_back_once(postgres, rounds):
    async def test(pool):
        gone = []
        give = pool.putconn

        async def counted(conn):
            gone.append(conn)
            await give(conn)

        pool.putconn = counted

        async def work():
            async with aconnection(pool) as conn:
                taken.append(conn)
                await conn.execute("SELECT pg_sleep(0.001)")
                await conn.execute("SELECT 1")

        taken = []
        for number in range(rounds):
            task = asyncio.ensure_future(work())
            await asyncio.sleep(0.008 * number / rounds)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        assert len(gone) >= len(taken)
        assert rounds // 3 < len(taken)

    run(test, postgres)
