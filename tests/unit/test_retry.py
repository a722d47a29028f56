"""retry and aretry: four limits and their reasons, pauses, keys, layers; both forms of both."""

import asyncio
import functools
import random
from datetime import UTC, datetime

import httpx
import pytest
from prometheus_client import REGISTRY

from deadq import DeadlineExceeded, QueueFull, RetryDenied, StoreUnavailable
from deadq.deadline import Deadline
from deadq.resilience import Allowance, Backoff, Budget, BudgetRule, aretry, pass_on, retry
from deadq.resilience.steps import as_unit
from deadq.testing import clock
from tests.odd_settings import OF_REPEATS

PLENTY = BudgetRule(ratio=1000, floor=1000)
AT_ONCE = Backoff("none")


class Script:
    """What attempts come to: an error each, or a value; and what was seen of each."""

    def __init__(self, time, *ends, takes=0.0):
        self.time, self.ends, self.takes = time, list(ends), takes
        self.began, self.lefts, self.allowed = [], [], []

    def step(self):
        self.began.append(round(self.time.monotonic() - self.time.begun, 6))
        ambient = Deadline.current()
        self.lefts.append(None if ambient is None else round(ambient.remaining(), 6))
        self.allowed.append(Allowance.current().left)
        self.time.advance(self.takes)
        end = self.ends.pop(0) if self.ends else ConnectionResetError("again")
        if isinstance(end, BaseException):
            raise end
        return end

    @property
    def calls(self):
        return len(self.began)


@pytest.fixture
def time(monkeypatch):
    with clock() as found:
        found.begun = found.monotonic()
        found.slept, found.late = [], 0.0

        def sleep(seconds):
            found.slept.append(seconds)
            found.advance(seconds + found.late)

        async def asleep(seconds):
            sleep(seconds)

        module = __import__("sys").modules["deadq.resilience.retry"]
        monkeypatch.setattr(module, "time", type("T", (), {"sleep": staticmethod(sleep)}))
        monkeypatch.setattr(
            module,
            "asyncio",
            type("A", (), {"sleep": staticmethod(asleep), "timeout": asyncio.timeout}),
        )
        yield found


def decorated(script, **settings):
    @retry(**settings)
    def call():
        return script.step()

    return call()


def looped(script, **settings):
    for attempt in retry(**settings):
        with attempt:
            return script.step()
    raise AssertionError("the loop ended without a word")


def adecorated(script, **settings):
    @aretry(**settings)
    async def call():
        return script.step()

    return asyncio.run(call())


def alooped(script, **settings):
    async def main():
        async for attempt in aretry(**settings):
            async with attempt:
                return script.step()
        raise AssertionError("the loop ended without a word")

    return asyncio.run(main())


@pytest.fixture(params=[decorated, looped, adecorated, alooped], ids=lambda form: form.__name__)
def form(request):
    return request.param


def denied(form, script, **settings):
    with pytest.raises(RetryDenied) as found:
        form(script, **settings)
    return found.value


# The four limits.


def test_what_fails_and_then_works_is_tried_again(time, form):
    script = Script(time, ConnectionResetError(), TimeoutError(), "fine")
    assert form(script, backoff=AT_ONCE) == "fine"
    assert script.calls == 3


@pytest.mark.parametrize("tries", [1, 2, 5])
def test_tries(time, form, tries):
    script = Script(time)
    error = denied(form, script, tries=tries, backoff=AT_ONCE, budget=PLENTY)
    assert (error.reason, script.calls) == ("tries", tries)
    assert isinstance(error.__cause__, ConnectionResetError)


@pytest.mark.parametrize("bad", [ValueError("no"), KeyError("k"), PermissionError("no")])
def test_what_does_not_pass_by_itself_is_tried_once(time, form, bad):
    script = Script(time, bad)
    error = denied(form, script)
    assert (error.reason, script.calls) == ("permanent", 1)
    assert error.__cause__ is bad


