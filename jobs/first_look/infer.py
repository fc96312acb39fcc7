"""Infer column types from decoded JSON values.

Pure: no Kafka, no Spark, no clock. Sound for what it was given: every value of the sample can be read as the
type that is inferred from it. Where values of one field have several kinds, that is `json`, which takes any.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal as Number
from typing import Any, Final

from jobs.record.columns import (
    Array,
    Column,
    ColumnType,
    Decimal,
    Kind,
    Map,
    Scalar,
    Struct,
    duplicate_name,
    field_problem,
)
from jobs.record.event_time import instant

JSON: Final = Scalar(Kind.JSON)
INT64: Final = range(-(2**63), 2**63)
EXACT_IN_DOUBLE: Final = 2**53
"""Up to here a double holds each whole number."""
DEEPEST: Final = 12
"""How deep objects are taken apart; what lies deeper is kept as its text."""
OPEN_KEYS: Final = 8
OPEN_SHARE: Final = 0.34
"""Objects with at least OPEN_KEYS different keys, each in less than this share of them, make a map."""
WIDEST: Final = 200
"""An object with more different keys than this is no struct."""
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Inferred:
    """The type of one field, and what a person should know of it."""

    type: ColumnType
    note: str = ""


def infer(values: Iterable[Any], depth: int = 1) -> Inferred:
    """Return the type that each of some decoded JSON values can be read as; None among them is null."""
    present = [value for value in values if value is not None]
    kinds = {_kind(value) for value in present}
    if depth > DEEPEST:
        return Inferred(type=JSON, note="nests deep")
    match sorted(kinds):
        case []:
            return Inferred(type=JSON, note="always null in the sample")
        case ["boolean"]:
            return Inferred(type=Scalar(Kind.BOOLEAN))
        case ["int"]:
            return _whole_numbers(present)
        case ["float"] | ["float", "int"]:
            return _numbers(present)
        case ["string"]:
            return _strings(present)
        case ["array"]:
            return _arrays(present, depth)
        case ["object"]:
            return _objects(present, depth)
        case several:
            return Inferred(type=JSON, note=f"has {' and '.join(several)} values")


def _arrays(values: Sequence[Sequence[Any]], depth: int) -> Inferred:
    items = [item for value in values for item in value]
    element = infer(items, depth + 1)
    return Inferred(type=Array(element.type), note=element.note if items else "always empty in the sample")


def _kind(value: object) -> str:
    match value:
        case bool():
            return "boolean"
        case int():
            return "int"
        case float():
            return "float"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


def _whole_numbers(values: Sequence[int]) -> Inferred:
    if min(values) in INT64 and max(values) in INT64:
        return Inferred(type=Scalar(Kind.BIGINT))
    if max(map(abs, values)) < 10**38:
        return Inferred(type=Decimal(38, 0), note="too large for bigint")
    return Inferred(type=JSON, note="too large for any number")


def _numbers(values: Sequence[float]) -> Inferred:
    if any(isinstance(value, int) and abs(value) > EXACT_IN_DOUBLE for value in values):
        return Inferred(type=JSON, note="too large for a double to be exact")
    scale = max(_decimals(value) for value in values)
    money = f"decimal(18,{scale}) would be exact, where no value has more decimals" if scale <= 4 else ""
    return Inferred(type=Scalar(Kind.DOUBLE), note=money)


def _decimals(value: float) -> int:
    """Count the decimals of a number as Python writes it."""
    return max(-int(Number(repr(value)).as_tuple().exponent), 0)


def _strings(values: Sequence[str]) -> Inferred:
    if all(map(is_timestamp, values)):
        return Inferred(type=Scalar(Kind.TIMESTAMP))
    if all(map(_is_date, values)):
        return Inferred(type=Scalar(Kind.DATE))
    if all(map(_NUMBER.fullmatch, values)):
        return _numbers_in_quotes(values)
    return Inferred(type=Scalar(Kind.STRING))


def is_timestamp(text: str) -> bool:
    """Return whether a text is a time with a zone, as a column of timestamps reads it."""
    try:
        instant(text, None)
    except ValueError:
        return False
    return True


def _is_date(text: str) -> bool:
    try:
        return bool(_DATE.fullmatch(text)) and bool(date.fromisoformat(text))
    except ValueError:
        return False


def _numbers_in_quotes(values: Sequence[str]) -> Inferred:
    """Keep numbers in quotes as texts: digits of an identifier may lead with zeros one day."""
    scale = max(len(text.partition(".")[2]) for text in values)
    if not scale or scale > 18:
        return Inferred(type=Scalar(Kind.STRING))
    return Inferred(type=Scalar(Kind.STRING), note=f"decimal(38,{scale}) would hold these as exact numbers")


def _objects(values: Sequence[Mapping[str, Any]], depth: int) -> Inferred:
    fields = fields_of(values)
    if not fields:
        return Inferred(type=JSON, note="always empty in the sample")
    if is_open(fields, len(values)):
        inferred = infer([value for column in fields.values() for value in column], depth + 1)
        return Inferred(type=Map(inferred.type), note="its keys differ from record to record")
    columns = tuple(Column(name, infer(column, depth + 1).type) for name, column in fields.items())
    if problem := duplicate_name(columns) or next(filter(None, map(unwritable, fields)), None):
        return Inferred(type=JSON, note=problem)
    if len(fields) > WIDEST:
        return Inferred(type=JSON, note=f"has {len(fields)} different keys")
    return Inferred(type=Struct(columns))


def fields_of(values: Iterable[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return the values of each field of some objects, in the order in which fields first appear."""
    fields: dict[str, list[Any]] = {}
    for value in values:
        for name, inner in value.items():
            fields.setdefault(name, []).append(inner)
    return fields


def unwritable(name: str) -> str | None:
    """Return why no column type can be written for a field in one line of YAML, or None."""
    hidden = None if name.isprintable() else f"a name holds a character that is not printable: {name!a}"
    return field_problem(name) or hidden


def is_open(fields: Mapping[str, Sequence[Any]], objects: int) -> bool:
    """Return whether the keys of objects are data, not names: many, and each in few of the objects."""
    present = sum(map(len, fields.values())) / len(fields)
    return len(fields) >= OPEN_KEYS and present < OPEN_SHARE * objects
