"""Finding the queue that a user names as ``MODULE:QUEUE``."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from pathlib import Path
from types import ModuleType

from ..queue import Queue
from .faults import Fault, asked


def load_queue(target: str, url: str | None = None) -> Queue:
    """The queue ``MODULE:QUEUE``, moved to the server at ``url`` if one is given.

    The current folder counts as a place where modules are.

    Raises:
        Fault: there is no such module or queue, importing the module failed, or the URL is odd.
    """
    name, colon, attribute = target.partition(":")
    module = _module_name(name, attribute)
    remedy = (
        "run deadq in the folder that holds it, or install it"
        if colon
        else "a queue is named MODULE:QUEUE, such as shop.jobs:queue"
    )
    queue = _pick(module, _load(module, remedy), attribute)
    if url is not None:
        with asked():
            queue.relocate(url)
    settle(queue)
    return queue


def settle(queue: Queue) -> None:
    """Find out at once whether ``$DEADQ_URL``, where the queue goes by it, is odd.

    Raises:
        Fault: it is.
    """
    if queue.backend.given is None and os.environ.get("DEADQ_URL"):
        with asked():
            _ = queue.backend.url


def is_target(text: str) -> bool:
    """Whether this looks like ``MODULE:QUEUE`` rather than a queue's name."""
    name, colon, attribute = text.partition(":")
    return bool(colon) and all(part.isidentifier() for part in (*name.split("."), attribute))


def _module_name(name: str, attribute: str) -> str:
    if name.endswith(".py") or "/" in name:
        dotted = ".".join(Path(name).with_suffix("").parts).strip("./")
        msg = f"`{name}` is a file; give the module's name: {dotted}:{attribute or 'QUEUE'}"
        raise Fault(msg)
    if not name:
        raise Fault("no module was named; write MODULE:QUEUE, such as shop.jobs:queue")
    return name


def _load(name: str, remedy: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as missing:
        if missing.name is not None and f"{name}.".startswith(f"{missing.name}."):
            msg = f"no module `{missing.name}` in {here} or on the Python path; {remedy}"
            raise Fault(msg) from None
        raise _broken(name, missing) from missing
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # sys.exit() among them
        raise _broken(name, error) from error


def _broken(name: str, error: BaseException) -> Fault:
    """The user's module does not import: where, and why."""
    where = ""
    for frame in traceback.extract_tb(error.__traceback__):
        if (
            "importlib" not in frame.filename
            and Path(frame.filename).parent != Path(__file__).parent
        ):
            where = f" ({os.path.relpath(frame.filename)}, line {frame.lineno})"
    if isinstance(error, SyntaxError):
        where = f" ({os.path.relpath(error.filename or name)}, line {error.lineno})"
        text = error.msg
    else:
        text = _message(error)
    return Fault(f"importing {name} failed: {type(error).__name__}: {text}{where}", code=1)


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001  an exception of the user's own
        return "its message cannot be had"


def _pick(name: str, module: ModuleType, attribute: str) -> Queue:
    found: object = module
    missing = object()
    for part in attribute.split("."):
        try:
            found = getattr(found, part, missing)
        except Exception as error:
            raise _broken(name, error) from error
    if isinstance(found, Queue):
        return found
    has = [f"{name}:{word}" for word, value in _names_in(module) if isinstance(value, Queue)]
    rest = f"it has: {', '.join(has)}" if has else f"it has none; {_why_none(name, module)}"
    if not attribute:
        raise Fault(f"no queue was named in module {name}; {rest}")
    if found is missing:
        raise Fault(f"no queue `{attribute}` in module {name}; {rest}")
    kind = type(found).__name__
    msg = f"`{attribute}` in module {name} is no queue but a {kind}; {rest}"
    raise Fault(msg)


def _why_none(name: str, module: ModuleType) -> str:
    """What to do about a module without queues."""
    path, here = Path(*name.split(".")), Path.cwd()
    taken = getattr(module, "__file__", None)
    mine = path.with_suffix(".py").exists() or path.is_dir()
    if taken and mine and not Path(taken).resolve().is_relative_to(here.resolve()):
        return f"Python has taken {taken} for it, so give the one in {here} another name"
    return "a queue is a deadq.Queue(...)"


def _names_in(module: ModuleType) -> list[tuple[str, object]]:
    """None where the module has put something else in its place."""
    return list(getattr(module, "__dict__", {}).items())
