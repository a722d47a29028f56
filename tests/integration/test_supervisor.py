"""A supervised worker as programs, systemd and Kubernetes meet it: real processes and sockets."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import httpx
import pytest

from deadq import DeadqError, JobFailed, Queue, Worker
from deadq.runtime.supervisor.postman import Postman
from deadq.runtime.supervisor.supervisor import Supervisor
from deadq.store import keys
from deadq.store.mailbox import Mailbox
from tests.commands import environment, started
from tests.servers import wait_until

JOBS = """
import os, pathlib
from deadq import DeadqError, Queue, Worker

here = pathlib.Path(__file__).parent
if (here / "broken").exists():
    raise RuntimeError("half written")
first = Queue("first", capacity=50)
second = Queue("second", capacity=50)

@first.task(within=10.0)
async def who() -> list[int]:
    return [os.getpid(), os.getppid()]

@second.task(within=10.0)
def who_plain() -> list[int]:
    return [os.getpid(), os.getppid()]
"""


class Site:
    """A folder with the module, the server, and this test's view of the queues."""

    def __init__(self, folder, url):
        self.folder = folder
        self.url = url
        (folder / "jobs.py").write_text(JOBS)
        self.first = Queue("first", capacity=50, url=url)
        self.second = Queue("second", capacity=50, url=url)

        @self.first.task(within=10.0)
        async def who() -> list[int]: ...

        @self.second.task(within=10.0)
        def who_plain() -> list[int]: ...

        self.who, self.who_plain = who, who_plain

    def work(self, *options, **settings):
        return started("work", *options, cwd=self.folder, DEADQ_URL=self.url, **settings)

    def slots(self, queue, count):
        wait_until(lambda: queue.stats().slots == count, f"{count} slots")


@pytest.fixture
def site(tmp_path, valkey_server):
    with valkey_server.client() as client:
        client.flushall()
    site = Site(tmp_path, valkey_server.url)
    yield site
    site.first.close()
    site.second.close()


def stopped(worker):
    worker.terminate()
    _, said = worker.communicate(timeout=20)
    assert worker.returncode == 0, said
    return said


@pytest.fixture
def ending():
    """Workers that a failing test leaves behind are killed with their children."""
    workers = []
    yield workers.append
    for worker in workers:
        if worker.poll() is None:
            os.killpg(worker.pid, signal.SIGKILL)
            worker.communicate(timeout=10)


def test_handlers_run_in_a_child_and_not_in_the_supervisor(site, ending):
    worker = site.work("jobs:first", "jobs:second", "--concurrency=2")
    ending(worker)
    for task in (site.who, site.who_plain):
        child, parent = task.call()
        assert parent == worker.pid != child
    said = stopped(worker)
    for names in ("first (who)", "second (who_plain)"):
        assert re.search(rf"working on queue {re.escape(names)} on unix:\S+, 1 at a time; ", said)
    assert site.first.stats().workers == site.second.stats().workers == 0


FAILING = """
from deadq import Queue

orders, mails = Queue("first", capacity=50), Queue("second", capacity=50)

@orders.task(name="who", within=10.0, backoff=lambda n: 0.0)
async def charge() -> None:
    raise LookupError("no such order")

@mails.task(name="who_plain", within=10.0, backoff=lambda n: 0.0)
def send() -> None:
    raise LookupError("no such mail")
"""


@pytest.mark.parametrize("error", ["LookupError", "ConnectionError"])  # the latter is retried
def test_why_a_job_failed_stands_in_the_log_without_being_asked_for(site, ending, error):
    (site.folder / "failing.py").write_text(FAILING.replace("LookupError", error))
    worker = site.work("failing:orders", "failing:mails", "--concurrency=2")
    ending(worker)
    for task in (site.who, site.who_plain):
        with pytest.raises(JobFailed):
            task.options(retries=1).call()
    said = stopped(worker)
    for what, where in (("order", "charge"), ("mail", "send")):
        assert said.count(f"{error}: no such {what}\n") == 1  # of the last run
        assert f"in {where}\n" in said


