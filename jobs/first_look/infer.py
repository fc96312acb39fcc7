"""Infer column types from decoded JSON values.

Pure: no Kafka, no Spark, no clock. The type that is inferred reads every value of the sample, but for a
few of another kind, which are counted as misfits. Several kinds that are common are `json`, which takes any.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal as Number
from itertools import islice
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
    ddl,
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
FREE_KEYS: Final = 3
SELDOM: Final = 0.9
"""At least FREE_KEYS keys of one type may be data, if each is in less than this share of the objects."""
SHOWN: Final = 3
"""How many notes of a struct's fields are told."""
WIDEST: Final = 200
"""An object with more different keys than this is no struct."""
FEW: Final = 0.01
"""The share of a field's values, and of the records, that may be misfits: a broken producer's, not a kind of
their own."""
RARE: Final = 0.001
"""The share of texts that may be no times where all others are: less than a day may have invalid by default,
since `string` would take them all."""
CENTS: Final = 2
"""The decimals of most amounts of money."""
NO_TIME: Final = "no timestamp"
NUMBERS: Final = frozenset({"int", "float"})
NAMED: Final = {
    "array": ("an array", "arrays"),
    "boolean": ("a boolean", "booleans"),
    "float": ("a number with a point", "numbers with a point"),
    "int": ("a whole number", "whole numbers"),
    "large": ("too large", "too large"),
    "object": ("an object", "objects"),
    "string": ("a string", "strings"),
    "date": ("no date", "no dates"),
    "timestamp": (NO_TIME, f"{NO_TIME}s"),
}
"""What misfits are, one and several."""
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Inferred:
    """The type of one field, and what a person should know of it; `misfits` are what it cannot read."""

    type: ColumnType
    note: str = ""
    misfits: tuple[str, ...] = ()


def infer(values: Iterable[Any], depth: int = 1, few: int | None = None) -> Inferred:
    """Return the type that decoded JSON values can be read as, but for a few; None among them is null.

    At most `few` may be misfits, and never more than the share FEW.
    """
    present = [value for value in values if value is not None]
    if depth > DEEPEST:
        return Inferred(type=JSON, note="nests deep")
    if not present:
        return Inferred(type=JSON, note="always null in the sample")
    few = _at_most(few, len(present), FEW)
    kinds = Counter(map(_kind, present))
    usual = _usual(kinds, few)
    odd = {kind: count for kind, count in kinds.items() if kind not in usual}
    if not usual:
        return Inferred(type=JSON, note=f"has {' and '.join(sorted(kinds))} values")
    fitting = [value for value in present if _kind(value) in usual] if odd else present
    inferred = _of_kind(sorted(kinds.keys() & usual), fitting, depth, few - sum(odd.values()))
    return _with_misfits(inferred, odd, len(present))


def _at_most(few: int | None, values: int, share: float) -> int:
    own = int(values * share)
    return own if few is None else min(few, own)


def _usual(kinds: Counter[str], few: int) -> frozenset[str]:
    """Return the kind of all values but a few, numbers of both kinds as one; empty if several are common."""
    groups = (NUMBERS, *(frozenset({kind}) for kind in sorted(kinds.keys() - NUMBERS)))
    fits = (group for group in groups if kinds.total() - sum(kinds[kind] for kind in group) <= few)
    return next(fits, frozenset())


def _with_misfits(inferred: Inferred, odd: Mapping[str, int], of: int) -> Inferred:
    """Return what was inferred of the fitting values; `json` takes the odd ones too."""
    if not odd or inferred.type == JSON:
        return inferred
    count = sum(odd.values())
    if count == 1:
        told = f"1 of {of:,} is {NAMED[next(iter(odd))][0]}: that record becomes invalid"
    else:
        named = " or ".join(NAMED[kind][1] for kind in sorted(odd))
        told = f"{count:,} of {of:,} are {named}: those records become invalid"
    return replace(inferred, misfits=(told, *inferred.misfits))


def _of_kind(kinds: Sequence[str], values: Sequence[Any], depth: int, few: int) -> Inferred:
    match kinds:
        case ["boolean"]:
            return Inferred(type=Scalar(Kind.BOOLEAN))
        case ["int"]:
            return _whole_numbers(values, few)
        case ["string"]:
            return _strings(values, few)
        case ["array"]:
            return _arrays(values, depth, few)
        case ["object"]:
            return _objects(values, depth, few)
        case _:
            return _numbers(values, few)


def within(name: str) -> str:
    """Return how the misfits of a field inside another begin."""
    return f"in {name}, "


def _within(name: str, inferred: Inferred) -> tuple[str, ...]:
    return tuple(within(name) + misfit for misfit in inferred.misfits)


def _arrays(values: Sequence[Sequence[Any]], depth: int, few: int) -> Inferred:
    items = [item for value in values for item in value]
    element = infer(items, depth + 1, few)
    note = element.note if items else "always empty in the sample"
    return Inferred(type=Array(element.type), note=note, misfits=_within("its items", element))


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


