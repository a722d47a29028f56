"""ahedge: who wins, who is collected, and every limit with its word; in virtual time."""

import asyncio
import functools
import gc
import random
from bisect import bisect_right
from collections import defaultdict
from types import SimpleNamespace

import pytest
from prometheus_client import REGISTRY

from deadq import DeadlineExceeded, RetryDenied
from deadq.deadline import Deadline
from deadq.resilience import Allowance, Backoff, Budget, BudgetRule, QuotaRule, ahedge, aretry
from deadq.resilience import pass_on as passing_on
from deadq.resilience.race import _lingering
from deadq.resilience.steps import as_unit
from deadq.testing import run_in_virtual_time
from tests.odd_settings import OF_REPEATS

PLENTY = BudgetRule(1000, 1000)
AT_ONCE = Backoff("none")
REASONS = ("unit", "no_key", "samples", "slow", "deadline", "share", "layer", "budget")


def now():
    return round(asyncio.get_running_loop().time(), 6)


class Script:
    """What calls come to: how long each takes, and its value or error; and what was seen."""

    def __init__(self, *steps):
        self.steps, self.began, self.ended, self.cancelled = list(steps), [], [], []
        self.lefts, self.allowed = [], []

    async def call(self):
        number = len(self.began)
        self.began.append(now())
        ambient, allowance = Deadline.current(), Allowance.current()
        self.lefts.append(None if ambient is None else round(ambient.remaining(), 6))
        self.allowed.append(None if allowance is None else allowance.left)
        takes, end = self.steps.pop(0) if self.steps else (0.0, "fine")
        try:
            await asyncio.sleep(takes)
        except asyncio.CancelledError:
            self.cancelled.append((number, now()))
            raise
        finally:
            self.ended.append(number)
        if isinstance(end, BaseException):
            raise end
        return end

    @property
    def calls(self):
        return len(self.began)


def hedged(script, *, warm=100, **settings):
    """The script as a hedged function that has earned what it needs by calls of no time."""
    name = settings.setdefault("name", f"test-{random.random()}")
    function = ahedge(**{"delay": 0.1, "budget": PLENTY, **settings})(script.call)

    async def main(call=function):
        steps, script.steps = script.steps, []
        for _ in range(warm):
            await function()
        script.steps = steps
        for seen in (script.began, script.ended, script.lefts, script.allowed):
            seen.clear()
        begun = asyncio.get_running_loop().time()
        script.took = None
        try:
            return await call()
        finally:
            script.took = round(asyncio.get_running_loop().time() - begun, 6)
            script.counted = lambda: counted(name)
            script.left = {task for task in asyncio.all_tasks() if not task.done()}
            script.left.discard(asyncio.current_task())

    return main


def run(script, **settings):
    return run_in_virtual_time(hedged(script, **settings)())


def counted(name):
    """What of this function is in the metric, without what is not there."""
    found = {
        outcome: REGISTRY.get_sample_value("deadq_hedges_total", {"name": name, "outcome": outcome})
        for outcome in ("sent", "won", *REASONS)
    }
    return {outcome: int(value) for outcome, value in found.items() if value}


# Who wins.


def test_a_fast_call_is_made_once():
    script = Script((0.099, "one"))
    assert run(script) == "one"
    assert (script.calls, script.took, script.counted()) == (1, 0.099, {})


def test_the_second_call_of_a_slow_one_wins():
    script = Script((5.0, "one"), (0.02, "two"))
    assert run(script) == "two"
    assert (script.began, script.took) == ([0.0, 0.1], 0.12)
    assert script.cancelled == [(0, 0.12)]
    assert script.ended == [1, 0], "the loser is gone when the value is returned"
    assert not script.left
    assert script.counted() == {"sent": 1, "won": 1}


def test_the_first_call_may_win_all_the_same():
    script = Script((0.15, "one"), (5.0, "two"))
    assert run(script) == "one"
    assert (script.took, script.cancelled, script.left) == (0.15, [(1, 0.15)], set())
    assert script.counted() == {"sent": 1}