def test_slots_are_divided_by_weight(site, ending):
    worker = site.work("jobs:first=3", "jobs:second=1", "--concurrency=4")
    ending(worker)
    site.slots(site.first, 3)
    site.slots(site.second, 1)
    stopped(worker)


@pytest.mark.parametrize("weight", ["0", "x", "1001", "-1", ""])
def test_an_odd_weight_is_one_line_and_exit_2(weight, site, ending):
    worker = site.work(f"jobs:first={weight}")
    ending(worker)
    _, said = worker.communicate(timeout=20)
    assert worker.returncode == 2
    assert said.count("\n") == 1
    assert "must be a whole number from 1 to 1000" in said


def test_children_share_the_slots_of_an_event_loop_worker(site, ending):
    worker = site.work("jobs:first", "--concurrency=3", "--children=2")
    ending(worker)
    site.slots(site.first, 3)
    assert site.first.stats().workers == 2
    assert "3 at a time in 2 processes; Ctrl-C stops" in stopped(worker)


def test_plain_handlers_share_a_loop_where_that_is_asked_for(site, ending):
    worker = site.work("jobs:second", "--concurrency=3", "--runner=async")
    ending(worker)
    site.slots(site.second, 3)
    assert site.second.stats().workers == 1
    stopped(worker)


def test_one_queue_that_cannot_be_loaded_ends_the_worker_and_the_others_in_order(site, ending):
    worker = site.work("jobs:first", "jobs:third", "--concurrency=2")
    ending(worker)
    _, said = worker.communicate(timeout=20)
    assert worker.returncode == 2
    assert "deadq: no queue `third` in module jobs; it has: jobs:first, jobs:second" in said
    assert site.first.stats().workers == 0


def test_a_child_that_cannot_be_replaced_yet_is_replaced_once_the_module_is_mended(site, ending):
    worker = site.work("jobs:first", "--concurrency=1")
    ending(worker)
    child, _ = site.who.call()
    (site.folder / "broken").touch()
    os.kill(child, signal.SIGKILL)
    line = ""
    while "half written" not in line:
        line = worker.stderr.readline()
        assert line, "the worker has ended"
    (site.folder / "broken").unlink()
    again, parent = site.who.call()
    assert again != child
    assert parent == worker.pid
    stopped(worker)


def test_a_lifespan_that_fails_is_said_and_tried_again(site, ending):
    missing = site.folder / "no pool"
    missing.touch()
    (site.folder / "pools.py").write_text(
        "from jobs import first, here\n\n@first.lifespan\ndef pool():\n"
        "    if (here / 'no pool').exists():\n        raise LookupError('no pool')\n    yield\n"
    )
    worker = site.work("pools:first", "--concurrency=1")
    ending(worker)
    line = ""
    while "LookupError: no pool" not in line:
        line = worker.stderr.readline()
        assert line, "the worker has ended without a word"
    missing.unlink()
    assert site.who.call()[1] == worker.pid
    stopped(worker)


