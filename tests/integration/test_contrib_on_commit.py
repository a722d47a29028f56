"""Submits that wait for a commit: what is sent, what is dropped, and until when it may run."""

import asyncio
import contextlib
import logging
import os
import subprocess
import sys
import time

import pytest
from sqlalchemy import create_engine, event, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    Session,
    mapped_column,
    scoped_session,
    sessionmaker,
)

import deadq
from deadq import DeadlineExpired, DeadqError, Queue, QueueFull
from deadq.contrib.sqlalchemy import on_commit


@pytest.fixture
def queue(valkey_server):
    with valkey_server.client() as client:
        client.flushall()
    queue = Queue("orders", capacity=3, url=valkey_server.url)
    queue.task(name="charge", within=20.0)(charged)
    yield queue
    queue.close()


def charged(order: str) -> str:
    return order


@pytest.fixture
def charge(queue):
    return queue.tasks["charge"]


@pytest.fixture
def session():
    engine = create_engine("sqlite://")
    with Session(engine) as session:
        yield session
    engine.dispose()


def waiting(queue) -> int:
    return len(queue.jobs())


def test_it_is_sent_on_commit_and_not_before(queue, charge, session):
    session.execute(text("SELECT 1"))
    pending = on_commit(charge.options(key="order-17"), session).enqueue("17")
    assert (pending.fate, waiting(queue)) == ("waiting", 0)
    with pytest.raises(DeadqError, match="not committed"):
        _ = pending.job
    session.commit()
    assert (pending.fate, pending.job.key, waiting(queue)) == ("enqueued", "order-17", 1)
    session.commit()
    session.execute(text("SELECT 1"))
    session.commit()
    assert waiting(queue) == 1


@pytest.mark.parametrize("end", ["rollback", "close", "raise"])
def test_it_is_dropped_on_rollback(queue, charge, session, end):
    pending = on_commit(charge, session).enqueue("17")
    if end == "raise":
        with contextlib.suppress(LookupError), session.get_transaction():
            raise LookupError
    else:
        getattr(session, end)()
    assert pending.fate == "dropped"
    with pytest.raises(DeadqError, match="rolled back"):
        _ = pending.job
    session.execute(text("SELECT 1"))
    session.commit()
    assert waiting(queue) == 0


def test_a_savepoint_takes_its_own_along(queue, charge, session):
    calls = on_commit(charge, session)
    fates = {}
    with session.begin():
        fates["root"] = calls.enqueue("root")
        with session.begin_nested():
            fates["kept"] = calls.enqueue("kept")
            with session.begin_nested() as inner:
                fates["inner"] = calls.enqueue("inner")
                inner.rollback()
        with session.begin_nested() as outer:
            with session.begin_nested():
                fates["released"] = calls.enqueue("released, and then rolled back")
            outer.rollback()
        assert waiting(queue) == 0
    assert {name: str(pending.fate) for name, pending in fates.items()} == {
        "root": "enqueued",
        "kept": "enqueued",
        "inner": "dropped",
        "released": "dropped",
    }
    assert waiting(queue) == 2


def test_all_goes_when_the_transaction_does(queue, charge, session):
    with contextlib.suppress(LookupError), session.begin():
        with session.begin_nested():
            pending = on_commit(charge, session).enqueue("17")
        raise LookupError
    assert (pending.fate, waiting(queue)) == ("dropped", 0)


def test_a_statement_that_fails_drops_it_with_its_transaction(queue, charge, session):
    session.execute(text("CREATE TABLE orders (name TEXT UNIQUE)"))
    session.commit()
    pending = on_commit(charge, session).enqueue("17")
    with pytest.raises(IntegrityError):
        session.execute(text("INSERT INTO orders VALUES ('17'), ('17')"))
    session.rollback()
    assert (pending.fate, waiting(queue)) == ("dropped", 0)


def test_what_a_hook_of_the_flush_enqueues_goes_with_the_transaction(queue, charge):
    class Base(DeclarativeBase): ...

    class Order(Base):
        __tablename__ = "orders"
        name: Mapped[str] = mapped_column(primary_key=True)

    engine = create_engine("sqlite://")
    Base.metadata.create_all(engine)
    pending = []
    with Session(engine) as session:
        event.listen(
            session,
            "after_flush",
            lambda session, _: pending.append(on_commit(charge, session).enqueue("17")),
        )
        session.add(Order(name="17"))
        session.flush()
        assert pending[0].fate == "waiting"
        session.commit()
        session.add(Order(name="18"))
        session.flush()
        session.rollback()
        session.add(Order(name="17"))
        with pytest.raises(IntegrityError):
            session.commit()
        session.rollback()
    assert [str(each.fate) for each in pending] == ["enqueued", "dropped"]
    assert waiting(queue) == 1
    engine.dispose()


def test_sessions_side_by_side_have_each_its_own(queue, charge, session):
    with Session(session.get_bind()) as other:
        one = on_commit(charge, session).enqueue("1")
        two = on_commit(charge, other).enqueue("2")
        other.rollback()
        session.commit()
    assert (one.fate, two.fate) == ("enqueued", "dropped")


