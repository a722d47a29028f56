"""The extension types: what msgpack lacks, written exactly and read strictly.

Two forms are in use. A *mark* is an empty extension that stands first in an array and says what
the array is: tuple, set or frozenset. Its members follow in the same array, so that whoever parses
the bytes sees their depth and number. Everything else is one extension that holds the value.

Codes are part of the stored format: never reuse one. Writers raise ``ValueError`` with a reason fit
for the caller to read; readers may raise anything, ``decode`` turns it into a ``DecodeError``.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from typing import Any, Final
from uuid import UUID, SafeUUID
from zoneinfo import ZoneInfo

TUPLE: Final = 1
SET: Final = 2
FROZENSET: Final = 3
BIG_INT: Final = 4
DECIMAL: Final = 5
DATETIME: Final = 6
DATE: Final = 7
TIME: Final = 8
TIMEDELTA: Final = 9
UUID_: Final = 10
COMPLEX: Final = 11
SORTED_MAP: Final = 12  # only in what a fingerprint is taken over, never in stored bytes

_DATETIME = struct.Struct(">HBBBBBIB")  # year, month, day, hour, minute, second, microsecond, fold
_DATE = struct.Struct(">HBB")
_TIME = struct.Struct(">BBBIB")
_TIMEDELTA = struct.Struct(">iii")
_COMPLEX = struct.Struct(">dd")
_OFFSET = struct.Struct(">cq")  # kind of zone, offset from UTC in microseconds

_FIXED, _LABELLED, _NAMED = b"o", b"l", b"z"  # timezone, timezone with a name, ZoneInfo
_NO_OFFSET = -(2**63)  # a ``time`` in a zone whose offset depends on the day
_MICROSECOND = timedelta(microseconds=1)
_SAFETY = {SafeUUID.unknown: b"", SafeUUID.safe: b"\x01", SafeUUID.unsafe: b"\x02"}


def _write_int(number: int) -> bytes:
    # Bytes, not digits: the interpreter limits the conversion between int and str.
    return number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)


def _read_int(data: bytes) -> int:
    return int.from_bytes(data, "big", signed=True)


def _write_decimal(number: Decimal) -> bytes:
    # Upper case, because the letters that str() uses depend on the decimal context of the thread.
    return str(number).upper().encode("ascii")


def _read_decimal(data: bytes) -> Decimal:
    number = Decimal(data.decode("ascii"))
    # A context without the InvalidOperation trap reads garbage as NaN.
    if _write_decimal(number) != data:
        raise ValueError("not a decimal number")
    return number


def _micros(offset: timedelta | None) -> int:
    return _NO_OFFSET if offset is None else offset // _MICROSECOND


def _write_zone(zone: tzinfo, offset: timedelta | None) -> bytes:
    """Write the kind of the zone, its offset here, and its name."""
    if type(zone) is timezone:
        label = zone.tzname(None)
        if label == timezone(zone.utcoffset(None)).tzname(None):
            return _OFFSET.pack(_FIXED, _micros(offset))
        return _OFFSET.pack(_LABELLED, _micros(offset)) + label.encode()
    if type(zone) is not ZoneInfo:
        raise ValueError(
            f"a time zone of type {type(zone).__name__} cannot travel; "
            "use zoneinfo.ZoneInfo or datetime.timezone"
        )
    try:
        zone.__reduce__()
    except pickle.PicklingError:
        raise ValueError("a ZoneInfo read from a file cannot travel; use ZoneInfo(key)") from None
    return _OFFSET.pack(_NAMED, _micros(offset)) + zone.key.encode()


def _read_zone(data: bytes) -> tuple[tzinfo, int]:
    """Return the zone and the offset (microseconds) that the writer saw."""
    kind, micros = _OFFSET.unpack_from(data)
    name = data[_OFFSET.size :].decode()
    if kind == _FIXED and not name:
        return timezone(timedelta(microseconds=micros)), micros
    if kind == _LABELLED:
        return timezone(timedelta(microseconds=micros), name), micros
    if kind != _NAMED:
        raise ValueError("unknown kind of time zone")
    try:
        return ZoneInfo(name), micros
    except Exception as exc:
        # KeyError, ValueError or OSError, by what the name looks like as a path.
        raise ValueError(
            f"time zone {name[:80]!r} is not known on this host; install tzdata"
        ) from exc


def _check_offset(value: datetime | time, micros: int) -> None:
    # Another tzdata here would turn the same wall clock into another instant.
    if _micros(value.utcoffset()) != micros:
        raise ValueError(
            f"time zone {value.tzinfo} has another offset on this host; "
            "install the same tzdata everywhere"
        )


def _write_datetime(moment: datetime) -> bytes:
    head = _DATETIME.pack(
        moment.year,
        moment.month,
        moment.day,
        moment.hour,
        moment.minute,
        moment.second,
        moment.microsecond,
        moment.fold,
    )
    return head if moment.tzinfo is None else head + _write_zone(moment.tzinfo, moment.utcoffset())


def _read_datetime(data: bytes) -> datetime:
    *fields, fold = _DATETIME.unpack_from(data)
    naive = datetime(*fields, fold=fold)  # noqa: DTZ001  # naive stays naive
    if len(data) == _DATETIME.size:
        return naive
    zone, micros = _read_zone(data[_DATETIME.size :])
    moment = naive.replace(tzinfo=zone)
    _check_offset(moment, micros)
    return moment


def _write_date(day: date) -> bytes:
    return _DATE.pack(day.year, day.month, day.day)


def _read_date(data: bytes) -> date:
    return date(*_DATE.unpack(data))


def _write_time(clock: time) -> bytes:
    head = _TIME.pack(clock.hour, clock.minute, clock.second, clock.microsecond, clock.fold)
    return head if clock.tzinfo is None else head + _write_zone(clock.tzinfo, clock.utcoffset())


def _read_time(data: bytes) -> time:
    *fields, fold = _TIME.unpack_from(data)
    naive = time(*fields, fold=fold)
    if len(data) == _TIME.size:
        return naive
    zone, micros = _read_zone(data[_TIME.size :])
    clock = naive.replace(tzinfo=zone)
    _check_offset(clock, micros)
    return clock


def _write_timedelta(span: timedelta) -> bytes:
    return _TIMEDELTA.pack(span.days, span.seconds, span.microseconds)


def _read_timedelta(data: bytes) -> timedelta:
    return timedelta(*_TIMEDELTA.unpack(data))


def _write_uuid(uuid: UUID) -> bytes:
    return uuid.bytes + _SAFETY[uuid.is_safe]


def _read_uuid(data: bytes) -> UUID:
    for safety, tail in _SAFETY.items():
        if data[16:] == tail:
            return UUID(bytes=data[:16], is_safe=safety)
    raise ValueError("not a UUID")


def _write_complex(number: complex) -> bytes:
    return _COMPLEX.pack(number.real, number.imag)


def _read_complex(data: bytes) -> complex:
    return complex(*_COMPLEX.unpack(data))


WRITERS: Final[dict[type, tuple[int, Callable[[Any], bytes]]]] = {
    int: (BIG_INT, _write_int),  # msgpack keeps the 64-bit ones for itself
    Decimal: (DECIMAL, _write_decimal),
    datetime: (DATETIME, _write_datetime),
    date: (DATE, _write_date),
    time: (TIME, _write_time),
    timedelta: (TIMEDELTA, _write_timedelta),
    UUID: (UUID_, _write_uuid),
    complex: (COMPLEX, _write_complex),
}

READERS: Final[dict[int, Callable[[bytes], object]]] = {
    BIG_INT: _read_int,
    DECIMAL: _read_decimal,
    DATETIME: _read_datetime,
    DATE: _read_date,
    TIME: _read_time,
    TIMEDELTA: _read_timedelta,
    UUID_: _read_uuid,
    COMPLEX: _read_complex,
}
