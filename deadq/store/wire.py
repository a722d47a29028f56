"""What the two shells share: commands, error translation, and how often to try. No I/O."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, Final

from redis import exceptions as rx

from ..clock import ServerClock, jittered
from ..errors import StoreUnavailable, shown
from ..resilience.backoff import Backoff
from . import keys
from .scripts import Call

TRIES: Final = 2
"""Every call may be repeated, so a broken connection is worth one more try at once."""

WINDOW: Final = 16
"""Most calls of a stream that are sent before their replies are read."""

PAUSES: Final = Backoff("equal", base=0.02, cap=1.0)
"""Between tries of a call that must go through in the end."""

CONNECT_TIMEOUT_S: Final = 1.0
REPLY_TIMEOUT_S: Final = 2.0

BROKEN: Final = (
    rx.ConnectionError,
    rx.TimeoutError,
    OSError,
    rx.ClusterError,
    rx.RedisClusterException,
    rx.InvalidResponse,
)
"""What a connection raises when it is of no more use: broken, or what answers there is something
else; or a Cluster client that finds no node."""


class Forks:
    """How many forks lie between this process and the first one: cheaper to ask than the pid,
    and every submit asks whether its connections are its own."""

    count = 0
    inherited: Final[list[object]] = []
    """What the parent's threads and loops use. It is kept here, so that nobody closes it, not even
    the garbage collector: a loop's poll set is shared with the parent, and a connection that is
    taken out of it here makes the parent deaf."""

    @classmethod
    def one_more(cls) -> None:
        cls.count += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=Forks.one_more)

Now = Callable[[], str]
Command = tuple[Any, ...]
"""Words of one command: str, bytes or int."""


def server_time() -> str:
    """Scripts take '' for the server's own clock."""
    return ""


class Wire:
    """Turns calls into commands and replies into answers, for one queue."""

    __slots__ = ("clock", "now", "prefix")

    def __init__(self, queue: str, clock: ServerClock, now: Now = server_time) -> None:
        self.prefix = keys.prefix(queue)
        self.clock = clock
        self.now = now

    def evalsha(self, call: Call[Any]) -> Command:
        prefix = call.prefix or self.prefix
        return ("EVALSHA", call.script.sha, 1, prefix, self.now(), *call.args)

    def eval(self, call: Call[Any]) -> Command:
        """The whole source: for a server that has forgotten its scripts."""
        prefix = call.prefix or self.prefix
        return ("EVAL", call.script.source, 1, prefix, self.now(), *call.args)

    def answer(self, call: Call[Any], reply: Any, sent: float, received: float) -> Any:
        """Read a reply, or raise what it stands for."""
        if isinstance(reply, Exception):
            raise translate(reply, call) from reply
        self.clock.learn(reply[0], sent, received)
        return call.parse(reply)


def forgotten(reply: object) -> bool:
    """Whether the server does not know the script: by type, and by word for other wordings."""
    return isinstance(reply, rx.NoScriptError) or (
        isinstance(reply, rx.ResponseError)
        and any(mark in str(reply) for mark in ("NOSCRIPT", "No matching script"))
    )


_REFUSALS: Final[Sequence[tuple[str, str]]] = (
    ("OOM", "the server is out of memory and takes no new jobs"),
    ("READONLY", "the server is a read-only replica; connect to the primary"),
    ("LOADING", "the server is still loading its data"),
    ("MASTERDOWN", "the replica has lost its primary"),
    ("BUSY", "the server is busy with a long script"),
    ("MISCONF", "the server cannot persist and refuses writes"),
    ("NOREPLICAS", "too few replicas are connected"),
    ("CLUSTERDOWN", "the cluster is down"),
    ("TRYAGAIN", "the slot is being moved"),
    ("MOVED", "the queue is on another node of the Cluster, which a Cluster client would find"),
    ("NOAUTH", "the server wants a password; put it into the URL"),
    ("WRONGPASS", "the server refuses this user or password"),
    ("NOPERM", "the server's ACL forbids a command or key; see README, The server"),
)

_BY_TYPE: Final[dict[type[Exception], str]] = {
    rx.OutOfMemoryError: "OOM",
    rx.ReadOnlyError: "READONLY",
    rx.BusyLoadingError: "LOADING",
    rx.AuthenticationError: "WRONGPASS",
    rx.NoPermissionError: "NOPERM",
    rx.MovedError: "MOVED",
}


def translate(error: Exception, call: Call[Any] | None = None) -> Exception:
    """Deadq's error for one of the client's."""
    if isinstance(error, StoreUnavailable):
        return error
    for kind, word in _BY_TYPE.items():
        if isinstance(error, kind):
            return _refused(word, error)
    for word, _ in _REFUSALS:
        if word in str(error):
            return _refused(word, error)
    if isinstance(error, rx.ResponseError):
        text = str(error) if call is None else call.script.locate(str(error))
        return StoreUnavailable(f"the server answered with an error: {text:.300}")
    if isinstance(error, rx.InvalidResponse):
        meaning = "what answers there is no Redis or Valkey; name another port in the URL"
        return _unavailable(meaning, error)
    return _unavailable("the server cannot be reached; is it running, and the URL right?", error)


class AccessRefused(StoreUnavailable):
    """The server refuses this user, password or command: waiting does not mend it."""


_ACCESS: Final = frozenset({"NOAUTH", "WRONGPASS", "NOPERM"})


def _unavailable(
    meaning: str, error: Exception, kind: type[StoreUnavailable] = StoreUnavailable
) -> StoreUnavailable:
    text = f"{meaning} ({type(error).__name__}: {shown(str(error), 200)[1:-1]})"
    return kind(text, retry_after=jittered(1.0))


def _refused(word: str, error: Exception) -> StoreUnavailable:
    kind = AccessRefused if word in _ACCESS else StoreUnavailable
    return _unavailable(dict(_REFUSALS)[word], error, kind)
