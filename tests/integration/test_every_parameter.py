"""Every parameter of the Python API does something, and a test notices when it does not."""

import tempfile
from pathlib import Path

import pytest

from tests import parameters
from tests.inner import run_tests
from tests.parameters import every_parameter

PLAIN, REAL = "unit/test_parameters.py", "integration/test_parameters.py"
TESTING, ERRORS, DEADLINE = "unit/test_testing.py", "unit/test_errors.py", "unit/test_deadline.py"
PROXY, BACKOFF = "unit/test_proxy.py", "unit/test_backoff.py"
STEERING, DEAD = "integration/test_steering.py", "integration/test_dead_list.py"

MANY = f"{PLAIN}::test_many_carry_their_arguments_and_go_by_the_options"
UNIT = f"{TESTING}::test_a_unit_that_is_on_record_is_not_run_again[False]"
NEEDS = f"{PLAIN}::test_a_unit_starts_only_while_there_is_the_time_that_it_needs"
DOUBT = f"{PLAIN}::test_beyond_its_limit_a_unit_is_in_doubt_and_rerun_or_not"
FAILED_JOB = f"{ERRORS}::test_what_a_failed_job_tells"
MISSED = f"{ERRORS}::test_what_a_missed_deadline_tells"
DENIED = f"{ERRORS}::test_what_a_denied_retry_tells"
REJECTED = f"{ERRORS}::test_each_rejection_has_a_reason_of_its_own[Rejected-rejected]"
ANSWERED = f"{DEADLINE}::test_at_counts_by_the_servers_clock_once_it_is_known"
STEERED = f"{STEERING}::test_an_event_loop_sees_and_does_what_blocking_code_does[valkey9]"
LISTED = f"{PLAIN}::test_jobs_are_listed_shown_and_cancelled"
REPLAYED = f"{DEAD}::test_a_replay_runs_the_same_call_again[valkey9-job-order-17]"
TWINS = f"{DEAD}::test_the_asyncio_twins_do_the_same[valkey9]"
ON_A_LOOP = f"{DEAD}::test_on_a_loop_too_a_replay_has_the_time_that_it_is_given[valkey9]"
TIED = "integration/test_tied_jobs.py"
CHARGED = f"{TESTING}::test_an_order_is_charged"
BACKED_OFF = f"{TESTING}::test_a_failing_gateway_is_tried_again_after_the_backoff"
REPLACED = f"{REAL}::test_a_child_is_replaced_when_it_has_done_or_grown_enough"
SWALLOWED = f"{PROXY}::test_only_replies_to_matching_requests_are_swallowed"
GIVES_UP = f"{PROXY}::test_wait_until_gives_up"
UNIX = f"{PROXY}::test_it_reaches_and_offers_unix_sockets"
DELAYED = f"{PROXY}::test_delay_is_added_to_the_round_trip_half_of_it_each_way"
JITTER = f"{PROXY}::test_jitter_adds_between_nothing_and_itself"
RATE = f"{PROXY}::test_rate_drips_bytes_and_lifting_it_lets_the_rest_go_at_once"
RANGES = f"{BACKOFF}::test_ranges_are_those_of_the_published_formulas[equal-low2-high2]"


def carried(kind):
    return f"{PLAIN}::test_a_submit_carries_key_and_arguments[{kind}]"


BREAKER, CHAIN = "unit/test_breaker.py", "unit/test_chain.py"
REFUSED = f"{ERRORS}::test_what_a_call_that_a_breaker_refused_tells"
ENDED = f"{BREAKER}::test_what_a_call_from_before_tells_does_not_end_the_probe"
RETRY, BUDGET = "unit/test_retry.py", "unit/test_budget.py"
ALLOWANCE, TRANSIENT = "unit/test_allowance.py", "unit/test_transient.py"
FLEET = "integration/test_fleet_budget.py"
SPENT = f"{ALLOWANCE}::test_what_is_spent_is_gone_here_and_above"
PASSED_ON = f"{ALLOWANCE}::test_a_layer_that_retries_itself_may_still_pass_some_on"
RULE = f"{BUDGET}::test_ratio_floor_and_window_each_tell"
COSTS = f"{BUDGET}::test_a_quota_says_what_overload_costs_and_what_a_success_gives_back"
QUOTA = f"{BUDGET}::test_each_number_of_a_quota_tells"


