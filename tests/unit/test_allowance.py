"""x-retry-budget: what comes in, what is left, what goes out."""

import asyncio
import threading

import pytest

from deadq.resilience import RETRY_BUDGET_HEADER, Allowance, outgoing, pass_on


@pytest.mark.parametrize(
    ("header", "trusted", "left"),
    [
        (None, True, 3),
        (None, False, 3),
        ("0", False, 0),
        ("2", False, 2),
        ("2", True, 2),
        ("9", True, 9),
        ("9", False, 3),
        (" 1 ", True, 1),
        ("-1", True, 3),
        ("", True, 3),
        ("1.5", True, 3),
        ("many", True, 3),
        ("999999999", True, 1000),
        ("9" * 30, True, 3),
    ],
)
def test_what_comes_in(header, trusted, left):
    assert Allowance.incoming(header, edge=3, trusted=trusted).left == left


@pytest.mark.parametrize("header", [b"2", 2, True, ["2"], 2.0])
def test_a_header_that_is_no_text_is_refused(header):
    with pytest.raises(TypeError, match="x-retry-budget must be a str, not"):
        Allowance.incoming(header, edge=3)


@pytest.mark.parametrize("header", [None, "2"])
def test_an_odd_edge_is_refused_whatever_comes_in(header):
    with pytest.raises(ValueError, match="edge must lie between 0 and 1000, not -1"):
        Allowance.incoming(header, edge=-1)


def test_without_any_this_is_the_edge():
    assert Allowance.current() is None
    with Allowance(2).scope() as ours:
        assert Allowance.current() is ours
    assert Allowance.current() is None


def test_calls_below_get_none_unless_it_is_said():
    assert outgoing() == "0"
    with Allowance(3).scope():
        assert outgoing() == "0"
        with pass_on(2):
            assert outgoing() == "2"
        with pass_on(9):
            assert outgoing() == "3", "no more than there are"
        assert outgoing() == "0"
    with pass_on(2):
        assert outgoing() == "2", "the edge may say so too"
    assert RETRY_BUDGET_HEADER == "x-retry-budget"


def test_what_is_spent_is_gone_here_and_above():
    with Allowance(3).scope() as ours, pass_on(2) as passed:
        assert passed.spend()
        assert (passed.left, ours.left, ours.most) == (1, 2, 2)
        assert passed.spend()
        assert not passed.spend()
        assert ours.left == 1


def test_calls_side_by_side_spend_no_more_than_there_is():
    """Each was passed all of it."""
    with Allowance(2).scope() as ours:
        with pass_on(2) as one:
            pass
        with pass_on(2) as other:
            pass
    assert [each.spend() for each in (one, other, one, other)] == [True, True, False, False]
    assert (ours.left, ours.most) == (0, 0)


def test_a_layer_that_retries_itself_may_still_pass_some_on():
    with Allowance(0, most=2, passed=True).scope():
        assert outgoing() == "0"
        with pass_on(5) as passed:
            assert passed.left == 2


def test_threads_spend_no_more_than_there_are():
    allowance = Allowance(100)
    spent = []
    threads = [
        threading.Thread(target=lambda: spent.append(sum(allowance.spend() for _ in range(50))))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(spent) == 100


def test_tasks_side_by_side_say_each_their_own():
    async def call(number):
        with pass_on(number):
            await asyncio.sleep(0)
            return outgoing()

    async def main():
        with Allowance(5).scope():
            return await asyncio.gather(*(call(n) for n in range(5)))

    assert asyncio.run(main()) == ["0", "1", "2", "3", "4"]


@pytest.mark.parametrize("odd", [-1, 1001, 1.5, "2", True, None])
def test_odd_numbers_are_refused(odd):
    with pytest.raises((ValueError, TypeError), match="retries"):
        Allowance(odd)
    with pytest.raises((ValueError, TypeError), match="retries"), pass_on(odd):
        pass