def test_no_pause_goes_past_the_deadline(time, form):
    script = Script(time, takes=0.1)
    error = denied(
        form, script, tries=9, within=1.0, backoff=Backoff("exponential", base=0.3), budget=PLENTY
    )
    assert error.reason == "deadline"
    # 0.1 + 0.6 + 0.1, and then 1.2 s would be too long
    assert script.began == [0.0, 0.7]
    assert time.monotonic() - time.begun < 1.0


def test_no_attempt_that_cannot_fit(time, form):
    """Its own median counts, and what it is said to need."""
    script = Script(time, takes=0.1)
    error = denied(form, script, within=1.0, backoff=AT_ONCE, needs=0.95)
    assert (error.reason, script.calls) == ("deadline", 1)


def test_the_measured_median_counts_as_what_an_attempt_needs(time):
    script = Script(time, *["fine"] * 10, ConnectionResetError(), "fine", takes=0.4)

    @retry(within=0.7, backoff=AT_ONCE)
    def call():
        return script.step()

    for _ in range(10):
        assert call() == "fine"
    with pytest.raises(RetryDenied) as found:
        call()
    assert found.value.reason == "deadline"


def test_the_budget(time, form):
    budget = Budget(BudgetRule(ratio=0, floor=0.2))
    script = Script(time)
    error = denied(form, script, tries=9, backoff=AT_ONCE, budget=budget)
    assert (error.reason, script.calls) == ("budget", 3)
    script = Script(time)
    assert denied(form, script, backoff=AT_ONCE, budget=budget).reason == "budget"
    assert script.calls == 1


def test_first_attempts_earn_and_retries_do_not(time, form):
    budget = Budget(BudgetRule(ratio=0.5, floor=0))
    for _ in range(4):
        form(Script(time, "fine"), budget=budget)
    assert budget.available() == 2
    form(Script(time, ConnectionResetError(), "fine"), backoff=AT_ONCE, budget=budget)
    assert budget.available() == 1.5


def test_a_preset_is_a_budget_of_its_own(time, form):
    script = Script(time)
    assert denied(form, script, tries=200, backoff=AT_ONCE, budget="aws-2026").reason == "budget"
    assert script.calls == 36


def test_a_quota_is_told_of_refusals_for_overload_and_of_successes(time, form):
    budget = Budget("aws-2026")
    script = Script(time, *[QueueFull("full")] * 300)
    denied(form, script, tries=200, backoff=AT_ONCE, budget=budget)
    assert script.calls == 101
    for _ in range(14):
        form(Script(time, "fine"), budget=budget)
    assert budget.available() == 1


# Deadlines and limits of one attempt.


def test_the_ambient_deadline_holds_in_any_case(time, form):
    script = Script(time, takes=0.4)
    with Deadline.after(1.0).scope():
        error = denied(form, script, within=60.0, backoff=AT_ONCE, tries=9, budget=PLENTY)
    assert (error.reason, script.calls) == ("deadline", 3)


def test_a_deadline_may_be_given(time, form):
    script = Script(time, takes=0.4)
    given = Deadline.after(0.5)
    assert denied(form, script, deadline=given, backoff=AT_ONCE, tries=9).reason == "deadline"
    assert script.calls == 2


def test_an_attempt_has_its_own_limit_within_what_is_left(time, form):
    script = Script(time, takes=0.25)
    denied(form, script, within=0.6, timeout=0.3, backoff=AT_ONCE, tries=9)
    assert script.lefts == [0.3, 0.3, 0.1]


def test_without_any_limit_there_is_no_deadline(time, form):
    script = Script(time, "fine")
    form(script)
    assert script.lefts == [None]


def test_when_no_time_is_left_there_is_no_first_attempt(time, form):
    script = Script(time, "fine")
    ended = Deadline.after(0.1)
    time.advance(0.2)
    with pytest.raises(DeadlineExceeded):
        form(script, deadline=ended)
    assert script.calls == 0


def test_when_no_time_is_left_nothing_is_earned(time, form):
    budget = Budget(BudgetRule(ratio=0.5, floor=0))
    with pytest.raises(DeadlineExceeded), Deadline.after(0.0).scope():
        form(Script(time, "fine"), budget=budget)
    assert budget.available() == 0


