"""What handlers need, such as pools: opened before a worker's first job, closed after its last."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any

Manager = AbstractContextManager[Any] | AbstractAsyncContextManager[Any]
Lifespan = Callable[[], Manager]


def as_manager(factory: Callable[[], Any]) -> Lifespan:
    """A generator function, or a factory of context managers, as the latter."""
    if inspect.isasyncgenfunction(factory):
        return contextlib.asynccontextmanager(factory)
    if inspect.isgeneratorfunction(factory):
        return contextlib.contextmanager(factory)

    def made() -> Manager:
        manager = factory()
        if not isinstance(manager, AbstractContextManager | AbstractAsyncContextManager):
            msg = "a lifespan must be a generator function or return a context manager"
            raise TypeError(msg)
        return manager

    return made


@contextlib.asynccontextmanager
async def opened_on_loop(lifespans: Sequence[Lifespan]) -> AsyncIterator[None]:
    """Run them around a block, on the running loop."""
    async with contextlib.AsyncExitStack() as stack:
        for lifespan in lifespans:
            manager = lifespan()
            if isinstance(manager, AbstractAsyncContextManager):
                await stack.enter_async_context(manager)
            else:
                stack.enter_context(manager)
        yield


@contextlib.contextmanager
def opened_here(lifespans: Sequence[Lifespan]) -> Iterator[None]:
    """Run them around a block of blocking code.

    Those that need a loop get a private one, which runs only while they open and close; the
    context variables that they set are set here too.
    """
    with contextlib.ExitStack() as stack:
        runner: asyncio.Runner | None = None
        context = contextvars.copy_context()
        for lifespan in lifespans:
            manager = lifespan()
            if isinstance(manager, AbstractContextManager):
                stack.enter_context(manager)
                continue
            if runner is None:
                runner = stack.enter_context(asyncio.Runner())
            runner.run(_entered(manager), context=context)
            stack.push(_exit_on(runner, manager, context))
            for variable, value in context.items():
                variable.set(value)
        yield


async def _entered(manager: AbstractAsyncContextManager[Any]) -> None:
    await manager.__aenter__()


def _exit_on(
    runner: asyncio.Runner,
    manager: AbstractAsyncContextManager[Any],
    context: contextvars.Context,
) -> Callable[[Any, Any, Any], bool]:
    async def left(kind: Any, error: Any, trace: Any) -> bool:
        return bool(await manager.__aexit__(kind, error, trace))

    return lambda *fault: runner.run(left(*fault), context=context)