def retried(word, form):
    return {
        f"resilience.{word} {name}": f"{RETRY}::{test}"
        for name, test in {
            "tries": f"test_tries[{form}-1]",
            "on": f"test_on_says_what_is_worth_it[{form}-KeyError-3]",
            "backoff": f"test_the_pause_is_that_of_the_backoff[{form}]",
            "within": f"test_no_pause_goes_past_the_deadline[{form}]",
            "deadline": f"test_a_deadline_may_be_given[{form}]",
            "timeout": f"test_an_attempt_has_its_own_limit_within_what_is_left[{form}]",
            "needs": f"test_no_attempt_that_cannot_fit[{form}]",
            "budget": f"test_the_budget[{form}]",
            "writes": "test_a_call_that_changes_state_needs_a_key",
            "key": "test_under_a_key_it_is_tried_again",
            "pass_on": f"test_the_calls_of_an_attempt_may_retry_nothing_unless_it_is_said[{form}]",
            "reraise": f"test_reraise_gives_the_last_error_itself_with_a_note[{form}]",
            "name": "test_each_outcome_is_counted_under_the_policys_name",
            "fn": f"test_what_fails_and_then_works_is_tried_again[{form}]",
        }.items()
    }


HEDGE = "unit/test_hedge.py"

NOTICED_BY = {
    **{
        f"resilience.ahedge {name}": f"{HEDGE}::{test}"
        for name, test in {
            "fn": "test_the_second_call_of_a_slow_one_wins",
            "delay": "test_the_second_call_of_a_slow_one_wins",
            "quantile": "test_five_calls_above_the_quantile_are_needed[0.5-10]",
            "share": "test_the_share_is_what_calls_have_earned[0.2-2]",
            "within": "test_the_time_holds_for_both_calls_together",
            "needs": "test_no_second_call_that_cannot_fit[settings1-1]",
            "budget": "test_a_budget_that_is_spent",
            "writes": "test_a_call_that_changes_state_needs_a_key",
            "key": "test_it_is_repeated_under_a_key_only[order-17-2]",
            "pass_on": "test_what_is_passed_on_is_no_more_than_what_is_left",
            "name": "test_five_calls_above_the_quantile_are_needed[0.9-50]",
        }.items()
    },
    "testing.run_in_virtual_time main": "unit/test_virtual_time.py::test_a_day_takes_no_time",
    **retried("retry", "decorated"),
    **retried("aretry", "adecorated"),
    "resilience.Allowance left": SPENT,
    "resilience.Allowance most": PASSED_ON,
    "resilience.Allowance passed": f"{ALLOWANCE}::test_calls_below_get_none_unless_it_is_said",
    "resilience.Allowance above": SPENT,
    "resilience.Allowance.incoming header": f"{ALLOWANCE}::test_what_comes_in[2-True-2]",
    "resilience.Allowance.incoming edge": f"{ALLOWANCE}::test_what_comes_in[None-False-3]",
    "resilience.Allowance.incoming trusted": f"{ALLOWANCE}::test_what_comes_in[9-True-9]",
    "resilience.pass_on retries": f"{ALLOWANCE}::test_calls_below_get_none_unless_it_is_said",
    "resilience.Budget rule": f"{RULE}[rule2-30]",
    "resilience.Budget.take after": f"{BUDGET}::test_a_retry_weighs_when_it_is_made",
    "FleetBudget.take after": f"{FLEET}::test_a_retry_weighs_when_it_is_made[valkey9]",
    "resilience.Budget.take throttled": f"{BUDGET}::"
    "test_a_quota_charges_refusals_for_overload_otherwise",
    "resilience.Budget.succeeded taken": f"{BUDGET}::"
    "test_a_success_gives_one_back_and_a_retried_one_what_it_took",
    "resilience.BudgetRule ratio": f"{RULE}[rule0-20]",
    "resilience.BudgetRule floor": f"{RULE}[rule0-20]",
    "resilience.BudgetRule window": f"{RULE}[rule2-30]",
    "resilience.QuotaRule capacity": f"{QUOTA}[rule0-7]",
    "resilience.QuotaRule cost": f"{QUOTA}[rule1-10]",
    "resilience.QuotaRule throttled_cost": COSTS,
    "resilience.QuotaRule refund": COSTS,
    "resilience.Breaker name": f"{BREAKER}::test_its_name_stands_in_what_it_says",
    "resilience.Breaker failure_ratio": f"{BREAKER}::"
    "test_failure_ratio_is_the_share_that_counts[0.2-True]",
    "resilience.Breaker sustained": f"{BREAKER}::"
    "test_sustained_is_how_long_calls_have_to_fail[300-False]",
    "resilience.Breaker minimum_calls": f"{BREAKER}::"
    "test_minimum_calls_is_how_many_have_to_be_seen[903-False]",
    "resilience.Breaker open_for": f"{BREAKER}::"
    "test_open_for_is_how_long_it_waits_before_a_probe[1.0]",
    "resilience.Breaker ramp": f"{BREAKER}::"
    "test_ramp_is_how_long_the_way_back_to_the_whole_rate_takes[10.0]",
    "resilience.Breaker ramp_start": f"{BREAKER}::test_ramp_start_is_the_share_it_begins_with[0.5]",
    "resilience.Breaker failures": f"{BREAKER}::test_failures_says_what_counts_as_one",
    "resilience.Breaker.succeeded permit": f"{ENDED}[succeeded]",
    "resilience.Breaker.failed permit": f"{ENDED}[failed]",
    "resilience.Breaker.abandoned permit": f"{ENDED}[abandoned]",
    "resilience.Breaker fn": f"{BREAKER}::test_what_is_guarded_keeps_its_name_arguments_and_result",
    "resilience.hint_of error": f"{TRANSIENT}::test_our_own_refusals_carry_it_as_seconds",
    "resilience.is_transient error": f"{TRANSIENT}::"
    "test_what_was_left_to_this_layer_is_judged_by_its_cause[cause0-True]",
    "resilience.parse value": f"{TRANSIENT}::test_seconds_or_a_date_or_nothing[1.5-1.5]",
    "resilience.parse now": f"{TRANSIENT}::"
    "test_seconds_or_a_date_or_nothing[Sun, 01 Mar 2026 12:00:30 GMT-30.0]",
    "FleetBudget name": f"{FLEET}::test_it_is_a_gauge[valkey9]",
    "FleetBudget rule": f"{FLEET}::test_the_last_rule_holds_for_all[valkey9]",
    "FleetBudget url": f"{REAL}::test_a_fleets_budget_is_where_it_is_said_to_be[url]",
    "FleetBudget client": f"{REAL}::test_a_fleets_budget_is_where_it_is_said_to_be[client]",
    "Queue retry_budget": f"{PLAIN}::test_retries_stay_within_the_queues_budget",
    **{
        f"BoundCall.{kind} {name}": carried(kind)
        for kind in ("enqueue", "aenqueue", "bind", "abind")
        for name in ("args", "kwargs")
    },
    **{
        f"BoundCall.{kind} {name}": f"{PLAIN}::test_a_call_carries_its_arguments[{kind}]"
        for kind in ("call", "acall")
        for name in ("args", "kwargs")
    },
    "BoundCall.enqueue_many calls": f"{MANY}[enqueue_many]",
    "BoundCall.aenqueue_many calls": f"{MANY}[aenqueue_many]",
    "BreakerOpen message": REFUSED,
    "BreakerOpen retry_after": REFUSED,
    "Cancelled message": f"{ERRORS}::test_what_a_cancellation_tells",
    "CurrentJob.unit name": f"{TESTING}::"
    "test_a_unit_is_not_interrupted_and_what_came_meanwhile_comes_after[False]",
    "CurrentJob.unit fn": UNIT,
    "CurrentJob.unit args": UNIT,
    "CurrentJob.unit needs": f"{NEEDS}[method]",
    "CurrentJob.unit limit": f"{DOUBT}[method-rerun]",
    "CurrentJob.unit on_doubt": f"{DOUBT}[method-fail]",
    "CurrentJob.unit kwargs": f"{PLAIN}::test_a_unit_takes_keywords_for_its_function",
    "CurrentJob.unit_key name": f"{PLAIN}::test_a_key_for_the_outside_is_the_units_own",
    "Deadline.after seconds_from_now": f"{DEADLINE}::"
    "test_after_counts_on_the_monotonic_clock_alone",
    "Deadline.at instant": f"{DEADLINE}::"
    "test_at_keeps_its_millisecond_whatever_the_clocks_do[True]",
    "Deadline.from_server instant_ms": f"{DEADLINE}::"
    "test_at_keeps_its_millisecond_whatever_the_clocks_do[True]",
    "Deadline.from_server server": ANSWERED,
    "Deadline.server_ms server": f"{DEADLINE}::"
    "test_after_is_turned_into_an_instant_by_the_servers_clock",
    "Deadline.on server": ANSWERED,
    "Deadline.child reserve": f"{DEADLINE}::test_a_child_keeps_something_back",
    "Deadline.tighten other": f"{DEADLINE}::test_the_tighter_one_wins",
    "DeadlineExceeded message": MISSED,
    "DeadlineExceeded units": MISSED,
    "JobFailed type_name": FAILED_JOB,
    "JobFailed message": FAILED_JOB,
    "JobFailed traceback": FAILED_JOB,
    "JobHandle.result timeout": f"{TESTING}::test_merely_looking_runs_nothing",
    "JobHandle.aresult timeout": f"{PLAIN}::test_merely_looking_from_a_loop_runs_nothing",
    "Queue name": f"{PLAIN}::test_a_queue_keeps_everything_under_its_name",
    "Queue capacity": f"{TESTING}::test_too_many_orders_are_refused",
    "Queue url": f"{PLAIN}::test_a_queue_is_where_its_url_says[given0]",
    "Queue client": f"{REAL}::test_a_queue_uses_the_client_that_it_is_given",
    "Queue order": f"{PLAIN}::test_the_order_is_that_of_latest_starts_or_of_arrival[fifo-ran1]",
    "Queue admission": f"{PLAIN}::"
    "test_what_cannot_be_finished_in_time_is_refused_unless_the_cap_alone_counts[cap]",
    "Queue retention": f"{PLAIN}::test_an_outcome_is_kept_as_long_as_the_queue_says",
    "Queue lease": f"{REAL}::test_a_worker_counts_as_gone_one_lease_after_its_last_word",
    "Queue max_payload": f"{PLAIN}::test_arguments_may_be_as_large_as_the_queue_says",
    "Queue horizon": f"{PLAIN}::test_a_deadline_may_lie_as_far_ahead_as_the_queue_says",
    "Queue allow_eviction": "integration/test_eviction.py::"
    "test_it_is_used_when_that_is_allowed[valkey9-allkeys-lru]",
    "Queue.task fn": f"{PLAIN}::test_a_task_that_is_called_runs_here_and_now",
    "Queue.task name": f"{PLAIN}::test_a_task_may_have_another_name_than_its_function",
    "Queue.task within": f"{TESTING}::test_nobody_is_charged_after_the_deadline",
    "Queue.task retries": f"{TESTING}::test_starts_are_counted_retries_included",
    "Queue.task timeout": f"{TESTING}::test_an_attempt_past_its_own_limit_is_tried_again",
    "Queue.task retry_on": f"{PLAIN}::test_a_task_says_after_which_errors_it_is_tried_again",
    "Queue.task criticality": f"{STEERING}::"
    "test_calls_are_as_critical_as_their_task[valkey9-sheddable-4]",
    "Queue.task backoff": BACKED_OFF,
    "Queue.task on_crash": f"{DEAD}::test_at_most_once_crashes_with_its_first_worker[valkey9]",
    "Queue.task hedge": "unit/test_hedge_settings.py::test_a_job_of_a_hedged_task_has_no_units",
    "tie first": f"{TIED}::test_both_have_one_key[valkey9]",
    "tie second": f"{TIED}::test_both_have_one_key[valkey9]",
    "atie first": f"{TIED}::test_on_a_loop_too_both_have_one_key[valkey9]",
    "atie second": f"{TIED}::test_on_a_loop_too_both_have_one_key[valkey9]",
    "TiedHandle.result timeout": f"{TIED}::test_a_wait_that_runs_out_keeps_the_hold[valkey9]",
    "TiedHandle.aresult timeout": f"{TIED}::"
    "test_on_a_loop_too_a_wait_that_runs_out_keeps_the_hold[valkey9]",
    "Queue.lifespan factory": f"{TESTING}::"
    "test_lifespans_open_before_the_first_job_and_close_after_the_last",
    "Queue.enqueue_many calls": carried("bind"),
    "Queue.aenqueue_many calls": carried("abind"),
    "Queue.submit prepared": carried("enqueue"),
    "Queue.asubmit prepared": carried("aenqueue"),
    "Queue.submit_many calls": f"{MANY}[enqueue_many]",
    "Queue.asubmit_many calls": f"{MANY}[aenqueue_many]",
    "Queue.relocate url": f"{PLAIN}::test_a_queue_moves_to_where_it_is_sent",
    "Queue.jobs state": LISTED,
    "Queue.jobs limit": LISTED,
    "Queue.ajobs state": STEERED,
    "Queue.ajobs limit": STEERED,
    "Queue.show job": LISTED,
    "Queue.ashow job": STEERED,
    "Queue.cancel job": LISTED,
    "Queue.acancel job": STEERED,
    "Queue.dead limit": f"{DEAD}::test_the_dead_are_listed_with_what_went_wrong[valkey9]",
    "Queue.adead limit": TWINS,
    "Queue.replay job": REPLAYED,
    "Queue.replay within": REPLAYED,
    "Queue.replay deadline": f"{DEAD}::test_the_deadline_may_be_an_instant[valkey9-datetime]",
    "Queue.areplay job": TWINS,
    "Queue.areplay within": ON_A_LOOP,
    "Queue.areplay deadline": ON_A_LOOP,
    "Rejected message": REJECTED,
    "Rejected retry_after": REJECTED,
    "Retry after": f"{PLAIN}::test_a_retry_waits_as_long_as_it_asks",
    "RetryDenied message": DENIED,
    "RetryDenied reason": DENIED,
    "Task args": f"{PLAIN}::test_a_task_that_is_called_runs_here_and_now",
    "Task kwargs": f"{PLAIN}::test_a_task_that_is_called_runs_here_and_now",
    "Task.options key": f"{TESTING}::test_a_repeated_order_is_charged_once",
    "Task.options within": f"{TESTING}::test_jobs_run_one_at_a_time_the_latest_start_first",
    "Task.options deadline": f"{PLAIN}::test_the_deadline_may_be_the_instant_itself",
    "Task.options not_before": f"{TESTING}::test_jobs_put_off_wait_for_the_clock",
    "Task.options criticality": f"{PLAIN}::test_less_critical_calls_have_less_of_the_cap",
    "Task.options retries": f"{PLAIN}::test_a_call_may_be_tried_more_often_than_its_task",
    "Task.prepare options": carried("enqueue"),
    "Task.prepare args": carried("enqueue"),
    "Task.prepare kwargs": carried("enqueue"),
    "Task.prepare_many options": f"{MANY}[enqueue_many]",
    "Task.prepare_many calls": f"{MANY}[enqueue_many]",
    "Worker queue": f"{REAL}::"
    "test_a_worker_runs_the_jobs_of_its_queue_on_as_many_slots_as_it_is_given",
    "Worker concurrency": f"{REAL}::"
    "test_a_worker_runs_the_jobs_of_its_queue_on_as_many_slots_as_it_is_given",
    "Worker grace": f"{REAL}::test_handlers_are_interrupted_when_the_grace_of_a_stop_is_over",
    "Worker runner": f"{REAL}::test_plain_handlers_run_where_the_runner_says[async-False]",
    "Worker children": f"{REAL}::test_children_share_the_slots_of_a_worker",
    "Worker max_jobs": f"{REPLACED}[settings1-2]",
    "Worker max_memory": f"{REPLACED}[settings2-4]",
    "unit needs": f"{NEEDS}[decorator]",
    "unit limit": f"{DOUBT}[decorator-rerun]",
    "unit on_doubt": f"{DOUBT}[decorator-fail]",
    "testing.Clock.advance seconds": f"{TESTING}::"
    "test_a_clock_counts_whole_milliseconds_and_only_when_moved",
    "testing.Clock.watched watcher": f"{PLAIN}::test_a_watcher_hears_of_every_move",
    "testing.SlowProxy.delay seconds": f"{PROXY}::"
    "test_a_changed_delay_acts_at_once_also_on_what_is_under_way",
    "testing.SlowProxy.jitter seconds": JITTER,
    "testing.SlowProxy.rate bytes_per_second": RATE,
    "testing.SlowProxy.refuse refusing": f"{PROXY}::"
    "test_refuse_turns_new_connects_away_and_keeps_the_port",
    "testing.SlowProxy.swallow_replies n": f"{PROXY}::"
    "test_swallowed_replies_vanish_after_the_request_was_carried_out",
    "testing.SlowProxy.swallow_replies to": SWALLOWED,
    "testing.SlowProxy.swallow_replies cut": f"{PROXY}::test_a_swallowed_reply_can_end_in_a_reset",
    "testing.SlowProxy.wait_until condition": GIVES_UP,
    "testing.SlowProxy.wait_until timeout": GIVES_UP,
    "testing.arun_until_idle queue": f"{TESTING}::test_with_more_concurrency_handlers_may_meet",
    "testing.arun_until_idle concurrency": f"{TESTING}::"
    "test_with_more_concurrency_handlers_may_meet",
    "testing.assert_chain description": f"{CHAIN}::"
    "test_a_chain_that_fits_lets_a_test_pass_and_tells_its_figures",
    "testing.faked queue": f"{PLAIN}::test_a_faked_queue_needs_no_server",
    "testing.queue name": f"{PLAIN}::test_a_queue_keeps_everything_under_its_name",
    "testing.queue capacity": f"{PLAIN}::test_less_critical_calls_have_less_of_the_cap",
    "testing.queue settings": f"{PLAIN}::test_an_outcome_is_kept_as_long_as_the_queue_says",
    "testing.run_until_idle queue": CHARGED,
    "testing.run_until_idle concurrency": f"{PLAIN}::test_in_blocking_code_too_handlers_may_meet",
    "testing.slow_proxy target": DELAYED,
    "testing.slow_proxy delay": DELAYED,
    "testing.slow_proxy jitter": JITTER,
    "testing.slow_proxy rate": RATE,
    "testing.slow_proxy listen": UNIX,
    "resilience.Backoff kind": RANGES,
    "resilience.Backoff base": RANGES,
    "resilience.Backoff cap": RANGES,
    "resilience.Backoff multiplier": f"{BACKOFF}::test_capping_the_exponent_changes_no_value",
    "resilience.Backoff rng": RANGES,
    "resilience.Backoff.delay n": RANGES,
    "resilience.Backoff.delay previous": f"{BACKOFF}::"
    "test_decorrelated_draws_between_base_and_three_times_the_previous_delay",
}


def test_every_parameter_has_a_test_and_the_test_is_there():
    assert set(every_parameter()) == set(NOTICED_BY)
    code, said = run(None, "--collect-only", *sorted(set(NOTICED_BY.values())))
    assert code == 0, said


def run(name, *tests):
    with tempfile.TemporaryDirectory(prefix="dq-") as folder:
        return run_tests(tests, Path(folder), parameters.deafen, name)


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.parametrize("name", NOTICED_BY)
def test_a_parameter_that_does_nothing_is_noticed(name):
    code, said = run(name, NOTICED_BY[name])
    assert parameters.NOTHING_ELSE not in said, said
    assert (code, "1 failed" in said) == (1, True), said


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_they_all_pass_with_parameters_that_act():
    tests = set(NOTICED_BY.values())
    code, said = run(None, *sorted(tests))
    assert (code, f"{len(tests)} passed" in said) == (0, True), said
