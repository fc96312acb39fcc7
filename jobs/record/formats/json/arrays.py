"""Makes Arrow arrays of decoded values, a column at a time.

Relies on `payload` for values of the right type; checks what a type does not show (decimals, times).
Never fails a whole batch: a bad value becomes a fault with the index of its record.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from decimal import Context, Inexact, InvalidOperation
from decimal import Decimal as Number
from itertools import chain
from typing import Any, assert_never

import msgspec
import numpy as np
import pyarrow as pa
from msgspec.structs import astuple

from jobs.record.columns import Array, Column, ColumnType, Decimal, Kind, Map, Scalar, Struct, ddl
from jobs.record.event_time import Faults, TimeReader, with_path
from jobs.record.formats.json.payload import Row, row_type
from jobs.record.schema import INSTANT, arrow_type

Values = Sequence[Any]
Make = Callable[[Values], tuple[pa.Array, Faults]]
"""Makes an array with a slot for each value, and the faults of the values that it cannot hold."""

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")


def array_builder(type: ColumnType, wire: ColumnType, path: str) -> Make:
    """Return the maker of a column's array; `wire` is its type, with the slots that others have inside it."""
    if _plain(type):
        return _as_decoded(arrow_type(type))
    match type:
        case Scalar(Kind.TIMESTAMP | Kind.DATE as kind, written):
            return _times(kind, path, TimeReader.of(written))
        case Scalar():
            return _texts
        case Decimal():
            return _decimals(type, path)
        case Struct(fields):
            return _structs(fields, wire.fields if isinstance(wire, Struct) else fields, path)
        case Array(item) | Map(item):
            return _collections(type, array_builder(item, item, f"{path}[...]"))
        case _:
            assert_never(type)


def bisect_failures(make: Make, type: ColumnType, path: str) -> Make:
    """Wrap `make`: where Arrow refuses a batch, halve it until the bad value fails alone."""

    def guarded(values: Values) -> tuple[pa.Array, Faults]:
        try:
            return make(values)
        except MemoryError:
            raise
        except (pa.ArrowException, ValueError, TypeError, OverflowError):
            if len(values) < 2:
                cause = f"Not a value of `{ddl(type)}` - at `{path}`"
                return pa.nulls(len(values), arrow_type(type)), dict.fromkeys(range(len(values)), cause)
        half = len(values) // 2
        left, right = guarded(values[:half]), guarded(values[half:])
        faults = left[1] | {half + index: cause for index, cause in right[1].items()}
        return pa.concat_arrays([left[0], right[0]]), faults

    return guarded


def _plain(type: ColumnType) -> bool:
    """Return whether Arrow takes the decoded values as they are."""
    match type:
        case Scalar(kind, written):
            return kind not in (Kind.JSON, Kind.TIMESTAMP) and not written
        case Array(inner) | Map(inner):
            return _plain(inner)
        case _:
            return False


def _as_decoded(arrow: pa.DataType) -> Make:
    def make(values: Values) -> tuple[pa.Array, Faults]:
        return pa.array(values, arrow), {}

    return make


def _times(kind: Kind, path: str, reader: TimeReader) -> Make:
    def make(values: Values) -> tuple[pa.Array, Faults]:
        if kind is Kind.DATE:
            made, faults = reader.read_dates(values)
        else:
            micros, faults = reader.read(values)
            made = micros.cast(INSTANT)
        return made, with_path(path, faults)

    return make


def _text(raw: msgspec.Raw | None) -> bytes | None:
    """Return a value's own text, or None where it is missing or null."""
    text = b"null" if raw is None else bytes(raw)
    return None if text == b"null" else text


def _texts(values: Values) -> tuple[pa.Array, Faults]:
    return pa.array([_text(value) for value in values], pa.string()), {}


