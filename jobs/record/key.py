"""Decodes the keys of records to columns, which follow those of the values.

Relies on the format JSON for keys that are objects. Imports Arrow only where a key is decoded, since the
config imports this module. A record without a key has nulls; a key that cannot be read makes it invalid.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from jobs.record.columns import Column, Kind, Scalar
from jobs.record.formats import DECODERS
from jobs.record.formats.protocol import KeyProblem
from jobs.record.rules import KeyFormat, RecordFormat, Rules

if TYPE_CHECKING:
    import pyarrow as pa

    from jobs.record.event_time import Faults

_COLUMNS = ("record", "key", "columns")
_WHOLE = re.compile(rb"-?(?:0|[1-9][0-9]{0,18})")


def key_problems(rules: Rules) -> Iterator[KeyProblem]:
    """Yield the keys of a config by which no key of a record can be decoded."""
    columns = rules.key.columns
    if not columns:
        return
    if rules.format is RecordFormat.RAW:
        yield KeyProblem(("record", "key"), "record.format raw keeps the key as bytes; leave it out")
    taken = {column.name.casefold() for column in rules.columns}
    for column in columns:
        if column.name.casefold() in taken:
            yield KeyProblem((*_COLUMNS, column.name), "is a column of record.columns already")
    if rules.key.format is KeyFormat.JSON:
        for found in DECODERS[RecordFormat.JSON].problems(_as_value(rules)):
            yield KeyProblem((*_COLUMNS, *found.path[2:]), found.problem)
    elif len(columns) > 1 or not _is_text(columns[0]):
        yield KeyProblem(_COLUMNS, "expected one column of type string or bigint, or format: json")


def _is_text(column: Column) -> bool:
    return column.type in (Scalar(Kind.STRING), Scalar(Kind.BIGINT)) and not column.source


def _as_value(rules: Rules) -> Rules:
    """Return the rules of a record whose value is the key."""
    time = replace(rules.event_time, path=())
    return replace(rules, format=RecordFormat.JSON, columns=rules.key.columns, event_time=time)


def key_reader(rules: Rules) -> Callable[[pa.BinaryArray], tuple[list[pa.Array], Faults]]:
    """Return a function that reads the keys of a batch; raise ValueError where none can be read."""
    for found in key_problems(rules):
        raise ValueError(f"{'.'.join(found.path)}: {found.problem}")
    if rules.key.format is KeyFormat.TEXT:
        return lambda keys: _texts(keys, rules.key.columns[0])
    read = DECODERS[RecordFormat.JSON].reader(_as_value(rules))

    def read_objects(keys: pa.BinaryArray) -> tuple[list[pa.Array], Faults]:
        objects = read(keys)
        faults = objects.field_faults | objects.value_faults
        return objects.columns, {index: f"Key: {cause}" for index, cause in faults.items()}

    return read_objects


def _texts(keys: pa.BinaryArray, column: Column) -> tuple[list[pa.Array], Faults]:
    import pyarrow as pa

    is_number = column.type == Scalar(Kind.BIGINT)
    read: Callable[[bytes], str | int] = _number if is_number else bytes.decode
    values: list[str | int | None] = [None] * len(keys)
    faults: Faults = {}
    for index, key in enumerate(keys.to_pylist()):
        try:
            values[index] = None if key is None else read(key)
        except ValueError:
            faults[index] = "Key: Not a whole number for `bigint`" if is_number else "Key: Not valid UTF-8"
    return [pa.array(values, pa.int64() if is_number else pa.string())], faults


def _number(key: bytes) -> int:
    number = int(key) if _WHOLE.fullmatch(key) else 2**63
    if not -(2**63) <= number < 2**63:
        raise ValueError
    return number
