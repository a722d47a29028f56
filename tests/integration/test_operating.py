"""Commands that look at a queue and steer it, as an operator meets them: real processes."""

import contextlib
import json
import os
import pty
import resource
import signal
import socket
import subprocess
import threading

import pytest

from deadq import Deadline, JobFailed, Paused, Queue, Rejected, State
from tests.commands import COMMAND, deadq_command, environment, started
from tests.marks import THOROUGH, sampled
from tests.servers import wait_until

JOBS = """
import asyncio
from deadq import Queue, Retry, current_job

checkout = Queue("checkout", capacity=50, retention=7200.0)

@checkout.task(within=30.0)
async def pay(order: str, fails: bool = False) -> str:
    await current_job().unit("charge", charge, order)
    if fails:
        raise ValueError(f"no money for {order}")
    return order

@checkout.task(within=30.0)
async def slow(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "done"

@checkout.task(within=30.0, retries=1)
async def hold() -> None:
    await current_job().unit("charge", charge, "17")
    raise Retry(after=20.0)

@checkout.task(within=30.0, retries=1)
async def again() -> None:
    raise Retry(after=0.0)

async def charge(order: str) -> str:
    return order
"""


class Desk:
    """A queue on an emptied server, the commands that steer it, and workers for it."""

    def __init__(self, folder, url):
        (folder / "jobs.py").write_text(JOBS)
        self.folder, self.url = folder, url
        self.queue = Queue("checkout", capacity=50, url=url, retention=7200.0)

        @self.queue.task(within=30.0)
        async def pay(order: str, fails: bool = False) -> str: ...

        @self.queue.task(within=30.0)
        async def slow(seconds: float) -> str: ...

        @self.queue.task(within=30.0, retries=1)
        async def hold() -> None: ...

        @self.queue.task(within=30.0, retries=1)
        async def again() -> None: ...

        self.pay, self.slow, self.hold, self.again = pay, slow, hold, again

    def command(self, *args):
        return deadq_command(*args, cwd=self.folder, DEADQ_URL=self.url)

    def said(self, *args, code=0):
        done = self.command(*args)
        assert (done.returncode, done.stderr) == (code, "")
        return done.stdout

    def json(self, *args, code=0):
        return json.loads(self.said(*args, "--json", code=code))

    def worker(self):
        worker = started("work", "jobs:checkout", cwd=self.folder, DEADQ_URL=self.url)
        assert worker.stderr.readline().startswith("deadq: working on queue checkout")
        return worker

    def fail(self, *orders):
        """Jobs that end on the dead list."""
        for order in orders:
            with pytest.raises(JobFailed):
                self.pay.options(key=order).call(order, fails=True)


@pytest.fixture
def desk(tmp_path, valkey_server):
    with valkey_server.client() as client:
        client.flushall()
    made = Desk(tmp_path, valkey_server.url)
    yield made
    made.queue.close()


@pytest.fixture
def staffed(desk):
    """A desk with a worker."""
    worker = desk.worker()
    yield desk
    worker.terminate()
    worker.communicate(timeout=10)


# Looking.


def test_jobs_are_listed(desk):
    desk.pay.options(key="later", within=20.0).enqueue("1")
    desk.pay.options(key="sooner", within=10.0).enqueue("2")
    listed = desk.json("jobs", "checkout")
    assert [(job["key"], job["task"], job["state"]) for job in listed] == [
        ("sooner", "pay", "ready"),
        ("later", "pay", "ready"),
    ]
    assert 5 < listed[0]["remaining_s"] < 10

    for_people = desk.said("jobs", "jobs:checkout")
    assert "queue checkout: 2 unfinished jobs" in for_people
    assert for_people.index("sooner") < for_people.index("later")
    assert "1 unfinished job, and perhaps more: " in desk.said("jobs", "checkout", "--limit=1")


