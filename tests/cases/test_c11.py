"""C11: a naive datetime as deadline.

The rule: a naive datetime is refused, wherever an instant is taken, in every zone, on both faces;
an aware one is stored as the same millisecond whatever the zone of the host or of the datetime.
"""

import asyncio
import json
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

import pytest

from deadq import Deadline, State
from tests.cases.support import nothing_stored, says
from tests.servers import wait_until
from tests.workers import ROOT

ZONES = ["UTC", "America/New_York", "Asia/Kolkata", "Pacific/Kiritimati", "America/St_Johns"]


def declare(queue, book):
    @queue.task(within=5.0)
    async def left():
        from deadq import current_job

        book.note("start")
        return current_job().deadline.remaining(), time.tzname[0]


@pytest.fixture(params=ZONES)
def zone(request, monkeypatch):
    """The host's zone."""
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield request.param
    monkeypatch.undo()
    time.tzset()


class NoOffset(tzinfo):
    """A zone that does not know: to Python such a datetime is naive."""

    def utcoffset(self, when):
        return None

    def dst(self, when):
        return None

    def tzname(self, when):
        return "nowhere"


def naive_instants():
    now = datetime.now() + timedelta(seconds=30)
    return {
        "local": now,
        "utc without its zone": now.astimezone(UTC).replace(tzinfo=None),
        "a zone without an offset": now.replace(tzinfo=NoOffset()),
        "parsed": datetime.fromisoformat(now.isoformat()),
        "the largest": datetime.max,
        "the smallest": datetime.min,
    }


@pytest.mark.parametrize("which", naive_instants())
def test_a_naive_one_is_refused_everywhere_and_nothing_is_stored(scene, zone, which):
    made = scene(declare)
    naive = naive_instants()[which]
    task = made.tasks.left
    tries = [
        lambda: task.options(deadline=naive).enqueue(),
        lambda: task.options(not_before=naive).enqueue(),
        lambda: asyncio.run(task.options(deadline=naive).aenqueue()),
        lambda: task.options(deadline=naive).enqueue_many([()]),
        lambda: task.options(deadline=naive).bind(),
        lambda: Deadline.at(naive),
    ]
    for attempt in tries:
        with nothing_stored(made.client), pytest.raises(ValueError) as caught:
            attempt()
        says(caught.value, "naive", "aware", r"datetime\.now\(UTC\)")


PROGRAM = """
import json, os, sys, time
from datetime import datetime
from zoneinfo import ZoneInfo
from deadq import Deadline, Queue
url, text, key = json.loads(sys.argv[1])
queue = Queue("case", capacity=1000, admission="cap", url=url)
@queue.task
async def left(): ...
moment = datetime.fromisoformat(text)
for zone in (ZoneInfo("UTC"), ZoneInfo("Asia/Kathmandu"), None):  # None: the host's
    print(left.options(key=f"{key} {zone}", deadline=moment.astimezone(zone)).enqueue().id)
queue.close()
"""


def test_an_aware_one_is_the_same_millisecond_in_every_process(scene):
    made = scene(declare)
    moment = datetime.now(UTC).replace(microsecond=123_456) + timedelta(minutes=5)
    stored = []
    for host in ZONES:
        given = json.dumps([made.queue.backend.url, moment.isoformat(), host])
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, given],
            env={"TZ": host, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        stored += [made.client.hget(made.key("job", i), "deadline") for i in done.stdout.split()]
    assert len(stored) == 3 * len(ZONES)
    assert set(map(int, stored)) == {int(moment.replace(microsecond=123_000).timestamp() * 1000)}


def test_an_hour_that_comes_twice_is_two_instants():
    """The clocks went back on 2026-11-01 in New York: 01:30 was twice."""
    first = datetime(2026, 11, 1, 1, 30, fold=0, tzinfo=ZoneInfo("America/New_York"))
    second = first.replace(fold=1)
    assert instant_of(second) - instant_of(first) == 3_600_000
    assert instant_of(first) == instant_of(datetime(2026, 11, 1, 5, 30, tzinfo=UTC))


def test_an_hour_that_never_came_is_taken_as_python_takes_it():
    missing = datetime(2026, 3, 8, 2, 30, tzinfo=ZoneInfo("America/New_York"))
    assert instant_of(missing) == missing.astimezone(UTC).timestamp() * 1000


@pytest.mark.parametrize(
    "offset",
    [
        timedelta(hours=23, minutes=59, seconds=59, microseconds=999_999),
        -timedelta(hours=23, minutes=59),
        timedelta(minutes=5, seconds=17),
        timedelta(microseconds=1),
    ],
)
def test_an_odd_offset_does_not_matter(offset):
    moment = datetime(2030, 1, 1, 12, tzinfo=UTC) + timedelta(microseconds=500)
    assert instant_of(moment.astimezone(timezone(offset))) == instant_of(moment)


@pytest.mark.parametrize("hosts", [("America/New_York", "Asia/Kolkata"), ("Asia/Kolkata", "UTC")])
def test_producer_and_worker_in_different_zones_mean_the_same_instant(scene, monkeypatch, hosts):
    """A wrong guess would make the job hours late, or let it start hours after its deadline."""
    made = scene(declare)
    producer, worker = hosts
    monkeypatch.setenv("TZ", worker)
    made.worker()
    monkeypatch.setenv("TZ", producer)
    time.tzset()
    try:
        moment = datetime.now(ZoneInfo("Asia/Kathmandu")) + timedelta(seconds=4)
        remaining, zone = made.tasks.left.options(deadline=moment).call()
        assert 2.0 < remaining <= 4.0
        assert zone == {"Asia/Kolkata": "IST", "UTC": "UTC"}[worker]
        start = datetime.now(ZoneInfo("Europe/Berlin")) + timedelta(seconds=0.5)
        handle = made.tasks.left.options(not_before=start, within=4.0).enqueue()
        assert handle.state() == State.LATER
        handle.result()
        assert made.now_ms() >= int(start.timestamp() * 1000)
    finally:
        monkeypatch.undo()
        time.tzset()
    wait_until(lambda: made.queue.stats().unfinished == 0, "all to be done with")


def instant_of(moment):
    from deadq.clock import ServerClock

    return Deadline.at(moment).server_ms(ServerClock())
