"""The parents and children of C37; each parent is a process of its own, as forking a test is not
for the faint-hearted.
"""

import asyncio
import gc
import multiprocessing
import os
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.shop import Shop
from tests.workers import tell

_PATIENCE_S = 20.0


def blocking_parent(url: str, book: str, rounds: int, how: str, *, beside: bool = True) -> None:
    """Use the blocking client without a pause, ``beside`` also in a second thread, and fork."""
    shop = Shop(url, Path(book))
    stop = threading.Event()
    own = {_id_of(shop)}
    faults: list[str] = []

    def use() -> None:
        try:
            n = 0
            while not stop.is_set():
                _call(shop, f"thread-{n}")
                n += 1
        except BaseException:
            faults.append(traceback.format_exc())

    thread = threading.Thread(target=use)
    if beside:
        thread.start()
    ids = []
    try:
        for n in range(rounds):
            _call(shop, f"parent-{n}")
            ids.append(CHILDREN[how](shop, url, book, f"child-{n}"))
            _call(shop, f"parent-{n}-after")
            own.add(_id_of(shop))
    finally:
        stop.set()
        if beside:
            thread.join()
    tell({"faults": faults, "children": ids, "parent": list(own)})
    shop.close()


def asyncio_parent(url: str, book: str, rounds: int, how: str) -> None:
    """Use the asyncio client without a pause, and fork from inside the loop."""
    asyncio.run(_asyncio_parent(Shop(url, Path(book)), url, book, rounds, how))


async def _asyncio_parent(shop: Shop, url: str, book: str, rounds: int, how: str) -> None:
    stop = asyncio.Event()
    own = {await _aid_of(shop)}

    async def use(name: str) -> None:
        n = 0
        while not stop.is_set():
            await _acall(shop, f"{name}-{n}")
            n += 1

    users = [asyncio.ensure_future(use(name)) for name in "ab"]
    ids = []
    for n in range(rounds):
        await _acall(shop, f"parent-{n}")
        ids.append(CHILDREN[how](shop, url, book, f"child-{n}"))
        await _acall(shop, f"parent-{n}-after")
        own.add(await _aid_of(shop))
    stop.set()
    ended = await asyncio.gather(*users, return_exceptions=True)
    faults = [repr(error) for error in ended if error is not None]
    tell({"faults": faults, "children": ids, "parent": list(own)})
    await shop.queue.aclose()
    shop.close()


def _call(shop: Shop, key: str) -> None:
    """A submit and a wait; every reply must be the one to what was asked."""
    assert shop.echo.options(key=key).call(key) == key
    assert shop.queue.producer.look(f"{os.getpid():032x}").state == "gone"


async def _acall(shop: Shop, key: str) -> None:
    async with asyncio.timeout(_PATIENCE_S):
        assert await shop.echo.options(key=key).acall(key) == key
        assert (await shop.queue.producer.alook(f"{os.getpid():032x}")).state == "gone"


def _id_of(shop: Shop) -> int:
    """The server's number for the connection that calls go over."""
    (reply,) = shop.queue.backend.sync()._exchange([("CLIENT", "ID")])
    return int(reply)


async def _aid_of(shop: Shop) -> int:
    (reply,) = await (await shop.queue.backend.aio())._exchange([("CLIENT", "ID")])
    return int(reply)


# Children: each uses the queue and tells the number of its connection.


def _use(shop: Shop, key: str) -> int:
    """As a child that knows only blocking code."""
    _call(shop, key)
    gc.collect()  # what it has dropped of its parent's ends here, if it ever does
    return _id_of(shop)


async def _ause(shop: Shop, key: str) -> int:
    await _acall(shop, key)
    gc.collect()
    found = await _aid_of(shop)
    await shop.queue.aclose()
    return found


def _use_in_a_loop(shop: Shop, key: str) -> int:
    """As a child that starts an event loop of its own."""
    return asyncio.run(_ause(shop, key))


def _forked(use: Callable[[Shop, str], int], leave: Callable[[int], Any]) -> Callable[..., int]:
    def fork(shop: Shop, url: str, book: str, key: str) -> int:
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                os.write(write, str(use(shop, key)).encode())
                code = 0
            except BaseException:
                traceback.print_exc()
            leave(code)
        os.close(write)
        found = os.read(read, 100)
        os.close(read)
        _, status = os.waitpid(pid, 0)
        assert status == 0, f"child {key} ended with {os.waitstatus_to_exitcode(status)}"
        return int(found)

    return fork


def _managed(method: str, use: Callable[..., int]) -> Callable[..., int]:
    context: Any = multiprocessing.get_context(method)

    def start(shop: Shop, url: str, book: str, key: str) -> int:
        answers = context.SimpleQueue()
        given = (url, book) if method == "spawn" else shop
        child = context.Process(target=_answer, args=(use, given, key, answers))
        child.start()
        child.join(_PATIENCE_S)
        assert child.exitcode == 0, f"child {key} ended with {child.exitcode}"
        return int(answers.get())

    return start


def _answer(use: Callable[[Shop, str], int], given: Any, key: str, answers: Any) -> None:
    if isinstance(given, Shop):
        answers.put(use(given, key))
        return
    shop = Shop(given[0], Path(given[1]))
    answers.put(use(shop, key))
    shop.close()


def _leave_in_order(code: int) -> None:
    """Run the interpreter's own end, too."""
    sys.exit(code)


CHILDREN: dict[str, Callable[..., int]] = {
    "fork": _forked(_use, os._exit),
    "fork, in a loop": _forked(_use_in_a_loop, os._exit),
    "fork, sys.exit": _forked(_use, _leave_in_order),
    "multiprocessing fork": _managed("fork", _use),
    "multiprocessing fork, in a loop": _managed("fork", _use_in_a_loop),
    "multiprocessing spawn": _managed("spawn", _use),
}
