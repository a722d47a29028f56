"""admit: whether a job can be finished in time, to the millisecond.

The table's queue: runs take p50 40, p95 100, mean 50 and sd 20 ms; two slots. With n jobs ahead
the wait is (n + 1) * 50 / 2 + 2 * 20 * sqrt(n + 1) / 2 ms, for n = 3 that is 100 + 40 = 140.
"""

import pytest

from tests.scripts.world import T0, settlement, submission

PLUS, CRITICAL, SHEDDABLE_PLUS, SHEDDABLE = range(4)


@pytest.fixture
def busy(world):
    """Both slots are taken."""
    world.seed_worker("c", slots=2)
    for i in (1, 2):
        world.seed_job(f"run{i}", state="running", owner="c", seq=i, deadline=60_000)
    world.seed_service("t", 40, 100)
    world.seed_mean(50, 20)
    return world


@pytest.fixture
def idle(world):
    """Both slots are free."""
    world.seed_worker("c", slots=2)
    world.seed_service("t", 40, 100)
    world.seed_mean(50, 20)
    return world


def no_more_probes(world):
    world.client.zadd(world.key("probes"), {"x": T0 + 99_999, "y": T0 + 99_999})


def seed_ahead(world, n, *, latest_start=0):
    for i in range(n):
        world.seed_job(f"ahead{i}", deadline=latest_start, seq=10 + i, due=60_000)


# No idle slot.


@pytest.mark.parametrize(
    ("ahead", "rank", "least"),
    [
        # wait 140 <= share * (remaining - 100)
        (3, PLUS, 240),  # 140 / 1 = 140
        (3, CRITICAL, 256),  # 140 / 0.9 = 155.6
        (3, SHEDDABLE_PLUS, 334),  # 140 / 0.6 = 233.3
        (3, SHEDDABLE, 450),  # 140 / 0.4 = 350
        # nobody ahead: 25 + 20 = 45
        (0, PLUS, 145),
        (0, CRITICAL, 150),  # 45 / 0.9 = 50
        (0, SHEDDABLE_PLUS, 175),  # 75
        (0, SHEDDABLE, 213),  # 112.5
        # 8 ahead: 225 + 60 = 285
        (8, PLUS, 385),
        (8, CRITICAL, 417),  # 316.7
    ],
)
def test_it_is_refused_below_wait_plus_p95_and_admitted_from_there(busy, ahead, rank, least):
    seed_ahead(busy, ahead)
    with busy.changes() as changed:
        assert busy.verdict(submission("a", within=least - 1, rank=rank)) == "unmeetable"
    assert changed.keys() == {"stats"}
    assert busy.verdict(submission("a", within=least, rank=rank)) == "admitted"
    assert busy.job("a")["estimate"] == "100", "the p95 it was admitted with"
    assert busy.get("ready")[f"{int(busy.job('a')['seq']):010x}:a"] == T0 + least - 100


@pytest.mark.parametrize(
    ("latest_start", "verdict"), [(99, "unmeetable"), (100, "unmeetable"), (101, "admitted")]
)
def test_only_what_starts_before_it_or_with_it_is_ahead(busy, latest_start, verdict):
    """Due at 200 it starts at 100 at the latest; three ahead need 240, nobody ahead 145."""
    seed_ahead(busy, 3, latest_start=latest_start)
    assert busy.verdict(submission("a", within=200, rank=PLUS)) == verdict


@pytest.mark.parametrize(("first_runs", "accepted"), [(False, 1), (True, 2)])
def test_a_burst_at_one_slot_is_met_with_caution(world, first_runs, accepted):
    """README, Choosing capacity: jobs of 1 s, ten at once, each within 3 s. Two could be done. One
    that nobody has claimed yet counts as waiting, behind another one that might have just begun."""
    world.seed_worker("c", slots=1)
    world.seed_service("t", 1_005, 1_005)
    world.seed_mean(1_000, 0)
    verdicts = [world.verdict(submission("0", within=3_000))]
    if first_runs:
        assert world.claimed("c") == ["0"]
    verdicts += [world.verdict(submission(str(n), within=3_000)) for n in range(1, 10)]
    assert verdicts == ["admitted"] * accepted + ["unmeetable"] * (10 - accepted)


def test_under_fifo_everybody_who_came_before_is_ahead(busy):
    busy.order = "fifo"
    for i in range(3):
        busy.seed_job(f"ahead{i}", deadline=50_000, seq=10 + i, fifo=1)
    assert busy.verdict(submission("a", within=239, rank=PLUS)) == "unmeetable"
    assert busy.verdict(submission("a", within=240, rank=PLUS)) == "admitted"


def test_jobs_for_later_are_not_ahead(busy):
    for i in range(9):
        busy.seed_job(f"later{i}", state="later", ready_at=1_000, seq=10 + i)
    assert busy.verdict(submission("a", within=145, rank=PLUS)) == "admitted"


