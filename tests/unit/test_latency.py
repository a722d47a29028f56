"""Quantiles of the last seconds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deadq.resilience.latency import Latencies
from deadq.testing import clock


@pytest.fixture
def time():
    with clock() as found:
        yield found


@given(st.lists(st.floats(1e-5, 1e3), min_size=1, max_size=300), st.sampled_from([0.5, 0.95, 0.99]))
def test_a_quantile_is_right_to_five_percent(values, q):
    latencies = Latencies()
    for value in values:
        latencies.record(value)
    exact = sorted(values)[max(0, -(-len(values) * q // 1).__int__() - 1)]
    assert exact * 0.999 <= latencies.quantile(q) <= exact * 1.051


def test_too_few_samples_give_none(time):
    latencies = Latencies(least=3)
    latencies.record(1)
    latencies.record(1)
    assert latencies.quantile(0.5) is None
    latencies.record(1)
    assert latencies.quantile(0.5) == pytest.approx(1, rel=0.05)


def test_the_old_is_forgotten_by_and_by(time):
    latencies = Latencies(window=30)
    for _ in range(100):
        latencies.record(1.0)
    time.advance(15)
    for _ in range(100):
        latencies.record(0.01)
    assert latencies.quantile(0.9) == pytest.approx(1, rel=0.05)
    time.advance(18)
    assert latencies.quantile(0.9) == pytest.approx(0.01, rel=0.05)
    time.advance(1_000)
    assert latencies.quantile(0.9) is None


def test_what_is_new_shows_soon(time):
    latencies = Latencies()
    latencies.record(0.01)
    assert latencies.quantile(0.5) < 0.02
    for _ in range(200):
        latencies.record(1.0)
    assert latencies.quantile(0.5) == pytest.approx(1, rel=0.05)


def test_no_time_at_all_is_a_sample_too(time):
    latencies = Latencies()
    latencies.record(0.0)
    latencies.record(-1.0)
    assert latencies.quantile(0.5) <= 1.1e-6