def test_the_deadline_keeps_its_instant(queue, charge, session):
    begun = time.monotonic()
    pending = on_commit(charge.options(within=5.0), session).enqueue("17")
    while time.monotonic() < begun + 0.3:
        session.execute(text("SELECT 1"))
    session.commit()
    assert pending.job.deadline.monotonic - begun < 5.2
    assert queue.jobs()[0].remaining_s < 4.8


def test_one_that_a_transaction_outlasts_is_refused_and_the_commit_stands(
    queue, charge, session, caplog
):
    session.execute(text("CREATE TABLE orders (name TEXT)"))
    session.execute(text("INSERT INTO orders VALUES ('17')"))
    pending = on_commit(charge.options(within=0.05), session).enqueue("17")
    after = on_commit(charge, session).enqueue("18")
    deadline = time.monotonic() + 0.06
    while time.monotonic() < deadline:
        session.execute(text("SELECT 1"))
    with caplog.at_level(logging.ERROR, "deadq.contrib"):
        session.commit()
    assert pending.fate == "refused"
    with pytest.raises(DeadlineExpired):
        _ = pending.job
    assert "DeadlineExpired" in caplog.text
    assert session.scalar(text("SELECT name FROM orders")) == "17"
    assert (after.fate, waiting(queue)) == ("enqueued", 1)


def test_what_does_not_fit_any_more_is_refused_too(queue, charge, session):
    pending = [on_commit(charge, session).enqueue(str(i)) for i in range(4)]
    session.commit()
    assert [str(each.fate) for each in pending] == ["enqueued"] * 3 + ["refused"]
    with pytest.raises(QueueFull):
        _ = pending[3].job


def test_faults_of_the_call_are_raised_at_the_call(charge, session):
    with pytest.raises(TypeError):
        on_commit(charge, session).enqueue()
    with pytest.raises(ValueError, match="cannot"):
        on_commit(charge, session).enqueue(object())


def test_a_session_of_a_registry(queue, charge):
    engine = create_engine("sqlite://")
    registry = scoped_session(sessionmaker(engine))
    pending = on_commit(charge, registry).enqueue("17")
    registry.commit()
    assert pending.job.state() == "ready"
    registry.remove()
    engine.dispose()


async def _async_session(queue, charge, end):
    asyncio_ext = pytest.importorskip("sqlalchemy.ext.asyncio")
    engine = asyncio_ext.create_async_engine("sqlite+aiosqlite://")
    async with asyncio_ext.AsyncSession(engine) as session:
        await session.execute(text("SELECT 1"))
        pending = await on_commit(charge, session).aenqueue("17")
        assert pending.fate == "waiting"
        await getattr(session, end)()
    await engine.dispose()
    found = len(await queue.ajobs())
    await queue.aclose()
    return str(pending.fate), found


@pytest.mark.parametrize(
    ("end", "fate"), [("commit", ("enqueued", 1)), ("rollback", ("dropped", 0))]
)
def test_a_session_on_an_event_loop(queue, charge, end, fate):
    pytest.importorskip("aiosqlite")
    assert asyncio.run(_async_session(queue, charge, end)) == fate


DJANGO = """
import logging, sys, time
from django.conf import settings
settings.configure(DATABASES={
    name: {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"} for name in ("default", "b")
})
import django
django.setup()
from django.db import transaction
from deadq import DeadlineExpired, DeadqError, Queue
from deadq.contrib.django import on_commit

queue = Queue("orders", capacity=9)

@queue.task(within=20.0)
def charge(order): ...

def waiting():
    return len(queue.jobs())

with transaction.atomic():
    pending = on_commit(charge.options(key="order-17")).enqueue("17")
    assert (pending.fate, waiting()) == ("waiting", 0)
    try:
        with transaction.atomic():
            lost = on_commit(charge).enqueue("18")
            raise LookupError
    except LookupError:
        pass
    with transaction.atomic(using="b"):
        other = on_commit(charge, using="b").enqueue("19")
    assert other.fate == "enqueued"
assert pending.job.key == "order-17"
assert waiting() == 2, queue.jobs()
try:
    lost.job
except DeadqError as error:
    assert "not committed" in str(error)

try:
    with transaction.atomic():
        on_commit(charge).enqueue("20")
        raise LookupError
except LookupError:
    assert waiting() == 2

with transaction.atomic():
    late = on_commit(charge.options(within=0.05)).enqueue("21")
    kept = on_commit(charge.options(within=5.0)).enqueue("22")
    begun = time.monotonic()
    while time.monotonic() < begun + 0.3:
        pass
assert late.fate == "refused"
try:
    late.job
except DeadlineExpired:
    print("refused")
assert kept.job.deadline.remaining() < 4.8
assert on_commit(charge).enqueue("23").fate == "enqueued"
"""


def test_a_transaction_of_django(valkey_server):
    with valkey_server.client() as client:
        client.flushall()
    done = subprocess.run(
        [sys.executable, "-c", DJANGO],
        env={
            **os.environ,
            "DEADQ_URL": valkey_server.url,
            "PYTHONPATH": str(next(iter(deadq.__path__)) + "/.."),
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "refused\n"), done.stderr
    assert "DeadlineExpired" in done.stderr
