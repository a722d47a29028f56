"""C55: slow drip outlives a per-read timeout (encode/httpx issue 1450).

A call has 1 s left. The peer drips its headers or its body, takes no connection, redirects again
and again, or the pool is full: the call ends at its deadline, and the peer sees it close.
"""

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import httpx
import pytest
import requests

from deadq import Deadline, DeadlineExceeded
from deadq.edge import requests as edge_requests
from deadq.edge.httpx import AsyncDeadlineTransport, CallDeadlineExceeded, DeadlineTransport
from deadq.edge.requests import DeadlineAdapter as RequestsAdapter
from deadq.resilience import is_transient
from tests.patience import slack_s
from tests.servers import wait_until

LEFT_S = 1.0
LATE_S = 0.1
"""So much after its deadline a call may end, on a machine that does nothing else."""

HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"
WHOLE = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Peer:
    """A server whose answers are as slow as its path says."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.requests: list[str] = []
        self.open = 0
        """Connections that nobody has closed yet."""
        self._over = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}/{path}"

    def close(self) -> None:
        self._over.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                line, _ = self._listener.accept()
                self.open += 1
                threading.Thread(target=self._serve, args=(line,), daemon=True).start()

    def _serve(self, line: socket.socket) -> None:
        try:
            with line, line.makefile("rb") as lines:
                while first := lines.readline().decode():
                    self.requests.append(first)
                    while lines.readline().strip():
                        pass
                    self._answer(line, first.split()[1].strip("/"))
        except OSError:
            pass
        finally:
            self.open -= 1

    def _answer(self, line: socket.socket, path: str) -> None:
        kind, _, number = path.partition("/")
        if kind == "ok":
            line.sendall(WHOLE)
        elif kind == "head":
            self._drip(line, HEAD * 20)
        elif kind == "body":
            line.sendall(HEAD)
            self._drip(line, b"." * 1000)
        elif kind == "round":
            self._over.wait(0.3)
            where = f"/round/{int(number or 0) + 1}"
            head = f"HTTP/1.1 302 Found\r\nLocation: {where}\r\nContent-Length: 0\r\n\r\n"
            line.sendall(head.encode())
        elif kind == "silent":
            line.recv(1)

    def _drip(self, line: socket.socket, what: bytes) -> None:
        for at in range(len(what)):
            if self._over.wait(0.2):
                return
            line.sendall(what[at : at + 1])


@pytest.fixture
def peer() -> Iterator[Peer]:
    made = Peer()
    yield made
    made.close()


PATIENT = {"follow_redirects": True, "timeout": None, "max_redirects": 99}
"""A client that by itself would wait without end."""


def blocking(url, left_s=LEFT_S):
    """One call; how it ended, and after how many seconds."""
    transport = DeadlineTransport(dependency="peer", margin=0.0)
    begun = time.monotonic()
    with Deadline.after(left_s).scope(), httpx.Client(transport=transport, **PATIENT) as client:
        try:
            ended = client.get(url)
        except CallDeadlineExceeded as error:
            ended = error
    return ended, time.monotonic() - begun


def awaiting(url, left_s=LEFT_S):
    """The same on a loop."""

    async def call():
        transport = AsyncDeadlineTransport(dependency="peer", margin=0.0)
        async with httpx.AsyncClient(transport=transport, **PATIENT) as client:
            try:
                return await client.get(url)
            except CallDeadlineExceeded as error:
                return error

    begun = time.monotonic()
    with Deadline.after(left_s).scope():
        ended = asyncio.run(call())
    return ended, time.monotonic() - begun


def by_requests(url, left_s=LEFT_S):
    """The same by the other library."""
    begun = time.monotonic()
    with Deadline.after(left_s).scope(), requests.Session() as session:
        session.max_redirects = 99
        session.mount("http://", RequestsAdapter(dependency="peer", margin=0.0))
        try:
            ended = session.get(url)
        except edge_requests.CallDeadlineExceeded as error:
            ended = error
    return ended, time.monotonic() - begun


every_way = pytest.mark.parametrize("way", [blocking, awaiting, by_requests])
TIMEOUTS = {blocking: httpx.TimeoutException, awaiting: httpx.TimeoutException}
"""What the library calls it when a time is over."""


def is_over(ended, way):
    assert isinstance(ended, DeadlineExceeded), repr(ended)
    assert isinstance(ended, TIMEOUTS.get(way, requests.Timeout))
    assert is_transient(ended), "an attempt of less than the whole may be tried again"
    assert "peer" in str(ended)
    assert ended.request is not None
    return True


@every_way
@pytest.mark.parametrize("path", ["head", "body", "round", "silent"])
def test_a_call_ends_at_its_deadline_and_the_peer_sees_it_close(peer, way, path):
    ended, took = way(peer.url(path))
    assert is_over(ended, way)
    assert LEFT_S - 0.01 <= took <= LEFT_S + LATE_S + slack_s()
    wait_until(lambda: peer.open == 0, "the peer to see the connection close")


@every_way
def test_a_connect_that_is_not_answered(way):
    with (
        socket.create_server(("127.0.0.1", 0), backlog=0) as listener,
        contextlib.ExitStack() as full,
    ):
        address = listener.getsockname()
        for _ in range(3):  # nobody accepts them: the next one waits for an answer
            waiting = full.enter_context(socket.socket())
            waiting.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                waiting.connect(address)
        ended, took = way(f"http://127.0.0.1:{address[1]}/")
    assert is_over(ended, way)
    assert LEFT_S - 0.01 <= took <= LEFT_S + LATE_S + slack_s()


@every_way
def test_a_name_that_is_not_resolved(way, peer, monkeypatch):
    asked = threading.Event()
    resolve = socket.getaddrinfo

    def slow(host, *rest, **more):
        if host in ("nowhere.test", b"nowhere.test"):
            asked.wait(LEFT_S * 2)
        return resolve(host, *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    begun = time.monotonic()
    ended, took = way(f"http://nowhere.test:{peer.port}/ok")
    assert is_over(ended, way)
    if way is not awaiting:  # asyncio.run() waits for the threads of its loop
        assert took <= LEFT_S + LATE_S + slack_s()
    asked.set()
    assert time.monotonic() - begun < LEFT_S * 2 + slack_s()


def test_a_full_pool(peer):
    limits = httpx.Limits(max_connections=1)
    transport = DeadlineTransport(dependency="peer", margin=0.0, limits=limits)
    with (
        httpx.Client(transport=transport, timeout=None) as client,
        client.stream("GET", peer.url("body")),
    ):
        begun = time.monotonic()
        with Deadline.after(LEFT_S).scope(), pytest.raises(CallDeadlineExceeded):
            client.get(peer.url("ok"))
        assert LEFT_S - 0.01 <= time.monotonic() - begun <= LEFT_S + LATE_S + slack_s()


def test_a_full_pool_of_requests(peer):
    adapter = RequestsAdapter(dependency="peer", margin=0.0, pool_maxsize=1, pool_block=True)
    with requests.Session() as session:
        session.mount("http://", adapter)
        with session.get(peer.url("body"), stream=True):
            begun = time.monotonic()
            with Deadline.after(LEFT_S).scope(), pytest.raises(edge_requests.CallDeadlineExceeded):
                session.get(peer.url("ok"))
            assert LEFT_S - 0.01 <= time.monotonic() - begun <= LEFT_S + LATE_S + slack_s()


def test_a_full_pool_on_a_loop(peer):
    async def main():
        limits = httpx.Limits(max_connections=1)
        transport = AsyncDeadlineTransport(dependency="peer", margin=0.0, limits=limits)
        async with (
            httpx.AsyncClient(transport=transport, timeout=None) as client,
            client.stream("GET", peer.url("body")),
        ):
            begun = time.monotonic()
            with Deadline.after(LEFT_S).scope(), pytest.raises(CallDeadlineExceeded):
                await client.get(peer.url("ok"))
            return time.monotonic() - begun

    assert LEFT_S - 0.01 <= asyncio.run(main()) <= LEFT_S + LATE_S + slack_s()


@every_way
@pytest.mark.parametrize("left", [0.0, 0.0005])
def test_with_nothing_left_nothing_is_sent(peer, way, left):
    ended, took = way(peer.url("ok"), left)
    assert is_over(ended, way)
    assert took < LEFT_S
    assert (peer.requests, peer.open) == ([], 0)


@every_way
def test_a_call_in_time_is_like_any_other(peer, way):
    ended, _ = way(peer.url("ok"))
    assert (ended.status_code, ended.text) == (200, "ok")
