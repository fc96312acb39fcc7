"""Settle records whose timestamps overflow in Spark, in this process, by the second client.

Spark's Kafka source counts microseconds in an int64: one record that a producer stamped in nanoseconds
overflows it, and every job that reads this record fails. Relies on a TopicReader and on `run_task`. Never
settles more of a partition than from its first such record to its last.
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
from offsets.errors import RunFailed
from offsets.instants import LAST_STAMP
from offsets.kafka.reader import FullRecord, Headers, TopicReader
from offsets.ranges import Offsets, Range

log = structlog.get_logger(__name__)
OVERFLOW = "long overflow"
"""Java's message for the overflow."""
PROGRESS_INTERVAL = 100_000
"""Progress is reported after each this many records."""


def run_around_stretches(
    run: Callable[[Mapping[int, Offsets]], list[TaskResult]],
    reader: TopicReader,
    plan: DayPlan,
    spec: TaskSpec,
    progress: Callable[[int, int], None],
) -> list[TaskResult]:
    """Run a plan's tasks; settle in this process what Spark cannot read, and run them on the rest."""
    try:
        return run({span.partition: span.reads for span in plan.spans})
    except RunFailed as failed:
        # the search reads the whole day again, so it is made only after the error that such records cause
        stretches = find_stretches(reader, plan, progress) if OVERFLOW in failed.found else {}
        if not stretches:
            raise
    rest = {span.partition: span.reads - stretches.get(span.partition, Offsets()) for span in plan.spans}
    results = run(rest) if any(map(len, rest.values())) else []
    return [*results, settle_stretches(reader, plan, stretches, spec)]


def find_stretches(
    reader: TopicReader, plan: DayPlan, progress: Callable[[int, int], None]
) -> dict[int, Offsets]:
    """Find the range, in each partition, from the first record that Spark cannot read to after the last."""
    log.info("looking for timestamps that Spark cannot take", day=str(plan.day.date), offsets=plan.offsets)
    stretches: dict[int, Range] = {}
    scanned = 0
    for span in plan.spans:
        for record in _records(reader, plan.topic.name, span):
            scanned += 1
            if abs(record.timestamp) > LAST_STAMP:
                first, _ = stretches.get(span.partition, (record.offset, 0))
                stretches[span.partition] = (first, record.offset + 1)
            if scanned % PROGRESS_INTERVAL == 0:
                progress(scanned, plan.offsets)
    for partition, (from_, until) in stretches.items():
        log.warning(
            "Spark cannot take these timestamps: read without it",
            partition=partition,
            from_=from_,
            until=until,
        )
    return {partition: Offsets.between(*stretch) for partition, stretch in stretches.items()}


def settle_stretches(
    reader: TopicReader, plan: DayPlan, stretches: Mapping[int, Offsets], spec: TaskSpec
) -> TaskResult:
    """Settle the stretches in this process, as one attempt of a task."""
    headers = "headers" in spec.rules.kafka_columns
    settled_batches = chain.from_iterable(
        batches(reader, plan.topic.name, span.partition, range_, headers=headers)
        for span in plan.spans
        if span.partition in stretches
        for range_ in span.reads & stretches[span.partition]
    )
    return run_task(spec, f"here-{secrets.token_hex(4)}", settled_batches)


def batches(
    reader: TopicReader, topic: str, partition: int, range_: Range, *, headers: bool
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a range in batches of bounded rows and bytes, as Spark's source delivers them."""
    records: list[FullRecord] = []
    size = 0
    for record in reader.stream(topic, partition, *range_, headers=headers):
        records.append(record)
        size += len(record.key or b"") + len(record.value or b"")
        if len(records) >= BATCH_ROWS or size >= BATCH_BYTES:
            yield batch_of(partition, records, headers=headers)
            records, size = [], 0
    if records:
        yield batch_of(partition, records, headers=headers)


def batch_of(partition: int, records: Sequence[FullRecord], *, headers: bool) -> pa.RecordBatch:
    """Return a batch of at least one record, as Spark's Kafka source delivers it."""
    offsets, stamps, keys, values, more = zip(*records, strict=True)
    # too large for any date, as the task must see them, but small enough for an int64 of microseconds
    micros = [max(-LAST_STAMP - 1, min(stamp, LAST_STAMP + 1)) * 1000 for stamp in stamps]
    columns = {
        "partition": pa.array([partition] * len(records), pa.int32()),
        "offset": pa.array(offsets, pa.int64()),
        "timestamp": pa.array(micros, pa.int64()).cast(INSTANT),
        "key": pa.array(keys, pa.binary()),
        "value": pa.array(values, pa.binary()),
    }
    if headers:
        columns["headers"] = pa.array([_headers(pairs) for pairs in more], HEADERS)
    return pa.RecordBatch.from_pydict(columns)


def _headers(headers: Headers) -> list[dict[str, object]] | None:
    """Return the headers as Spark does; Spark returns null if there are none."""
    return [{"key": key, "value": value} for key, value in headers] or None


def _records(reader: TopicReader, topic: str, span: Span) -> Iterator[FullRecord]:
    return chain.from_iterable(reader.stream(topic, span.partition, *range_) for range_ in span.reads)
