"""C51: backoff overflows at attempt 1025."""

import multiprocessing
import os
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deadq.resilience import Backoff

KINDS = ["none", "exponential", "equal", "full", "decorrelated"]
ATTEMPTS = [0, 1, 2, 10, 63, 64, 1023, 1024, 1025, 10**6]
DRAWS = 8


def draws(backoff):
    return tuple(backoff.delay(10) for _ in range(DRAWS))


def draws_of_a_forked_child(backoff):
    """What a child forked here and now draws, read through a pipe."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.write(writer, struct.pack(f"{DRAWS}d", *draws(backoff)))
            status = 0
        finally:
            os._exit(status)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        data = pipe.read()
    _, status = os.waitpid(child, 0)
    assert status == 0
    return struct.unpack(f"{DRAWS}d", data)


@pytest.mark.parametrize("multiplier", [1, 2, 1.5])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", ATTEMPTS)
def test_delay_stays_between_zero_and_cap_at_the_attempts_of_the_report(n, kind, multiplier):
    backoff = Backoff(kind, base=0.1, cap=5.0, multiplier=multiplier)
    for _ in range(20):
        assert 0 <= backoff.delay(n) <= 5.0


@given(
    n=st.integers(0, 10**400),
    kind=st.sampled_from(KINDS),
    base=st.floats(1e-9, 1e7),
    cap=st.floats(0, 3e7),
    multiplier=st.floats(1, 1e308),
)
def test_delay_stays_between_zero_and_cap_at_any_attempt(n, kind, base, cap, multiplier):
    assert 0 <= Backoff(kind, base, cap, multiplier).delay(n) <= cap


def test_an_hour_of_failures_in_a_row_keeps_giving_the_cap():
    backoff = Backoff("exponential", base=0.1, cap=5.0)
    assert {backoff.delay(n) for n in range(6, 3000)} == {5.0}


@pytest.mark.parametrize("kind", ["equal", "full", "decorrelated"])
def test_children_forked_from_one_parent_give_different_jitter(kind):
    backoff = Backoff(kind)
    draws(backoff)  # the parent's source has been used, as in a real supervisor
    seen = [draws_of_a_forked_child(backoff) for _ in range(6)]
    seen.append(draws(backoff))
    assert len(set(seen)) == len(seen)


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_children_that_get_it_pickled_give_different_jitter(method):
    backoff = Backoff("full")
    with multiprocessing.get_context(method).Pool(2, maxtasksperchild=1) as pool:
        seen = pool.map(draws, [backoff] * 4, chunksize=1)
    assert len({*seen, draws(backoff)}) == 5