@pytest.mark.parametrize("settings", [{}, {"reraise": True}])
def test_a_pause_that_lasts_too_long_does_not_hide_the_last_error(time, form, settings):
    """The machine was busy, or its clock stood still."""
    script = Script(time, last := ConnectionResetError("last"))
    backoff = Backoff("exponential", base=0.2)
    time.late = 0.5
    with pytest.raises((RetryDenied, ConnectionResetError)) as found:
        form(script, within=0.6, backoff=backoff, budget=PLENTY, **settings)
    if settings:
        assert found.value is last
    else:
        assert (found.value.reason, found.value.__cause__) == ("deadline", last)
    assert script.calls == 1


def test_an_attempt_on_a_loop_is_cancelled_when_its_time_is_over():
    tried = []

    @aretry(tries=2, timeout=0.01, backoff=AT_ONCE)
    async def hangs():
        tried.append(True)
        if len(tried) == 1:
            await asyncio.Event().wait()
        return "fine"

    assert asyncio.run(hangs()) == "fine"
    assert len(tried) == 2


def test_an_attempt_whose_time_is_over_says_how_long_it_was(time):
    @aretry(tries=1, timeout=0.01)
    async def hangs():
        await asyncio.Event().wait()

    with pytest.raises(RetryDenied) as found:
        asyncio.run(hangs())
    assert isinstance(found.value.__cause__, TimeoutError)
    assert str(found.value.__cause__) == "the attempt ran longer than its limit of 0.01 s"


def test_a_plain_loop_tells_its_client_how_long_it_may_take(time):
    for attempt in retry(timeout=0.5, within=0.3):
        with attempt:
            assert (attempt.number, round(attempt.timeout, 6)) == (1, 0.3)


# What is an error of the caller's, and what passes through.


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, asyncio.CancelledError])
def test_what_is_no_exception_passes_through(time, kind):
    for shape in (decorated, looped):
        script = Script(time, kind())
        with pytest.raises(kind):
            shape(script)
        assert script.calls == 1


def test_a_cancelled_call_is_not_tried_again():
    tried = []

    @aretry(backoff=AT_ONCE)
    async def hangs(began):
        tried.append(True)
        began.set()
        await asyncio.Event().wait()

    async def main():
        began = asyncio.Event()
        task = asyncio.create_task(hangs(began))
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert len(tried) == 1


def test_reraise_gives_the_last_error_itself_with_a_note(time, form):
    script = Script(time)
    with pytest.raises(ConnectionResetError) as found:
        form(script, tries=2, backoff=AT_ONCE, reraise=True)
    assert found.value.__notes__ == ["not retried after 2 attempts: all 2 attempts were made"]


def test_it_says_why_and_what_failed(time, form):
    """An outcome of a job has the text alone, and not what the error came from."""
    assert str(denied(form, Script(time), tries=2, backoff=AT_ONCE)) == (
        "not retried after 2 attempts: all 2 attempts were made (ConnectionResetError: again)"
    )
    assert str(denied(form, Script(time, TimeoutError()), tries=1)) == (
        "not retried after 1 attempt: the only attempt was made (TimeoutError)"
    )
    assert str(denied(form, Script(time, KeyError("no such item")))) == (
        "not retried after 1 attempt: KeyError does not pass by itself (KeyError: 'no such item')"
    )


def test_what_it_says_of_the_error_is_short_and_printable_however_odd_that_is(time, form):
    class Odd(Exception):
        def __str__(self):
            raise ZeroDivisionError

    for odd, said in (
        (ValueError("a line\nand another"), "(ValueError: a line)"),
        (ValueError("\x1b[31mred"), "(ValueError: \\x1b[31mred)"),
        (ValueError("x" * 1_000), f"(ValueError: {'x' * 160})"),
        (Odd(), "(Odd)"),
    ):
        assert str(denied(form, Script(time, odd))).endswith(f" {said}")


def test_it_says_what_failed_in_a_layer_below(time, form):
    class Below:
        def step(self):
            return decorated(Script(time, KeyError("no such item")))

    error = denied(form, Below())
    assert error.reason == "permanent"
    assert str(error) == (
        "not retried after 1 attempt: a layer below has given up (KeyError: 'no such item')"
    )


