"""What a process does under a shared budget, without a server."""

import pytest

from deadq.resilience import BudgetRule
from deadq.resilience.borrower import Borrower
from deadq.testing import clock

WINDOW_S = 10.0
LOAN_S = 1.5 * WINDOW_S


@pytest.fixture
def time():
    with clock() as found:
        yield found


def borrower(ratio=0.1, floor=1.0):
    return Borrower(BudgetRule(ratio, floor, WINDOW_S))


def test_what_is_told_again_lies_farther_back(time):
    """Else an outage of the server would move old first attempts into the present window."""
    one = borrower()
    one.first()
    before = one.question()
    one.failed()
    time.advance(4.0)
    again = one.question()
    assert (again.number, again.wanted) == (before.number, before.wanted)
    ((_, ago, number),) = before.deeds
    assert again.deeds == [("f", pytest.approx(ago + 4.0), number)]
    time.advance(2 * WINDOW_S)
    assert one.question().deeds == []


def test_who_was_silent_until_the_loan_ran_out_goes_by_the_rule(time):
    """One call in twenty seconds, which fails before the fleet can answer."""
    one = borrower(ratio=0.0, floor=0.2)
    one.first()
    one.question()
    one.answered(1, 1)
    assert [one.take()[0] for _ in range(2)] == [1, 0], "a loan that is spent is spent"
    time.advance(LOAN_S)
    assert one.first(), "time for a question"
    assert [one.take()[0] for _ in range(3)] == [1, 1, 0]
    assert one.available() == 0
    one.question()
    one.answered(1, 1)
    assert one.available() == 2


def test_what_was_taken_while_the_fleet_was_asked_weighs_on_its_loan(time):
    one = borrower(ratio=0.0, floor=0.2)
    one.first()
    one.question()
    assert one.take()[0]
    one.answered(1, 0)
    assert not one.take()[0]
