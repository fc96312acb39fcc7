"""Rows of a file, and bytes that compress or do not."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pyarrow as pa

from jobs.record.schema import INSTANT

SCHEMA = pa.schema(
    [
        pa.field("event_time", INSTANT, nullable=False),
        pa.field("kafka_partition", pa.int32(), nullable=False),
        pa.field("kafka_offset", pa.int64(), nullable=False),
        pa.field("value", pa.binary()),
    ]
)
ORIGIN = {"topic": "orders", "day": "2026-03-28", "run": "r1"}
KIB, MIB = 1 << 10, 1 << 20
SEED = random.Random(7)


def batch(first: int, values: Sequence[bytes | None], partition: int = 0) -> pa.RecordBatch:
    rows = len(values)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(range(first, first + rows), pa.int64()).cast(INSTANT),
            pa.array([partition] * rows, pa.int32()),
            pa.array(range(first, first + rows), pa.int64()),
            pa.array(values, pa.binary()),
        ],
        schema=SCHEMA,
    )


def noise(size: int) -> bytes:
    return SEED.randbytes(size)
