"""What a good engineer writes by hand for a day: confluent-kafka, msgspec, pyarrow, two processes.

As strict as the job about each record: UTF-8 everywhere, types, int64, nesting, event time without rounding,
validity window. Rows of the day, late rows and invalid rows are each in Parquet of their own, fsynced, then
one rename.
It has no checkpoint, no audit, no manifest, no proof that the day is over, and no answer to a crash.
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import os
import re
import signal
import sys
import time
from datetime import datetime
from multiprocessing.pool import Pool
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from confluent_kafka import Consumer, Message, TopicPartition

BATCH = 20_000
LEFT_OPEN: list[Consumer] = []  # closing takes time and gives nothing: there is no group
ROW_GROUP = 64 << 20
NESTING = 64
PAST_US, FUTURE_US = 30 * 86_400_000_000, 86_400_000_000
USUAL = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$"
RFC3339 = re.compile(r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:\.(\d+))?([Zz]|[+-]\d\d:\d\d)?", re.ASCII)
INSTANT = pa.timestamp("us", "UTC")

Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class Address(msgspec.Struct, gc=False):
    """The record's nested column."""

    city: str | None = None
    zip: str | None = None


class Order(msgspec.Struct, gc=False):
    """The record's columns, and its event time as text."""

    order_id: str | None = None
    customer: str | None = None
    amount: float | None = None
    items: Int64 | None = None
    paid: bool | None = None
    tags: list[str | None] | None = None
    address: Address | None = None
    status: str | None = None
    note: str | None = None
    created_at: str | None = None


COLUMNS: list[pa.Field[Any]] = [
    pa.field("order_id", pa.string()),
    pa.field("customer", pa.string()),
    pa.field("amount", pa.float64()),
    pa.field("items", pa.int64()),
    pa.field("paid", pa.bool_()),
    pa.field("tags", pa.list_(pa.string())),
    pa.field("address", pa.struct([("city", pa.string()), ("zip", pa.string())])),
    pa.field("status", pa.string()),
    pa.field("note", pa.string()),
]
COORDINATE: list[pa.Field[Any]] = [
    pa.field("event_time", INSTANT, nullable=False),
    pa.field("kafka_partition", pa.int32(), nullable=False),
    pa.field("kafka_offset", pa.int64(), nullable=False),
    pa.field("kafka_timestamp", INSTANT, nullable=False),
]
ROWS = pa.schema([*COORDINATE, *COLUMNS])
INVALID = pa.schema(
    [
        *COORDINATE[1:],
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("cause", pa.string()),
    ]
)


class Work(NamedTuple):
    """What one process reads, and where it writes."""

    bootstrap_servers: str
    topic: str
    spans: list[tuple[int, int, int]]
    start_us: int
    end_us: int
    folder: Path


class Done(NamedTuple):
    """What one process did; instants are of the machine's monotonic clock."""

    started: float
    rows: int
    late: int
    invalid: int
    elsewhere: int


