"""What systemd hears, on real datagram sockets."""

import os
import secrets
import select
import signal
import socket
import subprocess
import sys

import pytest

from deadq.runtime.vitals.notify import Notifier
from tests.servers import wait_until


class Ear:
    """systemd's end of the socket."""

    def __init__(self, address):
        self.address = address
        self.variable = address.replace("\0", "@")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.settimeout(10)
        self._socket.bind(address)

    def hear(self):
        return self._socket.recv(65_536).decode()

    def has_heard(self):
        """Whether there is something that has not been read yet."""
        return bool(select.select([self._socket], [], [], 0)[0])

    def close(self):
        self._socket.close()


@pytest.fixture(params=["path", "abstract"])
def ear(request, short_folder):
    if request.param == "abstract":
        if sys.platform != "linux":
            pytest.skip("only Linux has abstract sockets")
        address = f"\0deadq-test-{secrets.token_hex(8)}"
    else:
        address = str(short_folder / "notify ü")
    made = Ear(address)
    yield made
    made.close()


def test_each_call_is_one_message(ear):
    notifier = Notifier.from_environment({"NOTIFY_SOCKET": ear.variable})
    for call, message in {
        notifier.ready: "READY=1",
        lambda: notifier.ready("2 children"): "READY=1\nSTATUS=2 children",
        notifier.watchdog: "WATCHDOG=1",
        lambda: notifier.status("the store is away"): "STATUS=the store is away",
        notifier.stopping: "STOPPING=1",
    }.items():
        call()
        assert ear.hear() == message
        assert not ear.has_heard()


@pytest.mark.parametrize("name", ["status", "ready"])
def test_a_status_is_one_short_line_that_orders_nothing(name, ear):
    getattr(Notifier(ear.variable), name)("a\nSTOPPING=1\r\n\x85b \udcff" + "x" * 100_000)
    said = ear.hear()
    assert said.rpartition("STATUS=")[2].startswith("a STOPPING=1 b ?xxx")
    assert said.count("\n") == (1 if name == "ready" else 0)
    assert len(said) < 600


def test_the_variables_are_taken_out_of_the_environment(ear, monkeypatch):
    for name, value in {
        "NOTIFY_SOCKET": ear.variable,
        "WATCHDOG_USEC": "3000000",
        "WATCHDOG_PID": str(os.getpid()),
    }.items():
        monkeypatch.setenv(name, value)
    notifier = Notifier.from_environment()
    assert notifier.watchdog_s == 3.0
    seen = subprocess.run(["env"], capture_output=True, text=True, check=True).stdout
    assert "NOTIFY_SOCKET" not in seen
    assert "WATCHDOG" not in seen
    notifier.ready()
    assert ear.hear() == "READY=1"
    Notifier.from_environment().ready()  # as a child would
    assert not ear.has_heard()


@pytest.mark.parametrize(
    ("microseconds", "pid", "watchdog_s"),
    [
        ("500000", "", 0.5),
        ("500000", "own", 0.5),
        ("500000", "1", None),
        ("500000", "x", None),
        ("0", "", None),
        ("", "own", None),
        ("-5", "", None),
        ("1e6", "", None),
        ("\u0665", "", 5e-06),
        ("\u00b2", "", None),
        ("9" * 5000, "", 999_999_999_999.999999),
    ],
)
def test_the_watchdog_s_time(microseconds, pid, watchdog_s, ear):
    own = str(os.getpid()) if pid == "own" else pid
    given = {"NOTIFY_SOCKET": ear.variable, "WATCHDOG_USEC": microseconds, "WATCHDOG_PID": own}
    assert Notifier.from_environment(given).watchdog_s == watchdog_s
    assert given == {}


def everything(notifier):
    notifier.ready("x")
    notifier.status("x")
    notifier.watchdog()
    notifier.stopping()


@pytest.mark.parametrize("environ", [{}, {"NOTIFY_SOCKET": ""}, {"WATCHDOG_USEC": "5000000"}])
def test_elsewhere_it_does_nothing(environ, caplog):
    notifier = Notifier.from_environment(dict(environ))
    everything(notifier)
    assert notifier.watchdog_s is None
    assert caplog.text == ""


@pytest.mark.parametrize("address", ["vsock:2:1234", "relative/path", "x"])
def test_an_address_of_another_kind_is_said_once_and_not_used(address, caplog):
    everything(Notifier.from_environment({"NOTIFY_SOCKET": address}))
    (record,) = caplog.records
    assert f"'{address}' is neither a path nor an abstract name" in record.getMessage()


@pytest.mark.parametrize("address", ["/nowhere/to/be/found", "@nobody-listens", "/" + "x" * 200])
def test_a_deaf_systemd_is_said_once_and_does_no_harm(address, caplog):
    everything(Notifier.from_environment({"NOTIFY_SOCKET": address}))
    (record,) = caplog.records
    assert record.getMessage().startswith("systemd cannot be told READY=1: ")


def test_a_full_queue_holds_the_worker_up_only_briefly(ear, caplog):
    notifier = Notifier(ear.variable)

    def full():
        notifier.watchdog()
        return caplog.records

    wait_until(full, "the queue to be full")
    assert "systemd cannot be told WATCHDOG=1: timed out" in caplog.text
    while ear.has_heard():
        ear.hear()
    notifier.stopping()
    assert ear.hear() == "STOPPING=1"


def test_it_speaks_while_signals_come(ear):
    """A datagram is sent whole, whatever interrupts the call."""
    came = []
    before = signal.signal(signal.SIGALRM, lambda *_: came.append(1))
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    try:
        notifier = Notifier(ear.variable)
        while len(came) < 20:
            notifier.watchdog()
            assert ear.hear() == "WATCHDOG=1"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
