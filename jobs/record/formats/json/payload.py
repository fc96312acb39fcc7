"""JSON payloads to typed rows, each judged alone.

Relies on msgspec for JSON and types, and on the caller's columns for what a row must hold.
Never joins two records, never puts a payload's content into a cause, and never nests deeper than
`MAX_NESTING`, a limit counted here because msgspec's own is what is left of the caller's stack.
Of a duplicate key the last value counts, and every one must be of its type.
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
"""How many objects and arrays may stand inside each other."""

LOOKED_AT = 2048
"""How many payloads are checked at a time before they are decoded: many, as a check of few costs as much."""
CHUNK = 1024
"""How many payloads are decoded at a time: as many as stay in a core's cache until they are columns."""

NOT_UTF8 = "Not valid UTF-8"
TOO_DEEP = f"Nested deeper than {MAX_NESTING} levels"

BLANK = b"{}"
"""What is decoded in place of no value, and of a value that is not valid."""

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
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_BRACKET = re.compile(rb"[\[\]{}]")
_POSITION = re.compile(r" \(byte \d+\)$")


def row_type(columns: tuple[Column, ...]) -> type[Row]:
    """Make the type of a row: a slot `f<n>` for each column, None where the record has none."""
    fields = [
        (f"f{index}", _wire(column.type), msgspec.field(name=column.name, default=None))
        for index, column in enumerate(columns)
    ]
    return msgspec.defstruct("Row", fields, gc=False)


def _wire(type: ColumnType) -> Any:
    """Return the Python type that msgspec decodes a column into; Raw where the text itself is wanted."""
    match type:
        case Decimal() | Scalar(Kind.JSON):
            return msgspec.Raw
        case Scalar(kind):
            return _WIRE[kind] | None
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
        """Build the type of the rows; a name that msgspec refuses is a ValueError."""
        self.row = row_type(columns)
        self.blank = self.row()
        self._decode: Callable[[bytes], Row] = msgspec.json.Decoder(self.row).decode

    def read(self, values: pa.BinaryArray) -> Iterator[tuple[int, list[Row], Faults]]:
        """Yield by chunk: the index of its first payload, a row for each, and causes by index in the chunk.

        The row of a payload that is not valid is blank, and has a cause.
        The caller drops a chunk's rows before it asks for the next: their memory is used again at once.
        """
        for start in range(0, len(values), LOOKED_AT):
            looked_at = values.slice(start, LOOKED_AT)
            if looked_at.null_count:
                looked_at = looked_at.fill_null(BLANK)
            unfit = _unfit(looked_at)
            for at in range(0, len(looked_at), CHUNK):
                here = {index - at: cause for index, cause in unfit.items() if at <= index < at + CHUNK}
                yield start + at, *self._rows(looked_at.slice(at, CHUNK), here)

    def _rows(self, values: pa.BinaryArray, faults: Faults) -> tuple[list[Row], Faults]:
        payloads: list[bytes] = values.to_numpy(zero_copy_only=False).tolist()
        for index in faults:
            payloads[index] = BLANK
        rows: list[Row] = []
        decoded = map(self._decode, payloads)
        while len(rows) < len(payloads):
            try:
                # keeps the rows before the payload that fails, and takes a tenth of the time of a loop
                rows.extend(decoded)
            except (msgspec.MsgspecError, ValueError) as wrong:
                faults[len(rows)] = cause_of(wrong)
                rows.append(self.blank)
        return rows, faults


def _unfit(values: pa.BinaryArray) -> Faults:
    """Find the payloads that are invalid without being decoded."""
    faults = Faults()
    if not _all_utf8(values):
        faults |= {index: NOT_UTF8 for index, payload in enumerate(values) if not _utf8(payload.as_py())}
    for index in _many_brackets(values):
        if index not in faults and nesting(values[index].as_py()) > MAX_NESTING:
            faults[index] = TOO_DEEP
    return faults


def cause_of(wrong: Exception) -> str:
    """Return msgspec's sentence without positions, so that the same fault reads the same."""
    sentence = _POSITION.sub("", str(wrong))
    if sentence == "Input data was truncated":
        return "Malformed JSON: truncated"
    if isinstance(wrong, msgspec.MsgspecError):
        return sentence.replace("JSON is malformed", "Malformed JSON", 1)
    return f"Malformed JSON: {type(wrong).__name__}"


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
    """Count the deepest level of objects and arrays; brackets inside strings do not count."""
    deepest = level = 0
    for bracket in _BRACKET.finditer(_STRING.sub(b"", payload)):
        level += 1 if bracket[0] in b"[{" else -1
        deepest = max(deepest, level)
    return deepest


def _many_brackets(values: pa.BinaryArray) -> Iterator[int]:
    """Find the values with so many opening brackets that they may nest too deep, and perhaps some more.

    `[` and `{` are the two bytes that become `{` when bit 5 is set. They are counted by words of 64 bytes;
    a word counts whole even where a value begins or ends within it.
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
