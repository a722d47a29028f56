"""What holds for a block and all that it calls, without being handed on: a context variable.

A generator runs in the context of whoever asks it for the next item. So a block in its body may be
left in another context than it was entered in (each step in a thread or task of its own), or after
one that was entered later (two generators side by side). Neither may leave anything behind.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Generic, TypeVar

T = TypeVar("T")


class _Block(Generic[T]):
    __slots__ = ("outer", "value")

    def __init__(self, value: T | None, outer: _Block[T] | None) -> None:
        self.value = value
        self.outer = outer


class Ambient(Generic[T]):
    """One such value; None where no block has set it."""

    __slots__ = ("_inner",)

    def __init__(self, name: str) -> None:
        self._inner: ContextVar[_Block[T] | None] = ContextVar(name, default=None)

    def get(self) -> T | None:
        """That of the innermost block."""
        block = self._inner.get()
        return None if block is None else block.value

    def set(self, value: T) -> None:
        """Set it for good, in the current context (a job's own)."""
        self._inner.set(_Block(value, None))

    @contextmanager
    def held(self, value: T) -> Iterator[T]:
        """Set it for the block."""
        block = self.enter(value)
        try:
            yield value
        finally:
            self.leave(block)

    @contextmanager
    def lifted(self) -> Iterator[None]:
        """There is none in the block."""
        block = self.enter(None)
        try:
            yield
        finally:
            self.leave(block)

    def enter(self, value: T | None) -> _Block[T]:
        """Set it until :meth:`leave` is given what this returned."""
        block = _Block(value, self._inner.get())
        self._inner.set(block)
        return block

    def leave(self, block: _Block[T]) -> None:
        """See :meth:`enter`."""
        inner = self._inner.get()
        if inner is block:
            self._inner.set(block.outer)
            return
        while inner is not None:  # blocks that were entered later, and are still under way
            if inner.outer is block:
                inner.outer = block.outer
                return
            inner = inner.outer
