"""The findings of ``deadq check``, from facts alone."""

import pytest

from deadq.checks import Level, TaskFacts, check_memory, check_queue, check_server
from deadq.config import QueueConfig
from deadq.store.survey import ServerFacts

GOOD = ServerFacts(
    product="Valkey",
    version=(7, 2, 4),
    policy="noeviction",
    most=1_000_000_000,
    replica=False,
    aof=True,
    fsync="everysec",
    ahead_s=0.01,
    refused=(),
    record_bytes=500.0,
    mean_ms=100,
    tasks={"pay": (90, 200)},
)
PAY = TaskFacts(within_s=2.0, p95_s=0.2)


def server(about, *, allow_eviction=False, **facts):
    """The finding on one thing."""
    found = {
        finding.about: finding
        for finding in check_server(GOOD._replace(**facts), allow_eviction=allow_eviction)
    }
    return found[about]


def queue(about, tasks=None, *, capacity=16, slots=8, mean_s=0.1):
    config = QueueConfig("shop", capacity)
    tasks = {"pay": PAY} if tasks is None else tasks
    return [f for f in check_queue(config, tasks, slots, mean_s) if f.about == about]


def test_a_good_server_is_good():
    findings = list(check_server(GOOD, allow_eviction=False))
    assert {finding.level for finding in findings} == {Level.OK}
    assert [finding.about for finding in findings] == [
        "version",
        "eviction",
        "persistence",
        "clock",
        "rights",
    ]


@pytest.mark.parametrize(
    ("about", "facts", "level", "says"),
    [
        (
            "version",
            {"version": (6, 0, 16), "product": "Redis"},
            "fault",
            "Redis 6.0.16 is too old",
        ),
        ("version", {"version": (6, 2, 0)}, "ok", "Valkey 6.2.0"),
        ("version", {"version": ()}, "ok", "(version unknown)"),
        ("role", {"replica": True}, "fault", "refuses writes"),
        ("eviction", {"policy": "allkeys-lru"}, "fault", "allkeys-lru may throw accepted jobs"),
        ("eviction", {"policy": None}, "warning", "does not say"),
        ("persistence", {"aof": False}, "warning", "no append-only file"),
        ("persistence", {"aof": None}, "warning", "does not say"),
        ("persistence", {"fsync": "always"}, "ok", "nothing acknowledged is lost"),
        ("persistence", {"fsync": "everysec"}, "ok", "about the last second"),
        ("persistence", {"fsync": None}, "ok", "append-only file"),
        ("clock", {"ahead_s": 0.99}, "ok", "differ by 0.990 s"),
        ("clock", {"ahead_s": 1.01}, "warning", "differ by 1.010 s"),
        ("clock", {"ahead_s": -600.0}, "warning", "differ by 600.000 s"),
        ("rights", {"refused": ("ZADD", "DEL")}, "fault", "may not run ZADD, DEL"),
    ],
)
def test_what_is_wrong_with_a_server(about, facts, level, says):
    finding = server(about, **facts)
    assert finding.level == level
    assert says in finding.found
    assert bool(finding.remedy) is (level != "ok")


def test_eviction_that_is_allowed_is_only_warned_of():
    assert server("eviction", policy="allkeys-lru", allow_eviction=True).level is Level.WARNING


# Memory.


@pytest.mark.parametrize(
    ("rate", "size", "retention", "most", "level"),
    [
        (100, 500, 3_600.0, 1_000_000_000, "ok"),  # 180 MB
        (1_000, 500, 3_600.0, 1_000_000_000, "fault"),  # 1,800 MB
        (1_000, 500, 360.0, 1_000_000_000, "ok"),
        (1_000, 50, 3_600.0, 1_000_000_000, "ok"),
        (1_000, 500, 3_600.0, 4_000_000_000, "ok"),
        (1_000, 500, 3_600.0, None, "ok"),
        (0, 500, 3_600.0, 1_000_000_000, "ok"),
    ],
)
def test_memory_is_weighed_against_rate_size_and_retention(rate, size, retention, most, level):
    config = QueueConfig("shop", 16, retention=retention)
    finding = check_memory(GOOD._replace(most=most), config, rate, size)
    assert finding.level == level
    if level == "fault":
        # 80 % of a gigabyte, less what waits, at 500 kB a second
        assert finding.remedy.endswith("let retention be 1,600 s")


