"""What the demo makes of its answers and books: each promise breaks by one fault of its own."""

import math
from dataclasses import replace

import pytest

from deadq.demo import books as books_module
from deadq.demo import report, table
from deadq.demo.books import Books
from deadq.demo.load import Answer, Order
from deadq.demo.report import judge, recovery, summarize
from deadq.demo.scenes import SCENES, Cause, Span, timed
from deadq.demo.tally import ACCEPTED, LATE, OFFERED, ON_TIME, REFUSED, Tally

PLAN = timed(50.0)
CAUSES = {t.scene.cause: t for t in PLAN}
TROUBLES = {
    t.scene.name: Span(t.begins, t.ends) for t in PLAN if t.scene.cause is not Cause.NOTHING
} | {"killed": Span(CAUSES[Cause.DEATH].begins + 5.0, CAUSES[Cause.DEATH].begins + 8.0)}
ABOUT = {"capacity_per_s": 50.0, "load_average": 0.0, "processors": 2, "lag_p99_ms": 0.0}


def booked(phase, at, number, took=0.25):
    order = Order(phase, at, f"order-{number}", str(number), 999, 3_000)
    return Answer(order, at + took, 200, took, job=f"{number:032x}", receipt=f"r-{number}")


def refused(phase, at, number):
    order = Order(phase, at, f"order-{number}", str(number), 999, 3_000)
    return Answer(order, at + 0.01, 503, 0.01, reason="full", retry_after="1")


def good_world():
    """Ten orders a second, all booked on time; and one refused, and one repeated, in each phase."""
    answers, number = [], 0
    for part in PLAN:
        for tenth in range(round(part.seconds * 10)):
            number += 1
            answers.append(booked(part.scene.name, part.begins + tenth / 10, number))
        answers.append(replace(answers[-1], duplicate=True))
        answers.append(refused(part.scene.name, part.begins + 0.01, number + 10_000))
    jobs = {a.job: 1 for a in answers if a.accepted}
    counters = {"admitted": len(jobs), "finished:done": len(jobs)}
    paid = {a.order.key: [a.receipt] for a in answers if a.accepted}
    return answers, Books(0, counters, paid, 0, dict(jobs), dict(jobs), 0)


def judged(answers, books):
    phases = summarize(PLAN, answers, books, TROUBLES)
    return phases, {promise for promise, held in judge(phases, answers, books).items() if not held}


def test_when_all_is_well_every_promise_holds():
    phases, broken = judged(*good_world())
    assert broken == set()
    assert [p.name for p in phases] == [scene.name for scene in SCENES]
    calm, overload, killed, slow, recovered = phases
    assert (calm.offered, calm.accepted, calm.on_time, calm.late) == (72, 70, 70, 0)
    assert calm.refused == {"full": 1}
    assert (calm.repeats, calm.repeats_same) == (1, 1)
    assert (calm.runs, calm.orphans, calm.duplicate_effects) == (70, 0, 0)
    assert calm.success_p50_ms == pytest.approx(250)
    assert (calm.recovered_s, recovered.recovered_s) == (None, None)
    assert 0 <= overload.recovered_s < 0.2  # one is refused just then
    assert (killed.recovered_s, killed.seen_s) == (0.0, pytest.approx(6.0))
    assert slow.seen_s == pytest.approx(9.9)


# One fault each. They take answers and books, and give both.


def not_answered(answers, books):
    lost = replace(answers[3], status=0, job="", receipt="", reason="ReadError")
    paid = {key: numbers for key, numbers in books.paid.items() if key != lost.order.key}
    return [*answers[:3], lost, *answers[4:]], replace(_one_less(books), paid=paid)


def _one_less(books):
    counters = {name: n - 1 for name, n in books.counters.items()}
    return replace(books, counters=counters)


def late_when_calm(answers, books):
    cut = [replace(a, status=504, receipt="", reason="late") for a in answers[:10]]
    return [*cut, *answers[10:]], books


def slow_refusals(answers, books):
    return [a if a.accepted else replace(a, took=0.7) for a in answers], books