def test_of_two_at_the_same_instant_the_first_wins():
    script = Script((0.2, "one"), (0.1, "two"))
    assert run(script) == "one"


@pytest.mark.parametrize("failing", [0, 1])
def test_a_fast_error_never_wins(failing):
    steps = [(0.3, "slow but good"), (0.2, "slow but good")]
    steps[failing] = ((0.15, 0.01)[failing], ConnectionResetError("fast"))
    script = Script(*steps)
    assert run(script) == "slow but good"
    assert (script.calls, script.took) == (2, 0.3)


def test_a_call_that_fails_before_the_delay_is_not_repeated():
    script = Script((0.05, ConnectionResetError("early")))
    with pytest.raises(ConnectionResetError, match="early"):
        run(script)
    assert (script.calls, script.took, script.counted()) == (1, 0.05, {})


@pytest.mark.parametrize("times", [(0.2, 0.3), (0.5, 0.1)])
def test_when_both_fail_the_error_is_that_of_the_first(times):
    one, two = KeyError("one"), ValueError("two")
    script = Script((times[0], one), (times[1], two))
    with pytest.raises(KeyError) as found:
        run(script)
    assert found.value is one
    assert (script.calls, script.left) == (2, set())


def test_a_call_that_cancels_itself_has_failed():
    script = Script((0.15, asyncio.CancelledError()), (0.2, "two"))
    assert run(script) == "two"
    script = Script((0.15, asyncio.CancelledError()), (0.2, KeyError()))
    with pytest.raises(asyncio.CancelledError):
        run(script)


# What is left behind: nothing.


def test_who_is_cancelled_cancels_and_collects_both():
    script = Script((5.0, "one"), (5.0, "two"))

    async def main():
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(call(), 1.0)
        assert script.cancelled == [(0, 1.0), (1, 1.0)]
        assert asyncio.all_tasks() == {asyncio.current_task()}

    call = hedged(script)
    run_in_virtual_time(main())


def test_both_are_gone_before_a_cancelled_caller_goes_on_however_often_it_is_cancelled():
    """As if it awaited the call itself: what the call uses may be closed right after."""
    log = []

    @ahedge(delay=0.1, budget=PLENTY)
    async def call():
        try:
            await asyncio.sleep(9)
        except asyncio.CancelledError:
            try:
                await asyncio.sleep(3)  # says goodbye
            finally:
                log.append(now())
            raise

    async def main():
        task = asyncio.create_task(call())
        for at in (1.0, 2.0, 2.5):
            await asyncio.sleep(at - now())
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert log == [2.0]
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run_in_virtual_time(main())


def test_a_loser_that_holds_on_does_not_hold_the_winner_up(caplog):
    released = []

    async def main():
        numbers = iter(range(200))

        @ahedge(delay=0.1, budget=PLENTY, name="holding-on")
        async def call():
            number = next(numbers)
            if number != 100:
                return number
            for _ in range(5):
                try:
                    await asyncio.sleep(9)
                except asyncio.CancelledError:
                    continue
            released.append(now())
            raise KeyError("nobody asks any more")

        for _ in range(100):
            await call()
        assert await call() == 101
        assert now() == 0.15, "50 ms later at most"
        (left,) = asyncio.all_tasks() - {asyncio.current_task()}
        assert left in _lingering, "a loop keeps weak references only"
        await asyncio.wait({left})
        await asyncio.sleep(0)
        assert not _lingering

    problems = []

    async def watched():
        asyncio.get_running_loop().set_exception_handler(lambda _, what: problems.append(what))
        await main()

    run_in_virtual_time(watched())
    assert released == [36.1]
    assert "holding-on: a call that lost goes on after its cancellation" in caplog.text
    assert not problems


def test_a_value_that_is_there_is_not_lost_to_the_deadline_while_the_loser_leaves():
    async def main():
        numbers = iter(range(200))

        @ahedge(delay=0.1, budget=PLENTY, within=0.14)
        async def call():
            number = next(numbers)
            try:
                await asyncio.sleep(0 if number < 100 else 9 if number == 100 else 0.02)
            except asyncio.CancelledError:
                await asyncio.sleep(0.04)
                raise
            return number

        for _ in range(100):
            await call()
        assert await call() == 101
        assert now() == 0.16

    run_in_virtual_time(main())