def test_jobs_of_one_state_and_no_more_than_asked_for_are_listed(staffed):
    slow = staffed.slow.options(key="slow").enqueue(20.0)
    wait_until(lambda: slow.state() is State.RUNNING, "the slow job to start")
    staffed.pay.options(key="put off", within=900.0, not_before=Deadline.after(600.0)).enqueue("1")
    (running,) = staffed.json("jobs", "checkout", "--state", "running")
    assert (running["key"], running["state"]) == ("slow", "running")
    assert running["worker"].rpartition(":")[2].isdigit()
    assert [j["key"] for j in staffed.json("jobs", "checkout", "--state", "later")] == ["put off"]
    assert len(staffed.json("jobs", "checkout", "--limit", "1")) == 1
    slow.cancel()


def test_a_job_is_shown_by_its_key_or_its_id(staffed):
    job = staffed.pay.options(key="order [17]").enqueue("17")
    assert job.result() == "17"
    by_key, by_id = (staffed.json("show", "checkout", name) for name in (job.key, job.id))
    for changing in ("remaining_s", "kept_s"):
        by_key.pop(changing), by_id.pop(changing)
    assert by_key == by_id
    assert (by_key["state"], by_key["attempts"], by_key["key"]) == ("done", 1, "order [17]")
    (unit,) = by_key["units"]
    assert (unit["name"], unit["state"]) == ("charge", "done")

    for_people = staffed.said("show", "checkout", "order [17]")
    assert f"job {job.id}" in for_people
    for row in ("order [17]", "unit charge", "done, begun 2", "deadline", "kept for"):
        assert row in for_people


def words(text):
    """Those of a table."""
    return set(text.split())


def test_the_dead_are_listed_the_newest_first(staffed):
    staffed.fail("a", "b")
    listed = staffed.json("dead", "checkout")
    assert [(job["key"], job["error_type"]) for job in listed] == [
        ("b", "ValueError"),
        ("a", "ValueError"),
    ]
    assert len(staffed.json("dead", "checkout", "--limit", "1")) == 1
    for_people = words(staffed.said("dead", "checkout"))
    assert {"a", "b", "failed", "ValueError:"} <= for_people


def test_a_job_that_failed_is_shown_with_the_place_where_it_did(staffed):
    staffed.fail("a")
    shown = staffed.json("show", "checkout", "a")
    assert (shown["error_type"], shown["error_message"]) == ("ValueError", "no money for a")
    for_people = staffed.said("show", "checkout", "a")
    assert "\nwhere it failed\n  Traceback (most recent call last):\n" in for_people
    for line in ("jobs.py", "in pay", 'raise ValueError(f"no money for {order}")'):
        assert line in for_people
        assert line in shown["error_traceback"]
    staffed.pay.options(key="b").call("b")
    assert "where it failed" not in staffed.said("show", "checkout", "b")
    assert staffed.json("show", "checkout", "b")["error_traceback"] is None


def test_of_a_job_that_used_up_its_retries_it_is_said_after_how_many(staffed):
    with pytest.raises(JobFailed, match="Retry: the handler asked to be run again in 0 s"):
        staffed.again.options(key="again").call()
    for command in (["dead", "checkout"], ["show", "checkout", "again"]):
        done = deadq_command(*command, cwd=staffed.folder, DEADQ_URL=staffed.url, COLUMNS="200")
        assert "gave up after 2 attempts: deadq.errors.Retry: the handler" in done.stdout


# Steering.


def test_a_job_that_waits_is_cancelled(desk):
    job = desk.pay.options(key="17").enqueue("17")
    assert desk.said("cancel", "jobs:checkout", "17") == "deadq: 17: cancelled, it never starts\n"
    assert job.state() is State.CANCELLED


def test_a_job_that_has_ended_is_not_cancelled(staffed):
    staffed.pay.options(key="17").call("17")
    told = staffed.said("cancel", "jobs:checkout", "17", code=1)
    assert told == "deadq: 17: too late, it is done\n"


