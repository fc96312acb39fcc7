"""Guess why a record is invalid, from its bytes and Kafka's timestamp.

Pure, and for messages alone: no verdict depends on it. Never repeats a value: a hint may go into a log.
"""

from __future__ import annotations

import math
import re
from datetime import timedelta
from typing import Any, Final

import msgspec

from jobs.record.rules import RecordFormat, Rules
from jobs.record.time_format import NANOSECONDS, TimeFormat
from offsets.instants import MICROSECOND

FRAMING: Final = (
    "the first byte is 0, as a schema registry's framing begins (Avro, Protobuf, JSON Schema): "
    "only plain JSON is decoded; record.format: raw keeps the bytes"
)
COMPRESSED: Final = {
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x04\x22\x4d\x18": "lz4",
    b"PK\x03\x04": "zip",
}
"""How compressed data begin."""
MARKS: Final = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16", b"\xef\xbb\xbf": "a byte order mark"}
"""How texts begin that carry a mark of their encoding."""
NOT_TEXT: Final = "the value is not UTF-8: another encoding such as Latin-1, or no text; JSON is UTF-8"
IN_QUOTES: Final = (
    "the value is a JSON string that holds JSON: the producer encoded it twice; only an object is decoded"
)
A_LIST: Final = "the value is a JSON array: one message holds several records; only one object is decoded"
ENVELOPE: Final = (
    "the record is an envelope with schema and payload, as Kafka Connect's JSON converter writes it: name "
    "fields inside `payload` (event_time.field: payload...), or set schemas.enable=false at the producer"
)
NUMBER: Final = re.compile(r"-?[0-9]{1,20}")
UNITS: Final = {
    TimeFormat.EPOCH_D: "days",
    TimeFormat.EPOCH_S: "seconds",
    TimeFormat.EPOCH_MS: "milliseconds",
    TimeFormat.EPOCH_US: "microseconds",
    TimeFormat.EPOCH_NS: "nanoseconds",
}
"""What an epoch format counts."""
WHOLE_ALONE: Final = (
    "event_time.format reads epochs as whole numbers alone; event_time.source: kafka takes Kafka's timestamp"
)
NEAR: Final = timedelta(days=10 * 365)
"""A number is an epoch in a unit by which it lies this near Kafka's timestamp."""


def hint_of(value: bytes | None, timestamp: int, rules: Rules) -> str | None:
    """Return what may be wrong with an invalid record, or None; `timestamp` is Kafka's (ms)."""
    if value is None or rules.format is not RecordFormat.JSON:
        return None
    if value[:1] == b"\0" and len(value) > 5:
        return FRAMING
    for magic, name in COMPRESSED.items():
        if value.startswith(magic):
            return f"the value begins as {name} data do: the producer compressed it itself, where Kafka would"
    for mark, name in MARKS.items():
        if value.startswith(mark):
            return f"the value begins as {name} does; JSON is UTF-8 without such a mark"
    try:
        return _hint_of_json(msgspec.json.decode(value.decode()), timestamp, rules)
    except UnicodeDecodeError:
        return NOT_TEXT
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def _hint_of_json(decoded: object, timestamp: int, rules: Rules) -> str | None:
    match decoded:
        case list():
            return A_LIST
        case str() if decoded.lstrip()[:1] in ("{", "["):
            return IN_QUOTES
        case {"schema": _, "payload": dict()} if "payload" not in rules.event_time.path:
            return ENVELOPE
        case dict() if rules.event_time.path:
            return _hint_of_time(_at(decoded, rules.event_time.path), timestamp, rules)
    return None


def _at(decoded: object, path: tuple[str, ...]) -> Any:
    for name in path:
        decoded = decoded.get(name) if isinstance(decoded, dict) else None
    return decoded


def _hint_of_time(found: object, timestamp: int, rules: Rules) -> str | None:
    """Compare how an event time is written with how the config reads it."""
    field, format = ".".join(rules.event_time.path), rules.event_time.format
    if isinstance(found, str) and not NUMBER.fullmatch(found):
        reads = (
            f"`{field}` is a text, and event_time.format: {format.value} reads a number; iso8601 reads texts"
        )
        return reads if format.is_count else None
    number = _whole(found)
    unit = None if number is None else unit_near(number, timestamp)
    if unit is None or (unit is format and isinstance(found, int)):
        return None
    hint = f"the number in `{field}` is {UNITS[unit]} since 1970"
    if isinstance(found, int):
        return f"{hint}; set event_time.format: {unit}"
    written = "as a text" if isinstance(found, str) else "with a point"
    return f"{hint}, written {written}; {WHOLE_ALONE}"


def _whole(found: object) -> int | None:
    match found:
        case bool():
            return None
        case int() | str():
            return int(found)
        case float() if math.isfinite(found):
            return int(found)
    return None


def unit_near(number: int, timestamp: int, near: timedelta = NEAR) -> TimeFormat | None:
    """Return the epoch by which a number lies near Kafka's timestamp (ms); None if by none."""
    stamp = timestamp * NANOSECONDS[TimeFormat.EPOCH_MS]
    distance, unit = min((abs(number * length - stamp), unit) for unit, length in NANOSECONDS.items())
    return unit if distance // 1000 <= near // MICROSECOND and number > 0 else None
