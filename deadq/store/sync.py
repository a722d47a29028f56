"""The blocking shell: runs calls on connections of the client's own pool."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import redis
from hiredis import pack_command
from redis import exceptions as rx
from redis.client import NEVER_DECODE

from .. import clock
from .scripts import Call
from .wire import BROKEN, TRIES, WINDOW, Command, Forks, Wire, forgotten, translate

T = TypeVar("T")


class SyncStore:
    """Runs :class:`Call` values and returns their answers.

    A connection on which anything went wrong, ``KeyboardInterrupt`` included, is dropped: its
    next reply might be somebody else's. ``tries`` is how often a call is sent in all when the
    connection breaks.
    """

    def __init__(
        self, client: redis.Redis, wire: Wire, *, own: bool = True, tries: int = TRIES
    ) -> None:
        self.client = client
        self._tries = tries
        self.wire = wire
        self._pool: Any = getattr(client, "connection_pool", None)  # a Cluster client has none
        # Connections at rest. The pool's own book-keeping costs more than a script call, and a
        # connection that died at rest is noticed at its next use, which then tries once more.
        # The user's own pool may be bounded, so there each connection goes back at once.
        self._rests = own
        self._resting: deque[Any] = deque()
        self._forks = Forks.count

    def run(self, call: Call[T]) -> T:
        """Run one call.

        Raises:
            StoreUnavailable: the server cannot be reached, or refuses.
        """
        wire = self.wire
        replies, sent, received = self._send([wire.evalsha(call)])
        reply = replies[0]
        if forgotten(reply):
            replies, sent, received = self._send([wire.eval(call)])
            reply = replies[0]
        answer: T = wire.answer(call, reply, sent, received)
        return answer

    def run_all(self, calls: Sequence[Call[Any]]) -> list[Any]:
        """Run several calls in one round trip, in order."""
        wire = self.wire
        replies, sent, received = self._send([wire.evalsha(call) for call in calls])
        answers = []
        for call, reply in zip(calls, replies, strict=True):
            if forgotten(reply):
                answers.append(self.run(call))
            else:
                answers.append(wire.answer(call, reply, sent, received))
        return answers

    def stream(self, calls: Iterable[Call[T]]) -> list[T]:
        """Run calls in order, each sent as soon as it is made: the server works meanwhile."""
        if self._pool is None:
            return [self.run(call) for call in calls]
        made: list[Call[T]] = []
        source = iter(calls)
        sent = clock.monotonic()
        try:
            replies = self._exchange_stream(source, made)
        except (*BROKEN, rx.ResponseError):
            self._drop_resting()
            made += source
            return [self.run(call) for call in made]  # what was done already is not done twice
        received = clock.monotonic()
        return [
            self.run(call) if forgotten(reply) else self.wire.answer(call, reply, sent, received)
            for call, reply in zip(made, replies, strict=True)
        ]

    def _exchange_stream(self, source: Iterable[Call[T]], made: list[Call[T]]) -> list[Any]:
        replies: list[Any] = []
        connection = self._take()
        try:
            for call in source:
                made.append(call)
                connection.send_packed_command([pack_command(self.wire.evalsha(call))])
                if len(made) - len(replies) == WINDOW:
                    replies.append(_read(connection))
            while len(replies) < len(made):
                replies.append(_read(connection))
        except BaseException:
            connection.disconnect()
            self._pool.release(connection)
            raise
        self._rest(connection)
        return replies

    def _send(self, commands: list[Command]) -> tuple[list[Any], float, float]:
        for attempt in range(self._tries):
            sent = clock.monotonic()
            try:
                replies = self._exchange(commands)
            except BROKEN as error:
                self._drop_resting()
                if attempt == self._tries - 1:
                    raise translate(error) from error
            except rx.ResponseError as error:  # while connecting: AUTH, SELECT
                raise translate(error) from error
            else:
                return replies, sent, clock.monotonic()
        raise AssertionError  # pragma: no cover  the loop returns or raises

    def _exchange(self, commands: list[Command]) -> list[Any]:
        pool = self._pool
        if pool is None:
            return [_one(self.client, command) for command in commands]
        connection = self._take()
        try:
            # in one piece: the server takes all up at once, and answers at once
            connection.send_packed_command([b"".join(map(pack_command, commands))])
            replies = [_read(connection) for _ in commands]
        except BaseException:
            connection.disconnect()
            pool.release(connection)
            raise
        self._rest(connection)
        return replies

    def _take(self) -> Any:
        if self._forks != Forks.count:  # a fork: these sockets are the parent's
            self._resting, self._forks = deque(), Forks.count
        try:
            return self._resting.pop()
        except IndexError:
            return self._pool.get_connection()

    def _rest(self, connection: Any) -> None:
        if self._rests:
            self._resting.append(connection)
        else:
            self._pool.release(connection)

    def _drop_resting(self) -> None:
        """Where one connection broke, the others have most likely died with it."""
        with contextlib.suppress(IndexError):  # other threads take from it too
            while True:
                connection = self._resting.pop()
                connection.disconnect()
                self._pool.release(connection)

    def abandon(self) -> None:
        """In a forked child: close its copies of the connections, which stay the parent's."""
        while self._resting:
            self._resting.pop().disconnect()  # the client sees that it is not its own process's

    def close(self) -> None:
        """Give the connections back to the client's pool."""
        with contextlib.suppress(IndexError):  # other threads take from it too
            while True:
                connection = self._resting.pop()
                self._pool.release(connection)


def _read(connection: Any) -> Any:
    try:
        return connection.read_response(disable_decoding=True)
    except rx.ResponseError as error:
        return error  # belongs to one command; the others' replies follow


def _one(client: Any, command: Command) -> Any:
    try:
        return client.execute_command(*command, **{NEVER_DECODE: True})
    except rx.ResponseError as error:
        return error