def test_without_a_job_nobody_knows_what_one_takes():
    finding = check_memory(GOOD, QueueConfig("shop", 16), 100.0, None)
    assert (finding.level, finding.remedy) == ("warning", "run some jobs, or give --bytes")


# The queue.


def test_a_good_queue_is_good():
    findings = list(check_queue(QueueConfig("shop", 16), {"pay": PAY}, 8, 0.1))
    assert [(f.level, f.about) for f in findings] == [
        ("ok", "tasks"),
        ("ok", "workers"),
        ("ok", "capacity"),
    ]


def test_a_queue_without_tasks_is_at_fault():
    (finding,) = queue("tasks", {})
    assert finding.level is Level.FAULT


@pytest.mark.parametrize(
    ("size", "rate", "says"),
    [
        (80_000.0, 1e6, "or keep fewer jobs a second"),  # 10,000 jobs fit, less the queue's 16
        (1e8, 1.0, "or let capacity be less: 16 jobs alone fill it"),
        (1e8, 0.0, "or let capacity be less: 16 jobs alone fill it"),
    ],
)
def test_what_is_too_much_for_the_memory_is_named(size, rate, says):
    finding = check_memory(GOOD, QueueConfig("shop", 16), rate, size)
    assert finding.level is Level.FAULT
    assert finding.remedy.endswith(says)


@pytest.mark.parametrize(
    ("task", "level", "says"),
    [
        (TaskFacts(2.0, None), "ok", "not measured yet"),
        (TaskFacts(2.0, 1.9), "ok", "p95 1.900 s"),
        (TaskFacts(2.0, 2.0), "fault", "takes 2.000 s (p95), and has 2 s"),
        (TaskFacts(None, 0.1), "warning", "has no time budget"),
    ],
)
def test_a_task_has_time_enough(task, level, says):
    (finding,) = queue("tasks", {"pay": task})
    assert finding.level == level
    assert says in finding.found


@pytest.mark.parametrize(("timeout", "warned"), [(None, 0), (1.0, 0), (2.0, 0), (2.1, 1)])
def test_an_attempt_that_may_outlast_its_time_is_warned_of(timeout, warned):
    warnings = queue("tasks", {"pay": TaskFacts(2.0, 0.2, timeout)})[1:]
    assert [(f.level, "may take 2.1 s an attempt" in f.found) for f in warnings] == [
        ("warning", True)
    ] * warned


def test_where_no_task_can_wait_that_is_the_fault_and_capacity_is_not_judged():
    slow = {"pay": TaskFacts(1.0, 6.864), "timeless": TaskFacts(None, 0.1)}
    assert [f.level for f in queue("tasks", slow)] == ["fault", "warning"]
    assert queue("capacity", slow) == []
    (finding,) = queue("capacity", slow | {"mail": TaskFacts(10.0, 2.0)}, capacity=10_000)
    assert "in the 8.000 s that a job can wait" in finding.found


def test_a_queue_without_workers_is_warned_of():
    assert [f.level for f in queue("workers", slots=0)] == ["warning"]
    assert queue("capacity", slots=0) == []


@pytest.mark.parametrize(
    ("capacity", "slots", "mean_s", "level"),
    [
        (288, 8, 0.1, "ok"),  # 2 x 8 x (2.0 - 0.2) / 0.1
        (289, 8, 0.1, "warning"),
        (289, 16, 0.1, "ok"),
        (289, 8, 0.05, "ok"),
        (7, 8, 0.1, "warning"),
        (9, 8, 4.0, "warning"),  # hardly any wait is of use, and so no more than run
        (8, 8, 4.0, "ok"),
        (8, 8, 0.1, "ok"),
    ],
)
def test_capacity_suits_what_the_workers_can_do(capacity, slots, mean_s, level):
    (finding,) = queue("capacity", capacity=capacity, slots=slots, mean_s=mean_s)
    assert finding.level == level


def test_one_slot_is_no_slots():
    (workers,) = queue("workers", slots=1)
    (capacity,) = queue("capacity", slots=1, capacity=1_000)
    assert workers.found == "1 slot"
    assert "twice what 1 slot can do in the 1.800 s that a job can wait" in capacity.found


def test_a_better_capacity_is_named():
    (finding,) = queue("capacity", capacity=1_000)
    assert finding.remedy.startswith("let it be 144:")


def test_without_samples_capacity_is_not_judged():
    assert queue("capacity", capacity=1_000_000, mean_s=0.0) == []