def _whole_numbers(values: Sequence[int], few: int) -> Inferred:
    large = sum(value not in INT64 for value in values)
    if not large:
        return Inferred(type=Scalar(Kind.BIGINT))
    if max(map(abs, values)) < 10**38:
        return Inferred(type=Decimal(38, 0), note="too large for bigint")
    if large <= few:
        return _with_misfits(Inferred(type=Scalar(Kind.BIGINT)), {"large": large}, len(values))
    return Inferred(type=JSON, note="too large for any number")


def _numbers(values: Sequence[float], few: int) -> Inferred:
    whole = [value for value in values if isinstance(value, int)]
    if any(abs(value) > EXACT_IN_DOUBLE for value in whole):
        if (odd := len(values) - len(whole)) <= few:
            return _with_misfits(_whole_numbers(whole, few - odd), {"float": odd}, len(values))
        return Inferred(type=JSON, note="too large for a double to be exact")
    scale = max(_decimals(value) for value in values)
    money = "decimal(18,2) would be exact, if this is money" if scale == CENTS else ""
    return Inferred(type=Scalar(Kind.DOUBLE), note=money)


def _decimals(value: float) -> int:
    """Count the decimals of a number as Python writes it."""
    return max(-int(Number(repr(value)).as_tuple().exponent), 0)


def _strings(values: Sequence[str], few: int) -> Inferred:
    few = _at_most(few, len(values), RARE)
    for kind, reads in ((Kind.TIMESTAMP, is_timestamp), (Kind.DATE, _is_date)):
        unread = _unread(values, reads, few)
        if unread <= few:
            odd = {kind.value: unread} if unread else {}
            return _with_misfits(Inferred(type=Scalar(kind)), odd, len(values))
    numbers = [value for value in values if _NUMBER.fullmatch(value)]
    if len(values) - len(numbers) <= int(len(values) * FEW):
        return _numbers_in_quotes(numbers, len(values) - len(numbers))
    return Inferred(type=Scalar(Kind.STRING))


def _unread(values: Sequence[str], reads: Callable[[str], bool], few: int) -> int:
    """Count the values that are not read, no further than one more than a few."""
    return sum(1 for _ in islice((value for value in values if not reads(value)), few + 1))


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


def _numbers_in_quotes(values: Sequence[str], others: int) -> Inferred:
    """Keep numbers in quotes as texts: digits of an identifier may lead with zeros one day.

    So many `others` in the same field are no numbers.
    """
    scales = {len(text.partition(".")[2]) for text in values}
    scale = max(scales)
    if len(scales) > 1 or not CENTS <= scale <= 18:  # a version such as 1.2 is no number
        return Inferred(type=Scalar(Kind.STRING))
    but = f", but {others:,}, whose records would become invalid" if others else ""
    note = f"decimal(38,{scale}) would hold these as exact numbers{but}"
    return Inferred(type=Scalar(Kind.STRING), note=note)


def _objects(values: Sequence[Mapping[str, Any]], depth: int, few: int) -> Inferred:
    fields = fields_of(values)
    if not fields:
        return Inferred(type=JSON, note="always empty in the sample")
    if is_open(fields, len(values)):
        inferred = infer([value for column in fields.values() for value in column], depth + 1, few)
        note = "its keys differ from record to record"
        return Inferred(type=Map(inferred.type), note=note, misfits=_within("its values", inferred))
    found = {name: infer(column, depth + 1, few) for name, column in fields.items()}
    columns = tuple(Column(name, inferred.type) for name, inferred in found.items())
    if problem := duplicate_name(columns) or next(filter(None, map(unwritable, fields)), None):
        return Inferred(type=JSON, note=problem)
    if len(fields) > WIDEST:
        return Inferred(type=JSON, note=f"has {len(fields)} different keys")
    misfits = tuple(misfit for name in found for misfit in _within(name, found[name]))
    return Inferred(type=Struct(columns), note=_notes(found, fields, len(values)), misfits=misfits)


def _notes(found: Mapping[str, Inferred], fields: Mapping[str, Sequence[Any]], objects: int) -> str:
    """Return what to know of a struct: whether its keys may be data, and the notes of its fields."""
    notes = [within(name) + inferred.note for name, inferred in found.items() if inferred.note]
    shown = [*notes[:SHOWN], f"and {len(notes) - SHOWN} more notes" if len(notes) > SHOWN else ""]
    types = {inferred.type for inferred in found.values()}
    if len(fields) >= FREE_KEYS and len(types) == 1 and max(map(len, fields.values())) < SELDOM * objects:
        one = ddl(next(iter(types)))
        free = f"no key is in all of these: if the keys are data, map<string,{one}> keeps new ones too"
        shown.insert(0, free)
    return "; ".join(filter(None, shown))


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
