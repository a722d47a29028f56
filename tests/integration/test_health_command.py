"""``deadq health`` as a probe runs it, against real workers."""

import json
import os
import signal
import socket

import pytest

from tests.commands import deadq_command, started
from tests.servers import Server, binaries, wait_until

JOBS = """
from deadq import Queue

orders = Queue("orders", capacity=5, lease=1.5)

@orders.task(within=5.0)
async def order() -> str:
    return "done"
"""


class Probed:
    """A worker with a health file and an endpoint, on a server of its own."""

    def __init__(self, folder, server):
        (folder / "jobs.py").write_text(JOBS)
        self.folder, self.server = folder, server
        self.file = folder / "health"
        self.worker = started(
            *("work", "jobs:orders", "--health=0", f"--health-file={self.file}"),
            cwd=folder,
            DEADQ_URL=server.url,
        )
        self.port = self.worker.stderr.readline().rpartition(":")[2].partition("/")[0]

    def ask(self, where, *options):
        return deadq_command("health", str(where), *options, cwd=self.folder)

    def answers(self):
        """By the file and by the endpoint."""
        return [self.ask(self.file), self.ask(self.port)]

    def codes(self):
        return [done.returncode for done in self.answers()]

    def close(self):
        if self.worker.poll() is None:
            os.killpg(self.worker.pid, signal.SIGKILL)
        self.worker.communicate(timeout=10)


@pytest.fixture
def server():
    with Server(binaries()["valkey9"]) as server:
        yield server


@pytest.fixture
def probed(tmp_path, server):
    made = Probed(tmp_path, server)
    yield made
    made.close()


@pytest.mark.slow
def test_a_worker_is_ready_while_its_children_work_and_its_server_answers(probed, server):
    wait_until(lambda: probed.codes() == [0, 0], "it to be ready", 20.0)
    for done in probed.answers():
        assert done.stdout.startswith(f"deadq: the worker (pid {probed.worker.pid}) is ready; its ")
        assert done.stderr == ""
    server.freeze()
    wait_until(lambda: probed.codes() == [1, 1], "the server's absence to be noticed", 20.0)
    away = f"the worker (pid {probed.worker.pid}) is not ready: the server does not answer"
    assert [done.stdout for done in probed.answers()] == [f"deadq: {away}\n"] * 2
    server.thaw()
    wait_until(lambda: probed.codes() == [0, 0], "it to be ready again", 20.0)
    probed.worker.terminate()
    probed.worker.wait(20)
    gone, silent = probed.answers()
    assert (gone.returncode, silent.returncode) == (1, 1)
    assert gone.stdout == f"deadq: there is no {probed.file}: no worker runs that writes it\n"
    assert silent.stdout.startswith(f"deadq: nobody answers at '127.0.0.1', port {probed.port}: ")


def test_programs_get_json(probed):
    wait_until(lambda: probed.ask(probed.port).returncode == 0, "it to be ready", 20.0)
    # beats come when something changes, and every five seconds: a renewal is no change
    wait_until(lambda: _asked(probed, probed.port)["worker"]["last_renewal_s"], "a renewal", 20.0)
    for where in (probed.port, probed.file):
        said = _asked(probed, where)
        assert said["ready"] is True
        assert said["line"].startswith(f"the worker (pid {probed.worker.pid}) is ready; ")
        assert 0 < said["worker"]["last_renewal_s"] < 6.0
        assert said["worker"]["queues"] == ["orders"]
    missing = probed.ask(probed.folder / "nowhere", "--json")
    assert missing.returncode == 1
    assert json.loads(missing.stdout)["worker"] is None


def _asked(probed, where):
    return json.loads(probed.ask(where, "--json").stdout)


def test_what_a_file_says_counts_for_its_age(probed):
    wait_until(lambda: probed.ask(probed.file).returncode == 0, "it to be ready", 20.0)
    os.killpg(probed.worker.pid, signal.SIGSTOP)
    os.utime(probed.file, (probed.file.stat().st_mtime - 20.0,) * 2)
    assert probed.ask(probed.file).returncode == 0
    late = probed.ask(probed.file, "--max-age", "10")
    assert late.returncode == 1
    assert late.stdout.endswith(" s old; 10 s are allowed\n")


@pytest.mark.parametrize("says", [b"SSH-2.0-x\r\n", b"HTTP/1.1 200 OK\r\n\r\n{}"])
def test_whoever_else_answers_is_not_ready(says, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with started("health", str(port), cwd=tmp_path) as probe:
            client, _ = listener.accept()
            client.sendall(says)
            client.shutdown(socket.SHUT_WR)
            said, _ = probe.communicate(timeout=20)
            client.close()
    assert probe.returncode == 1
    assert said == f"deadq: what answers at '127.0.0.1', port {port} is no worker of deadq\n"