def test_each_of_a_batch_is_behind_the_ones_before_it(busy):
    """Waits of 1 to 4 runs: 25+20, 50+28.3, 75+34.6, 100+40."""
    answers = busy.admit(*(submission(f"j{i}", within=210, rank=PLUS) for i in range(4)))
    assert [verdict for verdict, *_ in answers] == [
        "admitted", "admitted", "admitted", "unmeetable"
    ]  # fmt: skip


@pytest.mark.parametrize(("slots", "least"), [(2, 145), (4, 123)])
def test_the_wait_is_shared_by_all_slots(busy, slots, least):
    """With 4 slots: 50 / 4 + 40 / 4 = 22.5."""
    busy.seed_worker("c", slots=slots)
    for i in range(slots):
        busy.seed_job(f"run{i}", state="running", owner="c", seq=i, deadline=60_000)
    assert busy.verdict(submission("a", within=least - 1, rank=PLUS)) == "unmeetable"
    assert busy.verdict(submission("a", within=least, rank=PLUS)) == "admitted"


def test_a_run_past_its_deadline_still_takes_up_its_slot(busy):
    for ident in ("run1", "run2"):
        busy.client.zadd(busy.key("due"), {ident: T0 - 1})
    assert busy.verdict(submission("a", within=144, rank=PLUS)) == "unmeetable"


def test_a_refusal_says_when_to_come_back(busy):
    seed_ahead(busy, 3)
    verdict, _, hint = busy.admit(submission("a", within=239, rank=PLUS))[0]
    assert verdict == "unmeetable"
    assert 1 <= hint <= 240


def test_nobody_who_was_accepted_is_pushed_past_its_latest_start(busy):
    """Each job in front takes 25 ms: the first behind can wait for two of them, not less."""
    newcomer = submission("a", within=145, rank=PLUS)  # to start by 45
    busy.seed_job("b", deadline=49, seq=10, due=60_000)
    assert busy.verdict(newcomer) == "unmeetable"
    busy.seed_job("b", deadline=50, seq=10, due=60_000)
    assert busy.verdict(newcomer) == "admitted"


def test_the_last_of_those_behind_counts_too(busy):
    """Of 20 behind, the last waits for 21: 525 ms."""
    for i in range(19):
        busy.seed_job(f"b{i}", deadline=50 + 25 * i, seq=10 + i, due=60_000)
    busy.seed_job("c0", deadline=524, seq=99, due=60_000)
    newcomer = submission("a", within=145, rank=PLUS)
    assert busy.verdict(newcomer) == "unmeetable"
    busy.seed_job("c0", deadline=525, seq=99, due=60_000)
    assert busy.verdict(newcomer) == "admitted"


# An idle slot.


def test_with_an_idle_slot_only_the_p50_has_to_fit(idle):
    no_more_probes(idle)
    assert idle.verdict(submission("a", within=39)) == "unmeetable"
    assert idle.verdict(submission("a", within=40)) == "admitted"
    assert idle.job("a")["estimate"] == "40", "the p50 it was admitted with"
    assert idle.get("ready") == {"0000000001:a": T0}


@pytest.mark.parametrize("rank", [PLUS, CRITICAL, SHEDDABLE_PLUS, SHEDDABLE])
def test_with_an_idle_slot_criticality_does_not_matter(idle, rank):
    no_more_probes(idle)
    assert idle.verdict(submission("a", within=39, rank=rank)) == "unmeetable"
    assert idle.verdict(submission("a", within=40, rank=rank)) == "admitted"


def test_a_slot_is_idle_until_as_many_jobs_are_ready_or_running(idle):
    no_more_probes(idle)
    assert idle.verdict(submission("a", within=40)) == "admitted"
    assert idle.verdict(submission("b", within=40)) == "admitted"
    # two jobs ahead that could start at once: 3 * 25 + 20 * sqrt(3) = 109.7, and the p95
    assert idle.verdict(submission("c", within=209, rank=PLUS)) == "unmeetable"
    assert idle.verdict(submission("c", within=210, rank=PLUS)) == "admitted"


def test_jobs_for_later_and_strange_ones_take_up_no_slot(idle):
    no_more_probes(idle)
    for i in range(4):
        idle.seed_job(f"l{i}", state="later", ready_at=1_000)
        idle.seed_job(f"s{i}", state="strange")
    assert idle.verdict(submission("a", within=40)) == "admitted"


# Probes: after a slow spell the queue must not lock itself out.


def test_an_idle_slot_tries_what_by_the_estimate_cannot_make_it(idle):
    assert idle.admit(submission("a", within=39)) == [("admitted", T0 + 39, 0)]
    record = idle.job("a")
    assert (record["estimate"], record["probe"]) == ("0", "1")
    assert idle.get("ready") == {"0000000001:a": T0 + 39}
    assert idle.get("probes") == {"a": T0 + 39}, "its span: what is left, as p50 is more"