def test_a_second_cancel_does_not_say_that_it_never_starts(staffed):
    slow = staffed.slow.options(key="slow").enqueue(20.0)
    wait_until(lambda: slow.state() is State.RUNNING, "the slow job to start")
    interrupted = "deadq: slow: it runs, and is interrupted outside its units\n"
    assert staffed.said("cancel", "jobs:checkout", "slow", slow.id) == interrupted
    wait_until(lambda: slow.state() is State.CANCELLED, "the slow job to be interrupted")
    again = staffed.said("cancel", "jobs:checkout", "slow")
    assert again == "deadq: slow: it was cancelled before\n"


def test_a_cancelled_job_keeps_its_units_as_long_as_the_queue_says(staffed):
    """A repeat of it must not have its effect once more."""
    job = staffed.hold.options(key="held").enqueue()
    wait_until(lambda: job.state() is State.LATER, "it to wait for its second attempt")
    told = staffed.said("cancel", "jobs:checkout", "held")
    assert told == "deadq: held: cancelled, it does not start again\n"
    assert job.state() is State.CANCELLED
    assert staffed.queue.show(job.id).kept_s > 7_000
    waits = staffed.pay.options(key="waits", not_before=Deadline.after(20.0)).enqueue("1")
    staffed.json("cancel", "jobs:checkout", "waits")
    assert staffed.queue.show(waits.id).kept_s <= 60.0  # nothing has happened yet


def test_several_are_cancelled_and_one_that_runs_is_interrupted(staffed):
    slow = staffed.slow.options(key="slow").enqueue(20.0)
    wait_until(lambda: slow.state() is State.RUNNING, "the slow job to start")
    put_off = staffed.pay.options(key="put off", not_before=Deadline.after(10.0)).enqueue("1")
    told = staffed.json("cancel", "jobs:checkout", "slow", put_off.id)
    assert [(one["key"], one["state"]) for one in told] == [
        ("slow", "running"),
        ("put off", "cancelled"),
    ]
    wait_until(lambda: slow.state() is State.CANCELLED, "the slow job to be interrupted")


def test_a_dead_job_is_requeued_and_its_unit_does_not_run_again(staffed):
    staffed.fail("a", "b")
    assert staffed.said("requeue", "jobs:checkout", "a", "--within", "5") == (
        "deadq: requeued 1 of 1 job, 5 s each\n"
    )
    failures = ("finished:failed", 3)
    wait_until(lambda: failures in staffed.queue.stats().counters.items(), "it to fail again")
    assert [job["key"] for job in staffed.json("dead", "checkout")] == ["a", "b"]


def test_a_job_that_is_named_twice_is_requeued_once_and_a_refusal_names_its_key(staffed):
    staffed.fail("a")
    staffed.pay.options(key="b").call("b")
    told = staffed.said("requeue", "jobs:checkout", "a", "b", "a", code=1)
    first, second = told.splitlines()
    assert first == "deadq: requeued 1 of 2 jobs, 60 s each"
    assert second.startswith("deadq: b: the job is not among the dead: ")
    assert second.endswith(" is not among the dead: it is done")


def test_all_dead_jobs_are_requeued_with_the_time_that_is_given(staffed):
    staffed.fail("a", "b", "c")
    staffed.queue.pause()
    refused = staffed.json("requeue", "jobs:checkout", "--all", code=1)
    assert (refused["requeued"], len(refused["refused"])) == ([], 3)
    assert all("paused" in reason for reason in refused["refused"].values())
    staffed.queue.resume()
    assert (
        len(staffed.json("requeue", "jobs:checkout", "--all", "--within", "900")["requeued"]) == 3
    )
    for key in "abc":
        shown = staffed.json("show", "checkout", key)
        assert 60.0 < shown["remaining_s"] < 900.0