def _decimals(type: Decimal, path: str) -> Make:
    unit = Number((0, (1,), -type.scale))
    exact = Context(prec=type.precision, traps=[InvalidOperation, Inexact])

    def number(text: bytes) -> Number:
        """Read a number, in quotes or not, with exactly the column's digits behind the point."""
        digits = msgspec.json.decode(text, type=str) if text[:1] == b'"' else text.decode()
        if not _NUMBER.fullmatch(digits):
            raise ValueError(f"Not a number for `{ddl(type)}`")
        try:
            return Number(digits).quantize(unit, context=exact)
        except (InvalidOperation, Inexact):
            raise ValueError(f"More digits than `{ddl(type)}` has") from None

    def make(values: Values) -> tuple[pa.Array, Faults]:
        numbers: list[Number | None] = [None] * len(values)
        faults = Faults()
        for index, value in enumerate(values):
            if (text := _text(value)) is not None:
                try:
                    numbers[index] = number(text)
                except ValueError as error:
                    faults[index] = str(error)
        return pa.array(numbers, arrow_type(type)), with_path(path, faults)

    return make


def _structs(fields: tuple[Column, ...], wired: tuple[Column, ...], path: str) -> Make:
    arrow = [pa.field(field.name, arrow_type(field.type)) for field in fields]
    plain = fields == wired and all(_plain(field.type) for field in fields)
    blank = row_type(wired)()
    makers = [
        array_builder(field.type, wire.type, f"{path}.{field.name}")
        for field, wire in zip(fields, wired, strict=False)
    ]

    def make_plain(values: Values) -> tuple[pa.Array, Faults]:
        return pa.array([None if row is None else astuple(row) for row in values], pa.struct(arrow)), {}

    def make(values: Values) -> tuple[pa.Array, Faults]:
        if not values:
            return pa.array([], pa.struct(arrow)), {}
        parts, faults = make_slots(makers, columns_of([blank if row is None else row for row in values]))
        absent = pa.array([row is None for row in values], pa.bool_())
        return pa.StructArray.from_arrays(parts, fields=arrow, mask=absent), faults

    return make_plain if plain else make


def make_slots(makers: Sequence[Make], slots: Sequence[Values]) -> tuple[list[pa.Array], Faults]:
    """Make the arrays of the slots that have a maker; of two faults in one record the first counts."""
    made = [make(slot) for make, slot in zip(makers, slots, strict=False)]
    faults = Faults()
    for _, more in made:
        faults = more | faults
    return [array for array, _ in made], faults


def columns_of(rows: Sequence[Row]) -> Sequence[Values]:
    """Turn rows into columns."""
    return list(zip(*map(astuple, rows), strict=True))


def _collections(type: Array | Map, make_item: Make) -> Make:
    def make(values: Values) -> tuple[pa.Array, Faults]:
        offsets, absent = _offsets(values), pa.array([value is None for value in values], pa.bool_())
        filled = [value for value in values if value]
        layout = {"offsets": pa.array(offsets), "type": arrow_type(type), "mask": absent}
        if isinstance(type, Array):
            items, faults = make_item(list(chain.from_iterable(filled)))
            return pa.ListArray.from_arrays(values=items, **layout), _by_collection(faults, offsets)
        items, faults = make_item([item for value in filled for item in value.values()])
        keys = pa.array(list(chain.from_iterable(filled)), pa.string())
        return pa.MapArray.from_arrays(keys=keys, items=items, **layout), _by_collection(faults, offsets)

    return make


def _offsets(values: Values) -> np.ndarray[Any, np.dtype[np.int32]]:
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum([0 if value is None else len(value) for value in values], out=offsets[1:])
    return offsets


def _by_collection(faults: Faults, offsets: np.ndarray[Any, np.dtype[np.int32]]) -> Faults:
    """Return the faults of elements by the index of their collection; the first of a collection counts."""
    by_collection = Faults()
    for index in sorted(faults):
        by_collection.setdefault(int(np.searchsorted(offsets, index, side="right")) - 1, faults[index])
    return by_collection
