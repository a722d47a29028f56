"""A failure as three bounded texts: type name, message, traceback.

The exception object itself never travels: rebuilding it elsewhere may run anything, or fail.
Exceptions come from user code: every attribute and every ``__str__`` may raise or lie, and any text
or chain may be huge.
"""

from __future__ import annotations

import linecache
from collections import deque
from collections.abc import Callable
from itertools import islice
from types import FrameType, TracebackType
from typing import Final, TypeVar

from msgpack import packb

from .faults import DecodeError, type_name
from .values import decode

T = TypeVar("T")

MIN_LIMIT: Final = 256  # bytes: less would hold no message
_OVERHEAD: Final = 16  # bytes of msgpack around three texts
_LINKS: Final = 16  # exceptions of one chain that are shown
_COUNTED: Final = 10_000  # links followed to count those left out
_CHILDREN: Final = 8  # exceptions of one group that are shown
_GROUP_DEPTH: Final = 4
_OUTER_FRAMES, _INNER_FRAMES = 4, 16
_LINE: Final = 300  # characters of one line of a traceback
_TEXT: Final = 1000  # bytes of a message inside a traceback
_SMALL: Final = 300  # bytes: less has room for one line only
_CAUSE = "\nThe above exception was the direct cause of the following exception:\n\n"
_CONTEXT = "\nDuring handling of the above exception, another exception occurred:\n\n"


