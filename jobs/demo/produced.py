"""What was produced, as its producer states it: the one thing that the oracle believes.

Relies on pyarrow to keep the statement in one file, so that another process can judge by it.
Never computed by the job's own decoder or verdict rule: the producer states what its record is.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq


class Produced(NamedTuple):
    """One record as Kafka took it; instants are microseconds since 1970, UTC.

    `event_time`, `order_id` and `amount` are what the lake must show, and None where the record is not valid;
    `value_crc` is the CRC-32 of its value, None for a tombstone.
    """

    partition: int
    offset: int
    kind: str
    valid: bool
    kafka_timestamp: int
    event_time: int | None
    order_id: str | None
    amount: float | None
    value_crc: int | None


FIELDS: Final[list[pa.Field[Any]]] = [
    pa.field("partition", pa.int32(), nullable=False),
    pa.field("offset", pa.int64(), nullable=False),
    pa.field("kind", pa.string(), nullable=False),
    pa.field("valid", pa.bool_(), nullable=False),
    pa.field("kafka_timestamp", pa.int64(), nullable=False),
    pa.field("event_time", pa.int64()),
    pa.field("order_id", pa.string()),
    pa.field("amount", pa.float64()),
    pa.field("value_crc", pa.int64()),
]
SCHEMA: Final = pa.schema(FIELDS)


def write_truth(path: Path, records: Iterable[Produced]) -> None:
    """Write the statement to one Parquet file."""
    columns = list(zip(*records, strict=True)) or [()] * len(SCHEMA)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    pq.write_table(pa.Table.from_arrays(arrays, schema=SCHEMA), path, compression="zstd")


def read_truth(path: Path) -> list[Produced]:
    """Read a statement back."""
    columns = pq.ParquetFile(path).read().to_pydict()
    return [Produced(*row) for row in zip(*(columns[name] for name in SCHEMA.names), strict=True)]
