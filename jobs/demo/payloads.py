"""Odd and broken payloads; a payload is in BROKEN or in ODD, which states whether it is valid.

Relies on the demo's columns and on zone-less times being UTC.
Never asks the decoder: the two are to be compared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias

from msgspec.json import encode

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
LONG_TEXT: Final = 900_000
DEEP: Final = 100_000
DAY: Final = 86_400_000_000

Fields: TypeAlias = dict[str, object]


def instant(micros: int) -> datetime:
    """Return the instant of a count of microseconds since 1970."""
    return EPOCH + timedelta(microseconds=micros)


def iso(micros: int) -> str:
    """Write an instant as most producers do, to the millisecond."""
    return instant(micros).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def whole(order: Fields, **changes: object) -> bytes:
    """Write an order as a record's value, in JSON."""
    return encode(order | changes)


BROKEN: Final[Mapping[str, Callable[[Fields, int], bytes | None]]] = {
    "tombstone": lambda order, at: None,
    "empty": lambda order, at: b"",
    "null": lambda order, at: b"null",
    "array": lambda order, at: b"[]",
    "number": lambda order, at: b"42",
    "truncated": lambda order, at: whole(order)[:-100],
    "trailing bytes": lambda order, at: whole(order) + b" x",
    "two objects": lambda order, at: whole(order) + whole(order),
    "byte order mark": lambda order, at: b"\xef\xbb\xbf" + whole(order),
    "bad UTF-8": lambda order, at: whole(order, note="@").replace(b"@", b"caf\xe9"),
    "bad UTF-8 in an unknown field": lambda order, at: whole(order, more="@").replace(b"@", b"\xff\xfe"),
    "text for a number": lambda order, at: whole(order, amount="12.50"),
    "fraction for a whole number": lambda order, at: whole(order, items=1.5),
    "number for a text": lambda order, at: whole(order, order_id=7),
    "int64 overflow": lambda order, at: whole(order, items=2**63),
    "NaN": lambda order, at: whole(order, amount="@").replace(b'"@"', b"NaN"),
    "deep nesting": lambda order, at: whole(order)[:-1] + b',"deep":' + b"[" * DEEP + b"]" * DEEP + b"}",
    "no event time": lambda order, at: whole({key: order[key] for key in order if key != "created_at"}),
    "null event time": lambda order, at: whole(order, created_at=None),
    "seconds for an event time": lambda order, at: whole(order, created_at=at // 1_000_000),
    "a word for an event time": lambda order, at: whole(order, created_at="yesterday"),
    "year 1": lambda order, at: whole(order, created_at="0001-01-01T00:00:00Z"),
    "year 9999": lambda order, at: whole(order, created_at="9999-12-31T23:59:59Z"),
    "31 days old": lambda order, at: whole(order, created_at=iso(at - 31 * DAY)),
    "2 days ahead": lambda order, at: whole(order, created_at=iso(at + 2 * DAY)),
}
"""What no reader of the lake may ever see as a row of a day."""

ODD: Final[Mapping[str, Callable[[Fields, int], bytes]]] = {
    "duplicate key": lambda order, at: b'{"status":"old",' + whole(order)[1:],
    "unknown field": lambda order, at: whole(order, more={"deep": [[["fine"]]]}),
    "900 kB string": lambda order, at: whole(order, note="long " * (LONG_TEXT // 5)),
    "zone-less time": lambda order, at: whole(order, created_at=iso(at).removesuffix("Z")),
    "nanoseconds": lambda order, at: whole(order, created_at=iso(at).replace("Z", "999999Z")),
}
"""Odd, but valid, and with its event time: the fraction is cut to microseconds, never rounded."""