def test_who_is_cancelled_while_a_loser_leaves_goes_at_once():
    async def main():
        numbers = iter(range(200))

        @ahedge(delay=0.1, budget=PLENTY)
        async def call():
            number = next(numbers)
            if number != 100:
                return number
            try:
                await asyncio.sleep(9)
            except asyncio.CancelledError:
                await asyncio.sleep(1)

        for _ in range(100):
            await call()
        task = asyncio.create_task(call())
        await asyncio.sleep(0.12)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert now() == 0.12
        await asyncio.sleep(2)
        assert not _lingering
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run_in_virtual_time(main())


def test_errors_of_losers_are_nobodys_surprise():
    """No "exception was never retrieved", whoever wins and however it ends."""
    problems = []

    async def main():
        asyncio.get_running_loop().set_exception_handler(lambda _, what: problems.append(what))
        for steps in [
            [(0.15, KeyError()), (0.2, "two")],
            [(0.3, "one"), (0.1, KeyError())],
            [(0.3, KeyError()), (0.1, KeyError())],
        ]:
            call = hedged(Script(*steps))
            await asyncio.gather(call(), return_exceptions=True)

    run_in_virtual_time(main())
    assert not problems


# The delay.


def test_an_error_at_the_instant_of_the_success_is_nobodys_surprise():
    seen = []

    async def main():
        both, calls = asyncio.Event(), []

        @ahedge(delay=0.1, budget=PLENTY, share=0.5)
        async def call(quick):
            if quick:
                return None
            calls.append(1)
            second = len(calls) == 2
            if second:
                asyncio.get_running_loop().call_later(0.05, both.set)
            await both.wait()
            if second:
                raise ValueError
            return "one"

        asyncio.get_running_loop().set_exception_handler(lambda _, context: seen.append(context))
        for _ in range(20):
            await call(True)
        assert await call(False) == "one"
        assert len(calls) == 2
        gc.collect()

    run_in_virtual_time(main())
    gc.collect()
    assert seen == []


def test_it_is_the_measured_p95():
    """Once a hundred calls are known: then five lie above it."""
    script = Script()
    call = ahedge(budget=PLENTY, name="measured")(script.call)

    async def main():
        for number in range(1, 101):
            script.steps = [(number / 1000, "fine")]
            await call()
        assert (script.calls, counted("measured")) == (100, {"samples": 100})
        begun = now()
        script.steps = [(5.0, "one"), (0.0, "two")]
        assert await call() == "two"
        assert script.began[-1] - begun == pytest.approx(0.095, rel=0.05)

    run_in_virtual_time(main())
    assert counted("measured") == {"samples": 100, "sent": 1, "won": 1}


@pytest.mark.parametrize(("quantile", "samples"), [(0.5, 10), (0.9, 50), (0.95, 100), (0.99, 500)])
def test_five_calls_above_the_quantile_are_needed(quantile, samples):
    name = f"needs-{samples}"

    async def main():
        @ahedge(quantile=quantile, name=name)
        async def call():
            await asyncio.sleep(0.001)

        for _ in range(samples + 5):
            await call()

    run_in_virtual_time(main())
    assert counted(name) == {"samples": samples}


def test_it_is_at_least_a_millisecond():
    script = Script((5.0, "one"))
    assert run(script, delay=None, warm=100) == "fine"
    assert script.began == [0.0, 0.001]


def gaps(began):
    """From each first call to its second one."""
    return [twice[1] - twice[0] for twice in began.values() if len(twice) == 2]


def test_it_does_not_drift_down_though_slow_calls_are_cut_short():
    """Who is cancelled counts as having taken so long at least."""
    rng = random.Random(1)
    began = defaultdict(list)

    async def main():
        @ahedge(budget=PLENTY, share=0.5)
        async def call(number):
            began[number].append(now())
            await asyncio.sleep(rng.expovariate(100))

        for number in range(10_000):
            await call(number)

    run_in_virtual_time(main())
    exact = 0.01 * 2.9957  # p95 of an exponential distribution
    found = gaps(began)
    assert len(found) == pytest.approx(500, rel=0.2)
    for of_these in (found[:200], found[-200:]):
        assert sum(of_these) / 200 == pytest.approx(exact, rel=0.1)