def still_slow_after_the_surge(answers, books):
    slow = [a for a in answers if a.accepted and 17.0 <= a.order.at < 22.0]
    return [replace(a, took=1.0) if a in slow else a for a in answers], books


def still_refusing_after_the_slow_bank(answers, books):
    more = [refused("recovery", 40.05 + tenth / 2, 20_000 + tenth) for tenth in range(20)]
    return [*answers, *more], books


def no_reason(answers, books):
    return [a if a.accepted else replace(a, reason="") for a in answers], books


def no_time_to_come_back(answers, books):
    return [a if a.accepted else replace(a, retry_after="") for a in answers], books


def no_outcome(answers, books):
    return answers, replace(books, unfinished=1)


def accepted_and_not_counted(answers, books):
    return answers, _one_less(books)


def an_outcome_too_many(answers, books):
    counters = {**books.counters, "finished:done": books.counters["finished:done"] + 1}
    return answers, replace(books, counters=counters)


def two_results_taken(answers, books):
    return answers, replace(books, taken={**books.taken, answers[5].job: 2})


def run_by_nobody(answers, books):
    return answers, replace(books, runs=dict(list(books.runs.items())[1:]))


def paid_twice(answers, books):
    return answers, replace(books, paid={**books.paid, answers[5].order.key: ["r-6", "again"]})


def another_receipt(answers, books):
    return [*answers[:5], replace(answers[5], receipt="forged"), *answers[6:]], books


def a_repeat_with_another_receipt(answers, books):
    return [replace(a, receipt="new") if a.duplicate else a for a in answers], books


def booked_and_not_paid(answers, books):
    return answers, replace(books, paid=dict(list(books.paid.items())[1:]))


def paid_and_never_ordered(answers, books):
    return answers, replace(books, paid={**books.paid, "order-x": ["r-x"]})


ONE_OUTCOME = "every accepted order had exactly one outcome"
PAID_ONCE = "every order was paid once at most"
SAME_RECEIPT = "every customer and every repeat got that payment's receipt"
WITH_REASON = "every refusal said why, and when to come back"


@pytest.mark.parametrize(
    ("fault", "promises"),
    [
        (not_answered, {"every order was answered"}),
        (late_when_calm, {report.IN_TIME}),
        (slow_refusals, {report.AT_ONCE}),
        (still_slow_after_the_surge, {report.WELL_AGAIN}),
        (still_refusing_after_the_slow_bank, {report.WELL_AGAIN}),
        (no_reason, {WITH_REASON}),
        (no_time_to_come_back, {WITH_REASON}),
        (no_outcome, {ONE_OUTCOME}),
        (accepted_and_not_counted, {ONE_OUTCOME}),
        (an_outcome_too_many, {ONE_OUTCOME}),
        (two_results_taken, {ONE_OUTCOME}),
        (run_by_nobody, {ONE_OUTCOME}),
        (paid_twice, {PAID_ONCE, SAME_RECEIPT}),
        (another_receipt, {SAME_RECEIPT}),
        (a_repeat_with_another_receipt, {SAME_RECEIPT}),
        (booked_and_not_paid, {SAME_RECEIPT}),
        (paid_and_never_ordered, {SAME_RECEIPT}),
    ],
)
def test_each_fault_breaks_its_promise_and_no_other(fault, promises):
    assert judged(*fault(*good_world()))[1] == promises


def test_a_second_payment_is_counted_where_the_order_was_sent():
    phases, _ = judged(*paid_twice(*good_world()))
    assert [p.duplicate_effects for p in phases] == [1, 0, 0, 0, 0]


def test_runs_whose_customer_was_not_told_on_time_are_orphans():
    answers, books = late_when_calm(*good_world())
    runs = {**books.runs, answers[20].job: 3}
    phases, _ = judged(answers, replace(books, runs=runs))
    assert (phases[0].runs, phases[0].orphans, phases[0].late) == (72, 12, 10)
    assert [p.orphans for p in phases[1:]] == [0, 0, 0, 0]


