"""The Arrow types of columns, and the schema of a file of invalid records.

Relies on the column types only; the order of a schema's fields is the order of the columns in a file.
"""

from __future__ import annotations

from typing import assert_never

import pyarrow as pa

from jobs.record.columns import Array, Column, ColumnType, Decimal, Kind, Map, Scalar, Struct

INSTANT = pa.timestamp("us", tz="UTC")
HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))

_SCALARS: dict[Kind, pa.DataType] = {
    Kind.STRING: pa.string(),
    Kind.BOOLEAN: pa.bool_(),
    Kind.INT: pa.int32(),
    Kind.BIGINT: pa.int64(),
    Kind.FLOAT: pa.float32(),
    Kind.DOUBLE: pa.float64(),
    Kind.DATE: pa.date32(),
    Kind.TIMESTAMP: INSTANT,
    Kind.BINARY: pa.binary(),
    Kind.JSON: pa.string(),
}

INVALID_SCHEMA: pa.Schema = pa.schema(
    [
        pa.field("kafka_partition", pa.int32(), nullable=False),
        pa.field("kafka_offset", pa.int64(), nullable=False),
        pa.field("kafka_timestamp", INSTANT),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS),
        pa.field("cause", pa.string(), nullable=False),
    ]
)


def arrow_type(type: ColumnType) -> pa.DataType:
    """Return the Arrow type that holds a column's values."""
    match type:
        case Scalar(kind):
            return _SCALARS[kind]
        case Decimal(precision, scale):
            return pa.decimal128(precision, scale)
        case Array(element):
            return pa.list_(arrow_type(element))
        case Map(value):
            return pa.map_(pa.string(), arrow_type(value))
        case Struct(fields):
            return pa.struct(columns_schema(fields))
        case _:
            assert_never(type)


def columns_schema(columns: tuple[Column, ...]) -> pa.Schema:
    """Return the Arrow fields of columns, all nullable."""
    return pa.schema([pa.field(column.name, arrow_type(column.type)) for column in columns])
