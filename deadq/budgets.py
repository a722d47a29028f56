"""Retry budgets that a fleet shares through its server."""

from __future__ import annotations

import logging
import threading
import weakref
from typing import Any, Final

from .errors import StoreUnavailable
from .resilience import counts
from .resilience.borrower import Borrower
from .resilience.rules import BudgetRule, Rule, window_rule
from .store import keys, scripts
from .store.connect import Backend
from .store.wire import Forks

log: Final = logging.getLogger("deadq.budget")


class FleetBudget:
    """The retry budget of a named dependency, shared by all processes that call it.

    Counting and taking cost no round trip: a thread borrows tokens ahead, by one call of the
    server for 128 calls under the budget, or in one window. While the server is away the
    same rule holds for each process alone. For the budget of a queue see ``Queue.budget``.

    Args:
        name: of the dependency; all who share it use the same.
        rule: ``"sre"``, ``"finagle"`` or a ``BudgetRule``; the last one that asks sets it for all.
        url: of the server; default ``$DEADQ_URL``, else the embedded server.
        client: instead of a URL the user's own redis client.

    Raises:
        ValueError, TypeError: a setting is odd, or a quota, which no fleet can share.
    """

    def __init__(
        self, name: str, rule: str | Rule = "sre", *, url: str | None = None, client: Any = None
    ) -> None:
        self.name = keys.check_name(name, "budget name")
        self.rule = window_rule(rule, "a FleetBudget")
        # nothing is lost with its key: another server's policy does not matter
        backend = Backend(f"dependency:{name}", url, client, allow_eviction=True)
        self._begin(backend, self.rule.words)

    @classmethod
    def of_queue(cls, backend: Backend, queue: str, words: str) -> FleetBudget:
        """The budget of a queue: its workers have set the rule."""
        self = object.__new__(cls)
        ratio, floor, window_ms = words.split()
        self.name, self.rule = queue, BudgetRule(float(ratio), float(floor), int(window_ms) / 1000)
        self._begin(backend, "")
        return self

    def _begin(self, backend: Backend, words: str) -> None:
        self._backend, self._words = backend, words
        self._forks = Forks.count
        self._lock = threading.Lock()
        self._lending: _Lending | None = None

    def first(self) -> None:
        """A first attempt is being made."""
        self._of_this_process().first()

    def take(self, *, throttled: bool = False, after: float = 0.0) -> float:
        """1 when a retry may be made ``after`` seconds from now, else 0. ``throttled`` makes no
        difference here."""
        return self._of_this_process().take(after)

    def succeeded(self, taken: float = 0.0) -> None:
        """What was spent stays spent."""

    def available(self) -> float:
        """How many retries the fleet would be allowed, as last told; while the server is away, how
        many this process."""
        return self._of_this_process().borrower.available()

    @property
    def shared(self) -> bool:
        """Whether the fleet has answered; else the rule holds for this process alone."""
        return not self._of_this_process().borrower.alone

    def close(self) -> None:
        """End the thread that borrows. The budget may be used again."""
        lending, self._lending = self._lending, None
        if lending is not None:
            lending.close()

    def _of_this_process(self) -> _Lending:
        if self._forks != Forks.count:
            # in a forked child the thread is gone, and the lock may have been copied while held
            self._lock, self._lending = threading.Lock(), None
            self._forks = Forks.count
        return self._lending or self._begin_lending()

    def _begin_lending(self) -> _Lending:
        with self._lock:
            lending = self._lending
            if lending is None:
                lending = self._lending = _Lending(self._backend, self._words, self.rule)
                weakref.finalize(self, lending.close)
                counts.budget_left().labels(self.name).set_function(lending.borrower.available)
            return lending

    def __repr__(self) -> str:
        return f"<FleetBudget {self.name!r} of {self.rule}>"


class _Lending:
    """A borrower, and the thread that asks for it."""

    def __init__(self, backend: Backend, words: str, rule: BudgetRule) -> None:
        self.borrower = Borrower(rule)
        self._backend, self._words = backend, words
        self._wanted = threading.Event()
        self._closed = False
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def first(self) -> None:
        if self.borrower.first() and not self._wanted.is_set():
            self._wake()

    def take(self, after: float) -> float:
        taken, due = self.borrower.take(after)
        if due and not self._wanted.is_set():
            self._wake()
        return taken

    def close(self) -> None:
        self._closed = True
        self._wanted.set()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout=5.0)

    def _wake(self) -> None:
        self._wanted.set()
        if self._thread is None:
            with self._lock:
                if self._thread is None and not self._closed:
                    self._thread = threading.Thread(
                        target=self._run, name="deadq-budget", daemon=True
                    )
                    self._thread.start()

    def _run(self) -> None:
        while not self._closed:
            self._wanted.wait()
            if self._closed:
                return
            try:
                self._ask()
            except StoreUnavailable as error:
                self.borrower.failed()
                log.info("the retry budget is counted in this process alone: %s", error)
            except Exception:  # the user's own client may raise anything
                self.borrower.failed()
                log.exception("the retry budget is counted in this process alone")
            self._wanted.clear()
            if self.borrower.due():  # what came in the meantime
                self._wanted.set()

    def _ask(self) -> None:
        asked = self.borrower.question()
        loan = self._backend.sync().run(
            scripts.lend(
                self._backend.channel,
                asked.number,
                rule=self._words,
                wanted=asked.wanted,
                length_ms=int(asked.length_s * 1000),
                deeds=[
                    scripts.Deed(kind, int(ago * 1000), number) for kind, ago, number in asked.deeds
                ],
            )
        )
        self.borrower.answered(loan.tokens, loan.left)