def test_time_that_is_over_is_not_said_to_be_less_than_nothing(time, form):
    error = denied(form, Script(time, takes=1.25), within=1.0, backoff=AT_ONCE)
    assert error.reason == "deadline"
    assert ": 0 s are left, " in str(error)


@pytest.mark.parametrize(
    ("on", "calls"),
    [
        (KeyError, 3),
        ((KeyError, OSError), 3),
        ([LookupError], 3),
        (lambda error: "k" in str(error), 3),
        (OSError, 1),
        ((), 1),
    ],
)
def test_on_says_what_is_worth_it(time, form, on, calls):
    script = Script(time, *[KeyError("k")] * 5)
    denied(form, script, on=on, backoff=AT_ONCE)
    assert script.calls == calls


# Pauses.


def test_the_pause_is_that_of_the_backoff(time, form):
    backoff = Backoff("full", base=0.1, cap=1.0, rng=random.Random(1))
    denied(form, Script(time), tries=4, backoff=backoff, budget=PLENTY)
    same = Backoff("full", base=0.1, cap=1.0, rng=random.Random(1))
    assert time.slept == [same.delay(n) for n in (1, 2, 3)]


def test_decorrelated_jitter_goes_on_from_the_pause_before(time, form):
    backoff = Backoff("decorrelated", base=0.1, cap=60.0, rng=random.Random(2))
    denied(form, Script(time), tries=4, backoff=backoff, budget=PLENTY)
    same = Backoff("decorrelated", base=0.1, cap=60.0, rng=random.Random(2))
    first = same.delay(1)
    second = same.delay(2, first)
    assert time.slept == [first, second, same.delay(3, second)]


def test_a_hint_of_our_own_refusals_is_obeyed(time, form):
    script = Script(time, QueueFull("full", retry_after=0.7), "fine")
    assert form(script) == "fine"
    assert 0.7 <= time.slept[0] <= 0.7 * 1.5


def test_those_who_obey_one_hint_do_not_come_back_together(time):
    """A thousand clients, all told the same: no 100 ms hold more than a share of them."""
    back = []
    for _ in range(1_000):
        time.slept.clear()
        decorated(Script(time, QueueFull("full", retry_after=2.0), "fine"), budget=PLENTY)
        back.append(time.slept[0])
    back.sort()
    busiest = max(sum(at <= b < at + 0.1 for b in back) for at in back)
    assert min(back) >= 2.0
    assert busiest <= 200


# State-changing calls.


def test_a_call_that_changes_state_needs_a_key(time):
    for word in (retry, aretry):
        with pytest.raises(ValueError, match="idempotency key"):
            word(writes=True)


def test_under_a_key_it_is_tried_again(time):
    calls = []

    @retry(writes=True, key=lambda order, cents: order, backoff=AT_ONCE)
    def charge(order, cents):
        calls.append(order)
        raise ConnectionResetError

    with pytest.raises(RetryDenied) as found:
        charge("o-1", cents=5)
    assert (found.value.reason, len(calls)) == ("tries", 3)
    calls.clear()
    with pytest.raises(RetryDenied) as found:
        charge(None, 5)
    assert (found.value.reason, len(calls)) == ("no_key", 1)


@pytest.mark.parametrize(("settings", "calls"), [({}, 1), ({"key": "o-1"}, 3)])
def test_in_a_unit_every_call_counts_as_one_that_changes_state(time, settings, calls):
    for shape in (looped, alooped):
        script = Script(time)
        with as_unit():
            denied(shape, script, backoff=AT_ONCE, budget=PLENTY, **settings)
        assert script.calls == calls


# One layer retries.


def test_the_calls_of_an_attempt_may_retry_nothing_unless_it_is_said(time, form):
    script = Script(time, "fine")
    form(script)
    assert script.allowed == [0]
    script = Script(time, "fine")
    form(script, tries=4, pass_on=2)
    assert script.allowed == [2]
    script = Script(time, "fine")
    form(script, tries=2, pass_on=5)
    assert script.allowed == [1], "no more than this layer has"


