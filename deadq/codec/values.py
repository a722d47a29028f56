"""A value to bytes and back, equal in value and type at every depth, or refused."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from msgpack import ExtType, Packer, Timestamp, Unpacker, unpackb

from .extensions import FROZENSET, READERS, SET, TUPLE, WRITERS
from .faults import (
    MAX_DEPTH,
    DecodeError,
    EncodeError,
    TooLarge,
    find_fault,
    has_only_plain_types,
)

_TUPLE_MARK: Final = ExtType(TUPLE, b"")
_SET_MARKS: Final[dict[type, Any]] = {set: ExtType(SET, b""), frozenset: ExtType(FROZENSET, b"")}

# First bytes of msgpack objects. Such a byte may also stand inside a number or a text: counting
# them gives an upper bound, in one pass in C, and only what exceeds it is looked at closely.
_CONTAINERS: Final = bytes([*range(0x80, 0xA0), *range(0xDC, 0xE0)])
_BINARIES_AND_EXTENSIONS: Final = bytes([*range(0xC4, 0xCA), *range(0xD4, 0xD9)])
_TIMESTAMPS: Final = (b"\xd6\xff", b"\xd7\xff", b"\xc7\x0c\xff")

# msgpack's parser has room for 1,024 levels, which cannot be set. Below this many opened arrays
# there is room for MAX_DEPTH.
_FLOOR: Final = b"\x91" * (1024 - MAX_DEPTH)
_FREE_SLOTS: Final = 1 << 20  # pointers (8 MB) that a parse may reserve unchecked
_BUFFER: Final = 512  # bytes to start with; it doubles by itself


class _Writer:
    """The state of one call of ``encode``.

    A new one each time: a signal handler may encode while another call is under way.
    """

    marks = 0  # extensions written
    level = 0  # sets inside sets
    orders: dict[int, list[Any]] | None = None

    def pack(self, value: object) -> bytes:
        packed: bytes = Packer(default=self.extend, strict_types=True, buf_size=_BUFFER).pack(value)
        return packed

    def extend(self, value: Any) -> object:
        """Give msgpack a form of what it does not know."""
        self.marks += 1
        kind: type = type(value)
        if kind is tuple:
            return [_TUPLE_MARK, *value]
        if kind in _SET_MARKS:
            return [_SET_MARKS[kind], *self._ordered(value)]
        if kind not in WRITERS:
            raise TypeError("unknown type")
        code, write = WRITERS[kind]
        # Past the checks of its constructor, which take longer than writing.
        return tuple.__new__(ExtType, (code, write(value)))

    def _ordered(self, members: Iterable[Any]) -> list[Any]:
        """Return the members of a set in an order that depends on nothing but them."""
        kinds = set(map(type, members))
        if len(kinds) < 2 and kinds <= {str, int, bytes}:
            return sorted(members)
        # Others by their encoded form. Each set is put in order once, though it is met again
        # whenever a set around it is.
        if self.orders is None:
            self.orders = {}
        order = self.orders.get(id(members))
        if order is None:
            if self.level >= MAX_DEPTH:
                raise ValueError("nested too deep")
            inner = _Writer()
            inner.level, inner.orders = self.level + 1, self.orders
            order = self.orders[id(members)] = sorted(members, key=inner.pack)
        return order


def encode(value: object, *, limit: int | None = None, what: str = "value") -> bytes:
    """Return ``value`` as at most ``limit`` bytes that ``decode`` turns into an equal one.

    Equal values of equal types give equal bytes, but for the order of dicts, which is kept.
    ``what`` names the value in errors; "call" stands for a pair (args, kwargs). No other thread
    may change the value meanwhile.

    Raises:
        EncodeError: something in it cannot travel unchanged.
        TooLarge: the bytes are more than ``limit``.
    """
    writer = _Writer()
    try:
        data = writer.pack(value)
    except MemoryError:
        raise
    except Exception as exc:  # noqa: BLE001  # msgpack promises no types
        raise EncodeError(find_fault(value, what) or f"{what}: cannot travel: {exc}") from None
    size = len(data)
    # msgpack takes bytearray, memoryview, and its own ExtType and Timestamp, which would come back
    # as something else. Each leaves such a byte that the writer did not count.
    foreign = size - len(
        data.translate(None, _BINARIES_AND_EXTENSIONS)
    ) != writer.marks and not has_only_plain_types(value)
    if foreign or (size > MAX_DEPTH and _containers(data) > MAX_DEPTH and not _is_sound(data)):
        raise EncodeError(find_fault(value, what) or f"{what}: changed while it was encoded")
    if limit is not None and size > limit:
        raise TooLarge(what, size, limit)
    return data


def _containers(data: bytes) -> int:
    """Return an upper bound of the arrays and maps in ``data``."""
    return len(data) - len(data.translate(None, _CONTAINERS))


def _is_sound(data: bytes) -> bool:
    """Tell whether the bytes are one object of at most MAX_DEPTH levels, without building it."""
    size = len(_FLOOR) + len(data)
    parser = Unpacker(max_buffer_size=size, read_size=size)
    parser.feed(_FLOOR)
    parser.feed(data)
    try:
        parser.skip()
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001  # msgpack promises no types
        return False
    return bool(parser.tell() == size)


class _Mark:
    """What an array is, as its first member says; lives only while its array is read."""

    __slots__ = ("build",)

    def __init__(self, build: Callable[[list[Any]], object]) -> None:
        self.build = build


def _members(kind: type[set[Any] | frozenset[Any]]) -> Callable[[list[Any]], object]:
    def build(items: list[Any]) -> object:
        members = kind(items)
        if len(members) != len(items):
            raise DecodeError("a member stands twice in a set")
        return members

    return build


_MARKS: Final = {
    TUPLE: _Mark(tuple),
    SET: _Mark(_members(set)),
    FROZENSET: _Mark(_members(frozenset)),
}


class _Reader:
    """The state of one call of ``decode``."""

    marks = 0  # read, and not yet found in front of an array

    def extension(self, code: int, data: bytes) -> object:
        if not data and code in _MARKS:
            self.marks += 1
            return _MARKS[code]
        if code not in READERS:
            raise DecodeError(f"extension {code} is unknown to this release of deadq")
        return READERS[code](data)

    def array(self, items: list[Any]) -> object:
        if not items or type(items[0]) is not _Mark:
            return items
        self.marks -= 1
        mark = items.pop(0)
        return mark.build(items)


def decode(data: bytes) -> object:
    """Return the value that ``encode`` wrote.

    Takes memory in proportion to the data, whatever sizes it declares.

    Raises:
        DecodeError: ``encode`` did not write these bytes, or this host cannot read the value
            unchanged, as with a time zone that it does not know.
    """
    reader = _Reader()
    try:
        if len(data) > MAX_DEPTH:
            containers = _containers(data)
            # A container may declare as many members as there are bytes, and gets room at once.
            many = containers > MAX_DEPTH or containers * len(data) > _FREE_SLOTS
            if many and not _is_sound(data):
                raise DecodeError(f"incomplete, overlong, malformed or over {MAX_DEPTH} levels")
        value: object = unpackb(
            data, strict_map_key=False, ext_hook=reader.extension, list_hook=reader.array
        )
        if reader.marks:
            raise DecodeError("the mark of a tuple or set stands in the wrong place")
        # msgpack reads its own timestamps past our hook; ``encode`` writes none.
        if b"\xff" in data and any(stamp in data for stamp in _TIMESTAMPS) and _has_stamp(value):
            raise DecodeError("holds a msgpack timestamp")
    except (DecodeError, MemoryError):
        raise
    except Exception as exc:
        raise DecodeError(f"not an encoded value: {str(exc) or type(exc).__name__}") from exc
    return value


def _has_stamp(value: object) -> bool:
    rest = [value]
    while rest:
        item = rest.pop()
        if type(item) is Timestamp:
            return True
        if isinstance(item, dict):
            rest += item
            rest += item.values()
        elif isinstance(item, list | tuple | set | frozenset):
            rest += item
    return False