def test_a_queue_is_paused_and_resumed(desk):
    desk.pay.enqueue("1")
    assert desk.said("pause", "checkout") == "deadq: queue checkout refuses new jobs\n"
    with pytest.raises(Paused):
        desk.pay.enqueue("1")
    assert desk.said("stats", "checkout").startswith(f"queue checkout on {desk.url}, paused\n")
    assert desk.json("stats", "checkout")["paused"] is True
    assert desk.json("pause", "checkout") == {"queue": "checkout", "paused": True}
    assert desk.json("resume", "checkout") == {"queue": "checkout", "paused": False}
    desk.pay.enqueue("1")


def test_a_queue_is_drained(staffed):
    jobs = [staffed.slow.enqueue(0.3) for _ in range(3)]
    drained = staffed.json("drain", "checkout")
    assert drained == {"queue": "checkout", "paused": True, "unfinished": 0}
    assert [job.state() for job in jobs] == [State.DONE] * 3
    with pytest.raises(Paused):
        staffed.pay.enqueue("1")
    assert staffed.said("drain", "checkout").startswith("deadq: queue checkout is empty, and ")


def test_a_queue_that_nobody_works_on_is_not_drained_in_time(desk):
    desk.pay.enqueue("1")
    assert desk.said("drain", "checkout", "--timeout", "0.2", code=1) == (
        "deadq: queue checkout: 1 unfinished job after 0.2 s; it stays paused until deadq resume\n"
    )


def on_terminal(folder, *args, **settings):
    """What a command writes to a terminal that is its stderr."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, *args],
        cwd=folder,
        env=environment(**settings),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=theirs,
    )
    os.close(theirs)
    drawn = b""
    try:
        while piece := os.read(ours, 4096):
            drawn += piece
    except OSError:  # a terminal whose other end is closed
        pass
    os.close(ours)
    process.communicate(timeout=10)
    return process.returncode, drawn


def test_on_a_terminal_a_bar_is_drawn(desk):
    desk.pay.enqueue("1")
    drain = ("drain", "checkout", "--timeout", "0.3")
    code, drawn = on_terminal(desk.folder, *drain, DEADQ_URL=desk.url, TERM="xterm")
    assert code == 1
    assert b"drain" in drawn
    assert b"0/1" in drawn


def test_on_a_terminal_that_cannot_draw_there_is_no_bar(desk):
    desk.pay.enqueue("1")
    drain = ("drain", "checkout", "--timeout", "0.3")
    assert on_terminal(desk.folder, *drain, DEADQ_URL=desk.url, TERM="dumb") == (1, b"")


@pytest.mark.parametrize("command", ["stats", "jobs", "dead", "pause", "resume", "drain"])
def test_of_a_queue_that_was_never_used_it_is_said(command, desk):
    """Its name may be mistyped."""
    note = "; nothing was ever submitted to it"
    said = " ".join(desk.said(command, "chekout").split())
    assert note in said
    assert desk.url in said
    desk.json(command, "chekout")
    desk.queue.resume()
    desk.pay.enqueue("1").cancel()
    assert note not in " ".join(desk.said(command, "checkout").split())


EVERYWHERE = {
    "stats": ["checkout"],
    "check": ["jobs:checkout", "--rate=1"],
    "jobs": ["checkout"],
    "show": ["checkout", "17"],
    "cancel": ["jobs:checkout", "17"],
    "dead": ["checkout"],
    "requeue": ["jobs:checkout", "--all"],
    "pause": ["checkout"],
    "resume": ["checkout"],
    "drain": ["empty"],
}
"""How each command that asks the server may be called."""


@pytest.mark.parametrize("command", EVERYWHERE)
def test_where_no_server_runs_none_is_started_to_look_at(command, desk):
    """In a folder that is not the project's, say."""
    data = desk.folder / "data"
    settings = {"DEADQ_URL": "", "DEADQ_DATA_DIR": str(data)}
    done = deadq_command(command, *EVERYWHERE[command], cwd=desk.folder, **settings)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"deadq: no server runs for {data}; 'deadq server start' does it")
    assert done.stderr.count("\n") == 1
    assert not data.exists()