def test_a_job_that_was_ordered_anew_belongs_to_the_later_phase():
    answers, books = good_world()
    expired = replace(answers[0], status=504, receipt="", reason="late")
    anew = replace(answers[0], order=replace(expired.order, phase="overload", at=7.5))
    phases, _ = judged([expired, *answers[1:], anew], books)
    assert (phases[0].runs, phases[0].orphans, phases[1].orphans) == (69, 0, 0)


# Times are not held against anybody on a machine that others use.


@pytest.mark.parametrize(
    ("measured", "good"),
    [
        ({}, False),
        ({"load_average": 4.1}, True),
        ({"lag_p99_ms": 51.0}, True),
    ],
)
def test_times_count_on_a_machine_with_room_only(measured, good):
    assert report.kept({report.AT_ONCE: False, PAID_ONCE: True}, ABOUT | measured) is good
    assert not report.kept({report.AT_ONCE: True, PAID_ONCE: False}, ABOUT | measured)


# Recovery.


def test_recovery_is_the_first_second_in_which_all_is_as_usual():
    answers = [booked("x", at / 20, at) for at in range(200)]
    assert recovery(answers, 2.0, 9.0, usual_s=0.3) == 0.0
    late = [replace(a, status=504) if a.order.at in (2.5, 4.05) else a for a in answers]
    assert recovery(late, 2.0, 9.0, usual_s=0.3) == pytest.approx(0.6)
    assert math.isnan(recovery(late, 2.0, 3.5, usual_s=0.3))
    slow = [replace(a, took=2.0) if a.order.at < 6.0 else a for a in answers]
    assert recovery(slow, 2.0, 9.0, usual_s=0.3) == pytest.approx(3.5, abs=0.11)  # half of them
    assert math.isnan(recovery(slow, 2.0, 5.0, usual_s=0.3))
    assert math.isnan(recovery([], 2.0, 9.0, usual_s=0.3))


def test_what_could_not_be_seen_long_enough_breaks_no_promise():
    phases, _ = judged(*good_world())
    never = replace(phases[1], recovered_s=math.nan)
    assert not replace(never, seen_s=5.0).well_again
    assert replace(never, seen_s=4.9).well_again
    assert not replace(phases[1], recovered_s=4.1).well_again


# What is read, shown and counted.


def test_the_logs_tell_who_was_started_who_was_heard_and_who_was_refused(tmp_path):
    log = tmp_path / "worker 1.log"
    log.write_text(
        "2026-01-01 10:00:00,001 INFO started: job 0a book, attempt 1, fence 7\n"
        "2026-01-01 10:00:00,002 INFO finished: job 0a, done\n"
        "2026-01-01 10:00:00,003 INFO started: job 0b book, attempt 1, fence 8\n"
        "2026-01-01 10:00:00,004 INFO started: job 0b book, attempt 2, fence 9\n"
        "2026-01-01 10:00:00,005 INFO finished: job 0b, exceeded\n"
        "2026-01-01 10:00:00,006 WARNING stale: job 0c fence 6, reported done: stale\n"
    )
    runs, taken, stale = books_module.read_logs([log, log])
    assert runs == {"0a": 2, "0b": 4}
    assert taken == {"0a": 2}
    assert stale == 2


def test_the_logs_tell_whose_reports_came_when_others_had_the_job(tmp_path):
    far, other = tmp_path / "far", tmp_path / "other"
    started = "2026-01-01 10:00:00,001 INFO started: job {} book, attempt {}, fence 7\n".format
    done = "2026-01-01 10:00:00,002 INFO finished: job {}, done\n".format
    stale = "2026-01-01 10:00:00,002 WARNING stale: job {} fence 7, reported done: stale\n".format
    far.write_text(started("0a", 1) + done("0a") + started("0b", 2) + done("0b"))
    other.write_text(started("0b", 1) + started("0c", 2) + done("0c"))
    assert books_module.reports_late([far, other], far) == 0
    far.write_text(far.read_text() + started("0c", 1) + stale("0c"))
    assert books_module.reports_late([far, other], far) == 1
    far.write_text(far.read_text() + started("0d", 1) + done("0d"))  # as without fences
    other.write_text(other.read_text() + started("0d", 2) + done("0d"))
    assert books_module.reports_late([far, other], far) == 2


