"""Records whose stamps Spark cannot take, settled here by the second client.

Spark's Kafka source counts microseconds in an int64: one record that a producer stamped in nanoseconds
overflows it, and every job that reads this record fails. Relies on a TopicReader and on the task's own
`run_task`. Never settles more of a partition than from its first such record to its last.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain

import pyarrow as pa
import structlog

from jobs.record.schema import HEADERS, INSTANT
from jobs.task.batch_limit import BATCH_BYTES, BATCH_ROWS
from jobs.task.result import TaskResult
from jobs.task.task import TaskSpec, run_task
from offsets.day_plan import DayPlan, Span
from offsets.instants import LAST_STAMP
from offsets.kafka.reader import FullRecord, Headers, TopicReader
from offsets.ranges import Offsets, Range

log = structlog.get_logger(__name__)
OVERFLOW = "long overflow"
"""Java's message for what such a record does to its arithmetic."""
OFTEN = 100_000
"""Progress is reported each time after so many records."""


def find_stretches(
    reader: TopicReader, plan: DayPlan, progress: Callable[[int, int], None]
) -> dict[int, Range]:
    """Find where, in each partition, records lie that Spark cannot take: from the first to past the last."""
    log.info("looking for timestamps that Spark cannot take", day=str(plan.day.date), offsets=plan.offsets)
    stretches: dict[int, Range] = {}
    looked = 0
    for span in plan.spans:
        for record in _records(reader, plan.topic.name, span):
            looked += 1
            if abs(record.timestamp) > LAST_STAMP:
                first, _ = stretches.get(span.partition, (record.offset, 0))
                stretches[span.partition] = (first, record.offset + 1)
            if looked % OFTEN == 0:
                progress(looked, plan.offsets)
    for partition, (from_, until) in stretches.items():
        log.warning(
            "Spark cannot take these timestamps: read without it",
            partition=partition,
            from_=from_,
            until=until,
        )
    return stretches


def rest_of(plan: DayPlan, stretches: Mapping[int, Range]) -> dict[int, Offsets]:
    """Return what is left of a plan's reads."""
    return {
        span.partition: span.reads - Offsets.between(*stretches.get(span.partition, (0, 0)))
        for span in plan.spans
    }


def settle_stretches(
    reader: TopicReader, plan: DayPlan, stretches: Mapping[int, Range], spec: TaskSpec
) -> TaskResult:
    """Settle the stretches in this process, as one task attempt."""
    headers = "headers" in spec.rules.kafka_columns
    sent = chain.from_iterable(
        batches(reader, plan.topic.name, span.partition, range_, headers=headers)
        for span in plan.spans
        if span.partition in stretches
        for range_ in span.reads & Offsets.between(*stretches[span.partition])
    )
    return run_task(spec, f"here-{secrets.token_hex(4)}", sent)


def batches(
    reader: TopicReader, topic: str, partition: int, range_: Range, *, headers: bool
) -> Iterator[pa.RecordBatch]:
    """Read a range as Spark's source would deliver it, in batches of bounded rows and bytes."""
    some: list[FullRecord] = []
    size = 0
    for record in reader.stream(topic, partition, *range_, headers=headers):
        some.append(record)
        size += len(record.key or b"") + len(record.value or b"")
        if len(some) >= BATCH_ROWS or size >= BATCH_BYTES:
            yield batch_of(partition, some, headers=headers)
            some, size = [], 0
    if some:
        yield batch_of(partition, some, headers=headers)


def batch_of(partition: int, records: Sequence[FullRecord], *, headers: bool) -> pa.RecordBatch:
    """Make a batch of records, at least one, as Spark's Kafka source delivers it."""
    offsets, stamps, keys, values, more = zip(*records, strict=True)
    # still out of all years, as the task must see them, and within an int64 of microseconds
    micros = [max(-LAST_STAMP - 1, min(stamp, LAST_STAMP + 1)) * 1000 for stamp in stamps]
    columns = {
        "partition": pa.array([partition] * len(records), pa.int32()),
        "offset": pa.array(offsets, pa.int64()),
        "timestamp": pa.array(micros, pa.int64()).cast(INSTANT),
        "key": pa.array(keys, pa.binary()),
        "value": pa.array(values, pa.binary()),
    }
    if headers:
        columns["headers"] = pa.array([_headers(each) for each in more], HEADERS)
    return pa.RecordBatch.from_pydict(columns)


def _headers(headers: Headers) -> list[dict[str, object]] | None:
    """Return them as Spark does, which has null where there are none."""
    return [{"key": key, "value": value} for key, value in headers] or None


def _records(reader: TopicReader, topic: str, span: Span) -> Iterator[FullRecord]:
    return chain.from_iterable(reader.stream(topic, span.partition, *range_) for range_ in span.reads)
