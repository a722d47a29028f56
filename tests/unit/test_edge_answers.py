"""deadq's errors as HTTP."""

import json

import pytest

import deadq
from deadq.edge import answer_for


@pytest.mark.parametrize(
    ("error", "status", "word"),
    [
        (deadq.QueueFull("full up"), 429, "full"),
        (deadq.Unmeetable("too slow"), 503, "unmeetable"),
        (deadq.Paused("not now"), 503, "paused"),
        (deadq.StoreUnavailable("away"), 503, "unavailable"),
        (deadq.DeadlineExpired("too late"), 504, "expired"),
        (deadq.DeadlineExceeded("too slow"), 504, "DeadlineExceeded"),
        (deadq.KeyReused("another one"), 422, "key_reused"),
        (deadq.PayloadTooLarge("too much"), 413, "too_large"),
        (deadq.Cancelled("by somebody"), 409, "Cancelled"),
    ],
)
def test_a_caller_is_told_what_it_can_act_on(error, status, word):
    answer = answer_for(error)
    assert (answer.status, json.loads(answer.body)) == (
        status,
        {"error": word, "detail": str(error)},
    )
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["content-length"] == str(len(answer.body))
    assert "retry-after" not in answer.headers


@pytest.mark.parametrize(
    "error",
    [deadq.JobFailed("KeyError", "secret"), deadq.JobGone("secret"), deadq.DeadqError("secret")],
)
def test_what_failed_inside_is_not_told(error):
    answer = answer_for(error)
    assert (answer.status, json.loads(answer.body)["error"]) == (500, type(error).__name__)
    assert b"secret" not in answer.body


def test_a_call_below_that_was_given_up_is_a_bad_gateway():
    answer = answer_for(deadq.RetryDenied("secret", reason="tries"))
    assert (answer.status, json.loads(answer.body)["error"]) == (502, "RetryDenied")
    assert b"secret" not in answer.body


@pytest.mark.parametrize(("hint", "told"), [(0.2, "1"), (1.0, "1"), (1.01, "2"), (600.0, "600")])
def test_a_hint_is_in_whole_seconds_and_never_too_short(hint, told):
    for error in (deadq.QueueFull("", retry_after=hint), deadq.BreakerOpen("", retry_after=hint)):
        assert answer_for(error).headers["retry-after"] == told
        assert answer_for(error).status == (503 if isinstance(error, deadq.BreakerOpen) else 429)


def test_an_error_of_ones_own_goes_by_what_it_is_one_of():
    class TooMany(deadq.QueueFull):
        pass

    assert answer_for(TooMany("")).status == 429
