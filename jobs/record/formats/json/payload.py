"""Decodes JSON payloads to typed rows, each alone.

Relies on msgspec for JSON and types, and on the caller's columns for the fields of a row. Never joins two
records, never puts a payload's content into a cause, and never nests deeper than `MAX_NESTING`. The limit is
counted here, because msgspec's own depends on the caller's stack. Of a duplicate key the last value counts,
and every value must have its column's type.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import date
from types import GenericAlias
from typing import Annotated, Any, assert_never

import msgspec
import numpy as np
import pyarrow as pa

from jobs.record.columns import Array, Column, ColumnType, Decimal, Kind, Map, Scalar, Struct
from jobs.record.event_time import Faults

MAX_NESTING = 64
"""How deep objects and arrays may nest."""

CHECKED_AT_ONCE = 2048
"""How many payloads are checked at a time before they are decoded: a check of few costs as much."""
CHUNK = 1024
"""How many payloads are decoded at a time: their rows stay in a core's cache until they are columns."""

NOT_UTF8 = "Not valid UTF-8"
TOO_DEEP = f"Nested deeper than {MAX_NESTING} levels"

BLANK = b"{}"
"""The payload that is decoded in place of a null or invalid value."""

FLOAT_MAX = 3.4028234663852886e38

Row = msgspec.Struct

_WIRE: dict[Kind, Any] = {
    Kind.STRING: str,
    Kind.BOOLEAN: bool,
    Kind.INT: Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)],
    Kind.BIGINT: Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)],
    Kind.FLOAT: Annotated[float, msgspec.Meta(ge=-FLOAT_MAX, le=FLOAT_MAX)],
    Kind.DOUBLE: float,
    Kind.DATE: date,
    Kind.TIMESTAMP: str,
    Kind.BINARY: bytes,
}
_WRITTEN_AS = {True: Kind.BIGINT, False: Kind.STRING}
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_BRACKET = re.compile(rb"[\[\]{}]")
_POSITION = re.compile(r" \(byte \d+\)$")
_INDEX = re.compile(r"\[\d+\](?=[.\[`])")
_AT = re.compile(r" - at `\$(.+)`$")
_EXPECTED = re.compile(r"^Expected `(?:int|float|str|bool|bytes|date)( \| null)?`")
_GOT = {"got `str`": "got `string`", "got `bool`": "got `boolean`"}
_NOT_A_DATE = "Invalid RFC3339 encoded date"


def row_type(columns: tuple[Column, ...]) -> type[Row]:
    """Make the type of a row: a slot `f<n>` for each column, None where the record lacks the field."""
    fields = [
        (f"f{index}", _wire(column.type), msgspec.field(name=column.name, default=None))
        for index, column in enumerate(columns)
    ]
    return msgspec.defstruct("Row", fields, gc=False)


def _wire(type: ColumnType) -> Any:
    """Return the Python type that msgspec decodes a column into; Raw where the text itself is needed."""
    match type:
        case Decimal() | Scalar(Kind.JSON):
            return msgspec.Raw
        case Scalar(kind, written):
            return _WIRE[_WRITTEN_AS[written.format.is_count] if written else kind] | None
        case Array(element):
            return GenericAlias(list, (_wire(element),)) | None
        case Map(value):
            return GenericAlias(dict, (str, _wire(value))) | None
        case Struct(fields):
            return row_type(fields) | None
        case _:
            assert_never(type)


class Payloads:
    """Reads payloads into rows of one type."""

    def __init__(self, columns: tuple[Column, ...]) -> None:
        """Build the type of the rows; raise ValueError for a name that msgspec refuses."""
        self._record = Struct(columns)
        self.row = row_type(columns)
        self.blank = self.row()
        self._decode: Callable[[bytes], Row] = msgspec.json.Decoder(self.row).decode

    def read(self, values: pa.BinaryArray) -> Iterator[tuple[int, list[Row], Faults]]:
        """Yield for each chunk: the index of its first payload, its rows, and causes by index in the chunk.

        An invalid payload has a blank row and a cause.
        The caller drops a chunk's rows before it takes the next: their memory is used again at once.
        """
        for start in range(0, len(values), CHECKED_AT_ONCE):
            payloads = values.slice(start, CHECKED_AT_ONCE)
            if payloads.null_count:
                payloads = payloads.fill_null(BLANK)
            invalid = _invalid(payloads)
            for at in range(0, len(payloads), CHUNK):
                of_chunk = {index - at: cause for index, cause in invalid.items() if at <= index < at + CHUNK}
                yield start + at, *self._rows(payloads.slice(at, CHUNK), of_chunk)

    def _rows(self, values: pa.BinaryArray, faults: Faults) -> tuple[list[Row], Faults]:
        payloads: list[bytes] = values.to_numpy(zero_copy_only=False).tolist()
        for index in faults:
            payloads[index] = BLANK
        rows: list[Row] = []
        decoded = map(self._decode, payloads)
        while len(rows) < len(payloads):
            try:
                # extend() keeps the rows before the payload that fails, in a tenth of the time of a loop
                rows.extend(decoded)
            except (msgspec.MsgspecError, ValueError) as error:
                faults[len(rows)] = cause_of(error, self._record)
                rows.append(self.blank)
        return rows, faults


