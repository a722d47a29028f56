"""The race for one row is the model it says it is, and its cells are compared as they should be."""

import heapq
import random
import statistics
from itertools import count

import pytest

from benchmarks import jitter
from benchmarks.contention.cells import BASE_S, CAP_S, WINDOW_S, Cell, Task, simulate
from benchmarks.contention.chart import picture
from benchmarks.contention.race import HOP_S, race
from benchmarks.contention.reference import CLIENTS, KINDS, PUBLISHED, REFERENCE
from deadq.resilience import Backoff


class Scripted(random.Random):
    """Messages that are on their way for so many milliseconds, one after the other."""

    def __init__(self, *hops_ms):
        self.hops_ms = list(hops_ms)

    def random(self):
        return HOP_S.cdf(self.hops_ms.pop(0) / 1000)


def backoff(kind, source=None):
    return Backoff(kind, base=BASE_S, cap=CAP_S, rng=source or random.Random(1))


# The model.


def test_one_client_makes_one_call():
    run = race(1, backoff("exponential"), Scripted(9, 10, 11, 12))
    assert run.calls == 1
    assert run.winners == [0]
    assert run.writes == [pytest.approx(0.030)]
    assert run.end == pytest.approx(0.042)


@pytest.mark.parametrize(("kind", "slept_s"), [("none", 0.0), ("exponential", 0.010)])
def test_who_read_before_the_others_write_fails_and_reads_again_after_its_backoff(kind, slept_s):
    first, second = (10, 10, 10), (11, 11, 11)
    run = race(2, backoff(kind), Scripted(*first, *second, 12, 10, 9, 10, 10, 13))
    assert run.writes == [pytest.approx(x) for x in (0.030, 0.033, 0.072 + slept_s)]
    assert run.winners == [0, 1]
    assert run.end == pytest.approx(0.085 + slept_s)


def test_who_read_after_the_others_write_succeeds_at_once():
    run = race(2, backoff("exponential"), Scripted(3, 3, 3, 10, 3, 3, 10, 10))
    assert run.writes == [pytest.approx(0.009), pytest.approx(0.016)]
    assert run.winners == [0, 1]


def test_the_race_ends_when_the_last_answer_is_there():
    run = race(2, backoff("none"), Scripted(3, 3, 3, 10, 3, 3, 18, 3))
    assert run.end == pytest.approx(0.027)


def test_no_message_is_on_its_way_for_a_negative_time():
    assert race(1, backoff("none"), Scripted(-1, -1, -1, -1)).end == pytest.approx(0.004)


class Recorder:
    """A backoff that remembers what it was asked."""

    def __init__(self):
        self.asked = []

    def delay(self, n, previous=None):
        self.asked.append((n, previous))
        return n / 1000


def test_the_backoff_is_told_the_failures_of_its_client_and_its_last_delay():
    recorder = Recorder()
    run = race(8, recorder, random.Random(3))
    assert len(recorder.asked) == run.calls - 8
    assert {n for n, _ in recorder.asked} == set(range(1, max(recorder.asked)[0] + 1))
    assert all(previous == ((n - 1) / 1000 or None) for n, previous in recorder.asked)


@pytest.mark.parametrize("kind", KINDS)
def test_every_client_succeeds_once(kind):
    source = random.Random(5)
    run = race(30, backoff(kind, source), source)
    assert sorted(run.winners) == list(range(30))
    assert run.calls > 30
    assert run.writes == sorted(run.writes)
    assert run.writes[-1] < run.end


def with_all_events(clients, rule, source):
    """The same model with an event for every message, and a version number."""

    def hop():
        return abs(source.gauss(0.010, 0.002))

    order = count()
    events = [(hop(), next(order), "read", (0, None, None)) for _ in range(clients)]
    heapq.heapify(events)
    version = calls = 0
    now = 0.0
    while events:
        now, _, kind, (failures, slept, known) = heapq.heappop(events)
        if kind == "read":
            following = (now + hop(), next(order), "write it", (failures, slept, version))
        elif kind == "write it":
            following = (now + hop(), next(order), "write", (failures, slept, known))
        elif kind == "write":
            calls += 1
            good = known == version
            version += good
            following = (now + hop(), next(order), "answer", (failures, slept, good))
        elif known:
            continue
        else:
            slept = rule.delay(failures + 1, slept)
            following = (now + hop() + slept, next(order), "read", (failures + 1, slept, None))
        heapq.heappush(events, following)
    return calls, now