def test_a_layer_below_one_that_retries_makes_one_attempt(time, form):
    inner = Script(time)

    @retry(tries=3, backoff=AT_ONCE, budget=PLENTY)
    def outer():
        return decorated(inner, tries=4, backoff=AT_ONCE, budget=PLENTY)

    with pytest.raises(RetryDenied) as found:
        outer()
    assert inner.calls == 3, "and the outer one tries again what the inner one left to it"
    assert found.value.reason == "tries"
    assert found.value.__cause__.reason == "layer"


@pytest.mark.parametrize("left", [0, 1, 2, 9])
def test_what_a_request_has_left_bounds_the_tries(time, form, left):
    script = Script(time)
    allowance = Allowance(left)
    with allowance.scope():
        error = denied(form, script, tries=4, backoff=AT_ONCE, budget=PLENTY)
    assert script.calls == 1 + min(left, 3)
    assert error.reason == ("tries" if left > 3 else "layer")
    assert allowance.left == left - min(left, 3), "each retry that was spent is subtracted"


def test_two_calls_of_one_request_share_what_it_has_left(time, form):
    with Allowance(3).scope():
        assert denied(form, Script(time), tries=3, backoff=AT_ONCE).reason == "tries"
        assert denied(form, Script(time), tries=3, backoff=AT_ONCE).reason == "layer"


def test_what_is_passed_on_is_subtracted_above_too(time):
    with Allowance(3).scope() as ours:
        with pass_on(2):
            denied(looped, Script(time), tries=2, backoff=AT_ONCE)
        assert ours.left == 2


def test_what_is_passed_on_is_spent_here_too(time, form):
    """Whatever is retried where: of a call that may be retried three times there are four."""
    inner = Script(time)

    class Below:
        def step(self):
            return decorated(inner, tries=9, backoff=AT_ONCE, budget=PLENTY)

    error = denied(form, Below(), tries=4, pass_on=2, backoff=AT_ONCE, budget=PLENTY)
    assert inner.calls == 4
    assert error.reason == "tries"
    assert "all 4 attempts were made, 2 of them by calls below (" in str(error)


# The metric.


def counted(name, outcome):
    value = REGISTRY.get_sample_value("deadq_retries_total", {"name": name, "outcome": outcome})
    return value or 0.0


def test_each_outcome_is_counted_under_the_policys_name(time):
    for outcome, ends, settings in [
        ("tries", [], {"tries": 2}),
        ("permanent", [ValueError()], {}),
        ("deadline", [], {"within": 0.5, "needs": 1.0}),
        ("budget", [], {"budget": BudgetRule(0, 0)}),
    ]:
        name = f"test-{outcome}"
        denied(looped, Script(time, *ends), backoff=AT_ONCE, name=name, **settings)
        assert counted(name, outcome) == 1
    assert counted("test-tries", "granted") == 1


def test_a_decorated_function_is_counted_under_its_own_name(time):
    @retry(tries=1)
    def flaky():
        raise ConnectionResetError

    with pytest.raises(RetryDenied):
        flaky()
    assert counted(flaky.__qualname__, "tries") == 1


# Odd uses.


def test_the_wrong_word_is_refused():
    with pytest.raises(TypeError, match="use @aretry"):

        @retry()
        async def a(): ...

    with pytest.raises(TypeError, match="use @retry"):

        @aretry()
        def b(): ...

    with pytest.raises(TypeError, match=r"write @retry\(\)"):

        @retry
        def c(): ...

    with pytest.raises(TypeError, match="one key for all calls"):

        @retry(key="order-1")
        def d(): ...

    with pytest.raises(TypeError, match="a loop has no arguments"):
        list(retry(key=lambda order: order))


def test_a_generator_is_refused_with_a_remedy():
    """Its body runs only after the call: nothing of it would be tried again."""
    with pytest.raises(TypeError, match=r"rows is a generator: put `for attempt in retry"):

        @retry()
        def rows():
            yield 1

    for word in (retry, aretry):
        with pytest.raises(TypeError, match=r"arows is a generator: put `.*for attempt in a?retry"):

            @word()
            async def arows():
                yield 1


