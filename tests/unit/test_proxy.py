"""slow_proxy does to real sockets what it says, and leaves nothing behind."""

import contextlib
import os
import queue
import socket
import socketserver
import threading
import time
from pathlib import Path

import pytest

from deadq.testing.proxy import slow_proxy
from deadq.testing.proxy_target import Target

SOON = 5.0


def open_files():
    return len(list(Path("/dev/fd").iterdir()))


class Upper(socketserver.StreamRequestHandler):
    """Answers each line in capitals, and reports what it heard to the test."""

    def handle(self):
        self.server.heard.put("<open>")
        with contextlib.suppress(ConnectionError):
            for line in self.rfile:
                self.server.heard.put(line.decode().strip())
                self.wfile.write(line.upper())
        self.server.heard.put("<closed>")


class TcpServer(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 128


class UnixServer(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True


@contextlib.contextmanager
def running(server):
    server.heard = queue.Queue()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def server():
    with running(TcpServer(("127.0.0.1", 0), Upper)) as server:
        yield server


class Client:
    """One connection, spoken to in lines."""

    def __init__(self, proxy, timeout=SOON):
        family = socket.AF_INET if proxy.port else socket.AF_UNIX
        self.socket = socket.socket(family, socket.SOCK_STREAM)
        self.socket.settimeout(timeout)
        self.socket.connect((proxy.host, proxy.port) if proxy.port else proxy.address)
        self.lines = self.socket.makefile("rb")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.lines.close()
        self.socket.close()

    def send(self, line):
        self.socket.sendall(line.encode() + b"\n")

    def hear(self):
        return self.lines.readline().decode().strip()

    def ask(self, line):
        self.send(line)
        return self.hear()


def test_bytes_pass_both_ways_and_are_counted(server):
    with slow_proxy(server.server_address) as proxy, Client(proxy) as client:
        assert client.ask("hello") == "HELLO"
        proxy.wait_until(lambda: proxy.bytes_to_client == 6)
        assert proxy.bytes_to_server == 6
        assert (proxy.accepted, proxy.connections) == (1, 1)


def test_large_streams_arrive_whole_and_in_order_through_delay_and_jitter(server):
    lines = [f"{n:07d}" + "x" * 400 for n in range(5000)]
    with slow_proxy(server.server_address, delay=0.01, jitter=0.01) as proxy:
        with Client(proxy) as client:
            sender = threading.Thread(target=lambda: [client.send(line) for line in lines])
            sender.start()
            assert [client.hear() for _ in lines] == [line.upper() for line in lines]
            sender.join()


def test_delay_is_added_to_the_round_trip_half_of_it_each_way(server):
    with slow_proxy(server.server_address, delay=0.3) as proxy, Client(proxy) as client:
        began = time.monotonic()
        client.send("hello")
        assert server.heard.get(timeout=SOON) == "<open>"
        assert server.heard.get(timeout=SOON) == "hello"
        reached = time.monotonic() - began
        assert client.hear() == "HELLO"
        answered = time.monotonic() - began
    assert 0.15 <= reached < 0.3 <= answered < 0.45


def test_delay_holds_many_chunks_at_once_and_does_not_add_up(server):
    with slow_proxy(server.server_address, delay=0.2) as proxy, Client(proxy) as client:
        began = time.monotonic()
        for n in range(50):
            client.send(str(n))
        assert [client.hear() for _ in range(50)] == [str(n) for n in range(50)]
        assert 0.2 <= time.monotonic() - began < 0.8


def test_a_changed_delay_acts_at_once_also_on_what_is_under_way(server):
    with slow_proxy(server.server_address, delay=3600) as proxy, Client(proxy) as client:
        client.send("hello")
        proxy.wait_until(lambda: proxy.connections == 1)
        proxy.delay = 0
        assert client.hear() == "HELLO"
        proxy.delay = 0.2
        assert proxy.delay == 0.2
        began = time.monotonic()
        assert client.ask("again") == "AGAIN"
        assert time.monotonic() - began >= 0.2


def test_jitter_adds_between_nothing_and_itself(server):
    with slow_proxy(server.server_address, jitter=0.08) as proxy, Client(proxy) as client:
        times = []
        for _ in range(20):
            began = time.monotonic()
            client.ask("hello")
            times.append(time.monotonic() - began)
        assert max(times) - min(times) > 0.01
        assert sum(times) / 20 == pytest.approx(0.04, abs=0.03)
        proxy.jitter = 1e6
        assert proxy.jitter == 1e6
        client.send("hello")
        client.socket.settimeout(0.05)
        with pytest.raises(TimeoutError):
            client.hear()


def test_rate_drips_bytes_and_lifting_it_lets_the_rest_go_at_once(server):
    with slow_proxy(server.server_address, rate=20) as proxy, Client(proxy) as client:
        began = time.monotonic()
        client.send("abcde")
        first = client.socket.recv(1)
        # six bytes to the server at 20 a second: five pauses of 50 ms
        assert first == b"A"
        assert 0.25 <= time.monotonic() - began < 1.0
        client.send("x" * 10_000)  # eight minutes at this rate
        proxy.rate = None
        assert proxy.rate is None
        assert client.hear() == "BCDE"
        assert client.hear() == "X" * 10_000


def test_cut_resets_open_connections_and_new_ones_work(server):
    with slow_proxy(server.server_address) as proxy:
        with Client(proxy) as one, Client(proxy) as two:
            assert (one.ask("a"), two.ask("b")) == ("A", "B")
            proxy.cut()
            assert proxy.connections == 0
            for client in (one, two):
                with pytest.raises(ConnectionResetError):
                    client.hear()
        heard = [server.heard.get(timeout=SOON) for _ in range(6)]
        assert heard.count("<closed>") == 2
        with Client(proxy) as three:
            assert three.ask("c") == "C"
        assert proxy.accepted == 3


def test_cut_loses_what_is_under_way(server):
    with slow_proxy(server.server_address, delay=3600) as proxy, Client(proxy) as client:
        client.send("hello")
        assert server.heard.get(timeout=SOON) == "<open>"
        proxy.cut()
        assert server.heard.get(timeout=SOON) == "<closed>"
        assert proxy.bytes_to_server == 0


def test_refuse_turns_new_connects_away_and_keeps_the_port(server):
    with slow_proxy(server.server_address) as proxy, Client(proxy) as client:
        port = proxy.port
        for _ in range(3):
            proxy.refuse()
            proxy.refuse(True)
            with pytest.raises(ConnectionRefusedError):
                Client(proxy)
            assert client.ask("still there") == "STILL THERE"
            proxy.refuse(False)
            proxy.refuse(False)
            with Client(proxy) as other:
                assert other.ask("hello") == "HELLO"
        assert proxy.port == port


def test_a_refused_port_goes_to_nobody_else(server):
    with slow_proxy(server.server_address) as proxy:
        proxy.refuse()
        with socket.socket() as thief, pytest.raises(OSError, match="in use"):
            thief.bind((proxy.host, proxy.port))


def test_swallowed_replies_vanish_after_the_request_was_carried_out(server):
    with slow_proxy(server.server_address) as proxy:
        with Client(proxy) as first, Client(proxy) as second:
            assert first.ask("before") == "BEFORE"
            proxy.swallow_replies(2)
            first.send("lost")
            proxy.wait_until(lambda: proxy.swallowed == 1)
            second.send("lost too")
            proxy.wait_until(lambda: proxy.swallowed == 2)
            assert first.ask("kept") == "KEPT"
            assert second.ask("kept too") == "KEPT TOO"
        heard = [server.heard.get(timeout=SOON) for _ in range(9)]
        assert {"lost", "lost too"} <= set(heard)
        assert proxy.swallowed == 2


def test_a_reply_in_many_pieces_is_swallowed_as_one(server):
    with slow_proxy(server.server_address) as proxy, Client(proxy) as client:
        proxy.swallow_replies(1)
        client.send("x" * 300_000)
        proxy.wait_until(lambda: proxy.bytes_swallowed == 300_001)
        assert client.ask("next") == "NEXT"
        assert proxy.swallowed == 1


def test_only_replies_to_matching_requests_are_swallowed(server):
    with slow_proxy(server.server_address) as proxy, Client(proxy) as client:
        proxy.swallow_replies(1, to=b"EVALSHA")
        assert client.ask("ping") == "PING"
        client.send("EVALSHA 1")
        proxy.wait_until(lambda: proxy.swallowed == 1)
        assert client.ask("EVALSHA 2") == "EVALSHA 2"


def test_a_swallowed_reply_can_end_in_a_reset(server):
    with slow_proxy(server.server_address) as proxy, Client(proxy) as client:
        proxy.swallow_replies(1, cut=True)
        client.send("lost")
        with pytest.raises(ConnectionResetError):
            client.hear()
        assert server.heard.get(timeout=SOON) == "<open>"
        assert server.heard.get(timeout=SOON) == "lost"
        assert server.heard.get(timeout=SOON) == "<closed>"
        with Client(proxy) as again:
            assert again.ask("kept") == "KEPT"


def test_swallowing_can_be_taken_back(server):
    with slow_proxy(server.server_address) as proxy, Client(proxy) as client:
        proxy.swallow_replies(5)
        proxy.swallow_replies(0)
        assert client.ask("hello") == "HELLO"
        assert proxy.swallowed == 0


def test_a_client_that_leaves_closes_the_servers_side(server):
    with slow_proxy(server.server_address) as proxy:
        with Client(proxy) as client:
            client.ask("hello")
        assert [server.heard.get(timeout=SOON) for _ in range(3)] == ["<open>", "hello", "<closed>"]
        proxy.wait_until(lambda: proxy.connections == 0)


def test_a_half_closed_connection_still_brings_the_answer(server):
    with slow_proxy(server.server_address, delay=0.05) as proxy, Client(proxy) as client:
        client.send("last words")
        client.socket.shutdown(socket.SHUT_WR)
        assert client.hear() == "LAST WORDS"
        assert client.socket.recv(1) == b""


def test_a_target_that_is_not_there_is_a_reset_for_the_client():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        with slow_proxy(free.getsockname()) as proxy, Client(proxy) as client:
            with pytest.raises(ConnectionResetError):
                client.hear()
            assert (proxy.accepted, proxy.connections) == (1, 0)


def test_it_reaches_and_offers_unix_sockets(tmp_path):
    path = str(tmp_path / "upper.sock")
    with running(UnixServer(path, Upper)):
        with slow_proxy(path) as proxy, Client(proxy) as client:
            assert client.ask("over tcp") == "OVER TCP"
        with slow_proxy(tmp_path / "upper.sock", listen="unix") as proxy:
            assert (proxy.host, proxy.port) == ("", 0)
            with Client(proxy) as client:
                assert client.ask("over unix") == "OVER UNIX"
                proxy.cut()
                with contextlib.suppress(ConnectionResetError):
                    assert client.hear() == ""
            proxy.refuse()
            with pytest.raises(ConnectionRefusedError):
                Client(proxy)
            proxy.refuse(False)
            with Client(proxy) as client:
                assert client.ask("again") == "AGAIN"
        assert not Path(proxy.address).parent.exists()


def test_leaving_the_block_closes_everything(server):
    before = open_files()
    with slow_proxy(server.server_address) as proxy, Client(proxy) as client:
        client.ask("hello")
        proxy.close()
        with pytest.raises(ConnectionResetError):
            client.hear()
        with pytest.raises(ConnectionRefusedError):
            Client(proxy)
        with pytest.raises(RuntimeError, match="closed: use it inside its with block"):
            proxy.cut()
        with pytest.raises(RuntimeError, match="closed"):
            proxy.delay = 1
    for expected in ("<open>", "hello", "<closed>"):
        assert server.heard.get(timeout=SOON) == expected
    assert "slow_proxy" not in {thread.name for thread in threading.enumerate()}
    assert open_files() <= before


def test_wait_until_gives_up():
    with slow_proxy(("127.0.0.1", 9)) as proxy:
        said = r"no such thing within 0\.01 s"
        with pytest.raises(TimeoutError, match=said):
            proxy.wait_until(lambda: proxy.accepted > 0, timeout=0.01)


def test_a_forked_child_keeps_no_connection_and_no_port_open(server):
    with slow_proxy(server.server_address) as proxy, Client(proxy) as client:
        assert client.ask("hello") == "HELLO"
        reader, writer = os.pipe()
        told, telling = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(telling, b".")  # what is done in a new process has been done
            os.close(writer)
            os.read(reader, 1)  # until the parent has looked
            os._exit(0)
        try:
            os.read(told, 1)
            for end in (reader, told, telling):
                os.close(end)
            proxy.cut()
            with pytest.raises(ConnectionResetError):
                client.hear()
            proxy.refuse()
            with pytest.raises(ConnectionRefusedError):
                Client(proxy)
        finally:
            os.close(writer)
            os.waitpid(child, 0)


def test_a_hundred_connections_at_once(server):
    with slow_proxy(server.server_address, delay=0.02) as proxy, contextlib.ExitStack() as stack:
        clients = [stack.enter_context(Client(proxy)) for _ in range(100)]
        for n, client in enumerate(clients):
            client.send(f"client {n}")
        assert [client.hear() for client in clients] == [f"CLIENT {n}" for n in range(100)]
        assert proxy.connections == 100


@pytest.mark.parametrize(
    ("target", "unix", "url"),
    [
        (("127.0.0.1", 6379), False, "tcp://PROXY"),
        ("localhost:6379", False, "tcp://PROXY"),
        ("[::1]:6379", False, "tcp://PROXY"),
        ("/run/redis.sock", False, "tcp://PROXY"),
        ("/run/redis.sock", True, "unix:///p/socket"),
        ("redis://h/3?protocol=3", False, "redis://PROXY/3?protocol=3"),
        ("redis://me:p%40ss@h:7000/3", False, "redis://me:p%40ss@PROXY/3"),
        ("redis://me:p%40ss@h:7000/3", True, "unix://me:p%40ss@/p/socket?db=3"),
        ("unix:///run/redis.sock?db=2", False, "redis://PROXY/?db=2"),
        ("unix://:pw@/run/redis.sock?db=2", True, "unix://:pw@/p/socket?db=2"),
        ("http://api.local/v1?x=1", False, "http://PROXY/v1?x=1"),
        ("postgresql://u@h/base", False, "postgresql://u@PROXY/base"),
    ],
)
def test_a_url_is_led_through_the_proxy_with_all_that_belongs_to_it(target, unix, url):
    address = "/p/socket" if unix else "127.0.0.1:999"
    expected = url.replace("PROXY", address)
    assert Target.parse(target).url_through(address, unix=unix) == expected


@pytest.mark.parametrize(
    ("target", "host", "port", "path"),
    [
        ("redis://h", "h", 6379, ""),
        ("rediss://h:6380/0", "h", 6380, ""),
        ("https://h/x", "h", 443, ""),
        ("postgresql://h/x", "h", 5432, ""),
        ("unix:///run/redis.sock?db=1", "", 0, "/run/redis.sock"),
        ("unix:///run/my%20redis.sock", "", 0, "/run/my redis.sock"),
        ("./redis.sock", "", 0, "./redis.sock"),
        ("[::1]:6379", "::1", 6379, ""),
    ],
)
def test_an_address_is_found_in_whatever_names_it(target, host, port, path):
    parsed = Target.parse(target)
    assert (parsed.host, parsed.port, parsed.path) == (host, port, path)


@pytest.mark.parametrize(
    ("target", "error"),
    [
        (("127.0.0.1", 0), ValueError),
        (("127.0.0.1", True), ValueError),
        (("127.0.0.1", 70_000), ValueError),
        (("127.0.0.1",), TypeError),
        ((1, 2), TypeError),
        (6379, TypeError),
        ("localhost", ValueError),
        ("localhost:redis", ValueError),
        ("", ValueError),
        ("ftp://h/x", ValueError),
        ("redis://:6379", ValueError),
        ("redis://h:0", ValueError),
        ("unix://", ValueError),
    ],
)
def test_a_target_that_is_no_address_is_refused_with_the_forms_that_are(target, error):
    with pytest.raises(error) as caught, slow_proxy(target):
        pass
    assert "give ('host', port)" in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "error", "said"),
    [
        ({"delay": -1}, ValueError, "proxy delay -1 is not a finite number of seconds from 0 up"),
        ({"delay": float("nan")}, ValueError, "proxy delay nan"),
        ({"jitter": float("inf")}, ValueError, "proxy jitter inf"),
        ({"delay": "1"}, TypeError, "proxy delay must be a number of seconds, not '1'"),
        ({"rate": 0}, ValueError, "proxy rate 0 is not above 0: leave it out for no limit"),
        ({"rate": True}, TypeError, "proxy rate must be a number of bytes a second, not True"),
        ({"listen": "udp"}, ValueError, "cannot listen on 'udp': use 'tcp' or 'unix'"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, error, said):
    with pytest.raises(error) as caught, slow_proxy(("127.0.0.1", 9), **settings):
        pass
    assert said in str(caught.value)


def test_a_setting_refused_during_the_run_leaves_the_old_one(server):
    with slow_proxy(server.server_address, delay=0.01) as proxy:
        with pytest.raises(ValueError, match="proxy delay -1"):
            proxy.delay = -1
        with pytest.raises(ValueError, match="cannot swallow -1 replies"):
            proxy.swallow_replies(-1)
        assert proxy.delay == 0.01
