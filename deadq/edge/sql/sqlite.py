"""Deadlines for sqlite3: every statement ends at the ambient deadline at the latest.

    conn = deadq.edge.sql.sqlite.connect("shop.db")      # takes what sqlite3.connect takes

While a statement runs, SQLite asks every few thousand steps whether it may go on; while it waits
for another writer, no longer than is left. Both hold for that statement alone. An exception that a
signal handler raises, as :class:`deadq.Interrupt`, ends what runs, too: sqlite3 by itself would
run on to the end.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Generator
from typing import Any, Final, Self, TypeVar

from ...deadline import Deadline
from ...errors import DeadlineExceeded

__all__ = ["DeadlineConnection", "DeadlineCursor", "StatementDeadlineExceeded", "connect"]

T = TypeVar("T")

_STEPS: Final = 2_000
"""So many steps of SQLite's virtual machine take some 20 µs."""


class StatementDeadlineExceeded(DeadlineExceeded, sqlite3.OperationalError):
    """A statement ran, or waited for another writer, until the deadline, or there was no time for
    it. To code that knows sqlite3 alone it is an operational error."""

    def __init__(self, message: str = "the deadline passed in a statement") -> None:
        DeadlineExceeded.__init__(self, message)


def connect(database: Any, **options: Any) -> DeadlineConnection:
    """``sqlite3.connect``, with a connection that keeps to deadlines."""
    options.setdefault("factory", DeadlineConnection)
    made: DeadlineConnection = sqlite3.connect(database, **options)
    return made


class _Watch:
    """Looks at the clock while a statement runs."""

    def __init__(self) -> None:
        self.deadline: Deadline | None = None
        self.raised: BaseException | None = None
        self.answers = self._answer()
        next(self.answers)

    def _answer(self) -> Generator[int, None, None]:
        # A generator, whose next() is the callback: a signal handler runs where its code goes on,
        # and that is within this try. What a function raises at its very start goes nowhere.
        end = 0
        while True:
            try:
                yield end
                end = int(self.deadline is not None and self.deadline.expired)
            except GeneratorExit:
                return
            except BaseException as error:  # noqa: BLE001  raised where the statement was called
                self.raised, end = error, 1


class DeadlineConnection(sqlite3.Connection):
    """A connection whose statements keep to the ambient deadline.

    Raises:
        StatementDeadlineExceeded: of a statement: it took too long, or there was no time for it.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._busy_ms: int | None = None
        """The user's own setting, while another one holds."""
        self._watch: _Watch | None = None
        self._own_handler: tuple[Callable[[], int | None] | None, int] = (None, 0)

    def cursor(self, factory: Any = None) -> Any:
        """See sqlite3. A factory of one's own has to be a :class:`DeadlineCursor`."""
        return super().cursor(factory or DeadlineCursor)

    def execute(self, *args: Any) -> Any:
        """See sqlite3, as of the other methods."""
        return self.cursor().execute(*args)

    def executemany(self, *args: Any) -> Any:
        return self.cursor().executemany(*args)

    def executescript(self, *args: Any) -> Any:
        return self.cursor().executescript(*args)

    def commit(self) -> None:
        self.keeping(super().commit, late=True)

    def set_progress_handler(self, handler: Any, n: int) -> None:
        """See sqlite3; while a statement has a deadline, or could be interrupted, it waits."""
        self._own_handler = handler, n
        super().set_progress_handler(handler, n)

    def keeping(self, act: Callable[..., T], *args: Any, late: bool = False) -> T:
        """Call one of sqlite3's own methods, and end it at the deadline; ``late``: begin it even
        afterwards."""
        deadline = Deadline.current()
        if self._watch is not None:
            return act(*args)  # within another, as in a callback
        if deadline is not None and deadline.expired and not late:
            msg = "nothing was done in the database: the deadline has passed"
            raise StatementDeadlineExceeded(msg)
        watch = self._watch = _Watch()
        watch.deadline = None if late else deadline
        try:
            super().set_progress_handler(watch.answers.__next__, _STEPS)
            self._wait_at_most(deadline)
            return act(*args)
        except sqlite3.OperationalError as error:
            if watch.raised is not None:
                raise watch.raised from None
            if deadline is not None and deadline.expired and _ended(error):
                raise StatementDeadlineExceeded from error
            raise
        finally:
            self._watch = None
            super().set_progress_handler(*self._own_handler)
            self._wait_at_most(None)

    def _wait_at_most(self, deadline: Deadline | None) -> None:
        """How long another writer is waited for: the user's own setting, or what is left."""
        own = self._busy_ms
        if own is not None:  # that this has not come about yet: it was interrupted
            self._pragma(f"busy_timeout = {own}")
            self._busy_ms = None
        if deadline is not None:
            left = max(1, int(deadline.remaining() * 1000))
            own = self._pragma("busy_timeout")
            if own > left:
                self._busy_ms = own
                self._pragma(f"busy_timeout = {left}")

    def _pragma(self, words: str) -> int:
        with contextlib.closing(super().cursor()) as cursor:
            cursor.row_factory = None
            return int(cursor.execute(f"PRAGMA {words}").fetchone()[0])


def _ended(error: sqlite3.OperationalError) -> bool:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in (sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


class DeadlineCursor(sqlite3.Cursor):
    """A cursor of such a connection: rows are found while they are fetched."""

    connection: DeadlineConnection

    def execute(self, *args: Any) -> Any:
        """See sqlite3, as of the other methods."""
        return self.connection.keeping(super().execute, *args)

    def executemany(self, *args: Any) -> Any:
        return self.connection.keeping(super().executemany, *args)

    def executescript(self, *args: Any) -> Any:
        return self.connection.keeping(super().executescript, *args)

    def fetchone(self) -> Any:
        return self.connection.keeping(super().fetchone)

    def fetchmany(self, size: int | None = None) -> Any:
        return self.connection.keeping(super().fetchmany, self.arraysize if size is None else size)

    def fetchall(self) -> Any:
        return self.connection.keeping(super().fetchall)

    def __next__(self) -> Any:
        return self.connection.keeping(super().__next__)

    def __iter__(self) -> Self:
        return self
