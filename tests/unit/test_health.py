"""What probes see of a worker: the file, and the endpoint over real sockets."""

import contextlib
import json
import os
import selectors
import signal
import socket
import stat
import subprocess
import sys
import threading
import time

import httpx
import pytest

from deadq.errors import DeadqError
from deadq.runtime.vitals.health import Health, HealthFile, Status
from deadq.runtime.vitals.health_server import HealthServer
from deadq.runtime.vitals.probes import ask_file
from deadq.testing.moving_clock import clock
from tests.servers import wait_until

WELL = Status(
    ready=True, children=2, slots=64, queues=("checkout",), store="ok", last_renewal_s=0.4
)
AWAY = Status(ready=False, children=2, slots=64, queues=("checkout",), store="away")
UNREADY = Status(ready=False, children=0, slots=64, queues=("checkout",), store="ok", detail="hm")
REQUEST = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"


class Loop:
    """A supervisor's loop, which drives the endpoint as its docstring says."""

    def __init__(self, server):
        self.server = server
        self.watched = {}
        """The connections in the loop's hands, and their clients' addresses."""
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        with selectors.DefaultSelector() as selector:
            selector.register(self.server, selectors.EVENT_READ)
            while not self._ending.is_set():
                for key, _ in selector.select(0.005):
                    if key.fileobj is self.server:
                        if connection := self.server.accept():
                            selector.register(connection, selectors.EVENT_READ)
                            self.watched[connection] = connection._client.getpeername()
                    elif not key.fileobj.on_readable():
                        selector.unregister(key.fileobj)
                        del self.watched[key.fileobj]
                for late in self.server.expire():
                    selector.unregister(late)
                    del self.watched[late]

    def end(self):
        self._ending.set()
        self._thread.join()
        self.server.close()


@contextlib.contextmanager
def served(read):
    loop = Loop(HealthServer("127.0.0.1", 0, read))
    try:
        yield loop
    finally:
        loop.end()


@pytest.fixture
def health():
    return Health(max_age=10.0)


@pytest.fixture
def loop(health):
    with served(health.read) as loop:
        yield loop


def get(loop, path, method="GET", **kwargs):
    host, port = loop.server.address
    return httpx.request(method, f"http://{host}:{port}{path}", timeout=10, trust_env=False)


def codes(loop):
    return [get(loop, path).status_code for path in ("/health", "/health/live", "/health/ready")]


def called(loop):
    client = socket.create_connection(loop.server.address, timeout=10)
    wait_until(
        lambda: client.getsockname() in list(loop.watched.values()), "the connection to be accepted"
    )
    return client


def all_of(client):
    """What comes until the end."""
    said = b""
    with contextlib.suppress(ConnectionResetError):
        while more := client.recv(65_536):
            said += more
    return said


# The endpoint.


def test_alive_and_ready_are_two_questions(health, loop):
    assert codes(loop) == [503, 200, 503]  # starting
    health.beat(WELL)
    assert codes(loop) == [200, 200, 200]
    health.beat(AWAY)
    assert codes(loop) == [503, 200, 503]
    health.beat(UNREADY)
    assert codes(loop) == [503, 200, 503]


def test_without_beats_it_is_neither(health):
    with clock() as now, served(health.read) as loop:
        health.beat(WELL)
        now.advance(9.999)
        assert codes(loop) == [200, 200, 200]
        now.advance(0.001)
        assert codes(loop) == [503, 503, 503]
        health.beat(WELL)
        assert codes(loop) == [200, 200, 200]


def test_a_start_that_hangs_is_not_alive():
    with clock() as now:
        health = Health(max_age=10.0)
        with served(health.read) as loop:
            now.advance(10.001)
            assert codes(loop) == [503, 503, 503]


def test_the_answer_says_all_there_is(health, loop):
    health.beat(WELL)
    answer = get(loop, "/health?verbose=1")
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["cache-control"] == "no-store"
    said = answer.json()
    assert 0 <= said.pop("age_s") < 10
    assert said == {
        "healthy": True,
        "pid": os.getpid(),
        "live": True,
        "ready": True,
        "children": 2,
        "slots": 64,
        "queues": ["checkout"],
        "store": "ok",
        "last_renewal_s": 0.4,
        "detail": "",
    }
    health.beat(UNREADY)
    said = get(loop, "/health/ready").json()
    assert (said["healthy"], said["live"], said["detail"]) == (False, True, "hm")
    assert get(loop, "/health/live").json()["healthy"] is True


