"""The fleet that benchmarks.hedge simulates is the one it says, and so are its figures."""

import math

import pytest

from benchmarks import hedge
from benchmarks.hedging import fleet, spells
from benchmarks.hedging.chart import beyond, picture
from benchmarks.hedging.fleet import (
    HEDGES,
    SERVERS,
    STALL_S,
    Fleet,
    Seen,
    Task,
    _together,
    simulate,
)
from deadq.testing import run_in_virtual_time


@pytest.fixture(autouse=True)
def _short_warm_up(monkeypatch):
    monkeypatch.setattr(fleet, "WARM_S", 0.5)
    monkeypatch.setattr(spells, "BEFORE_S", 0.5)


def test_replies_are_as_slow_as_it_says():
    servers = Fleet("unhedged", "1")
    replies = [servers._reply_s() for _ in range(100_000)]
    stalls = [reply for reply in replies if reply > STALL_S]
    slow = [reply for reply in replies if 0.010 < reply < STALL_S]
    # four standard deviations
    assert len(stalls) == pytest.approx(100, abs=4 * math.sqrt(100))
    assert len(slow) == pytest.approx(2_000, abs=4 * math.sqrt(2_000))
    assert sorted(replies)[50_000] == pytest.approx(0.003, rel=0.02)


def test_all_are_slow_together():
    usual, slow = Fleet("unhedged", "1"), Fleet("unhedged", "1")
    slow.factor = 5.0
    for _ in range(1_000):
        one, five = usual._reply_s(), slow._reply_s()
        assert five % STALL_S == pytest.approx(5 * (one % STALL_S))


def test_a_request_lasts_as_long_as_its_slowest_call(monkeypatch):
    servers = Fleet("unhedged", "1")
    replies = iter([*[0.001] * (SERVERS - 1), 0.7])
    monkeypatch.setattr(servers, "_reply_s", lambda: next(replies))
    assert run_in_virtual_time(servers.request()) == pytest.approx(0.7)
    assert (servers.firsts, servers.seconds) == (SERVERS, 0)


@pytest.mark.parametrize("way", HEDGES)
def test_a_seed_gives_one_run(way):
    one, same, other = (simulate(Task(way, 15, seed)) for seed in ("1", "1", "2"))
    assert one == same
    assert one != other
    assert one.firsts == len(one.taken_s) * SERVERS
    assert bool(one.seconds) == (way != "unhedged")


def test_hedging_takes_the_stalls_off_and_costs_what_it_says():
    plain, hedged = (simulate(Task(way, 100, "3")) for way in ("unhedged", "fixed"))
    assert plain.p(0.97) > STALL_S
    assert hedged.p(0.99) < 0.05
    assert 0.01 < hedged.extra <= 0.03


def test_in_a_spell_there_are_next_to_none():
    assert spells.hedges_when_slow("fixed", 5.0, 1, 1.0) <= 0.01


def test_parts_are_put_together_by_their_calls():
    whole = _together([Seen("p95", [1.0], 100, 10), Seen("p95", [2.0, 3.0], 300, 10)])
    assert whole == Seen("p95", [1.0, 2.0, 3.0], 400, 20)
    assert whole.extra == 0.05
    assert whole.p(0.5) == 2.0


def test_the_picture_shows_the_share_beyond_each_time():
    shares, ms = beyond([i / 1000 for i in range(1, 1001)])
    assert (shares[0], ms[0]) == (1.0, 1.0)
    assert (shares[-1], ms[-1]) == (0.001, 1000.0)
    assert all(
        share == pytest.approx((1001 - each) / 1000) for share, each in zip(shares, ms, strict=True)
    )
    assert len(shares) <= 401


def test_the_picture_has_a_line_for_each_way():
    found = {way: Seen(way, [0.01, 0.02, 1.0], 300, 3) for way in HEDGES}
    drawn = picture(found)
    assert len(drawn.data) == len(HEDGES)
    assert drawn.layout.xaxis.type == drawn.layout.yaxis.type == "log"
    assert "1,000 ms" in drawn.layout.title.text
    assert "ms" in drawn.layout.xaxis.title.text


def test_the_fixed_delay_has_the_plain_names():
    assert [hedge.suffix(way) for way in ("fixed", "p95")] == ["", "_p95"]