def test_fast_failures_do_not_lower_it():
    began = defaultdict(list)

    async def main():
        @ahedge(budget=PLENTY)
        async def call(number, takes=0.05):
            began[number].append(now())
            await asyncio.sleep(takes)
            if not takes:
                raise ConnectionResetError

        for number in range(100):
            await call(number)
        for number in range(100, 1_000):
            with pytest.raises(ConnectionResetError):
                await call(number, 0.0)
        await call(1_000, 9.0)

    run_in_virtual_time(main())
    assert gaps(began) == [pytest.approx(0.05, rel=0.05)]


# The limits.


def withheld(reason, **settings):
    script = Script((0.3, "one"))
    assert run(script, **settings) == "one"
    assert (script.calls, script.took, script.counted()) == (1, 0.3, {reason: 1})
    return script


def test_the_first_calls_have_earned_none():
    """There is no floor: one second call for twenty calls, so that little traffic stays below it
    too; and a tenth of them is left to calls that are slower still."""
    withheld("share", warm=18)
    script = Script((0.25, "one"))
    assert run(script, warm=20) == "fine"
    assert script.began == [0.0, 0.2]
    script = Script((0.25, "one"))
    assert run(script, warm=22) == "fine"
    assert script.began == [0.0, 0.1]


def test_who_was_refused_by_a_bound_asks_again_when_it_has_proved_slower_still():
    script = Script((9.0, "one"), (0.0, "two"))
    call = ahedge(delay=0.1, budget=PLENTY, name="again")(script.call)

    async def main():
        task = asyncio.create_task(call())
        await asyncio.sleep(0.5)
        script.steps = []
        for _ in range(20):
            await call()
        assert await task == "fine"
        assert script.began[-1] == 0.8  # after 0.1, 0.2, 0.4 and then 0.8 s
        assert counted("again") == {"sent": 1, "won": 1}

    run_in_virtual_time(main())


@pytest.mark.parametrize("rate", [0.5, 5, 50, 500])
@pytest.mark.parametrize("share", [0.05, 0.2])
def test_in_no_ten_seconds_are_there_more_than_the_share(rate, share):
    """Whatever the traffic, and though every tenth call is slow."""
    rng = random.Random(int(rate * 100 * share))
    began = defaultdict(list)
    calls = int(min(2_000, rate * 60))

    async def main():
        @ahedge(delay=0.01, share=share, budget=PLENTY)
        async def call(number):
            began[number].append(now())
            await asyncio.sleep(0.005 if rng.random() > 0.1 else 0.5)

        tasks = []
        for number in range(calls):
            tasks.append(asyncio.create_task(call(number)))
            await asyncio.sleep(rng.expovariate(rate))
        await asyncio.gather(*tasks)

    run_in_virtual_time(main())
    firsts = sorted(times[0] for times in began.values())
    seconds = sorted(times[1] for times in began.values() if len(times) == 2)
    assert len(firsts) == calls
    assert seconds or rate * 10 * share <= 2
    for at in seconds:
        hedges = bisect_right(seconds, at) - bisect_right(seconds, at - 10)
        made = bisect_right(firsts, at) - bisect_right(firsts, at - 10)
        assert hedges <= share * made


@pytest.mark.parametrize(("share", "calls"), [(0.05, 1), (0.2, 2)])
def test_the_share_is_what_calls_have_earned(share, calls):
    script = Script((0.3, "one"), (0.01, "two"))
    run(script, share=share, warm=10)
    assert script.calls == calls


def test_a_budget_that_is_spent():
    withheld("budget", budget=BudgetRule(0, 0))


def test_hedges_and_retries_draw_on_one_budget():
    budget = Budget(BudgetRule(ratio=0.0, floor=0.1))
    assert budget.take(), "a retry takes the only one"
    script = withheld("budget", budget=budget, warm=100)
    assert script.calls == 1


