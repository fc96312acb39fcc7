"""The columns of a day's files, and of late files, which hold those of two days.

Imports Arrow only where a schema is made of them, since `plan` tells columns too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from jobs.record.columns import Array, Column, Kind, Scalar, Struct, as_stored, ddl, parse_type
from jobs.record.formats import DECODERS
from jobs.record.rules import Rules, rules_of
from offsets.columns import Columns, FileColumn, joined_columns
from offsets.contract import Contract

if TYPE_CHECKING:
    import pyarrow as pa

ALWAYS: Final = (
    Column("event_time", Scalar(Kind.TIMESTAMP)),
    Column("kafka_partition", Scalar(Kind.INT)),
    Column("kafka_offset", Scalar(Kind.BIGINT)),
    Column("kafka_timestamp", Scalar(Kind.TIMESTAMP)),
)
"""The columns that each row of a day has; none of them is ever null."""
NEVER_NULL: Final = frozenset(column.name for column in ALWAYS)
_HEADER = Struct((Column("key", Scalar(Kind.STRING)), Column("value", Scalar(Kind.BINARY))))
_KAFKA: Final = {
    "key": Column("kafka_key", Scalar(Kind.BINARY)),
    "headers": Column("kafka_headers", Array(_HEADER)),
}


def day_columns(rules: Rules) -> Columns:
    """Return the columns of a day's files: event time, coordinate, Kafka's, the record's own, its key's."""
    kafka = (column for name, column in _KAFKA.items() if name in rules.kafka_columns)
    columns = (*ALWAYS, *kafka, *DECODERS[rules.format].columns(rules), *rules.key.columns)
    return tuple(FileColumn(name=column.name, type=ddl(as_stored(column.type))) for column in columns)


def columns_by_contract(contract: Contract) -> Columns:
    """Return the columns of a day that was settled under a contract.

    Raises:
        ValueError: another decoder made it, or it lacks a term.
    """
    try:
        return day_columns(rules_of(contract))
    except (KeyError, TypeError) as error:
        raise ValueError(f"a contract without {error}") from error


def file_schema(columns: Columns) -> pa.Schema:
    """Return the Arrow schema of files with some columns."""
    import pyarrow as pa

    from jobs.record.schema import arrow_type

    return pa.schema(
        [
            pa.field(column.name, arrow_type(parse_type(column.type)), column.name not in NEVER_NULL)
            for column in columns
        ]
    )


def late_schema(of_day: Columns, rules: Rules) -> pa.Schema:
    """Return the Arrow schema of late files of a day, whose own files have other columns than today's."""
    return file_schema(joined_columns(of_day, day_columns(rules)))


def with_columns_of(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows with the columns of a schema, which holds all of theirs; others are null."""
    import pyarrow as pa

    index = {name.casefold(): number for number, name in enumerate(rows.column_names)}
    columns = [
        rows.column(index[field.name.casefold()])
        if field.name.casefold() in index
        else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)
