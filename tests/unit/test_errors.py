"""Every public error: its place in the tree, its text and attributes, and how it travels."""

import copy
import inspect
import pickle

import pytest

import deadq
from deadq import errors
from deadq.errors import shown

TREE = {
    "DeadqError": "Exception",
    "Rejected": "DeadqError",
    "QueueFull": "Rejected",
    "Unmeetable": "Rejected",
    "DeadlineExpired": "Rejected",
    "KeyReused": "Rejected",
    "PayloadTooLarge": "Rejected",
    "Paused": "Rejected",
    "StoreUnavailable": "Rejected",
    "DeadlineExceeded": "DeadqError",
    "Cancelled": "DeadqError",
    "JobFailed": "DeadqError",
    "JobGone": "DeadqError",
    "LeaseLost": "DeadqError",
    "RetryDenied": "DeadqError",
    "BreakerOpen": "DeadqError",
    "UnitError": "DeadqError",
    "UnitInDoubt": "DeadqError",
    "Retry": "Exception",
    "Interrupt": "BaseException",
}
REASONS = {
    "Rejected": "rejected",
    "QueueFull": "full",
    "Unmeetable": "unmeetable",
    "DeadlineExpired": "expired",
    "KeyReused": "key_reused",
    "PayloadTooLarge": "too_large",
    "Paused": "paused",
    "StoreUnavailable": "unavailable",
}
REJECTIONS = [name for name, base in TREE.items() if base == "Rejected"] + ["Rejected"]

SAMPLES = [
    *(getattr(deadq, name)("the text") for name in REJECTIONS),
    *(getattr(deadq, name)("the text", retry_after=0.25) for name in REJECTIONS),
    deadq.DeadqError("the text"),
    deadq.DeadlineExceeded(),
    deadq.DeadlineExceeded("the text", units=("charge", "mail")),
    deadq.Cancelled(),
    deadq.Cancelled("the text"),
    deadq.JobFailed("app.OutOfStock", "the text", "Traceback ..."),
    deadq.JobGone("the text"),
    deadq.LeaseLost("the text"),
    deadq.RetryDenied("the text", reason="budget"),
    deadq.BreakerOpen("the text", retry_after=0.25),
    deadq.UnitError("the text"),
    deadq.UnitInDoubt("the text"),
    deadq.Interrupt("the text"),
    deadq.Retry(),
    deadq.Retry(after=1.5),
]


def by_text(error):
    return f"{type(error).__name__} {error.args!r}"


def test_the_tree_is_the_one_that_is_written_down():
    defined = {
        name: kind.__bases__[0].__name__
        for name, kind in inspect.getmembers(errors, inspect.isclass)
        if issubclass(kind, BaseException) and kind.__module__ == errors.__name__
    }
    assert defined == TREE


@pytest.mark.parametrize("name", TREE)
def test_each_is_public_documented_and_ordinary(name):
    kind = getattr(deadq, name)
    assert kind is getattr(errors, name)
    assert issubclass(kind, Exception) == (name != "Interrupt")  # which no broad handler swallows
    assert kind.__doc__
    assert len(kind.__bases__) == 1


@pytest.mark.parametrize(("name", "reason"), REASONS.items())
def test_each_rejection_has_a_reason_of_its_own(name, reason):
    error = getattr(deadq, name)("the text")
    assert str(error) == "the text"
    assert error.reason == reason
    assert error.retry_after is None
    assert getattr(deadq, name)("the text", retry_after=0.5).retry_after == 0.5
    assert len(set(REASONS.values())) == len(REASONS)


@pytest.mark.parametrize("error", SAMPLES, ids=by_text)
@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_each_travels_between_processes_whole(error, protocol):
    back = pickle.loads(pickle.dumps(error, protocol))
    assert type(back) is type(error)
    assert str(back) == str(error)
    assert vars(back) == vars(error)
    assert back.args == error.args


@pytest.mark.parametrize("error", SAMPLES, ids=by_text)
@pytest.mark.parametrize("copier", [copy.copy, copy.deepcopy], ids=["copy", "deepcopy"])
def test_each_can_be_copied(error, copier):
    back = copier(error)
    assert type(back) is type(error)
    assert str(back) == str(error)
    assert vars(back) == vars(error)


@pytest.mark.parametrize("error", SAMPLES, ids=by_text)
def test_each_says_one_line_and_can_carry_a_cause(error):
    if not isinstance(error, deadq.Retry):
        assert str(error)
    assert str(error).isprintable()
    cause = LookupError("below")
    with pytest.raises(type(error)) as caught:
        raise copy.copy(error) from cause
    assert caught.value.__cause__ is cause


def test_what_a_failed_job_tells():
    error = deadq.JobFailed("app.OutOfStock", "no more", "Traceback ...")
    assert (error.type_name, error.message, error.traceback) == (
        "app.OutOfStock",
        "no more",
        "Traceback ...",
    )
    assert str(error) == "app.OutOfStock: no more"
    assert deadq.JobFailed("E", "m").traceback == ""


def test_what_a_missed_deadline_tells():
    assert deadq.DeadlineExceeded().units == ()
    error = deadq.DeadlineExceeded(units=("charge",))
    assert error.units == ("charge",)
    assert "deadline" in str(error)
    assert str(deadq.DeadlineExceeded("too late")) == "too late"


def test_what_a_cancellation_tells():
    assert str(deadq.Cancelled()) == "the job was cancelled"
    assert str(deadq.Cancelled("by the customer")) == "by the customer"


def test_what_a_denied_retry_tells():
    error = deadq.RetryDenied("no budget", reason="budget")
    assert (str(error), error.reason) == ("no budget", "budget")
    with pytest.raises(TypeError):
        deadq.RetryDenied("no budget")


def test_what_a_call_that_a_breaker_refused_tells():
    error = deadq.BreakerOpen("open", retry_after=0.25)
    assert (str(error), error.retry_after) == ("open", 0.25)
    with pytest.raises(TypeError):
        deadq.BreakerOpen("open")


@pytest.mark.parametrize("after", [None, 0, 0.0, 0.5, 10, 1e308])
def test_a_retry_may_name_its_delay(after):
    assert deadq.Retry(after=after).after == after
    assert deadq.Retry(after).after == after


@pytest.mark.parametrize("after", [-1, -1e-9, float("nan"), float("inf"), -float("inf")])
def test_a_retry_with_an_odd_delay_is_refused(after):
    with pytest.raises(ValueError, match=r"Retry\(after=\.\.\.\) must be 0 or more seconds"):
        deadq.Retry(after=after)


@pytest.mark.parametrize("after", ["5", [], object()])
def test_a_retry_with_no_number_is_refused(after):
    with pytest.raises((TypeError, ValueError)):
        deadq.Retry(after=after)


def test_retry_is_no_error_of_deadq():
    """A handler's ``except DeadqError`` must not swallow its own request."""
    assert not issubclass(deadq.Retry, deadq.DeadqError)


class Rude:
    def __repr__(self):
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (5, "5"),
        ("a\nb", r"'a\nb'"),
        ("é日", "'é日'"),
        (10**5000, "<int>"),
        (Rude(), "<Rude>"),
    ],
    ids=["int", "newline", "letters", "huge", "rude"],
)
def test_values_in_messages_are_one_short_line(value, text):
    assert shown(value) == text


@pytest.mark.parametrize("value", ["x" * 1000, ["\u202e"] * 50, "\0" * 1000, b"\xff" * 1000])
def test_values_in_messages_are_short_and_plain(value):
    assert len(shown(value)) <= 60
    assert shown(value).isprintable()
    assert len(shown(value, 10)) <= 10
