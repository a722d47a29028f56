"""Statements with all kinds of time left, through one pool that is shared with plain users."""

import contextlib
import random
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from psycopg_pool import ConnectionPool

from deadq import Deadline, DeadlineExceeded
from deadq.edge.sql.limits import in_ms, limit_ms
from deadq.edge.sql.psycopg import DeadlineConnection, PoolDeadlineExceeded, connection

LATE_S = 0.05


@pytest.fixture
def pool(postgres):
    with ConnectionPool(
        postgres.url,
        connection_class=DeadlineConnection,
        kwargs={"options": "-c log_min_duration_statement=0"},
        min_size=4,
        max_size=4,
        timeout=60,
    ) as made:
        made.wait()
        yield made


def limited(pool, number):
    """One statement, and until when it may run (s since 1970)."""
    chance = random.Random(number)
    left = 10 ** chance.uniform(-3.7, 0.7)  # 0.2 ms to 5 s
    nap = chance.choice([0.0, 0.001, left / 2, left, left * 2, 20.0])
    nap = nap if nap < 0.05 or chance.random() < 0.05 or left < 0.05 else 0.001
    until, deadline = time.time() + left, Deadline.after(left)
    with deadline.scope(), contextlib.suppress(PoolDeadlineExceeded), connection(pool) as conn:
        began = time.monotonic()
        try:
            conn.execute(f"SELECT pg_sleep(%s) /* {number}. */", [nap])
        except DeadlineExceeded:
            assert deadline.remaining() < 0.005
            conn.rollback()
        else:
            assert time.monotonic() - began >= nap
    return until


def ended(log):
    """When each statement ended, as the server itself has noted (s since 1970)."""
    found = re.finditer(r"^(\d+\.\d+) .*/\* (\d+)\. \*/", log, flags=re.MULTILINE)
    return {int(match[2]): float(match[1]) for match in found}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("statements", [300, pytest.param(10_000, marks=pytest.mark.slow)])
def test_no_plain_query_sees_a_limit_and_no_statement_outlives_its_deadline(
    pool, postgres, statements
):
    over = threading.Event()
    plain = [0, 0]

    def plain_user(number):
        while not over.is_set():
            with pool.connection() as conn:
                assert conn.execute("SHOW statement_timeout").fetchone() == ("0",)
                conn.execute("SELECT pg_sleep(0.001)")
                plain[number] += 1
        return True

    before = len(postgres.log)
    with ThreadPoolExecutor(8) as threads:
        users = [threads.submit(plain_user, number) for number in range(2)]
        try:
            # of every other one the time is over before the pool has a connection for it
            until = list(threads.map(lambda number: limited(pool, number), range(2 * statements)))
        finally:
            over.set()
        assert all(user.result() for user in users)
    late = {number: at - until[number] for number, at in ended(postgres.log[before:]).items()}
    worst = max(late.values())
    print(f"{len(late)} statements ran, {sum(plain)} plain ones; latest: {worst * 1000:.1f} ms")
    assert worst < LATE_S
    assert len(late) >= statements
    assert sum(plain) > statements / 20
    assert pool.get_stats()["pool_available"] == 4
    with postgres.connect() as conn:
        (busy,) = conn.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' "
            "AND state <> 'idle' AND pid <> pg_backend_pid()"
        ).fetchone()
    assert busy == 0


@pytest.mark.parametrize(
    ("left", "ms"),
    [(0.0000001, 1), (0.0002, 1), (0.001, 1), (0.0011, 2), (5, 5000), (1e8, 2**31 - 1)],
)
def test_what_is_left_is_rounded_up(left, ms, monkeypatch):
    monkeypatch.setattr(Deadline, "remaining", lambda _: left)
    assert limit_ms(Deadline.after(1)) == ms


def test_a_deadline_that_has_passed_is_a_limit_too():
    assert limit_ms(Deadline.at(1_000_000_000_000)) == 1


@pytest.mark.parametrize(
    ("shown", "ms"),
    [("0", 0), ("7", 7), ("1500ms", 1500), ("5s", 5000), ("2min", 120_000), ("1d", 86_400_000)],
)
def test_settings_are_read_as_the_server_shows_them(shown, ms):
    assert in_ms(shown) == ms
    with pytest.raises(ValueError, match="no duration"):
        in_ms(f"{shown} moons")


def test_the_server_shows_a_limit_as_it_is_read(postgres):
    with psycopg.connect(postgres.url) as conn:
        for ms in (1, 999, 1000, 61_000, 3_600_000, 2**31 - 1):
            conn.execute(f"SET statement_timeout = {ms}")
            assert in_ms(conn.execute("SHOW statement_timeout").fetchone()[0]) == ms