@pytest.mark.parametrize("command", EVERYWHERE)
def test_the_url_on_the_command_line_wins(command, desk):
    desk.pay.options(key="17").enqueue("17")
    args = [command, *EVERYWHERE[command], "--url", desk.url]
    done = deadq_command(*args, cwd=desk.folder, DEADQ_URL="redis://127.0.0.1:1")
    assert (done.returncode, done.stderr) == (0, "")


# Odd readers, and odd things to read.


@pytest.mark.parametrize(
    "args",
    [["jobs", "checkout"], ["jobs", "checkout", "--json"], ["stats", "checkout"], ["--help"]],
)
def test_a_reader_that_goes_early_is_no_fault(args, desk):
    desk.pay.enqueue_many([(str(number),) for number in range(50)])
    ours, theirs = os.pipe()
    os.close(ours)
    done = subprocess.run(
        [*COMMAND, *args],
        cwd=desk.folder,
        env=environment(DEADQ_URL=desk.url),
        stdout=theirs,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(theirs)
    assert (done.returncode, done.stderr) == (1, b"")


@pytest.mark.parametrize(
    "args", [["jobs", "checkout"], ["stats", "checkout", "--json"], ["--help"]]
)
def test_a_full_disk_is_one_line(args, desk):
    with (desk.folder / "answer").open("wb") as answer:
        done = subprocess.run(
            [*COMMAND, *args],
            cwd=desk.folder,
            env=environment(DEADQ_URL=desk.url),
            stdout=answer,
            stderr=subprocess.PIPE,
            preexec_fn=_no_room,
            check=False,
        )
    assert (done.returncode, done.stderr) == (1, b"deadq: [Errno 27] File too large\n")


def _no_room():
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


def test_ctrl_c_ends_a_wait(desk):
    def paused():
        try:
            return not desk.pay.enqueue("1")
        except Rejected as refusal:
            return refusal.reason == "paused"

    assert not paused()
    with started("drain", "checkout", cwd=desk.folder, DEADQ_URL=desk.url) as drain:
        wait_until(paused, "the queue to be paused")
        drain.send_signal(signal.SIGINT)
        said = drain.communicate(timeout=20)
    assert (drain.returncode, said) == (130, ("", "deadq: interrupted\n"))


ODD_KEYS = [
    "\x1b[31mred",
    "\x1b]0;title\x07",
    "a\nb\rc",
    "\u202egnp",
    "[/x] [red]",
    "\x9b31m",
    "né",
    "日本",
]


@pytest.mark.parametrize(
    "key", [*ODD_KEYS[:3], *(pytest.param(key, marks=THOROUGH) for key in ODD_KEYS[3:])]
)
def test_no_key_steers_the_terminal(key, staffed):
    staffed.fail(key)
    waits = staffed.slow.options(key=f"waits {key}", not_before=Deadline.after(20.0)).enqueue(0.0)
    for command in (
        ["jobs", "checkout"],
        ["show", "checkout", key],
        ["dead", "checkout"],
        ["cancel", "jobs:checkout", waits.id],
    ):
        said = staffed.said(*command)
        assert said.replace("\n", "").isprintable()
        assert ascii(key)[1:5] in said or key in said


@pytest.mark.parametrize("name", ["\x1b[31mred", "[/x]", "[red]"])
@pytest.mark.parametrize("command", ["stats", "jobs", "dead", "pause", "resume", "drain"])
def test_no_queue_name_steers_the_terminal(command, name, desk):
    said = desk.said(command, "--", name)
    assert said.replace("\n", "").isprintable()
    assert ascii(name)[1:-1] in said


def test_what_the_encoding_lacks_is_written_out(desk):
    desk.pay.options(key="né").enqueue("1")
    done = deadq_command(
        *("jobs", "checkout"), cwd=desk.folder, DEADQ_URL=desk.url, PYTHONIOENCODING="ascii"
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "n\\xe9" in done.stdout


def test_what_a_module_prints_is_no_part_of_the_answer(desk):
    (desk.folder / "loud.py").write_text("from jobs import checkout\nprint('good morning')\n")
    done = desk.command("jobs", "loud:checkout", "--json")
    assert (done.returncode, json.loads(done.stdout), done.stderr) == (0, [], "good morning\n")


# Wrong requests.


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (["show", "checkout", "nix"], 1, "queue checkout has no job with the id or key `nix`; "),
        (
            ["cancel", "jobs:checkout", "nix"],
            1,
            "queue checkout has no job with the id or key `nix`; ",
        ),
        (["cancel", "jobs:checkout"], 2, "'JOB...'. (see deadq cancel --help)"),
        (["requeue", "jobs:checkout", "a", "--within", "1e30"], 2, "past the queue's horizon of "),
        (["jobs", "checkout", "--state", "done"], 2, "no job is unfinished in state 'done': name "),
        (["jobs", "checkout", "--limit", "-1"], 2, "limit must lie between 0 and "),
        (["dead", "checkout", "--limit", "-1"], 2, "limit must lie between 0 and "),
        (["jobs", ""], 2, "queue name must not be empty"),
        (["pause", "nope:x"], 2, "no module `nope` in "),
        (["cancel", "checkout", "a"], 2, "how long recorded units are kept: give MODULE:QUEUE"),
        (["requeue", "checkout", "a"], 2, "needs the queue's own settings: give MODULE:QUEUE"),
        (["requeue", "jobs:checkout"], 2, "name the jobs to requeue by id or key, or give --all"),
        (["requeue", "jobs:checkout", "a", "--all"], 2, "name the jobs to requeue by id or key, "),
        (["requeue", "jobs:checkout", "--all", "--within", "0"], 2, "within must be more than 0 "),
        (["drain", "checkout", "--timeout", "nan"], 2, "timeout must be finite, not nan"),
    ],
)
def test_a_wrong_request_is_one_line(args, code, says, desk):
    done = desk.command(*args)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.startswith("deadq: ")
    assert says in done.stderr
    assert done.stderr.count("\n") == 1