def _invalid(values: pa.BinaryArray) -> Faults:
    """Return the faults that show before a payload is decoded: wrong UTF-8, too deep nesting."""
    faults = Faults()
    if not _all_utf8(values):
        faults |= {index: NOT_UTF8 for index, payload in enumerate(values) if not _utf8(payload.as_py())}
    for index in _many_brackets(values):
        if index not in faults and nesting(values[index].as_py()) > MAX_NESTING:
            faults[index] = TOO_DEEP
    return faults


def cause_of(error: Exception, record: ColumnType) -> str:
    """Return the cause in the words of the config, and without positions: equal faults, equal causes."""
    sentence = _POSITION.sub("", str(error))
    if sentence == "Input data was truncated":
        return "Malformed JSON: truncated"
    if isinstance(error, msgspec.ValidationError):
        return _in_our_words(_INDEX.sub("[...]", sentence), record)
    if isinstance(error, msgspec.MsgspecError):
        return sentence.replace("JSON is malformed", "Malformed JSON", 1)
    return f"Malformed JSON: {type(error).__name__}"


def _in_our_words(sentence: str, record: ColumnType) -> str:
    at = _AT.search(sentence)
    type = _type_at(record, at[1]) if at else None
    if isinstance(type, Scalar):
        sentence = _EXPECTED.sub(f"Expected {_name(type)}", sentence)
    for got, ours in _GOT.items():
        sentence = sentence.replace(got, ours)
    return sentence.replace(" | null`", "`", 1).replace(_NOT_A_DATE, "Not a date such as 2026-11-18", 1)


def _name(type: Scalar) -> str:
    is_count = type.written is not None and type.written.format.is_count
    return f"`{type.kind}`" + (f" as {type.written.format}" if type.written and is_count else "")


def _type_at(type: ColumnType, path: str) -> ColumnType | None:
    """Return the type at a path such as `.lines[...].sku`."""
    match type:
        case _ if not path:
            return type
        case Array(inner) | Map(inner) if path.startswith("[...]"):
            return _type_at(inner, path.removeprefix("[...]"))
        case Struct(fields):
            below = [(field.type, f".{field.name}") for field in fields]
            found = (_type_at(type, path.removeprefix(n)) for type, n in below if path.startswith(n))
            return next((type for type in found if type), None)
        case _:
            return None


def _all_utf8(values: pa.BinaryArray) -> bool:
    try:
        values.cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return True


def _utf8(payload: bytes) -> bool:
    try:
        payload.decode()
    except UnicodeDecodeError:
        return False
    return True


def nesting(payload: bytes) -> int:
    """Return the deepest level of objects and arrays; brackets inside strings do not count."""
    deepest = level = 0
    for bracket in _BRACKET.finditer(_STRING.sub(b"", payload)):
        level += 1 if bracket[0] in b"[{" else -1
        deepest = max(deepest, level)
    return deepest


def _many_brackets(values: pa.BinaryArray) -> Iterator[int]:
    """Return the values with enough opening brackets to nest too deep, and perhaps some more.

    `[` and `{` are the two bytes that become `{` when bit 5 is set. They are counted in words of 64 bytes. A
    word counts as a whole, even where a value begins or ends inside it.
    """
    _, offsets, data = values.buffers()
    if data is None:
        return iter(())
    bounds = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1]
    bounds = bounds.astype(np.int64)
    text = np.frombuffer(data, np.uint8)[bounds[0] : bounds[-1]]
    lowered = text | 0x20
    opening = np.packbits(np.equal(lowered, 0x7B, out=lowered.view(np.bool_)))
    words = np.zeros(len(opening) // 8 + 1, np.uint64)
    words.view(np.uint8)[: len(opening)] = opening
    before = np.zeros(len(words) + 1, np.int64)
    np.cumsum(np.bitwise_count(words), out=before[1:])
    bounds -= bounds[0]
    counts = before[(bounds[1:] + 63) >> 6] - before[bounds[:-1] >> 6]
    return iter(np.flatnonzero(counts > MAX_NESTING).tolist())