@pytest.mark.parametrize(
    "path", ["/", "/health/", "/healthy", "/health/live/x", "/metrics", "/%00"]
)
def test_anything_else_is_not_there(path, loop):
    answer = get(loop, path)
    assert answer.status_code == 404
    assert "there are /health, /health/live and /health/ready" in answer.json()["error"]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "HEAD", "BREW"])
def test_other_methods_are_refused(method, loop):
    answer = get(loop, "/health", method)
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET")
    assert bool(answer.content) == (method != "HEAD")
    assert get(loop, "/nothing", method).status_code == 404


@pytest.mark.parametrize(
    ("request_line", "code"),
    [
        (b"GET /health HTTP/1.1", 503),
        (b"GET /health HTTP/1.0", 503),
        (b"GET /health", 400),
        (b"GET", 400),
        (b"", 400),
        (b"GET  HTTP/1.1", 400),
        (b"GET /health /x HTTP/1.1", 400),
        (b"PRI * HTTP/2.0", 400),
        (b"get /health HTTP/1.1", 405),
        (b"\x16\x03\x01\xff\x00\x80", 400),
    ],
)
@pytest.mark.parametrize("end", [b"\r\n", b"\n"])
def test_a_request_line_is_taken_or_refused(request_line, code, end, loop):
    with called(loop) as client:
        client.sendall(request_line + end + b"Host: x" + end * 2)
        assert all_of(client).startswith(b"HTTP/1.1 %d " % code)


def test_a_request_may_come_byte_by_byte(loop):
    with called(loop) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for at in range(len(REQUEST)):
            client.sendall(REQUEST[at : at + 1])
        assert all_of(client).startswith(b"HTTP/1.1 503 ")


def test_a_request_of_four_kib_is_answered_and_a_larger_one_refused(loop):
    for size, code in [(4096, 503), (4097, 431), (60_000, 431)]:
        filling = b"x" * (size - len(REQUEST) - len("\r\nX: "))
        with called(loop) as client:
            client.sendall(REQUEST[:-4] + b"\r\nX: " + filling + b"\r\n\r\n")
            said = all_of(client)
        assert said.startswith(b"HTTP/1.1 %d " % code), size
    assert b"a request may have 4096 bytes" in said


def test_a_client_that_never_stops_talking_is_cut_off(loop):
    with called(loop) as client, pytest.raises((ConnectionResetError, BrokenPipeError)):
        client.sendall(b"x" * 40_000_000)


def test_a_large_answer_arrives_whole():
    state = {"live": True, "ready": True, "store": "ok", "queues": ["q" * 200] * 150}
    with served(lambda: state) as loop:
        assert get(loop, "/health").json() == {"healthy": True, **state}


@pytest.mark.parametrize("said", [b"", b"GET /health HTTP/1.1\r\nHo"])
def test_slow_clients_are_closed_after_two_seconds(said, health):
    with clock() as now, served(health.read) as loop:
        with called(loop) as client:
            client.sendall(said)
            now.advance(1.999)
            assert loop.server.until == pytest.approx(now.monotonic() + 0.001)
            assert get(loop, "/health/live").status_code == 200  # others are served meanwhile
            assert client.getsockname() in loop.watched.values()
            now.advance(0.001)
            assert all_of(client) == b""
        wait_until(lambda: not loop.watched, "the loop to drop it")
        assert loop.server.until == float("inf")


def test_a_client_that_does_not_hang_up_is_closed_too(health):
    with clock() as now, served(health.read) as loop:
        with called(loop) as client:
            client.sendall(REQUEST)
            assert all_of(client).endswith(b"}")
            assert len(loop.watched) == 1
            now.advance(2.0)
            wait_until(lambda: not loop.watched, "the loop to drop it")


def test_a_client_that_hangs_up_is_forgotten(loop):
    called(loop).close()
    with called(loop) as reset:
        reset.setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00" + b"\x00\x00\x00\x00"
        )
    wait_until(lambda: not loop.watched, "the loop to drop them")
    assert get(loop, "/health/live").status_code == 200


def test_no_more_than_32_at_once(health):
    with clock() as now, served(health.read) as loop:
        silent = [called(loop) for _ in range(32)]
        with socket.create_connection(loop.server.address, timeout=10) as one_more:
            assert all_of(one_more) == b""
        assert len(loop.watched) == 32
        now.advance(2.0)
        for client in silent:
            assert all_of(client) == b""
            client.close()
        assert get(loop, "/health/live").status_code == 200


def test_the_end_of_the_server_ends_its_connections(health):
    with served(health.read) as loop:
        with called(loop) as client:
            loop.end()
            assert all_of(client) == b""
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(loop.server.address, timeout=10)