HOSTILE = ["{a}", "a b", "né", "a:b:c", "a\nb", "*", "x" * 200, "../..", "-", "\x1b[31m"]


@pytest.mark.parametrize(
    ("name", "command"), sampled(HOSTILE, ["stats", "jobs", "dead", "pause", "resume", "drain"])
)
def test_a_hostile_queue_name_does_no_harm(command, name, desk):
    done = desk.command(command, "--json", "--", name)
    assert done.returncode in (0, 2)
    assert "Traceback" not in done.stderr
    if done.returncode == 0:
        json.loads(done.stdout)
    else:
        assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("command", EVERYWHERE)
def test_without_a_server_it_is_one_line_and_exit_1(command, desk):
    done = desk.command(command, *EVERYWHERE[command], "--url", "redis://127.0.0.1:1")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("deadq: the server cannot be reached")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("command", ["stats", "check"])
def test_a_port_at_which_something_else_answers_is_one_line_and_exit_1(command, desk):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        answering = threading.Thread(target=answer_in_http, args=(listener,))
        answering.start()
        url = f"redis://127.0.0.1:{listener.getsockname()[1]}"
        done = desk.command(command, *EVERYWHERE[command], "--url", url)
        listener.shutdown(socket.SHUT_RDWR)
        answering.join(10)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("deadq: what answers there is no Redis or Valkey; name another ")
    assert done.stderr.count("\n") == 1


def answer_in_http(listener):
    with contextlib.suppress(OSError):  # it was shut down
        while True:
            caller, _ = listener.accept()
            with caller:
                caller.recv(1024)
                caller.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
