"""The demo's bank, and the line before it: each a process with sockets, as the demo has them."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from deadq.demo import bank, trouble
from deadq.demo.books import payments_late
from deadq.demo.stage import FAR
from tests.commands import environment
from tests.servers import wait_until


@contextlib.contextmanager
def served(module, listener, argument):
    """``python -m deadq.demo.<module>`` on a socket; gives the process."""
    process = subprocess.Popen(
        [sys.executable, "-m", f"deadq.demo.{module}", *argument],
        env=environment(),
        pass_fds=[listener.fileno()],
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def listening():
    return socket.create_server(("127.0.0.1", 0))


def address(listener):
    return "{}:{}".format(*listener.getsockname())


@pytest.fixture
def teller(tmp_path):
    """Somebody at a bank that takes no time; its ledger is ``tmp_path / "ledger"``."""
    with listening() as listener:
        argument = [str(listener.fileno()), str(tmp_path / "ledger")]
        with served("bank", listener, argument), bank.Teller(address(listener), "me") as made:
            made.pace(0.0)
            yield made


def in_ledger(tmp_path, columns, table):
    with contextlib.closing(bank.open_ledger(tmp_path / "ledger")) as ledger:
        return ledger.execute(f"SELECT {columns} FROM {table} ORDER BY rowid").fetchall()


def test_a_payment_is_made_once_if_whoever_makes_it_asks_first(teller, tmp_path):
    assert teller.authorize("p", 1) == ""
    number = teller.capture("order-1", "p", 1)
    assert teller.authorize("p", 2) == number
    assert teller.authorize("q", 1) == ""
    assert in_ledger(tmp_path, "*", "paid") == [("order-1", "p", number, 1)]
    assert in_ledger(tmp_path, "teller, payment, fence, what, answer", "asked") == [
        ("me", "p", 1, "authorize", ""),
        ("me", "p", 1, "capture", number),
        ("me", "p", 2, "authorize", number),
        ("me", "q", 1, "authorize", ""),
    ]


def test_whoever_comes_back_with_a_lower_fence_is_refused(teller, tmp_path):
    assert teller.authorize("p", 1) == ""
    assert teller.authorize("p", 2) == ""
    with pytest.raises(bank.StaleError):
        teller.capture("order-1", "p", 1)
    with pytest.raises(bank.StaleError):
        teller.authorize("p", 1)
    with contextlib.closing(bank.open_ledger(tmp_path / "ledger")) as ledger:
        assert payments_late(ledger, "me", 0.0) == 1
        assert payments_late(ledger, "somebody", 0.0) == 0
        assert payments_late(ledger, "me", time.time()) == 0
    assert in_ledger(tmp_path, "*", "paid") == []
    assert in_ledger(tmp_path, "answer", "asked")[2:] == [("stale",), ("stale",)]


def test_what_is_told_twice_is_done_twice_so_that_it_would_show(teller, tmp_path):
    numbers = [teller.capture("order-1", "p", 1) for _ in range(2)]
    assert in_ledger(tmp_path, "number", "paid") == [(number,) for number in numbers]
    assert numbers[0] != numbers[1]


def test_an_authorization_takes_as_long_as_the_bank_has_been_told(teller):
    teller.pace(0.3)
    began = time.monotonic()
    teller.authorize("p", 1)
    assert time.monotonic() - began >= 0.3


def test_a_bank_that_has_gone_is_an_error(tmp_path):
    with listening() as listener:
        argument = [str(listener.fileno()), str(tmp_path / "ledger")]
        with served("bank", listener, argument) as process:
            with bank.Teller(address(listener)) as teller:
                teller.pace(0.0)
                process.kill()
                process.wait()
                with pytest.raises(ConnectionError):
                    teller.authorize("p", 1)


@pytest.mark.parametrize("family", ["tcp", "unix"])
def test_a_frozen_line_delivers_what_it_got_when_it_goes_on(family, short_folder):
    if family == "tcp":
        target = listening()
        place = address(target)
    else:
        place = str(short_folder / "s")
        target = socket.socket(socket.AF_UNIX)
        target.bind(place)
        target.listen()
    with target, listening() as near:
        with served("line", near, [f"{near.fileno()}={place}"]) as process:
            with socket.create_connection(near.getsockname(), 10.0) as here:
                there, _ = target.accept()
                with there:
                    here.sendall(b"first")
                    assert there.recv(100) == b"first"
                    there.sendall(b"back")
                    assert here.recv(100) == b"back"

                    os.kill(process.pid, signal.SIGSTOP)
                    wait_until(lambda: _state(process.pid) == "T", "the line to stand still")
                    here.sendall(b"later")
                    there.settimeout(0.2)
                    with pytest.raises(TimeoutError):
                        there.recv(100)
                    os.kill(process.pid, signal.SIGCONT)
                    there.settimeout(10.0)
                    assert there.recv(100) == b"later"

                    here.close()
                    assert there.recv(100) == b""  # an end is carried too


def _state(pid):
    stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    return stat.rpartition(")")[2].split()[0]


def test_the_far_worker_is_frozen_amid_its_work(tmp_path):
    with contextlib.closing(bank.open_ledger(tmp_path / "ledger")) as ledger:

        def ask(what, ago_s, teller=FAR):
            row = (time.time() - ago_s, teller, "p", 1, what, "")
            ledger.execute("INSERT INTO asked VALUES (?, ?, ?, ?, ?, ?)", row)

        assert not trouble.busy(ledger)
        ask("capture", 0.02)
        assert not trouble.busy(ledger)  # it has nothing to pay
        ask("authorize", 0.02, teller="worker 3")
        ask("authorize", 1.0)
        assert not trouble.busy(ledger)
        ask("authorize", 0.02)
        assert trouble.busy(ledger)
