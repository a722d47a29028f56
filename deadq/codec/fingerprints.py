"""What makes two submits under one key the same request."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from itertools import chain
from operator import itemgetter
from types import NoneType
from typing import Any, Final

from msgpack import ExtType, packb, unpackb

from .extensions import SORTED_MAP

_SORTED_MAP_MARK: Final = ExtType(SORTED_MAP, b"")
# First bytes of maps with two entries or more: only those have an order to forget. Such a byte may
# also stand inside a number or a text; that costs time and changes nothing.
_MAPS: Final = bytes([*range(0x82, 0x90), 0xDE, 0xDF])
_SEQUENCES: Final = frozenset({list, tuple})
_TEXT: Final = frozenset({str})
_FLAT: Final = frozenset({NoneType, bool, int, float, str, bytes})
_first: Final = itemgetter(0)


def fingerprint(task: str, value: object, encoded: bytes) -> bytes:
    """Return 16 bytes that are equal for the same task and arguments and differ for others.

    ``encoded`` is what ``encode`` gave for ``value``. The order of dicts does not matter, at any
    depth. Types do: 10, 10.0, "10" and True are four different
    arguments, a list and a tuple are two. Depends on neither host nor process.
    """
    if len(encoded.translate(None, _MAPS)) != len(encoded) and not _is_flat(value):
        encoded = _in_order(encoded)
    name = task.encode("utf-8", "surrogatepass")
    digest = blake2b(b"%d:%b" % (len(name), name), digest_size=16)
    digest.update(encoded)
    return digest.digest()


def _is_flat(value: object) -> bool:
    """Tell of the most usual arguments that they hold no dict that could have another order."""
    if type(value) not in _SEQUENCES:
        return False
    items: Any = value
    if len(items) == 2 and type(items[1]) is dict:
        items, named = items
        if len(named) > 1 or type(items) not in _SEQUENCES:
            return False
        items = [*items, *named, *named.values()]
    return _FLAT.issuperset(map(type, items))


def _in_order(encoded: bytes) -> bytes:
    """Write the same value with every dict as a marked array of its sorted items.

    Dicts of one item stay dicts: a value with no others comes out as it was, so that the
    shortcuts above change no fingerprint.
    """
    # From the bytes, for neither of these calls recurses in Python. Extensions stay as they are.
    value = unpackb(encoded, strict_map_key=False, object_pairs_hook=_sorted_map, ext_hook=_kept)
    ordered: bytes = packb(value, strict_types=True)
    return ordered


def _sorted_map(found: Iterable[tuple[Any, Any]]) -> object:
    pairs = [*found]  # msgpack without its C part gives a generator
    if not pairs or (len(pairs) == 1 and type(pairs[0][0]) in _FLAT):
        return dict(pairs)
    if _TEXT.issuperset(map(type, map(_first, pairs))):
        pairs.sort(key=_first)
    else:
        # By the value as well: a dict may hold NaN twice.
        pairs.sort(key=_encoded_pair)
    return [_SORTED_MAP_MARK, *chain.from_iterable(pairs)]


def _kept(code: int, data: bytes) -> Any:
    # Past the checks of its constructor, which take longer than all the rest.
    return tuple.__new__(ExtType, (code, data))


def _encoded_pair(pair: tuple[Any, Any]) -> bytes:
    packed: bytes = packb(pair[0], strict_types=True) + packb(pair[1], strict_types=True)
    return packed
