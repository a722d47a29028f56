"""One child of the process runner, forked by a test that does its supervisor's work by hand."""

import contextlib
import logging
import os
import secrets
import signal
import time
from collections.abc import Callable
from typing import Any, Self

import redis

import deadq
from deadq.runtime.process.sync_child import serve
from deadq.runtime.settings import ChildSettings, Ties
from deadq.runtime.ties.board import Page
from deadq.runtime.ties.channel import Channel
from deadq.runtime.ties.unit_lock import LockedGate, Locks
from deadq.store import keys, scripts
from tests.servers import wait_until

_PATIENCE_S = 20.0


class Nurse:
    """Renews, hands messages and tokens on, and hears what the child says, whenever it is pumped.

    Handlers speak to the test by :meth:`note`; what the child logs arrives as notes too.
    """

    def __init__(
        self,
        queue: deadq.Queue,
        *,
        grace: float = 5.0,
        max_jobs: int | None = None,
        max_memory: int | None = None,
    ) -> None:
        self.queue = queue
        self.post = secrets.token_hex(4)
        self.page = Page(1)
        self.locks = Locks()
        self.renewing = True
        self.alive = True
        self.heard: list[str] = []
        self.notes: list[str] = []
        self.words: list[str] = []
        self.code: int | None = None
        self._settings = ChildSettings(1, grace, max_jobs, max_memory)
        self._told, self._tell = os.pipe()
        os.set_blocking(self._told, False)
        self._rest = b""
        self._renew_at = 0.0
        self._parked = False
        self.client = queue.backend.sync_client()
        self.channel, self._theirs = Channel.pair()
        self.pid = 0

    def note(self, what: object) -> None:
        """In the child: tell the test."""
        os.write(self._tell, f"{what}\n".encode())

    def begin(self) -> Self:
        """Fork; returns when the child is registered, or has ended."""
        self.fork()
        self.until(lambda: "started" in self.notes or self.code is not None, "the child to start")
        return self

    def fork(self) -> None:
        self.pid = os.fork()
        if not self.pid:
            self._live()
        self._theirs.close()

    def die(self) -> None:
        """As if there were no supervisor any more."""
        self.renewing = False
        self.alive = False
        self.channel.close()

    def pump(self) -> None:
        """A supervisor's round."""
        now = time.monotonic()
        self._listen()
        if self.renewing and now >= self._renew_at:
            self._renew_at = now + self.queue.config.lease / 3
            self._renew(now)
        if self.alive:
            self._deliver()
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)
                self._listen()

    def until(self, true: Callable[[], Any], what: str, within_s: float = _PATIENCE_S) -> Any:
        """Pump until the condition holds; returns what it gave."""

        def look() -> Any:
            self.pump()
            return true()

        try:
            return wait_until(look, what, within_s)
        except TimeoutError as error:
            error.add_note(f"heard {self.heard}, noted {self.notes}, exit code {self.code}")
            raise

    def noted(self, what: str, times: int = 1) -> float:
        """Wait until the handlers have noted it so often; the instant at which it was seen."""
        self.until(lambda: self.notes.count(what) >= times, f"the note {what!r}")
        return time.monotonic()

    def logged(self, part: str) -> list[str]:
        """What the child has logged that holds ``part``."""
        return [note for note in self.notes if note.startswith("log ") and part in note]

    def state(self, job: deadq.JobHandle[Any]) -> deadq.State:
        return job.state()

    def ended(self, job: deadq.JobHandle[Any]) -> deadq.State:
        """Wait until the job has its final state."""
        state = self.until(lambda: (s := job.state()).final and s, f"job {job.key} to end")
        self.pump()  # what was noted before the end has come by now
        return state

    def said(self, word: str) -> list[str]:
        """What the child has said that begins with the word."""
        return [line for line in self.heard if line.partition(" ")[0] == word]

    def exit(self, within_s: float = _PATIENCE_S) -> int:
        """Wait for its end; its exit code."""
        self.until(lambda: self.code is not None, "the child to end", within_s)
        assert self.code is not None
        return self.code

    def stop(self) -> int:
        self.channel.send("stop")
        return self.exit()

    def close(self) -> None:
        if self.pid and self.code is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        self.channel.close()
        self.client.close()
        self.locks.close()
        os.close(self._told)
        os.close(self._tell)
        self.queue.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # The supervisor's work.

    def renew(self) -> Any:
        """One renewal by the page, now; the answer for the child."""
        return self._renew(time.monotonic())

    def _renew(self, now: float) -> Any:
        sheet = self.page.read()
        if not sheet.child:
            return None
        held = {job: holding.fence for job, holding in sheet.held.items()}
        renewal = scripts.Renewal(sheet.child, sheet.number, held)
        config = self.queue.config
        call = scripts.renew([renewal], lease_ms=config.lease_ms, retention_ms=config.retention_ms)
        with contextlib.suppress(deadq.StoreUnavailable):
            (renewed,) = self.queue.backend.sync().run(call).children
            if not renewed.known:
                self.channel.send("lapsed", sheet.child)
                return renewed
            self.page.good = now
            for job, word in renewed.words.items():
                self.channel.send(word, job, held[job])
            return renewed

    def _deliver(self) -> None:
        name = self.queue.name
        with contextlib.suppress(redis.RedisError):
            while (message := self.client.lpop(keys.key(name, "ctl", self.post))) is not None:
                word = message.decode()
                self.words.append(word)
                if word.startswith("parked"):
                    self._parked = True
                elif word.startswith("token"):
                    self.channel.send("token")
                else:
                    self.channel.send(word)
            if self._parked and self.client.lpop(keys.key(name, "wake")) is not None:
                self._parked = False
                self.channel.send("token")

    def _listen(self) -> None:
        if self.alive:
            self.heard += self.channel.receive()
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._told, 65_536):
                self._rest += data
        *lines, self._rest = self._rest.split(b"\n")
        self.notes += [line.decode(errors="replace") for line in lines]

    # In the child.

    def _live(self) -> None:
        code = 1
        try:
            for number in (signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            self.channel.close()
            log = logging.getLogger("deadq.worker")
            log.setLevel(logging.WARNING)
            log.addHandler(_Noting(self))
            code = serve(
                self.queue,
                post=self.post,
                ties=Ties(self.page, LockedGate(self.page, self.locks, 0), self._theirs),
                settings=self._settings,
                started=lambda: self.note("started"),
            )
        except BaseException as error:
            self.note(f"fault {type(error).__name__}: {error}")
        finally:
            os._exit(code)


class _Noting(logging.Handler):
    def __init__(self, nurse: Nurse) -> None:
        super().__init__()
        self._nurse = nurse

    def emit(self, record: logging.LogRecord) -> None:
        self._nurse.note("log " + record.getMessage().replace("\n", " | "))