def test_a_winning_second_call_gives_a_quota_back_what_it_took():
    for steps, left in [(((5.0, 1), (0.0, 2)), 100), (((0.2, 1), (5.0, 2)), 61)]:
        budget = Budget(QuotaRule(capacity=100, cost=40, refund=1))
        assert run(Script(*steps), budget=budget)
        assert budget._counts._left == left


@pytest.mark.parametrize(
    ("settings", "calls"),
    [({"within": 1.0, "needs": 0.9}, 2), ({"within": 1.0, "needs": 0.91}, 1)],
)
def test_no_second_call_that_cannot_fit(settings, calls):
    script = Script((0.3, "one"), (0.5, "two"))
    assert run(script, **settings) == "one"
    assert script.calls == calls
    assert script.counted() == ({"sent": 1} if calls == 2 else {"deadline": 1})


def test_a_call_usually_takes_its_median():
    script = Script(*[(0.08, "usual")] * 100, (5.0, "slow"), (0.01, "two"))
    call = ahedge(delay=0.1, budget=PLENTY, name="median")(script.call)

    async def main():
        for _ in range(100):
            await call()
        with pytest.raises(TimeoutError), Deadline.after(0.17).scope():
            await call()
        assert counted("median") == {"deadline": 1}
        script.steps = [(5.0, "slow"), (0.01, "two")]
        with Deadline.after(0.20).scope():
            assert await call() == "two"

    run_in_virtual_time(main())


def test_the_time_holds_for_both_calls_together():
    script = Script((5.0, "one"), (5.0, "two"))
    with pytest.raises(TimeoutError, match=r"^quote: no call succeeded within 0.5 s$"):
        run(script, within=0.5, name="quote")
    assert (script.calls, script.took, script.left) == (2, 0.5, set())
    assert script.lefts == [0.5, 0.4]


def test_no_time_no_call():
    script = Script()

    async def main():
        with Deadline.after(0.0).scope(), pytest.raises(DeadlineExceeded, match="no time is left"):
            await ahedge()(script.call)()

    run_in_virtual_time(main())
    assert script.calls == 0


def test_where_there_was_no_call_nothing_is_earned():
    budget = Budget(BudgetRule(ratio=0.5, floor=0))

    async def main():
        with Deadline.after(0.0).scope(), pytest.raises(DeadlineExceeded):
            await ahedge(budget=budget)(Script().call)()
        return budget.available()

    assert run_in_virtual_time(main()) == 0


# When all are slow.


class Fleet:
    """Calls at a steady rate, some together ten times a second; how slow they are is moved."""

    def __init__(self, seed=1, together=10, **settings):
        self.together = together
        self.rng = random.Random(seed)
        self.factor, self.wait = 1.0, 0.0
        self.made = self.hedges = self.number = 0
        self.known = set()
        self.call = ahedge(budget=PLENTY, **settings)(self._call)

    async def _call(self, number):
        self.hedges += number in self.known
        self.known.add(number)
        await asyncio.sleep(self.factor * self.rng.lognormvariate(-4.6, 0.6))  # p50 10 ms

    async def work(self, seconds):
        """Hedges and calls of these seconds."""
        self.made = self.hedges = 0
        until, tasks = now() + seconds, []
        while now() < until:
            for _ in range(self.together):
                self.number += 1
                tasks.append(asyncio.create_task(self.call(self.number)))
            self.made += self.together
            await asyncio.sleep(0.1)
        await asyncio.gather(*tasks)
        return self.hedges / self.made


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("settings", [{}, {"delay": 0.03}], ids=["measured", "fixed"])
def test_when_all_are_slow_hedging_is_off_by_itself_and_on_again(seed, settings):
    async def main():
        fleet = Fleet(seed, name=f"all-slow-{seed}-{len(settings)}", **settings)
        before = await fleet.work(30)
        fleet.factor = 10.0
        during = await fleet.work(30)
        fleet.factor = 1.0
        await fleet.work(30)  # as long as calls are remembered
        return before, during, await fleet.work(30)

    before, during, after = run_in_virtual_time(main())
    assert 0.02 < before < 0.05
    assert during <= 0.005
    assert 0.02 < after < 0.05
    assert counted(f"all-slow-{seed}-{len(settings)}")["slow"] > 2_500


