"""Statements of sqlite3 end at the deadline, leave no limit behind, and can be interrupted."""

import contextlib
import signal
import sqlite3
import time

import pytest

from deadq import Deadline, DeadlineExceeded, Interrupt
from deadq.edge.sql import sqlite

FOREVER = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT n FROM r"
COUNT = FOREVER.replace("SELECT n FROM", "SELECT count(*) FROM")
SOME = f"{FOREVER} WHERE n % 1000 = 0"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "bank.db"


@pytest.fixture
def conn(path):
    with contextlib.closing(sqlite.connect(path)) as made:
        made.execute("CREATE TABLE t (n int)")
        yield made


@contextlib.contextmanager
def exceeded(seconds):
    since = time.monotonic()
    with pytest.raises(DeadlineExceeded) as caught, Deadline.after(seconds).scope():
        yield caught
    assert isinstance(caught.value, sqlite3.OperationalError)
    assert seconds <= time.monotonic() - since < seconds + 0.05


def busy_ms(conn):
    return conn.execute("PRAGMA busy_timeout").fetchone()[0]


@pytest.mark.parametrize(
    "act",
    [
        lambda conn: conn.execute(COUNT).fetchone(),
        lambda conn: conn.execute(f"INSERT INTO t {FOREVER}"),
        lambda conn: conn.executemany(f"INSERT INTO t {FOREVER} LIMIT ?", [(1,), (10**12,)]),
        lambda conn: conn.executescript(f"INSERT INTO t {COUNT};"),
        lambda conn: conn.cursor().execute(SOME).fetchall(),
        lambda conn: conn.cursor().execute(SOME).fetchmany(10**9),
        lambda conn: [None for _ in conn.execute(SOME)],
    ],
)
def test_a_statement_ends_at_the_deadline(conn, act):
    with exceeded(0.1):
        act(conn)
    assert conn.execute("SELECT 1").fetchone() == (1,)
    assert busy_ms(conn) == 5000


def test_with_no_time_left_nothing_is_done_but_what_was_done_can_be_kept_or_undone(conn):
    conn.execute("INSERT INTO t VALUES (1)")
    with Deadline.after(0).scope():
        with pytest.raises(DeadlineExceeded, match="nothing was done"):
            conn.execute("INSERT INTO t VALUES (2)")
        conn.commit()
    conn.execute("INSERT INTO t VALUES (3)")
    with Deadline.after(0).scope():
        conn.rollback()
    assert conn.execute("SELECT n FROM t").fetchall() == [(1,)]


def test_another_writer_is_waited_for_no_longer_than_the_deadline(conn, path):
    conn.commit()
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute("BEGIN IMMEDIATE")
        with exceeded(0.2):
            conn.execute("BEGIN IMMEDIATE")
    assert busy_ms(conn) == 5000


def test_a_shorter_wait_of_the_users_own_stays_and_its_error_too(path):
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with contextlib.closing(sqlite.connect(path, timeout=0.05)) as conn:
            with Deadline.after(10).scope(), pytest.raises(sqlite3.OperationalError) as caught:
                conn.execute("BEGIN IMMEDIATE")
    assert not isinstance(caught.value, DeadlineExceeded)


def test_a_wait_that_the_user_sets_later_is_the_users_own(conn):
    conn.execute("PRAGMA busy_timeout = 1234")
    with Deadline.after(0.5).scope():
        assert 0 < busy_ms(conn) <= 500
    assert busy_ms(conn) == 1234


def test_an_ordinary_error_stays_what_it_is(conn):
    with Deadline.after(10).scope(), pytest.raises(sqlite3.OperationalError) as caught:
        conn.execute("SELECT nothing")
    assert not isinstance(caught.value, DeadlineExceeded)


def test_the_users_own_progress_handler_comes_back(conn):
    calls = []
    conn.set_progress_handler(lambda: calls.append(1), 100)
    with Deadline.after(10).scope():
        conn.execute("SELECT 1").fetchone()
    sqlite3.Connection.execute(conn, f"{FOREVER} LIMIT 1000").fetchall()
    assert calls


def test_rows_and_names_are_as_of_sqlite3(conn):
    conn.row_factory = sqlite3.Row
    with Deadline.after(10).scope(), conn:
        conn.executemany("INSERT INTO t VALUES (?)", [(1,), (2,)])
        row = conn.execute("SELECT n AS number FROM t WHERE n = :n", {"n": 2}).fetchone()
    assert row["number"] == 2


def test_interrupts_end_what_runs(conn):
    def ring(number, frame):
        raise Interrupt

    before = signal.signal(signal.SIGALRM, ring)
    try:
        for round_ in range(50):
            since = time.monotonic()
            signal.setitimer(signal.ITIMER_REAL, 0.01 + round_ / 10_000)
            with pytest.raises(Interrupt):
                conn.execute(COUNT).fetchone()
            assert time.monotonic() - since < 2.0
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert conn.execute("SELECT 1").fetchone() == (1,)
