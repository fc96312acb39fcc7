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
from jobs.record.time_format import TimeFormat

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
MICROS: Final = {"epoch_s": 10**6, "epoch_ms": 10**3, "epoch_us": 1}
NANOSECONDS: Final = "nanoseconds"
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
    text = isinstance(found, str)
    if isinstance(found, str) and not NUMBER.fullmatch(found):
        if format is TimeFormat.ISO8601:
            return None
        return f"`{field}` is a text, and event_time.format: {format} reads a number; iso8601 reads texts"
    number = _whole(found)
    unit = None if number is None else unit_near(number, timestamp)
    if unit is None or (unit == format and not text):
        return None
    hint = f"the number in `{field}` is {_NAMES[unit]} since 1970"
    if text:
        return f"{hint}, written as a text; event_time.format reads epochs as numbers alone"
    if unit == NANOSECONDS:
        return f"{hint}, which no event_time.format reads; event_time.source: kafka takes Kafka's timestamp"
    return f"{hint}; set event_time.format: {unit}"


def _whole(found: object) -> int | None:
    match found:
        case bool():
            return None
        case int() | str():
            return int(found)
        case float() if math.isfinite(found):
            return int(found)
    return None


_NAMES: Final = {
    "epoch_s": "seconds",
    "epoch_ms": "milliseconds",
    "epoch_us": "microseconds",
    NANOSECONDS: "nanoseconds",
}


def unit_near(number: int, timestamp: int, near: timedelta = NEAR) -> str | None:
    """Return the unit in which a number since 1970 lies near Kafka's timestamp (ms); None if in none."""
    stamp = timestamp * 1000
    micros = {unit: number * factor for unit, factor in MICROS.items()} | {NANOSECONDS: number // 1000}
    distance, unit = min((abs(instant - stamp), unit) for unit, instant in micros.items())
    return unit if distance <= near // timedelta(microseconds=1) and number > 0 else None