@pytest.mark.parametrize("async_", [False, True])
def test_what_has_no_name_of_its_own_is_tried_again_too(time, async_):
    script = Script(time, ConnectionResetError(), "fine")

    async def acall(_):
        return script.step()

    if async_:
        assert asyncio.run(aretry(backoff=AT_ONCE)(functools.partial(acall, 1))()) == "fine"
    else:
        assert retry(backoff=AT_ONCE)(functools.partial(script.step))() == "fine"
    assert counted("partial", "granted") >= 1


def test_a_loop_without_its_block_ends_with_an_error(time):
    with pytest.raises(RuntimeError, match="with attempt:"):
        for _ in retry():
            pass

    async def main():
        async for _ in aretry():
            pass

    with pytest.raises(RuntimeError, match="async with attempt:"):
        asyncio.run(main())


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"tries": 0}, ValueError, "tries"),
        ({"tries": "3"}, TypeError, "tries"),
        ({"on": "OSError"}, TypeError, "exception classes"),
        ({"on": [KeyboardInterrupt]}, TypeError, "exception classes"),
        ({"on": KeyboardInterrupt}, TypeError, "exception classes"),
        ({"backoff": 0.5}, TypeError, "Backoff"),
        ({"deadline": 5.0}, TypeError, "within takes seconds"),
        ({"timeout": -1}, ValueError, "timeout"),
        ({"reraise": 0}, TypeError, "reraise"),
        *OF_REPEATS,
    ],
)
def test_odd_settings_are_refused_with_a_remedy(settings, error, words):
    with pytest.raises(error, match=words):
        retry(**settings)


def test_a_key_that_is_no_text_is_refused(time):
    @retry(writes=True, key=lambda order: order)
    def charge(order): ...

    with pytest.raises(TypeError, match="key of a call"):
        charge(17)


def test_the_function_keeps_its_name_and_what_it_is_given(time):
    @retry()
    def add(a, *, b):
        """Adds."""
        return a + b

    assert (add(1, b=2), add.__name__, add.__doc__) == (3, "add", "Adds.")


def test_http_errors_are_told_apart_by_their_status(time, form):
    def answer(status):
        request = httpx.Request("GET", "http://x/")
        return httpx.HTTPStatusError("", request=request, response=httpx.Response(status))

    for status in (408, 429, 502, 503, 504):
        assert form(Script(time, answer(status), "fine"), backoff=AT_ONCE) == "fine"
    for status in (400, 401, 404, 409, 422, 500, 501):
        assert denied(form, Script(time, answer(status))).reason == "permanent"
    assert form(Script(time, StoreUnavailable("away"), "fine"), backoff=AT_ONCE) == "fine"


@pytest.mark.parametrize("odd", [1e9, 1e300])
def test_a_limit_beyond_any_deadline_is_refused_where_it_is_set(odd):
    for given in ({"within": odd}, {"timeout": odd}):
        with pytest.raises(ValueError, match="is more than ten years"):
            retry(**given)
        with pytest.raises(ValueError, match="is more than ten years"):
            aretry(**given)
        assert Allowance.current() is None


def test_a_deadline_in_another_age_is_a_deadline(time):
    far = Deadline.at(datetime(9999, 1, 1, tzinfo=UTC))
    for of in (decorated, looped):
        assert of(Script(time, ConnectionError(), 7), deadline=far, backoff=AT_ONCE) == 7


def test_an_attempt_has_one_block(time):
    """A second one would go on after the first has told that all went well."""

    def plain():
        for attempt in retry(backoff=AT_ONCE):
            with attempt:
                pass
            with attempt:
                raise ConnectionError

    async def main():
        async for attempt in aretry(backoff=AT_ONCE):
            async with attempt:
                pass
            async with attempt:
                raise ConnectionError

    with pytest.raises(RuntimeError, match="an attempt has one block"):
        plain()
    with pytest.raises(RuntimeError, match="an attempt has one block"):
        asyncio.run(main())