def test_a_forked_child_holds_nothing_open_and_ends_nothing(health):
    """Two children, one that forgets the endpoint and one that does not yet."""
    server = HealthServer("127.0.0.1", 0, health.read)
    children = []
    try:
        with socket.create_connection(server.address, timeout=10) as client:
            connection = wait_until(server.accept, "the connection")
            children.append(forked(server, connection, forgets=True))
            children.append(forked(server, connection, forgets=False))
            client.sendall(REQUEST)
            wait_until(lambda: connection.on_readable() and connection._answered, "the answer")
            server.close()
            assert all_of(client).startswith(b"HTTP/1.1 503 ")
    finally:
        for pid in children:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def forked(server, connection, *, forgets):
    """A child that has what the fork gave it, and then waits."""
    readable, writable = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)  # should the test itself be killed
        if forgets:
            server.forget()
        os.write(writable, b"1" if connection.closed == forgets else b"0")
        while True:
            signal.pause()
    assert os.read(readable, 1) == b"1"
    os.close(readable)
    os.close(writable)
    return pid


def test_port_0_gives_a_free_one_and_ipv6_works(health):
    first = HealthServer("127.0.0.1", 0, health.read)
    second = HealthServer("127.0.0.1", 0, health.read)
    assert first.address[1] != second.address[1] > 0
    first.close()
    second.close()
    if socket.has_ipv6:
        with contextlib.closing(HealthServer("::1", 0, health.read)) as server:
            assert server.address[0] == "::1"


def test_an_address_that_cannot_be_had_is_named(health):
    with contextlib.closing(HealthServer("127.0.0.1", 0, health.read)) as server:
        for host, port in [
            server.address,
            ("192.0.2.1", 0),
            ("no.such.host.invalid", 0),
            ("x" * 100, 0),
            ("a..b", 0),
        ]:
            with pytest.raises(DeadqError) as refused:
                HealthServer(host, port, health.read)
            said = str(refused.value)
            assert said.startswith(f"the health endpoint cannot listen at '{host[:50]}")
            assert f", port {port} (" in said
            assert "name an address of this machine and a port that is free" in said


@pytest.mark.parametrize("port", [-1, 65_536, 1.5, "80", None])
def test_an_odd_port_is_refused(port, health):
    with pytest.raises((ValueError, TypeError), match="port must "):
        HealthServer("127.0.0.1", port, health.read)


# The file.


@pytest.fixture
def path(tmp_path):
    return tmp_path / "health.json"


def probe(path, max_age=30.0):
    return ask_file(path, max_age)[:2]


def test_each_beat_is_written(path):
    file = HealthFile(path)
    assert probe(path) == (False, f"the worker (pid {os.getpid()}) is not ready: starting")
    health = Health(file=file)
    health.beat(WELL)
    said = json.loads(path.read_text())
    assert abs(said.pop("time") - time.time()) < 60
    assert said == {
        "pid": os.getpid(),
        "ready": True,
        "children": 2,
        "slots": 64,
        "queues": ["checkout"],
        "store": "ok",
        "last_renewal_s": 0.4,
        "detail": "",
    }
    well, line = probe(path)
    assert well
    assert line.startswith(f"the worker (pid {os.getpid()}) is ready; its last beat is ")
    health.beat(UNREADY)
    assert probe(path) == (False, f"the worker (pid {os.getpid()}) is not ready: hm")
    assert list(path.parent.iterdir()) == [path]
    file.remove()
    assert not path.exists()
    assert probe(path) == (False, f"there is no {path}: no worker runs that writes it")
    file.remove()


def test_the_file_s_time_is_the_beat(path):
    health = Health(file=HealthFile(path))
    health.beat(WELL)
    for age in (31, -31):
        os.utime(path, (time.time() - age,) * 2)
        well, line = probe(path)
        assert not well
        assert line.startswith(f"the last beat of pid {os.getpid()} is {age}")
        assert line.endswith(" s old; 30 s are allowed")
    os.utime(path, (time.time() - 20,) * 2)
    assert probe(path)[0]
    assert not probe(path, max_age=10.0)[0]


def test_the_file_grows_old_while_the_worker_is_not_ready(path):
    """For probes that look at nothing but its time."""
    health = Health(file=HealthFile(path))
    assert path.stat().st_mtime == 0  # it has never been
    health.beat(WELL)
    ready_at = path.stat().st_mtime
    assert abs(ready_at - time.time()) < 60
    health.beat(AWAY)
    assert json.loads(path.read_text())["store"] == "away"
    assert json.loads(path.read_text())["time"] > ready_at
    assert path.stat().st_mtime == ready_at
    health.beat(WELL)
    assert path.stat().st_mtime > ready_at