def test_one_probe_for_each_slot_and_span(world):
    def verdict(ident):
        """A job with 300 ms left, of a task that takes 400 as everybody knows."""
        passed = world.now - T0
        world.seed_service("t", 400, 1_000, at=passed)
        return world.verdict(submission(ident, within=passed + 300))

    world.seed_worker("c", slots=2)
    for number, ident in enumerate("ab", 1):
        assert verdict(ident) == "admitted"
        (claim,) = world.claim("c", number).claims
        world.finish("c", settlement(ident, fence=claim.fence, ms=390))  # no quicker than thought
    world.now += 1
    assert verdict("c") == "unmeetable", "both slots are idle and have had their probe"
    world.now = T0 + 299
    assert verdict("c") == "unmeetable"
    world.now = T0 + 300
    assert verdict("c") == "admitted", "the span of both is over"
    assert world.get("probes") == {"c": T0 + 600}


def test_a_probe_does_not_pass_the_cap(idle):
    idle.capacity = 1
    idle.seed_job("a", deadline=50)
    assert idle.verdict(submission("b", within=39)) == "full"
    assert idle.get("probes") is None


def test_a_probe_does_not_pass_its_deadline(idle):
    assert idle.verdict(submission("a", within=0)) == "expired"
    assert idle.get("probes") is None


def test_no_probe_without_an_idle_slot(busy):
    assert busy.verdict(submission("a", within=39)) == "unmeetable"
    assert busy.get("probes") is None


# What nobody has confirmed fades.


@pytest.mark.parametrize(
    ("p50", "silent", "least"),
    [
        (400, 0, 400),
        (400, 1_000, 200),  # half-life 1 s, as 2 * 400 is less
        (400, 2_000, 100),
        (1_000, 2_000, 500),  # half-life 2 * 1000 ms
        (1_000, 6_000, 125),
    ],
)
def test_the_estimate_halves_in_the_greater_of_one_second_and_twice_itself(
    world, p50, silent, least
):
    world.seed_worker("c", slots=2, lease=60_000)
    world.seed_service("t", p50, 2 * p50, at=0)
    no_more_probes(world)
    world.now += silent
    assert world.verdict(submission("a", within=silent + least - 1)) == "unmeetable"
    assert world.verdict(submission("a", within=silent + least)) == "admitted"
    assert world.job("a")["estimate"] == str(least)


def test_wait_and_p95_fade_too(busy):
    """After 1 s p95 is 50 and mean 25, sd 10: nobody ahead, 12.5 + 10 + 50 = 72.5."""
    busy.now += 1_000
    assert busy.verdict(submission("a", within=1_072, rank=PLUS)) == "unmeetable"
    assert busy.verdict(submission("a", within=1_073, rank=PLUS)) == "admitted"
    assert busy.job("a")["estimate"] == "50"


# Where feasibility is not asked for, or nothing is known.


def test_under_cap_only_nothing_is_unmeetable(busy):
    busy.admission = "cap"
    seed_ahead(busy, 50)
    assert busy.verdict(submission("a", within=1)) == "admitted"
    assert busy.job("a")["estimate"] == "0"


def test_without_a_live_worker_only_the_cap_decides(world):
    world.seed_service("t", 40, 100)
    world.seed_mean(50, 20)
    assert world.verdict(submission("a", within=1)) == "admitted"
    world.seed_worker("c", lease=100)
    world.seed_job("run1", state="running", owner="c", deadline=60_000)
    assert world.verdict(submission("b", within=5)) == "unmeetable"
    world.now += 100  # its lease has lapsed
    assert world.verdict(submission("b", within=101)) == "admitted"


def test_slots_of_those_who_live_count_and_no_others(world):
    world.seed_service("t", 400, 1_000)
    world.seed_worker("dead", slots=8, lease=100)
    world.seed_worker("alive", slots=1)
    no_more_probes(world)
    world.seed_job("run1", state="running", owner="alive", deadline=60_000)
    world.now += 99
    world.seed_service("t", 400, 1_000, at=99)
    assert world.verdict(submission("a", within=499)) == "admitted"  # an idle slot of the dead
    world.now += 1
    world.seed_service("t", 400, 1_000, at=100)
    assert world.verdict(submission("b", within=500)) == "unmeetable"


def test_a_task_without_samples_is_admitted(busy):
    seed_ahead(busy, 5)
    assert busy.verdict(submission("a", within=1, task="new")) == "admitted"
    assert busy.job("a")["estimate"] == "0"


def test_each_task_has_its_own_p95_and_all_share_the_wait(busy):
    busy.seed_service("slow", 400, 1_000)
    seed_ahead(busy, 3)
    assert busy.verdict(submission("a", within=1_139, rank=PLUS, task="slow")) == "unmeetable"
    assert busy.verdict(submission("a", within=1_140, rank=PLUS, task="slow")) == "admitted"


def test_a_job_for_later_has_to_fit_between_its_instant_and_its_deadline(idle):
    no_more_probes(idle)
    late = submission("a", not_before=1_000, within=1_039)
    assert idle.verdict(late) == "unmeetable"
    assert idle.verdict(submission("a", not_before=1_000, within=1_140)) == "admitted"