class Writer:
    """One Parquet file, written in row groups; made only once there are rows."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._path, self._schema = path, schema
        self._file: Any = None
        self._writer: pq.ParquetWriter | None = None
        self._waiting: list[pa.RecordBatch] = []
        self._bytes = 0
        self.rows = 0

    def add(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        self.rows += batch.num_rows
        self._waiting.append(batch)
        self._bytes += batch.nbytes
        if self._bytes >= ROW_GROUP:
            self._flush()

    def close(self) -> None:
        if self._waiting:
            self._flush()
        if self._writer:
            self._writer.close()
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()

    def _flush(self) -> None:
        if self._writer is None:
            self._file = self._path.open("xb", buffering=0)
            texts = [field.name for field in self._schema if pa.types.is_string(field.type)]
            nested = ["tags.list.element", "address.city", "address.zip", "paid", "items", "amount"]
            self._writer = pq.ParquetWriter(
                self._file,
                self._schema,
                compression="zstd",
                compression_level=1,
                use_dictionary=[*texts, *nested],
                write_page_index=True,
            )
        self._writer.write_table(pa.Table.from_batches(self._waiting, self._schema))
        self._waiting, self._bytes = [], 0


def read_span(work: Work, number: int) -> Done:
    """Read, judge and write the spans of one process."""
    gc.disable()
    consumer = Consumer(
        {
            "bootstrap.servers": work.bootstrap_servers,
            "group.id": "by-hand",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            "fetch.queue.backoff.ms": 5,
            "fetch.max.bytes": 64 << 20,
            "max.partition.fetch.bytes": 8 << 20,
            "queued.min.messages": 200_000,
            "queued.max.messages.kbytes": 262_144,
            "socket.receive.buffer.bytes": 1 << 20,
            "check.crcs": False,
        }
    )
    until = {partition: until for partition, _, until in work.spans}
    left = {partition: until - from_ for partition, from_, until in work.spans}
    sinks = {
        "rows": Writer(work.folder / f"part-{number}.parquet", ROWS),
        "late": Writer(work.folder / "_late" / f"late-{number}.parquet", ROWS),
        "invalid": Writer(work.folder / "_invalid" / f"invalid-{number}.parquet", INVALID),
    }
    judge = Judge(work, sinks)
    started = time.monotonic()
    consumer.assign([TopicPartition(work.topic, partition, from_) for partition, from_, _ in work.spans])
    while sum(left.values()):
        messages = consumer.consume(BATCH, 0.2)
        by_partition: dict[int, list[Message]] = {}
        # the library's types let every part of a message be None; in one without an error, none is
        for message in messages:
            if message.error():
                raise RuntimeError(message.error())
            by_partition.setdefault(message.partition(), []).append(message)  # type: ignore[arg-type]
        for partition, some in by_partition.items():
            if some[-1].offset() >= until[partition] - 1:  # type: ignore[operator]
                some = [one for one in some if one.offset() < until[partition]]  # type: ignore[operator]
                consumer.incremental_unassign([TopicPartition(work.topic, partition)])
                left[partition] = len(some)
            left[partition] -= len(some)
            if some:
                judge.take(partition, some)
    for sink in sinks.values():
        sink.close()
    LEFT_OPEN.append(consumer)
    return Done(started, sinks["rows"].rows, sinks["late"].rows, sinks["invalid"].rows, judge.elsewhere)


class Judge:
    """Decodes messages and puts each row where it belongs."""

    def __init__(self, work: Work, sinks: dict[str, Writer]) -> None:
        self._work, self._sinks = work, sinks
        self._decoder = msgspec.json.Decoder(Order)
        self.elsewhere = 0

    def take(self, partition: int, messages: list[Message]) -> None:
        decode, astuple = self._decoder.decode, msgspec.structs.astuple
        rows: list[tuple[Any, ...]] = []
        offsets: list[int] = []
        stamps: list[int] = []
        # as above; and a value that is None is a TypeError below
        for message in messages:
            value = message.value()
            try:
                text = str(value, "utf-8")  # type: ignore[arg-type]
                if text.count("[") + text.count("{") > NESTING and _depth(text) > NESTING:
                    raise ValueError("nested too deeply")
                order = decode(text)
                if order.created_at is None:
                    raise ValueError("no event time")
            except (ValueError, TypeError, RecursionError) as error:
                self._reject(partition, message, str(error))
                continue
            if (address := order.address) is not None:
                # Arrow takes a tuple for a struct
                order.address = astuple(address)  # type: ignore[assignment]
            rows.append(astuple(order))
            offsets.append(message.offset())  # type: ignore[arg-type]
            stamps.append(message.timestamp()[1])
        if not rows:
            return
        *columns, texts = zip(*rows, strict=True)
        event_us = _event_times(texts)
        stamp = pc.multiply(pa.array(stamps, pa.int64()), 1000)
        batch = pa.RecordBatch.from_arrays(
            [
                event_us.cast(INSTANT),
                pa.repeat(pa.scalar(partition, pa.int32()), len(rows)),
                pa.array(offsets, pa.int64()),
                stamp.cast(INSTANT),
                *(pa.array(column, field.type) for column, field in zip(columns, COLUMNS, strict=True)),
            ],
            schema=pa.schema([COORDINATE[0].with_nullable(True), *list(ROWS)[1:]]),
        )
        valid = pc.and_(
            pc.greater_equal(event_us, pc.subtract(stamp, PAST_US)),
            pc.less_equal(event_us, pc.add(stamp, FUTURE_US)),
        ).fill_null(False)
        if not pc.all(valid).as_py():
            wanted = set(pc.filter(batch["kafka_offset"], pc.invert(valid)).to_pylist())
            for message in messages:
                if message.offset() in wanted:
                    self._reject(partition, message, "no event time, or beyond validity")
            batch, event_us = batch.filter(valid), event_us.filter(valid)
        before = pc.less(event_us, self._work.start_us)
        after = pc.greater_equal(event_us, self._work.end_us)
        if pc.any(before).as_py():
            self._sinks["late"].add(batch.filter(before).cast(ROWS))
        other = pc.or_(before, after)
        if pc.any(other).as_py():
            self.elsewhere += pc.sum(after).as_py()
            batch = batch.filter(pc.invert(other))
        self._sinks["rows"].add(batch.cast(ROWS))

    def _reject(self, partition: int, message: Message, cause: str) -> None:
        row = {
            "kafka_partition": [partition],
            "kafka_offset": [message.offset()],
            "kafka_timestamp": pa.array([message.timestamp()[1] * 1000], pa.int64()).cast(INSTANT),
            "key": [message.key()],
            "value": [message.value()],
            "cause": [cause],
        }
        self._sinks["invalid"].add(pa.RecordBatch.from_pydict(row, schema=INVALID))


def _event_times(texts: tuple[str, ...]) -> pa.Array:
    """Give microseconds; the usual form all at once, anything else one by one, None where it is no time."""
    array = pa.array(texts, pa.string())
    if pc.all(pc.match_substring_regex(array, USUAL)).as_py():
        try:
            return array.cast(INSTANT).cast(pa.int64())
        except pa.ArrowInvalid:
            pass
    return pa.array([_event_time(text) for text in texts], pa.int64())


def _event_time(text: str) -> int | None:
    match = RFC3339.fullmatch(text)
    if not match:
        return None
    day, clock, fraction, zone = match.groups()
    zone = "+00:00" if zone in (None, "Z", "z") else zone
    try:
        at = datetime.fromisoformat(f"{day}T{clock}{zone}")
        whole = int(at.timestamp())
    except (ValueError, OverflowError):
        return None
    return whole * 1_000_000 + int((fraction or "0")[:6].ljust(6, "0"))


def _depth(text: str) -> int:
    depth = deepest = 0
    for part in re.findall(r'"(?:[^"\\]|\\.)*"|[\[{]|[\]}]', text):
        depth += (part in "[{") - (part in "]}")
        deepest = max(deepest, depth)
    return deepest


def run(
    pool: Pool,
    bootstrap_servers: str,
    topic: str,
    given: dict[str, Any],
    lake: Path,
) -> dict[str, object]:
    """Settle one day into a folder of the lake; seconds count from the first consume to the rename."""
    start, end = datetime.fromisoformat(given["start"]), datetime.fromisoformat(given["end"])
    staging, day = lake / "_staging", lake / f"day={given['day']}"
    for folder in (staging, staging / "_late", staging / "_invalid"):
        folder.mkdir(parents=True)
    micros = [round(instant.timestamp()) * 1_000_000 for instant in (start, end)]
    spans = [(partition, from_, until) for partition, from_, until in given["spans"]]
    shares = [
        Work(bootstrap_servers, topic, spans[number::2], micros[0], micros[1], staging) for number in range(2)
    ]
    done = pool.starmap(read_span, [(share, number) for number, share in enumerate(shares)], chunksize=1)
    for folder in (staging / "_late", staging / "_invalid", staging):
        _sync(folder)
    staging.rename(day)
    _sync(lake)
    ended = time.monotonic()
    return {
        "seconds": round(ended - min(part.started for part in done), 3),
        "rows": sum(part.rows for part in done),
        "late": sum(part.late for part in done),
        "invalid": sum(part.invalid for part in done),
        "elsewhere": sum(part.elsewhere for part in done),
        "bytes": sum(path.stat().st_size for path in day.glob("*.parquet")),
    }


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def main() -> None:
    """Run the days that a JSON document on the command line describes, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--topic", default="bench")
    parser.add_argument(
        "--days", required=True, help="[{day, start, end, spans: [[partition, from, until]]}]"
    )
    parser.add_argument("--lake", type=Path, required=True)
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        days = [
            run(pool, given.bootstrap_servers, given.topic, day, given.lake) for day in json.loads(given.days)
        ]
    print(json.dumps({"days": days}))


if __name__ == "__main__":
    main()
