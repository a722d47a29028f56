"""A process that makes single calls from children of its own, which tests then kill."""

import base64
import os
import pickle
import signal

import redis

from deadq.clock import ServerClock
from deadq.store import scripts
from deadq.store.loader import load
from deadq.store.sync import SyncStore
from deadq.store.wire import Wire
from tests.workers import Process, hear, tell


def serve() -> None:
    """For every call told: fork a child that makes it and waits for the answer; tell its pid."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    while True:
        url, queue, now_ms, name, args = pickle.loads(base64.b64decode(hear()))
        pid = os.fork()
        if pid == 0:
            wire = Wire(queue, ServerClock(), lambda: str(now_ms))  # noqa: B023  one a child
            with redis.Redis.from_url(url) as client:
                call = scripts.Call(load(name), args, lambda reply: reply)
                SyncStore(client, wire).run(call)
            os._exit(0)
        tell(pid)


class Callers(Process):
    """The test's end of it."""

    def __init__(self) -> None:
        super().__init__("tests.faults.callers:serve")

    def start(self, url: str, queue: str, now_ms: int, call: scripts.Call[object]) -> int:
        """Make the call in a process of its own; the pid."""
        given = (url, queue, now_ms, call.script.name, list(call.args))
        pid: int = self.ask(base64.b64encode(pickle.dumps(given)).decode())
        return pid