def test_a_reader_never_sees_a_part(path):
    file = HealthFile(path)
    ended = threading.Event()

    def write():
        for number in range(3000):
            file.write({"ready": True, "detail": "x" * (number % 100 * 50)})
        ended.set()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        while not ended.is_set():
            assert json.loads(path.read_bytes())["pid"] == os.getpid()
    finally:
        writer.join()


def test_others_may_read_it_as_the_umask_says(path):
    before = os.umask(0o022)
    try:
        HealthFile(path).write({})
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_a_worker_that_was_killed_is_not_well(path):
    program = (
        "import sys, pathlib; from deadq.runtime.vitals.health import *\n"
        "Health(file=HealthFile(pathlib.Path(sys.argv[1])))"
        ".beat(Status(True, 1, 1, ('q',), 'ok')); print('written', flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as worker:
        assert worker.stdout.readline() == "written\n"
        assert probe(path)[0]
        worker.kill()
    why = f"the worker (pid {worker.pid}) is gone without having removed {path}"
    assert probe(path) == (False, why)


def test_only_the_file_s_own_process_removes_it(path):
    file = HealthFile(path)
    path.write_text(json.dumps({"pid": os.getppid(), "ready": True}))  # a successor's
    file.remove()
    assert path.exists()
    path.write_text("nothing of ours")
    file.remove()
    assert path.exists()


def test_what_a_predecessor_left_is_replaced_at_once(path):
    path.write_text(json.dumps({"pid": os.getpid(), "ready": True}))
    assert probe(path)[0]
    HealthFile(path)
    assert not probe(path)[0]


def test_the_file_stays_the_same_when_the_folder_changes(path, monkeypatch):
    monkeypatch.chdir(path.parent)
    file = HealthFile(path.relative_to(path.parent))
    monkeypatch.chdir("/")
    file.write({"ready": True})
    assert probe(path)[0]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "holds no JSON: it is no health file"),
        (b"{", "holds no JSON: it is no health file"),
        (b"\xff\xff", "holds no JSON: it is no health file"),
        (b"[" * 100_000, "holds no JSON: it is no health file"),
        (b"[1]", "is no health file"),
        (b"{}", "names no process: it is no health file"),
        (b'{"pid": "1"}', "names no process: it is no health file"),
        (b'{"pid": true}', "names no process: it is no health file"),
        (b'{"pid": 0, "ready": true}', "names no process: it is no health file"),
        (b'{"pid": -1, "ready": true}', "names no process: it is no health file"),
        (b'{"pid": 1e400, "ready": true}', "names no process: it is no health file"),
        (b'{"pid": 99999999999999999999}', "names no process: it is no health file"),
        (b'{"pid": 2147483646, "ready": true}', "is gone without having removed"),
        (b'{"pid": 1, "ready": 1}', "is not ready: no detail"),
        (b'{"pid": 1, "ready": "true"}', "is not ready: no detail"),
    ],
)
def test_a_file_that_is_none_of_ours_is_not_well(content, why, path):
    path.write_bytes(content)
    well, line = probe(path)
    assert not well
    assert why in line


def test_what_cannot_be_read_is_not_well(path):
    path.mkdir()
    assert probe(path) == (False, f"{path} cannot be read: Is a directory")


@pytest.mark.parametrize("place", ["nowhere/health.json", "file/health.json", "folder"])
def test_a_file_that_cannot_be_written_is_said_at_the_start(place, tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    with pytest.raises(DeadqError) as refused:
        HealthFile(tmp_path / place)
    said = str(refused.value)
    assert said.startswith(f"the health file {tmp_path / place} cannot be written (")
    assert said.endswith("); name a file in a folder that exists and that this user may write to")
    assert sorted(found.name for found in tmp_path.iterdir()) == ["file", "folder"]


def test_later_it_is_one_warning_and_the_worker_goes_on(path, caplog):
    health = Health(file=HealthFile(path))
    path.unlink()
    path.mkdir()
    health.beat(WELL)
    health.beat(AWAY)
    (record,) = caplog.records
    assert record.getMessage().startswith(f"the health file {path} cannot be written: ")
    assert health.read()["store"] == "away"
    path.rmdir()
    health.beat(WELL)
    assert probe(path)[0]
    path.unlink()
    path.mkdir()
    health.beat(WELL)
    assert len(caplog.records) == 2


@pytest.mark.parametrize("max_age", [0, -1, float("nan"), None])
def test_an_odd_age_is_refused(max_age):
    with pytest.raises(ValueError, match="max_age must be "):
        Health(max_age=max_age)