def test_the_table_fits_eighty_columns_and_names_what_broke(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    answers, books = paid_twice(*still_refusing_after_the_slow_bank(*good_world()))
    books = replace(books, reported_late=12, refused_late=1)
    phases, _ = judged(answers, books)
    table.show(phases, judge(phases, answers, books), ABOUT, books)
    said = capsys.readouterr().out
    assert all(len(line) <= 80 for line in said.split("\n"))
    assert f"  NO   {PAID_ONCE}" in said
    assert "  yes  every order was answered" in said
    assert "held against anybody" not in said
    assert "At 3 times what the workers can do" in said
    assert "refused 12 reports that came too late, the bank 1 payment." in " ".join(said.split())
    (recovered,) = [line for line in said.split("\n") if "recovered" in line]
    assert recovered.split()[-2:] == ["9.9", "s"]
    assert ">" in recovered


@pytest.mark.parametrize("columns", [40, 20])
def test_a_narrow_table_cuts_no_number(columns, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    answers, books = good_world()
    phases, _ = judged(answers, books)
    phases = [replace(phases[0], offered=1_234_567), *phases[1:]]
    table.show(phases, judge(phases, answers, books), ABOUT, books)
    figures = capsys.readouterr().out.partition("At 3 times")[0]
    assert "…" not in figures.partition("offered")[2]


def test_nothing_is_said_of_refusals_where_there_were_none():
    answers, books = good_world()
    phases, _ = judged([a for a in answers if a.accepted], books)
    (surge, _) = table.morals(phases, books, 50.0)
    assert surge.endswith("100.0% of the accepted on time.")


def test_lost_answers_are_told_with_the_cause(capsys):
    answers, books = not_answered(*good_world())
    phases, _ = judged(answers, books)
    checks = judge(phases, answers, books)
    table.show(phases, checks, ABOUT | {"load_average": 9.0}, books)
    said = capsys.readouterr().out
    assert "not answered: ReadError" in said
    assert "NO   every order was answered" in said
    assert "The load average is 9.0 on 2 processors" in said


def test_what_was_not_measured_is_null():
    phases, _ = judged(*good_world())
    shown = report.as_json([replace(phases[1], recovered_s=math.nan)], {"x": False}, ABOUT)
    assert shown["phases"]["overload"]["recovered_s"] is None
    assert shown["good"] is False


def test_the_tally_counts_each_answer_in_the_second_in_which_it_came():
    tally = Tally()
    good, bad = booked("calm", 0.5, 1, took=1.0), refused("calm", 2.5, 2)
    for answer in (good, replace(good, duplicate=True), replace(good, status=504), bad):
        tally.sent(answer.order)
        tally.answered(answer)
    assert tally.each_second(OFFERED, 3.9) == [3, 0, 1]
    assert tally.each_second(ON_TIME, 3.9) == [0, 1, 0]
    assert tally.each_second(ON_TIME, 5.0) == [0, 1, 0, 0, 0]
    assert tally.each_second(ON_TIME, -1.0) == []
    assert tally.of("calm") == {OFFERED: 4, ACCEPTED: 2, ON_TIME: 1, LATE: 1, f"{REFUSED}full": 1}
    assert tally.of("slow") == {}
    assert tally.rate(OFFERED, 3.0, over_s=2) == 0.5


def test_scenes_follow_each_other_and_a_short_one_still_has_time_to_recover():
    for seconds in (2.0, 50.0):
        plan = timed(seconds)
        assert [a.ends for a in plan[:-1]] == [b.begins for b in plan[1:]]
    assert timed(50.0)[-1].ends == pytest.approx(50.0)
    (killed,) = [t for t in timed(2.0) if t.scene.cause is Cause.DEATH]
    assert killed.seconds == 6.0
