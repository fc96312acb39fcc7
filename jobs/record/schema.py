"""The Arrow schemas of the files that a run writes, from the rules.

Relies on the column types only; the order of a schema's fields is the order of the columns in a file.
Never adds Kafka's key or headers where the rules do not ask for them.
"""

from __future__ import annotations

from typing import assert_never

import pyarrow as pa

from jobs.record.columns import Array, ColumnType, Decimal, Kind, Map, Scalar, Struct
from jobs.record.rules import RecordFormat, Rules

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
            return pa.struct([pa.field(field.name, arrow_type(field.type)) for field in fields])
        case _:
            assert_never(type)


def record_schema(rules: Rules) -> pa.Schema:
    """Return the record's own columns, all nullable; a raw record has one, its value."""
    match rules.format:
        case RecordFormat.RAW:
            return pa.schema([pa.field("value", pa.binary())])
        case RecordFormat.JSON:
            return pa.schema([pa.field(column.name, arrow_type(column.type)) for column in rules.columns])
        case _:
            assert_never(rules.format)


def day_schema(rules: Rules) -> pa.Schema:
    """Return the columns of a day's files: when and where, what Kafka says, then the record's own."""
    kafka = {"key": pa.field("kafka_key", pa.binary()), "headers": pa.field("kafka_headers", HEADERS)}
    return pa.schema(
        [
            pa.field("event_time", INSTANT, nullable=False),
            pa.field("kafka_partition", pa.int32(), nullable=False),
            pa.field("kafka_offset", pa.int64(), nullable=False),
            pa.field("kafka_timestamp", INSTANT, nullable=False),
            *[field for name, field in kafka.items() if name in rules.kafka_columns],
            *record_schema(rules),
        ]
    )