def test_what_is_slow_for_minutes_is_how_things_are():
    """A measured delay adapts in the end; a fixed one never does."""

    async def main(**settings):
        fleet = Fleet(together=2, **settings)
        await fleet.work(30)
        fleet.factor = 10.0
        first = await fleet.work(290)
        await fleet.work(30)
        return first, await fleet.work(60)

    first, later = run_in_virtual_time(main())
    assert first < 12 / 5_800
    assert 0.02 < later < 0.05
    first, later = run_in_virtual_time(main(delay=0.03))
    assert first < 12 / 5_800
    assert later == 0


def test_a_few_slow_servers_are_no_slow_fleet():
    """One of twelve hangs: just those calls that are worth it are hedged, as far as they may be."""

    async def main():
        fleet = Fleet(delay=0.05)
        plain = fleet._call

        async def call(number):
            if number % 12 == 0 and number not in fleet.known:
                fleet.known.add(number)
                await asyncio.sleep(1.0)
            await plain(number)

        fleet.call = ahedge(delay=0.05, budget=PLENTY, name="one-of-twelve")(call)
        await fleet.work(60)
        return counted("one-of-twelve")

    found = run_in_virtual_time(main())
    assert found["sent"] > 0.04 * 6_000
    assert found.get("slow", 0) < 0.01 * 6_000


# State-changing calls.


def test_a_call_that_changes_state_needs_a_key():
    with pytest.raises(ValueError, match="idempotency key"):
        ahedge(writes=True)


@pytest.mark.parametrize(("key", "calls"), [("order-17", 2), (None, 1)])
def test_it_is_repeated_under_a_key_only(key, calls):
    began = []

    async def main():
        @ahedge(
            writes=True, key=lambda order, cents: order, delay=0.1, budget=PLENTY, name=f"{key}"
        )
        async def charge(order, cents):
            began.append(order)
            await asyncio.sleep(0.3 if len(began) == 101 else 0)

        for _ in range(100):
            await charge(key, 5)
        began[:100] = [None] * 100
        await charge(key, cents=5)

    run_in_virtual_time(main())
    assert began[100:] == [key] * calls
    assert counted(str(key)) == ({"sent": 1, "won": 1} if key else {"no_key": 1})


def test_inside_a_unit_it_is_a_plain_call():
    """One call, in the caller's own task, whatever the deadline."""
    script = Script((0.3, "one"))
    seen = []

    async def main():
        for _ in range(100):
            await plain()
        with as_unit(), Deadline.after(0.2).scope():
            seen.append(await plain())

    @ahedge(delay=0.1, budget=PLENTY, name="in-unit", writes=True, key=lambda: "k")
    async def plain():
        if asyncio.current_task().get_name() == "in-unit":
            return None
        return await script.call()

    run_in_virtual_time(main())
    assert (seen, script.calls, counted("in-unit")) == (["one"], 1, {"unit": 1})


# One layer repeats.


def test_below_a_hedged_call_nothing_is_retried():
    """One call uses one or the other."""
    inner = Script((0.2, ConnectionResetError()), (0.0, ConnectionResetError()))

    @aretry(tries=3, backoff=AT_ONCE, budget=PLENTY)
    async def below():
        return await inner.call()

    script = SimpleNamespace(steps=[], began=[], ended=[], lefts=[], allowed=[], call=below)
    with pytest.raises(RetryDenied) as found:
        run(script, warm=0)
    assert (found.value.reason, inner.calls) == ("layer", 1)


def test_below_a_retry_nothing_is_hedged_unless_it_is_passed_on():
    async def main(most):
        script = Script(*[(0.01, "fine")] * 100, (0.3, "one"), (0.0, "two"))
        below = ahedge(delay=0.1, budget=PLENTY, name=f"below-{most}")(script.call)

        @aretry(tries=3, pass_on=most, budget=PLENTY)
        async def above():
            return await below()

        for _ in range(100):
            await below()
        return await above(), script.calls - 100

    assert run_in_virtual_time(main(0)) == ("one", 1)
    assert counted("below-0") == {"layer": 1}
    assert run_in_virtual_time(main(1)) == ("two", 2)