@pytest.mark.parametrize("kind", KINDS)
def test_leaving_out_the_events_of_reads_changes_nothing(kind):
    trials = 100
    cell = simulate(Task(kind, 12, trials, 1))
    source = random.Random(7)
    full = [with_all_events(12, backoff(kind, source), source) for _ in range(trials)]
    calls, ends = zip(*full, strict=True)
    # four standard errors of each; seeded, so that chance has had its say
    errors = 4 * 2**0.5
    assert statistics.fmean(calls) == pytest.approx(
        cell.calls, abs=errors * cell.calls_standard_error
    )
    assert statistics.fmean(ends) * 1000 == pytest.approx(
        cell.ms, abs=errors * cell.ms_standard_error
    )


# Cells.


def test_the_same_seed_gives_the_same_cell_and_another_does_not():
    one, same, other = (simulate(Task("full", 9, 5, seed)) for seed in (1, 1, 2))
    assert one == same
    assert (one.calls, one.ms) != (other.calls, other.ms)
    alone = simulate(Task("full", 9, 1, 1))
    assert alone.calls != one.calls


def test_the_waves_are_all_calls_in_their_time():
    cell = simulate(Task("exponential", 20, 4, 1))
    assert sum(cell.waves) == pytest.approx(cell.calls)
    # the first write of each of the clients, three messages from the start
    assert cell.waves[0] >= 20
    assert len(cell.waves) * WINDOW_S * 1000 >= cell.ms


def test_a_full_run_has_all_cells_and_a_quick_one_those_of_the_reference():
    full, quick = jitter.tasks(3, quick=False), jitter.tasks(3, quick=True)
    assert {(task.kind, task.clients) for task in full} == {
        (kind, clients) for kind in KINDS for clients in range(10, 200, 10)
    }
    assert {(task.kind, task.clients) for task in quick} == set(REFERENCE)
    assert len(full) == 95
    assert len(quick) == 25
    assert all(task.seed == 3 for task in full + quick)
    assert min(task.trials for task in full) == 100
    trials = {(task.kind, task.clients): task.trials for task in full}
    assert all(task.trials < trials[task.kind, task.clients] for task in quick)


def cells(**changed):
    """Cells that are as the reference has them, but for those by name."""
    found = []
    for (kind, clients), (ms, calls) in REFERENCE.items():
        more_ms, more_calls = changed.get(f"{kind}_{clients}", (1, 1))
        waves = (calls, 0.0)
        found.append(
            Cell(kind, clients, 100, calls * more_calls, 0.1, ms * more_ms, 1.0, waves),
        )
    return found


def test_errors_are_the_largest_distances_each_in_its_part_of_the_table():
    none = jitter.errors(cells())
    assert none.pop("time_error_as_published") == pytest.approx(2_203 / 2_063 - 1)
    assert none == {"calls_error": 0.0, "time_error": 0.0, "time_error_small": 0.0}
    found = jitter.errors(
        cells(full_50=(1.04, 1.01), none_190=(0.94, 1.0), equal_20=(1.1, 0.98), full_10=(0.95, 1.0))
    )
    assert found["calls_error"] == pytest.approx(0.02)
    assert found["time_error"] == pytest.approx(0.06)
    assert found["time_error_small"] == pytest.approx(0.10)


def test_cells_without_a_reference_are_no_error():
    more = Cell("full", 30, 100, 1.0, 0.1, 1.0, 1.0, (1.0,))
    assert jitter.errors([*cells(), more]) == jitter.errors(cells())


def test_one_cell_of_the_reference_is_put_right():
    assert set(PUBLISHED) == {(kind, clients) for kind in KINDS for clients in CLIENTS}
    changed = {cell for cell in PUBLISHED if PUBLISHED[cell] != REFERENCE[cell]}
    assert changed == {("decorrelated", 50)}


def test_the_picture_has_a_panel_for_each_algorithm_and_units_on_its_axes():
    figure = picture(cells(), 100, REFERENCE)
    bars = [trace for trace in figure.data if trace.type == "bar"]
    assert len(bars) == len(KINDS)
    assert {trace.x[0] for trace in bars} == {WINDOW_S / 2}
    panels = [figure.layout[trace.xaxis.replace("x", "xaxis")].range for trace in bars]
    heights = [figure.layout[trace.yaxis.replace("y", "yaxis")].range for trace in bars]
    assert len(set(panels)) == len(set(heights)) == 1
    lines = figure.select_traces({"type": "scatter", "mode": "lines"})
    assert sorted(trace.name for trace in lines) == sorted(2 * KINDS)
    titles = {axis.title.text for axis in (*figure.select_xaxes(), *figure.select_yaxes())}
    assert titles - {None} == {
        "calls per 50 ms",
        "time since the start (s)",
        "clients",
        "calls",
        "time (s), logarithmic",
    }
    assert "waves" in figure.layout.title.text
