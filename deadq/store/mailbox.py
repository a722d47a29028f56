"""A supervisor's blocked connection: what is said to its children, and the queue's tokens."""

from __future__ import annotations

from typing import Any, Final

import redis
from hiredis import pack_command
from redis import exceptions as rx

from . import keys
from .home import home
from .wire import BROKEN, translate

WAIT_S: Final = 60
"""How long one pop waits (s)."""


class Mailbox:
    """One blocked pop at a time, to be driven by a selector: :meth:`ask`, then, once there is
    something to read, :meth:`answer`.

    Every method may raise StoreUnavailable; then the connection is gone, and a message may have
    gone with it.
    """

    def __init__(self, client: redis.Redis, queue: str, post: str) -> None:
        self._client = client
        prefix = keys.prefix(queue)
        self._ctl, self._wake = f"{prefix}ctl:{post}", f"{prefix}wake"
        self._pool: Any = None
        self._connection: Any = None

    def fileno(self) -> int:
        """For a selector; only while a pop is under way."""
        found: int = self._connection._sock.fileno()
        return found

    def ask(self, *, tokens: bool) -> None:
        """Wait for messages, and with ``tokens`` for those too."""
        lists = [self._ctl, self._wake] if tokens else [self._ctl]
        try:
            if self._connection is None:
                self._pool = home(self._client, self._ctl).connection_pool
                self._connection = self._pool.get_connection()
            pop: tuple[Any, ...] = ("BLPOP", *lists, WAIT_S)
            self._connection.send_packed_command([pack_command(pop)])
        except (*BROKEN, rx.ResponseError) as error:
            self.close()
            raise translate(error) from error

    def answer(self) -> str | None:
        """The message, ``token``, or None when none has come for a while."""
        try:
            found = self._connection.read_response(disable_decoding=True)
        except (*BROKEN, rx.ResponseError) as error:
            self.close()
            raise translate(error) from error
        if found is None:
            return None
        name, message = found
        return "token" if name.endswith(b":wake") else message.decode("utf-8", "replace")

    def close(self) -> None:
        """Drop the connection, and with it the wait."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.disconnect()
            self._pool.release(connection)