def describe_exception(exc: BaseException, *, limit: int = 8192) -> bytes:
    """Return type name, message and traceback text of ``exc`` in at most ``limit`` bytes.

    Never fails because of the exception: a note stands for what cannot be read. Only
    ``KeyboardInterrupt`` and ``SystemExit`` from its methods pass through.

    Raises:
        ValueError: a limit below 256.
    """
    if limit < MIN_LIMIT:
        raise ValueError(f"limit must be at least {MIN_LIMIT} bytes, not {limit}")
    name = _cut(_qualified_name(type(exc)), limit // 8)
    message = _cut(_message(exc), limit // 4)
    room = limit - _OVERHEAD - len(name.encode()) - len(message.encode())
    trace = _safely(lambda: _chain(exc, room, 1, set()), "<traceback not readable>\n")
    packed: bytes = packb([name, message, _cut_middle(trace, room)])
    return packed


def read_exception(data: bytes) -> tuple[str, str, str]:
    """Return (type name, message, traceback text) as ``describe_exception`` wrote them.

    Raises:
        DecodeError: the bytes are something else.
    """
    parts = decode(data)
    # A newer release may add parts behind these.
    if not isinstance(parts, list) or len(parts) < 3:
        raise DecodeError("not a described exception")
    name, message, trace = parts[:3]
    if not (isinstance(name, str) and isinstance(message, str) and isinstance(trace, str)):
        raise DecodeError("not a described exception")
    return name, message, trace


def _safely(read: Callable[[], T], otherwise: T) -> T:
    try:
        return read()
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException:  # noqa: BLE001  # user code ran
        return otherwise


def _qualified_name(kind: type) -> str:
    """Return ``module.Class``, for builtins the bare name."""
    name: object = _safely(lambda: kind.__qualname__, None)
    module: object = _safely(lambda: kind.__module__, None)
    if type(name) is not str:
        name = type_name(kind)
    return name if type(module) is not str or module == "builtins" else f"{module}.{name}"


def _message(exc: BaseException) -> str:
    try:
        # A subclass of str that __str__ returned would bring its own methods along.
        return str.__str__(str(exc))
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as fault:  # noqa: BLE001  # user code ran
        return f"<message not readable: __str__ raised {_qualified_name(type(fault))}>"


def _cut(text: str, size: int) -> str:
    """Return valid text of at most ``size`` bytes in UTF-8; a note stands for a missing end."""
    # Each character takes a byte at least: never encode more of a huge text than could be kept.
    raw = text[: size + 1].encode("utf-8", "backslashreplace")
    if len(raw) <= size:
        return raw.decode()
    note = f"… [{len(text)} characters]"
    return raw[: max(0, size - len(note.encode()))].decode("utf-8", "ignore") + note


def _cut_middle(text: str, size: int) -> str:
    """Return valid text of at most ``size`` bytes in UTF-8: some of the head, more of the tail."""
    raw = text.encode("utf-8", "backslashreplace")
    if len(raw) <= size:
        return raw.decode()
    note = "\n  [...]\n"
    head = (size - len(note)) // 3
    tail = size - len(note) - head
    return raw[:head].decode("utf-8", "ignore") + note + raw[-tail:].decode("utf-8", "ignore")


def _chain(exc: BaseException, room: int, depth: int, seen: set[int]) -> str:
    """Return ``exc`` and what led to it, the last one raised at the end, as Python does."""
    parts: list[str] = []  # from the last one raised back, so that room runs out on the oldest
    link = ""
    here: BaseException | None = exc
    while here is not None and id(here) not in seen:
        if parts and (len(parts) == _LINKS or room < _SMALL):
            parts.append(f"[{_count(here, seen)} earlier exceptions left out]\n{link}")
            break
        seen.add(id(here))
        before, next_link = _before(here)
        # The root cause is worth a third.
        share = room if before is None else room * 2 // 3
        text = _cut_middle(_block(here, share, depth, seen), share)
        parts.append(text + link)
        room -= len(text.encode()) + len(link)
        here, link = before, next_link
    return "".join(reversed(parts))


def _before(exc: BaseException) -> tuple[BaseException | None, str]:
    cause = _safely(lambda: exc.__cause__, None)
    if isinstance(cause, BaseException):
        return cause, _CAUSE
    context = _safely(lambda: None if exc.__suppress_context__ else exc.__context__, None)
    return (context if isinstance(context, BaseException) else None), _CONTEXT


def _count(exc: BaseException, seen: set[int]) -> int:
    counted: set[int] = set()
    here: BaseException | None = exc
    while here is not None and id(here) not in seen and id(here) not in counted:
        if len(counted) == _COUNTED:
            break
        counted.add(id(here))
        here, _ = _before(here)
    return len(counted)


def _block(exc: BaseException, room: int, depth: int, seen: set[int]) -> str:
    """Return one exception: its frames, its line, its notes, and the members of a group."""
    message = _cut(_message(exc), _TEXT)
    name = _cut(_qualified_name(type(exc)), _LINE)
    line = f"{name}: {message}\n" if message else f"{name}\n"
    if room < _SMALL:
        return line
    frames = _safely(lambda: _frames(exc.__traceback__), "  <frames not readable>\n")
    lines = [
        f"Traceback (most recent call last):\n{frames}" if frames else "",
        line,
        *(_safely(lambda: _notes(exc), None) or ()),
    ]
    children = _safely(lambda: _children(exc), None) or ()
    shown = children[:_CHILDREN] if depth < _GROUP_DEPTH else ()
    for number, child in enumerate(shown, 1):
        part = _chain(child, room // (len(shown) + 1), depth + 1, seen)
        lines.append(f"  + {number} of {len(children)}\n")
        lines.extend(f"  | {line}\n" for line in part.splitlines())
    if len(shown) < len(children):
        lines.append(f"  + {len(children) - len(shown)} more\n")
    return "".join(lines)


def _notes(exc: BaseException) -> list[str]:
    notes = getattr(exc, "__notes__", ())
    return [_cut(str.__str__(note), _LINE) + "\n" for note in islice(notes, 8)]


def _children(exc: BaseException) -> tuple[BaseException, ...]:
    if not isinstance(exc, BaseExceptionGroup):
        return ()
    return tuple(child for child in exc.exceptions if isinstance(child, BaseException))


def _frames(trace: TracebackType | None) -> str:
    """Return the outermost and the innermost frames: a recursion may have thousands."""
    head: list[tuple[FrameType, int]] = []
    tail: deque[tuple[FrameType, int]] = deque(maxlen=_INNER_FRAMES)
    total = 0
    while trace is not None:
        total += 1
        (head if total <= _OUTER_FRAMES else tail).append((trace.tb_frame, trace.tb_lineno))
        trace = trace.tb_next
    left_out = total - len(head) - len(tail)
    gap = [f"  [{left_out} frames left out]\n"] if left_out else []
    return "".join([*(_frame(*at) for at in head), *gap, *(_frame(*at) for at in tail)])


def _frame(frame: FrameType, line: int) -> str:
    code = frame.f_code
    source = _safely(lambda: linecache.getline(code.co_filename, line, frame.f_globals), "").strip()
    head = f'  File "{code.co_filename[-_LINE:]}", line {line}, in {code.co_qualname[:_LINE]}\n'
    return head + (f"    {source[:_LINE]}\n" if source else "")
