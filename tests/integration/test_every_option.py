"""Every option of every command does something, and a test notices when it does not."""

import tempfile
from pathlib import Path

import pytest

from tests.commands import every_command
from tests.inner import run_tests, set_environment

CLI, OPERATING = "integration/test_cli.py", "integration/test_operating.py"
SUPERVISOR, HEALTH = "integration/test_supervisor.py", "integration/test_health_command.py"
REPLACING, RELOAD = "faults/test_replacing.py", "integration/test_reload.py"
CHECK = "integration/test_check.py::test_a_queue_at_work_is_judged_by_what_it_does"
TABLE = "integration/test_check.py::test_the_table_of_units_is_looked_at_and_made"
EMBEDDED = f"{CLI}::test_the_embedded_server_is_started_looked_at_and_stopped"
SHOWN = f"{OPERATING}::test_jobs_of_one_state_and_no_more_than_asked_for_are_listed"
DEAD = f"{OPERATING}::test_the_dead_are_listed_the_newest_first"
REQUEUED = f"{OPERATING}::test_all_dead_jobs_are_requeued_with_the_time_that_is_given"
PAUSED = f"{OPERATING}::test_a_queue_is_paused_and_resumed"

NOTICED_BY = {
    " --version": f"{CLI}::test_version",
    "work --concurrency": f"{SUPERVISOR}::test_slots_are_divided_by_weight",
    "work --grace": f"{CLI}::test_a_worker_ends_at_once_when_its_grace_is_none",
    "work --runner": f"{SUPERVISOR}::test_plain_handlers_share_a_loop_where_that_is_asked_for",
    "work --children": f"{SUPERVISOR}::test_children_share_the_slots_of_an_event_loop_worker",
    "work --max-jobs": f"{REPLACING}::test_a_child_runs_as_many_jobs_as_it_may_and_is_replaced",
    "work --max-memory": f"{REPLACING}::test_a_child_that_has_grown_too_large_is_replaced",
    "work --health-file": f"{SUPERVISOR}::test_the_health_file_is_there_while_the_worker_is",
    "work --health": f"{SUPERVISOR}::test_the_health_endpoint_follows_the_worker",
    "work --reload": f"{RELOAD}::test_the_option_reloads_a_worker_with_all_its_other_options",
    "work --url": f"{CLI}::test_the_url_on_the_command_line_wins",
    "work --verbose": f"{CLI}::test_a_worker_works_and_stops_gracefully",
    "health --max-age": f"{HEALTH}::test_what_a_file_says_counts_for_its_age",
    "health --json": f"{HEALTH}::test_programs_get_json",
    "server start --json": EMBEDDED,
    "server status --json": EMBEDDED,
    "server stop --json": EMBEDDED,
    "stats --json": f"{CLI}::test_stats_are_printed",
    "check --rate": CHECK,
    "check --bytes": CHECK,
    "check --json": CHECK,
    "check --chain": "integration/test_check.py::test_a_chain_is_judged_without_a_server",
    "check --sql": TABLE,
    "check --create": TABLE,
    "jobs --state": SHOWN,
    "jobs --limit": SHOWN,
    "jobs --json": f"{OPERATING}::test_jobs_are_listed",
    "show --json": f"{OPERATING}::test_a_job_is_shown_by_its_key_or_its_id",
    "cancel --json": f"{OPERATING}::test_several_are_cancelled_and_one_that_runs_is_interrupted",
    "dead --limit": DEAD,
    "dead --json": DEAD,
    "requeue --within": REQUEUED,
    "requeue --all": REQUEUED,
    "requeue --json": REQUEUED,
    "pause --json": PAUSED,
    "resume --json": PAUSED,
    "drain --timeout": f"{OPERATING}::test_a_queue_that_nobody_works_on_is_not_drained_in_time",
    "drain --json": f"{OPERATING}::test_a_queue_is_drained",
    **{
        f"{command} --url": f"{OPERATING}::test_the_url_on_the_command_line_wins[{command}]"
        for command in (
            *("stats", "check", "jobs", "show", "cancel"),
            *("dead", "requeue", "pause", "resume", "drain"),
        )
    },
}


def test_every_option_has_a_test():
    options = {
        f"{path} {param.opts[0]}"
        for path, command in every_command().items()
        for param in command.params
        if param.param_type_name == "option" and path != "demo"  # measured in tests of its own
    }
    assert options == set(NOTICED_BY)


def run_deaf(option, *tests):
    """Run tests with a command that does not hear this option."""
    with tempfile.TemporaryDirectory(prefix="dq-") as folder:
        deaf = {"DEADQ_TEST_COMMAND": "tests.deaf", "DEADQ_TEST_DEAF": option}
        return run_tests(tests, Path(folder), set_environment, deaf)


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.timeout(300)
@pytest.mark.parametrize("option", NOTICED_BY)
def test_an_option_that_does_nothing_is_noticed(option):
    code, said = run_deaf(option, "-x", NOTICED_BY[option])
    assert (code, "1 failed" in said) == (1, True), said


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_an_option_that_none_of_them_uses_is_not_noticed():
    code, said = run_deaf("demo --json", *sorted(set(NOTICED_BY.values())))
    assert code == 0, said