def test_a_hedge_takes_one_of_what_the_request_has_left():
    async def main(left):
        script = Script((0.3, "one"), (0.3, "two"), (0.3, "three"), (0.3, "four"))
        call = hedged(script)
        with Allowance(left).scope() as ours:
            await call()
            return ours.left, script.calls, script.allowed

    assert run_in_virtual_time(main(0)) == (0, 1, [0])
    assert run_in_virtual_time(main(1)) == (0, 2, [0, 0])
    assert run_in_virtual_time(main(5)) == (4, 2, [0, 0])


def test_a_hedge_and_a_retry_of_one_request_share_what_it_has_left():
    async def main():
        script = Script((0.3, "one"), (0.3, "two"))
        call = hedged(script)

        @aretry(tries=3, backoff=AT_ONCE, budget=PLENTY)
        async def other():
            raise ConnectionResetError

        with Allowance(1).scope():
            await call()
            with pytest.raises(RetryDenied) as found:
                await other()
        assert found.value.reason == "layer"

    run_in_virtual_time(main())


def test_what_is_passed_on_is_no_more_than_what_is_left():
    async def main(left):
        script = Script((0.3, "one"), (0.3, "two"))
        with Allowance(left).scope(), passing_on(left):
            await hedged(script, pass_on=2)()
        return script.allowed

    assert run_in_virtual_time(main(9)) == [2, 2]
    assert run_in_virtual_time(main(2)) == [2, 1]
    assert run_in_virtual_time(main(1)) == [1, 0]


# Odd uses.


def test_what_cannot_be_cancelled_is_refused_with_a_remedy():
    with pytest.raises(TypeError, match=r"no coroutine function.*hedge=True"):

        @ahedge()
        def plain(): ...

    with pytest.raises(TypeError, match=r"write @ahedge\(\)"):

        @ahedge
        async def bare(): ...

    with pytest.raises(TypeError, match="one key for all calls"):

        @ahedge(key="order-1")
        async def keyed(): ...


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"delay": 0}, ValueError, "delay"),
        ({"delay": 0.0005}, ValueError, "made twice"),
        ({"delay": float("nan")}, ValueError, "delay"),
        ({"quantile": 95}, ValueError, r"quantile.*0\.95"),
        ({"quantile": 1.0}, ValueError, "quantile"),
        ({"quantile": "p95"}, TypeError, "quantile"),
        ({"quantile": float("nan")}, ValueError, "quantile"),
        ({"share": 5}, ValueError, r"share.*0\.05"),
        ({"share": 0}, ValueError, "share"),
        ({"share": True}, TypeError, "share"),
        *OF_REPEATS,
    ],
)
def test_odd_settings_are_refused_with_a_remedy(settings, error, words):
    with pytest.raises(error, match=words):
        ahedge(**settings)


def test_the_function_keeps_its_name_and_what_it_is_given():
    @ahedge()
    async def add(a, *, b):
        """Adds."""
        return a + b

    assert (asyncio.run(add(1, b=2)), add.__name__, add.__doc__) == (3, "add", "Adds.")
    with pytest.raises(TypeError, match="unexpected keyword"):
        asyncio.run(add(1, c=2))


def test_what_has_no_name_of_its_own_is_hedged_too():
    async def add(a, b):
        return a + b

    assert asyncio.run(ahedge()(functools.partial(add, 1))(2)) == 3


def test_two_functions_under_one_decorator_know_their_own_times():
    both = ahedge(budget=PLENTY)

    async def main():
        @both
        async def fast():
            await asyncio.sleep(0.001)

        @both
        async def slow():
            begun.append(now())
            await asyncio.sleep(0.5)

        begun = []
        for _ in range(100):
            await fast()
        await slow()
        assert len(begun) == 1

    run_in_virtual_time(main())