def test_a_program_of_ones_own_is_a_supervisor_too(site, ending):
    (site.folder / "main.py").write_text(
        "from deadq import Worker\nfrom jobs import first\n\n"
        "Worker(first, concurrency=2, grace=1.0).run()\nprint('stopped', flush=True)\n"
    )
    worker = subprocess.Popen(
        [sys.executable, "main.py"],
        cwd=site.folder,
        env=environment(DEADQ_URL=site.url),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    ending(worker)
    child, parent = site.who.call()
    assert parent == worker.pid != child
    worker.send_signal(signal.SIGINT)
    out, said = worker.communicate(timeout=20)
    assert (worker.returncode, out) == (0, "stopped\n"), said


def test_a_worker_is_not_run_in_a_thread(site):
    worker = Worker(site.second)
    with ThreadPoolExecutor(1) as thread, pytest.raises(DeadqError, match="use arun"):
        thread.submit(worker.run).result(10)


def test_a_connection_that_is_opened_anew_between_two_looks_is_listened_to(valkey_server):
    """It has the number of the one before."""
    with valkey_server.client() as client, valkey_server.client() as listening:
        client.ping()
        mailbox = Mailbox(listening, "first", "post")
        postman = Postman(mailbox, list, sweep=lambda: None, interval=1.0)
        supervisor = Supervisor([])
        supervisor._crews = [SimpleNamespace(charges=[], postman=postman, close=postman.close)]
        try:
            postman.ask()
            supervisor._watch()
            before = postman.fileno()
            client.client_kill_filter(_type="normal", skipme=True)
            assert supervisor._selector.select(10.0)
            postman.hear()
            assert not postman.waiting
            postman.ask()
            assert postman.fileno() == before
            supervisor._watch()
            client.rpush(keys.key("first", "ctl", "post"), "parked child")
            ((key, _),) = supervisor._selector.select(10.0)
            assert key.data == postman.hear
        finally:
            supervisor._close()


def address_in(worker):
    line = worker.stderr.readline()
    assert line.startswith("deadq: health at http://127.0.0.1:"), line
    return line.split()[-1]


def test_the_health_endpoint_follows_the_worker(site, ending):
    worker = site.work("jobs:first", "--concurrency=3", "--health=0")
    ending(worker)
    url = address_in(worker)
    site.slots(site.first, 3)
    wait_until(lambda: httpx.get(url).status_code == 200, "the worker to be ready")
    shown = httpx.get(f"{url}/ready").json()
    assert (shown["pid"], shown["children"], shown["slots"]) == (worker.pid, 1, 3)
    assert shown["queues"] == ["first"]
    (site.folder / "broken").touch()
    child, _ = site.who.call()
    os.kill(child, signal.SIGKILL)
    wait_until(lambda: httpx.get(f"{url}/ready").status_code == 503, "it not to be ready")
    assert httpx.get(f"{url}/live").status_code == 200
    (site.folder / "broken").unlink()
    wait_until(lambda: httpx.get(url).status_code == 200, "it to be ready again", 40.0)
    stopped(worker)
    with pytest.raises(httpx.ConnectError):
        httpx.get(url)


def test_the_health_file_is_there_while_the_worker_is(site, ending):
    file = site.folder / "health"
    worker = site.work("jobs:first", "--concurrency=1", f"--health-file={file}")
    ending(worker)
    wait_until(lambda: file.exists() and json.loads(file.read_text())["ready"], "a ready worker")
    assert json.loads(file.read_text())["pid"] == worker.pid
    stopped(worker)
    assert not file.exists()


def test_systemd_hears_of_it(site, ending):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        path = site.folder / "notify"
        systemd.bind(str(path))
        systemd.settimeout(20)
        settings = {"NOTIFY_SOCKET": str(path), "WATCHDOG_USEC": "400000"}
        worker = site.work("jobs:first", "--concurrency=1", **settings)
        ending(worker)
        said = [systemd.recv(1000).decode()]
        while not said[-1].startswith("READY=1"):
            said.append(systemd.recv(1000).decode())
        while said[-1] != "WATCHDOG=1":
            said.append(systemd.recv(1000).decode())
        worker.terminate()
        while said[-1] != "STOPPING=1":
            said.append(systemd.recv(1000).decode())
    worker.communicate(timeout=20)
    assert worker.returncode == 0


@pytest.mark.parametrize("odd", ["x", "70000", "1:2:x", "host:"])
def test_an_odd_health_address_is_one_line_and_exit_2(odd, site, ending):
    worker = site.work("jobs:first", f"--health={odd}")
    ending(worker)
    _, said = worker.communicate(timeout=20)
    assert (worker.returncode, said.count("\n")) == (2, 1)
    assert "is no address to listen at; write PORT, HOST:PORT or [IPV6]:PORT" in said
